"""Which GPUs NVLinks join: what ``nvidia-smi topo -m`` prints, or NCCL's topology file in XML.

``nvidia-smi topo -m``: a table with a head ``GPU0 GPU1 ...`` and a row for each GPU; ``NV#`` says how many NVLinks join
two, ``X`` is the GPU itself, and SYS, NODE, PHB, PXB, PIX are ways without NVLink. NCCL's XML (NCCL_TOPO_DUMP_FILE):
``<gpu><nvlink target="BUS ID" count="#"/></gpu>`` within ``<pci busid="BUS ID">``; class 0x068000 of a target is an
NVSwitch.
"""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree
from functools import lru_cache

import numpy as np

_WAYS = ("X", "SYS", "NODE", "PHB", "PXB", "PIX", "N/A")
_CONTROL = re.compile(r"\x1b\[[0-9;]*m")
_SWITCH_CLASS = "0x068000"


@lru_cache(maxsize=64)
def lanes_of(text: str) -> np.ndarray:
    """int64[GPUs, GPUs]: NVLinks from each GPU to each other one, read-only. Raises ValueError for what is no
    such text."""
    lanes = _of_xml(text) if text.lstrip().startswith("<") else _of_table(text)
    lanes.flags.writeable = False
    return lanes


def _of_table(text: str) -> np.ndarray:
    lines = [_CONTROL.sub("", line).split() for line in text.splitlines()]
    lines = [line for line in lines if line and re.fullmatch(r"GPU\d+", line[0])]
    head = next((line for line in lines if len(line) == 1 or re.fullmatch(r"GPU\d+", line[1])), None)
    if head is None:
        raise ValueError("topology: no head 'GPU0 GPU1 ...'; give what `nvidia-smi topo -m` prints")
    names = [word for word in head if re.fullmatch(r"GPU\d+", word)]
    lanes = np.zeros((len(names), len(names)), np.int64)
    rows = {line[0]: line[1:] for line in lines if line is not head}
    for row, name in enumerate(names):
        words = rows.get(name, [])
        if len(words) < len(names):
            raise ValueError(f"topology: the row of {name} has {len(words)} of {len(names)} columns")
        for column, word in enumerate(words[: len(names)]):
            if re.fullmatch(r"NV\d+", word):
                lanes[row, column] = int(word[2:])
            elif word not in _WAYS or (word == "X") != (row == column):
                raise ValueError(f"topology: {word!r} in the row of {name}; NV#, SYS, NODE, PHB, PXB or PIX are known")
    return _checked(lanes, names)


def _of_xml(text: str) -> np.ndarray:
    if "<!DOCTYPE" in text or "<!ENTITY" in text:
        raise ValueError("topology: XML with declarations of its own is not read; NCCL writes none")
    try:
        root = ElementTree.fromstring(text)
    except ElementTree.ParseError as error:
        raise ValueError(f"topology: no XML: {error}") from None
    gpus = [(pci.get("busid", "").lower(), pci) for pci in root.iter("pci") if _is_gpu(pci)]
    gpus.sort(key=lambda each: _rank(each[1]))
    place = {bus: number for number, (bus, _) in enumerate(gpus)}
    lanes = np.zeros((len(gpus), len(gpus)), np.int64)
    num_switched = 0
    for bus, pci in gpus:
        for link in pci.iter("nvlink"):
            target, count = link.get("target", "").lower(), link.get("count", "1")
            if not count.isdigit():
                raise ValueError(f"topology: an nvlink of {bus} has count={count!r}; give a number")
            if target in place:
                lanes[place[bus], place[target]] += int(count)
            num_switched += link.get("tclass", "") == _SWITCH_CLASS
    if num_switched:
        raise ValueError("topology: the GPUs are on NVSwitches; write nvlink: {kind: switch, links: ...}")
    if not lanes.any():
        raise ValueError("topology: no <nvlink> between its GPUs (files that only list PCI have none)")
    return _checked(lanes, [bus for bus, _ in gpus])


def _is_gpu(pci: ElementTree.Element) -> bool:
    return pci.get("class", "").lower() in ("0x030200", "0x030000") or pci.find("gpu") is not None


def _rank(pci: ElementTree.Element) -> int:
    """The GPU's number where the file tells it; else the order in the file stays."""
    gpu = pci.find("gpu")
    text = "" if gpu is None else gpu.get("dev", gpu.get("rank", ""))
    return int(text) if text.isdigit() else 0


def _checked(lanes: np.ndarray, names: list[str]) -> np.ndarray:
    uneven = np.argwhere(lanes != lanes.T)
    if len(uneven):
        one, other = (names[place] for place in uneven[0])
        raise ValueError(f"topology: {one} and {other} have other numbers of NVLinks one way than the other")
    return lanes

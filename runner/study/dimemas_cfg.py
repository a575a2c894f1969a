"""Dimemas configurations (.cfg) read as target machines: the mapping of keys that a machine's YAML file has.

Source: bsc-performance-tools/dimemas at 4ab5099 (Simulator/input: new_configuration.c, comm_configuration.c; cfgs/).
MB/s are 2^20 bytes per second, a bandwidth of 0 is instantaneous. All nodes must be alike but for the ratio of their
CPUs. What would change a result and is not modelled is refused: several machines, ratios of modules, sensitivity,
scheduling and communication policies other than FIFO. What plays no part on one machine without input and output (the
network between machines, flight times, dedicated connections, the file system) is named in the description.

Nothing in a configuration says which sends are rendezvous: those that the trace marks (the option -S of Dimemas is
network.eager_threshold). Nor has it a clock frequency. Where its tasks run is no property of a machine: `check_mapping`
refuses a study that would silently run them elsewhere.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NoReturn

from manyscale.models.workload.quantities import MOST_BYTES
from manyscale.runner.errors import UserError
from manyscale.runner.plain_files import refuse_special
from manyscale.runner.study.dimemas_collectives import OPERATIONS, Formulas, read_file, read_text, rules

_MARK: Final = "#DIMEMAS_CONFIGURATION"
_RECORD: Final = re.compile(r'"([^"]*)"\s*\{((?:[^{}]|\{[^{}]*\})*)\}\s*;;')
_FIELD: Final = re.compile(r'\s*("[^"]*"|\[\s*\d+\s*\]\s*\{[^{}]*\}|[^,\s"]+)\s*(?:,|$)')
_MODELS: Final = {0: "none", 1: "constant", 2: "linear", 3: "logarithmic"}


def can_read(path: Path) -> bool:
    """Whether a file is a Dimemas configuration. Reads its first bytes."""
    try:
        with refuse_special(path).open("rb") as file:
            head = file.read(256).lstrip()
    except OSError:
        return False
    return head.startswith(_MARK.encode()) or (path.suffix == ".cfg" and head.startswith(b"SDDFA"))


def read(path: Path) -> dict[str, Any]:
    """The content of a machine file. Raises UserError, one line with file and line."""
    return _Configuration.of(path).content()


def check_mapping(path: Path) -> None:
    """Raise UserError if the configuration places tasks otherwise than a study that says nothing of its mapping."""
    configuration = _Configuration.of(path)
    wanted = configuration.mapping
    if wanted is None or wanted in (
        {"placement": "block"},
        {"placement": "block", "ranks_per_node": configuration.node.cpus},
    ):
        return
    said = ", ".join(f"{key}: {value}" for key, value in wanted.items())
    raise UserError(
        f"{configuration.place(configuration.mapping_line)}: the configuration places its tasks; write it into the "
        f"study, mapping: {{{said}}}, or another mapping"
    )


@dataclass(frozen=True)
class _Node:
    """What a configuration says of a node, as it stands there (times in s, bandwidths in MiB/s)."""

    cpus: int
    ratio: float
    intra_latency: float
    intra_bandwidth: str
    intra_links: tuple[int, int]  # output, input
    intra_buses: int
    inter_latency: float
    inter_links: tuple[int, int]


@dataclass
class _Configuration:
    path: Path
    name: str = ""
    num_nodes: int = 0
    bandwidth: str = "0"
    buses: int = 0
    nodes: list[tuple[int, _Node]] = field(default_factory=list)  # runs of equal nodes
    formulas: Formulas = field(default_factory=dict)
    mapping: dict[str, Any] | None = None
    mapping_line: int = 0
    left_out: list[str] = field(default_factory=list)
    line: int = 1

    @classmethod
    def of(cls, path: Path) -> _Configuration:
        configuration = cls(path)
        handlers = {
            "wide area network information": configuration._wide_area,
            "environment information": configuration._environment,
            "node information": configuration._node,
            "multi node information": configuration._multi_node,
            "mapping information": configuration._mapping,
            "predefined mapping information": configuration._predefined_mapping,
            "configuration files": configuration._files,
            "modules information": configuration._modules,
            "file system parameters": configuration._file_system,
            "dedicated connection information": configuration._dedicated,
            "accelerator node information": configuration._accelerator,
        }
        for name, fields in configuration._records():
            if name not in handlers:
                configuration._refuse(f"unknown record {name!r}; known are {', '.join(handlers)}")
            try:
                handlers[name](fields)
            except (ValueError, IndexError, OverflowError):
                configuration._refuse(f"a field of {name!r} is missing or no number of its kind")
        configuration._check()
        return configuration

    def place(self, line: int) -> str:
        return f"{self.path}:{line}"

    def _refuse(self, what: str) -> NoReturn:
        raise UserError(f"{self.place(self.line)}: {what}")

    def _leave_out(self, what: str) -> None:
        if what not in self.left_out:
            self.left_out.append(what)

    def _records(self) -> Iterator[tuple[str, list[str]]]:
        """(name, fields) of each record; ``line`` is that of the record."""
        text = read_text(self.path)
        if not text.lstrip().startswith(_MARK):
            self._refuse(f"does not start with {_MARK}: an old configuration; convert it with DimemasUpdateCFG")
        text = _without_comments(text)
        end = 0
        for match in _RECORD.finditer(text):
            self._nothing_between(text, end, match.start())
            self.line = text.count("\n", 0, match.start()) + 1
            end = match.end()
            yield match[1], self._fields(match[2])
        self._nothing_between(text, end, len(text))

    def _nothing_between(self, text: str, begin: int, end: int) -> None:
        rest = text[begin:end].strip()
        if rest:
            self.line = text.count("\n", 0, begin + len(text[begin:end]) - len(text[begin:end].lstrip())) + 1
            self._refuse(f'{rest.splitlines()[0][:60]!r} is no record "name" {{...}};;')

    def _fields(self, text: str) -> list[str]:
        fields, place = [], 0
        while place < len(text) and text[place:].strip():
            match = _FIELD.match(text, place)
            if match is None:
                self._refuse(f"{text[place:].strip()[:40]!r} is no field (a number, a quoted text or [n] {{...}})")
            fields.append(match[1].strip('"'))
            place = match.end()
        return fields

    def _expect(self, fields: list[str], *counts: int) -> None:
        if len(fields) not in counts:
            self._refuse(f"{len(fields)} fields; this record has {' or '.join(map(str, counts))}")

    def _wide_area(self, fields: list[str]) -> None:
        self._expect(fields, 7)
        if int(fields[1]) != 1:
            self._refuse(f"{fields[1]} machines; only one can be modelled: write a configuration for each")
        if float(fields[5]):
            self._leave_out("network between machines")

    def _environment(self, fields: list[str]) -> None:
        self._expect(fields, 7)
        if self.num_nodes:
            self._refuse("a second machine; only one can be modelled: write a configuration for each")
        self.name = fields[0]
        self.num_nodes, self.buses = _count(fields[3]), _count(fields[5])
        self.bandwidth = self._bandwidth(fields[4])
        model = int(fields[6])
        if model not in _MODELS or not self.num_nodes:
            self._refuse("the model of collectives is not 1, 2 or 3" if self.num_nodes else "the machine has no nodes")
        for kind in filter(None, OPERATIONS):
            one = "constant" if kind == "reduce" else _MODELS[model]
            self.formulas[kind] = {"fan_in": one, "fan_out": one}

    def _bandwidth(self, text: str) -> str:
        value = float(text)
        if not 0 <= value < float("inf"):
            self._refuse(f"bandwidth {text} is no number of MB/s from 0 (instantaneous) on")
        return f"{text} MiB/s" if value else "inf B/s"

    def _node(self, fields: list[str]) -> None:
        self._expect(fields, 11, 13, 14)
        if len(fields) == 11:  # of before links inside nodes: one half-duplex link each, a bus for each CPU
            cpus = _count(fields[3])
            node = _Node(
                cpus, float(fields[8]), float(fields[6]), self._bandwidth(fields[9]), (0, 1), cpus, float(fields[7]),
                (_count(fields[5]), _count(fields[4])),
            )  # fmt: skip
            self._add(1, node)
        else:
            self._add(1, self._described(fields[-11:]))

    def _multi_node(self, fields: list[str]) -> None:
        self._expect(fields, 14)
        self._add(_count(fields[1]), self._described(fields[3:]))

    def _described(self, fields: list[str]) -> _Node:
        """A node from its fields from the number of CPUs on."""
        if float(fields[10]):
            self._leave_out("latency between machines")
        return _Node(
            _count(fields[0]), float(fields[1]), float(fields[2]), self._bandwidth(fields[3]),
            (_count(fields[6]), _count(fields[5])), _count(fields[4]), float(fields[7]),
            (_count(fields[9]), _count(fields[8])),
        )  # fmt: skip

    def _add(self, count: int, node: _Node) -> None:
        if not node.cpus:
            self._refuse("a node without CPUs")
        if not 0 <= node.ratio < float("inf"):
            self._refuse(f"a ratio of CPUs of {node.ratio:g}; Dimemas knows 0 (instantaneous) and above")
        if not (0 <= node.intra_latency < 1e6 and 0 <= node.inter_latency < 1e6):
            self._refuse("a latency below 0 s or above 10^6 s")
        if self.nodes:
            first = self.nodes[0][1]
            for name in _Node.__dataclass_fields__:
                if name != "ratio" and getattr(node, name) != getattr(first, name):
                    self._refuse(f"a node whose {name.replace('_', ' ')} differs; only the ratio of CPUs may")
        self.nodes.append((count, node))

    def _mapping(self, fields: list[str]) -> None:
        self._expect(fields, 3)
        values = fields[2].partition("{")[2].rstrip("}").replace(",", " ").split()
        placement = [_count(value) for value in values]
        if len(placement) != int(fields[1]) or f"[{len(placement)}]" != re.sub(r"\s", "", fields[2].partition("{")[0]):
            self._refuse(f"the mapping lists {len(placement)} nodes for {fields[1]} tasks")
        self._map({"placement": placement})

    def _predefined_mapping(self, fields: list[str]) -> None:
        self._expect(fields, 1, 2)
        words = fields[-1].split()
        if "FILL_NODES" in words:
            self._map({"placement": "block"})
        elif "TASKS_PER_NODE" in words and words[0].isdigit() and int(words[0]):
            self._map({"placement": "block", "ranks_per_node": int(words[0])})
        elif "INTERLEAVED" in words:
            self._map({"placement": "[0, 1, ...] (task i on node i modulo the number of nodes)"})
        else:
            self._refuse(f"unknown mapping {fields[-1]!r}; known are FILL_NODES, N TASKS_PER_NODE and INTERLEAVED")

    def _map(self, mapping: dict[str, Any]) -> None:
        if self.mapping is not None:
            self._refuse("a second mapping; only one application can be replayed")
        self.mapping, self.mapping_line = mapping, self.line

    def _files(self, fields: list[str]) -> None:
        self._expect(fields, 4)
        scheduler, file_system, communication, sensitivity = fields
        if scheduler:
            self._refuse("a scheduler file; only FIFO without costs can be modelled: leave the first name empty")
        if file_system:
            self._leave_out("file system")
        if sensitivity and not _is_inert(self._beside(sensitivity)):
            self._refuse("a sensitivity file with distributions; random runs cannot be modelled: leave the name empty")
        if communication:
            read_file(self._beside(communication), self.formulas, self._leave_out)

    def _beside(self, name: str) -> Path:
        """A file that is named relative to the working directory, or lies beside the configuration."""
        found = next((one for one in (self.path.parent / name, Path(name)) if one.is_file()), None)
        if found is None:
            self._refuse(f"the file {name!r} does not exist; copy it beside the configuration")
        return found

    def _modules(self, fields: list[str]) -> None:
        self._expect(fields, 3)
        if float(fields[2]) != 1.0:
            self._refuse(
                f"a ratio of a module; write it into the study instead, ipc_correction: {{regions: "
                f'{{"{fields[0]}:{fields[1]}": {fields[2]}}}}}'
            )

    def _file_system(self, fields: list[str]) -> None:
        self._expect(fields, 5)

    def _dedicated(self, fields: list[str]) -> None:
        self._leave_out("dedicated connections")

    def _accelerator(self, fields: list[str]) -> None:
        self._leave_out("accelerators")

    def _check(self) -> None:
        if not self.num_nodes:
            raise UserError(f"{self.path}: no record 'environment information'; add it")
        described = sum(count for count, _ in self.nodes)
        if described != self.num_nodes:
            raise UserError(
                f"{self.path}: {self.num_nodes} nodes, of which {described} are described; mend "
                "'environment information' or the nodes"
            )

    @property
    def node(self) -> _Node:
        return self.nodes[0][1]

    def content(self) -> dict[str, Any]:
        node = self.node
        ratios = [one.ratio for count, one in self.nodes for _ in range(count)]
        if len(set(ratios)) == 1:
            ratios = [] if ratios[0] == 1.0 else ratios[:1]
        inside = {"latency": _time(node.intra_latency), "bandwidth": node.intra_bandwidth}
        dimemas: dict[str, Any] = {
            "inter_node": _links(node.inter_links, self.buses),
            "intra_node": _links(node.intra_links, node.intra_buses),
        }
        if ratios:
            dimemas["cpu_ratios"] = ratios
        source = f"the Dimemas configuration {self.path.name}"
        left_out = f"; it leaves out: {', '.join(self.left_out)}" if self.left_out else ""
        return {
            "schema": 1,
            "name": self.name or self.path.stem,
            "description": f"{self.num_nodes} nodes of {node.cpus} CPUs, read from {source}{left_out}",
            "nodes": self.num_nodes,
            "node": {"sockets": 1, "cores_per_socket": node.cpus},
            "network": {
                "latency": _time(node.inter_latency),
                "bandwidth": self.bandwidth,
                "envelope": "0 B",
                "eager_threshold": f"{MOST_BYTES} B",
                "transfer_start": "eager",
                "collectives": rules(self.formulas),
                "intra_node": inside,
                "self": dict(inside),
                "dimemas": dimemas,
            },
            "sources": dict.fromkeys(("nodes", "node", "network"), source),
        }


def _without_comments(text: str) -> str:
    """The text with comments (and the mark) blank; lines stay where they are. As Dimemas has it, a line that holds //
    is one as a whole, and so are the lines from one that holds /* to one that holds */."""
    lines, inside = [], False
    for line in text.split("\n"):
        starts = "/*" in line
        keep = not inside and not starts and "//" not in line and not line.strip().startswith(_MARK)
        inside = (inside or starts) and "*/" not in line
        lines.append(line if keep else "")
    return "\n".join(lines)


def _count(text: str) -> int:
    value = int(text)
    if not 0 <= value < 1 << 63:
        raise ValueError(text)
    return value


def _time(seconds: float) -> str:
    return f"{round(seconds * 1e12)} ps"


def _links(links: tuple[int, int], buses: int) -> dict[str, int]:
    return {"output_links": links[0], "input_links": links[1], "buses": buses}


def _is_inert(path: Path) -> bool:
    """Whether all distributions of a sensitivity file are of width and mean 0."""
    numbers = re.findall(r"[-+]?\d+\.?\d*(?:[eE][-+]?\d+)?", re.sub(r'"[^"]*"', "", read_text(path)))
    return all(float(number) == 0.0 for number in numbers)

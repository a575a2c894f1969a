"""How ranks are laid out: a box whose dimensions are groups (data, tensor and pipeline parallel, ...).

The layout of a trace follows from its communicators: those that a dimension's name stands for (``dp`` for
``DATA_PARALLEL_GROUP``, too) say how many ranks the dimension has and how far they are apart. One dimension of which no
communicator tells takes what is left of the ranks. What does not follow has to be given.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import Final

import numpy as np

from manyscale.models.workload import Workload
from manyscale.runner.errors import UserError

# words by which frameworks (Megatron-LM, DeepSpeed, PyTorch) name the groups of a dimension
WORDS: Final = {
    "dp": ("dp", "data", "ddp", "fsdp", "zero"),
    "tp": ("tp", "tensor"),
    "pp": ("pp", "pipeline", "pipe"),
    "cp": ("cp", "context"),
    "ep": ("ep", "expert", "moe"),
    "sp": ("sp", "sequence"),
}
ALL: Final = "ranks"  # the one dimension of a trace that names no groups
EXAMPLE: Final = "tp=2,dp=2,pp=2"


@dataclass(frozen=True)
class Layout:
    """Ranks as cells of a box with ``names`` and ``sizes`` of its dimensions, of which the first varies fastest."""

    names: tuple[str, ...]
    sizes: tuple[int, ...]

    @property
    def num_ranks(self) -> int:
        return prod(self.sizes)

    @cached_property
    def strides(self) -> np.ndarray:
        """int64[dimensions]: ranks between neighbours in each."""
        return np.concatenate(([1], np.cumprod(self.sizes)[:-1])).astype(np.int64)

    def coordinates(self, ranks: np.ndarray) -> np.ndarray:
        """int64[n, dimensions]."""
        return np.asarray(ranks, np.int64)[:, None] // self.strides % np.array(self.sizes)

    def ranks(self, coordinates: np.ndarray) -> np.ndarray:
        """int64[n]."""
        return np.asarray(coordinates @ self.strides)

    def size(self, name: str) -> int:
        return self.sizes[self.names.index(name)]

    def in_order(self, names: Sequence[str]) -> Layout:
        """The same sizes with the dimensions in another order."""
        return Layout(tuple(names), tuple(self.size(name) for name in names))

    def __str__(self) -> str:
        return ",".join(f"{name}={size}" for name, size in zip(self.names, self.sizes, strict=True))


def parsed(text: str, option: str) -> dict[str, int]:
    """``tp=8,dp=16`` as sizes by name. Raises UserError."""
    sizes: dict[str, int] = {}
    for part in text.split(","):
        name, equals, size = (each.strip() for each in part.partition("="))
        if not name or not equals or not (size.isdecimal() and size.isascii() and int(size)):
            raise UserError(
                f"{option} {text}: {part.strip()!r} is no group and its size; write e.g. {EXAMPLE} (the first varies "
                "fastest)"
            )
        if name in sizes:
            raise UserError(f"{option} {text}: {name} stands there twice; give each group once")
        sizes[name] = int(size)
    return sizes


def dimensions_meant(group_name: str, names: Sequence[str]) -> tuple[str, ...]:
    """Those of ``names`` that the name of a communicator speaks of."""
    words = {word.rstrip("0123456789") for word in re.split(r"[^a-z0-9]+", group_name.lower())}
    return tuple(name for name in names if words & set(WORDS.get(name.lower(), (name.lower(),))))


def group_names(workload: Workload) -> dict[int, str]:
    """Names of communicators that have one."""
    table = workload.tables["groups"]
    return dict(zip(table["communicator_id"].to_pylist(), table["group_name"].to_pylist(), strict=True))


def members_of(workload: Workload) -> list[np.ndarray]:
    """Of each communicator, int32[members]."""
    offsets, members = workload.lists("communicators", "members")
    return np.split(members, offsets[1:-1]) if len(offsets) > 1 else []


def traced_layout(workload: Workload, wanted: Sequence[str], given: Mapping[str, int] | None, path: str) -> Layout:
    """The layout of a trace: as ``given``, or as its communicators say of the dimensions ``wanted`` and of others that
    they name. Raises UserError if it does not follow."""
    if given is not None:
        layout = Layout(tuple(given), tuple(given.values()))
        if layout.num_ranks != workload.num_ranks:
            raise UserError(f"--traced {layout}: these are {layout.num_ranks} ranks; {path} has {workload.num_ranks}")
        return layout
    called = group_names(workload)
    names = [*wanted, *(name for name in WORDS if name not in wanted)]
    known: dict[str, tuple[int, int]] = {}
    for number, members in enumerate(members_of(workload)):
        meant = dimensions_meant(called.get(number, ""), names)
        apart = np.unique(np.diff(np.sort(members)))
        if len(meant) != 1 or len(apart) > 1:
            continue
        found = (len(members), int(apart[0]) if len(apart) else 0)
        if known.setdefault(meant[0], found) != found:
            raise _unknown(workload, path, f"groups {meant[0]} are not all alike")
    if not wanted and not known:
        return Layout((ALL,), (workload.num_ranks,))
    silent = [name for name in wanted if name not in known]
    left, rest = divmod(workload.num_ranks, prod(size for size, _ in known.values()))
    if rest:
        raise _unknown(workload, path, f"{workload.num_ranks} ranks do not divide by its groups")
    if left == 1:
        known |= dict.fromkeys(silent, (1, 0))
    elif len(silent) == 1:
        known[silent[0]] = (left, 0)
    else:
        what = f"which of them {' and '.join(silent)} are" if silent else f"what {left} ranks of one group share"
        raise _unknown(workload, path, f"its communicators do not say {what}")
    return _ordered(known, workload, path)


def _ordered(known: Mapping[str, tuple[int, int]], workload: Workload, path: str) -> Layout:
    """Dimensions by the distance of their ranks; the one whose distance is not known fills the gap."""
    free = [name for name, (size, apart) in known.items() if size > 1 and not apart]
    placed = sorted((apart, size, name) for name, (size, apart) in known.items() if apart)
    ordered: list[tuple[str, int]] = []
    ranks = 1
    for apart, size, name in placed:
        if ranks != apart and free:
            ordered.append((free[0], known[free[0]][0]))
            ranks *= ordered[-1][1]
            free = []
        if ranks != apart:
            raise _unknown(workload, path, f"ranks of {name} are {apart} apart, which no order of its groups gives")
        ordered.append((name, size))
        ranks *= size
    ordered += [(name, known[name][0]) for name in free]
    ordered += [(name, 1) for name, (size, _) in known.items() if size == 1]
    return Layout(tuple(name for name, _ in ordered), tuple(size for _, size in ordered))


def _unknown(workload: Workload, path: str, reason: str) -> UserError:
    """What is known of the communicators, and how to say the rest."""
    called = group_names(workload)
    kinds: dict[tuple[str, int, str], int] = {}
    for number, members in enumerate(members_of(workload)):
        apart = np.unique(np.diff(np.sort(members)))
        distance = f"{apart[0]} apart" if len(apart) == 1 else "at several distances"
        key = (called.get(number, ""), len(members), distance)
        kinds[key] = kinds.get(key, 0) + 1
    listed = "; ".join(
        f"{count} {name or 'unnamed'} of {size} ranks {distance}" for (name, size, distance), count in kinds.items()
    )
    return UserError(
        f"{path}: the layout of its {workload.num_ranks} ranks is not known: {reason} (communicators: {listed}); give "
        f"it as --traced {EXAMPLE} (the first varies fastest)"
    )

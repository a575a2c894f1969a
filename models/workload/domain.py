"""The domain of a model, as data: what of a run it takes, leaves out or refuses, and which keys of a machine it reads.

A *feature* is something that a workload, a target or a study may have and on which models differ (``FEATURES``, by the
level of the model). Every model of a level has a ``DOMAIN`` that says what it makes of each of them. What is found in a
run and left out becomes a note; so do settings that no chosen model reads.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from manyscale.models.workload.notes import Errs, Note, Severity

FEATURES: Final[Mapping[str, Mapping[str, str]]] = {
    "network": {
        "messages-between-nodes": "messages between ranks on different nodes",
        "messages-within-nodes": "messages between ranks of one node",
        "messages-to-self": "messages of a rank to itself",
        "own-routes": "messages inside nodes that do not pass the links of the target's topology (loopback: own)",
        "rendezvous": "sends of at least eager_threshold bytes, which wait for their receiver",
        "collectives": "collectives that are the messages of an algorithm",
        "collective-formulas": "collectives that cost what a formula says",
        "shared-links": "a target that names its topology, whose links messages share",
        "rates-in-steps": "a target that has the rates of transfers solved in steps (network.flow.step)",
        "wildcard-receives": "receives from any source",
        "waits-for-any": "waits for any of several requests",
        "unordered-operations": "operations of a rank that are a graph without an order (GOAL)",
        "calls-inside-tasks": "MPI calls inside phases with tasks in flight",
        "file-accesses": "files that ranks read and write by MPI calls",
        "storage-unnamed": "the same on a target that names no storage",
        "lone-accesses": "accesses of files by several ranks, each for itself, on a target that names its storage",
        "open-accesses": "collective accesses of files that do not block, on a target that names its storage",
    },
    "cpu": {
        "traced-times": "compute phases with no more than their traced time",
        "no-times": "a profile of code, accesses or call stacks, whose tool recorded no times",
        "described-cores": "a target that says what its cores, caches and memory are, for traced times",
        "tasks": "phases with task instances",
        "neighbours": "ranks that share a node, and with it caches and memory",
        "sockets": "a target whose sockets are apart (node.numa)",
        "unlike-cores": "a target with several kinds of cores in a node (node.core_kinds)",
        "hardware-threads": "a target whose cores execute several threads at once (node.core.hardware_threads)",
        "address-translation": "a target that names its TLBs",
        "prefetchers": "a target whose caches prefetch",
        "interrupted-prefetchers": "a target whose prefetchers begin anew in each page where other misses come between "
        "(prefetcher.interrupted_page)",
        "dram-rows": "a target that names rows and banks of its DRAM",
        "free-instructions": "a target of whose classes of instructions some take no time",
        "free-mispredictions": "a target that names no time for branches that were not predicted",
    },
    "gpu": {
        "copies": "copies between host and GPU on a target without node.gpu.host_link, or behind the last launch of a "
        "trace that tells launches alone",
        "host-calls": "CUDA calls of hosts, on a target that says what one takes them (node.gpu.host_call)",
        "free-host-calls": "the same on a target that does not say it",
        "streams": "launches in several streams, where the replay does not know streams (network loggops)",
        "launches-of-ranks": "launches that ranks make between their MPI calls, where the replay does not know streams",
        "shared-gpus": "more ranks with launches on a node than it has GPUs, where the replay does not know streams",
        "ranks-in-turn": "more ranks with launches on a node than it has GPUs, which take turns (gpu: {mps: false})",
        "folded-gpus": "processes that use more GPUs than a node of the target has",
        "several-gpus": "a target with several GPUs a node, for a trace that does not tell which one is used",
        "later-code": "launches compiled for a later architecture than the target runs",
        "matrix-instructions": "matrix instructions on a target that does not time them by shape (node.gpu.matrix)",
        "instruction-classes": "packed halves, counts of bits, conversions, shuffles and reductions on a target "
        "without rates of their classes (node.gpu.instructions)",
        "bulk-copies": "bulk copies (TMA) of which the trace has no bytes",
        "asynchronous-operations": "bulk copies (TMA) and barriers in shared memory, with their bytes and arrivals",
        "described-copies": "bulk copies (TMA) whose bytes the trace has",
        "bulk-prefetches": "prefetches of blocks of bytes and boxes of tensors (TMA)",
        "group-products": "matrix products of groups of warps (wgmma)",
        "block-clusters": "clusters of thread blocks",
        "texture": "texture fetches",
        "control-bits": "launches with the compiler's control bits, on a target whose SMs follow them (node.gpu.core)",
        "no-control-bits": "launches without them, on such a target",
        "gpu-dram-rows": "a target that names rows and banks of its GPU's DRAM",
    },
}


@dataclass(frozen=True)
class LeavesOut:
    """The run is predicted, and a note says ``text`` of it."""

    severity: Severity
    text: str
    errs: Errs = Errs.unknown

    def note(self, feature: str, where: str = "", count: int = 1) -> Note:
        return Note(feature, self.severity, self.text, where, count, self.errs)


@dataclass(frozen=True)
class Refuses:
    """There is no number; ``text`` is part of the line that says so."""

    text: str


TAKES: Final = "takes"
APART: Final = "apart"  # the model is of something else; what it makes of that is said of another feature
Stance: TypeAlias = str | LeavesOut | Refuses  # a text is TAKES or APART


@dataclass(frozen=True)
class Domain:
    """``features``: the stance on each feature of the model's level. ``reads``: keys of a machine as its file has them,
    each with all that stands below it, and the features of which a run has to have one for it to play a part (none: it
    always does)."""

    features: Mapping[str, Stance]
    reads: Mapping[str, Sequence[str]]


def left_short(text: str) -> LeavesOut:
    """Something that takes time is missing: the predicted time is too short."""
    return LeavesOut(Severity.changes, text, Errs.short)


def left_long(text: str) -> LeavesOut:
    """Something that saves time is missing: the predicted time is too long."""
    return LeavesOut(Severity.changes, text, Errs.long)


def left_open(text: str) -> LeavesOut:
    """Something that takes or saves time is guessed."""
    return LeavesOut(Severity.changes, text)


def told(text: str) -> LeavesOut:
    """Nothing that takes time is missing."""
    return LeavesOut(Severity.informs, text)

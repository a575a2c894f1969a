"""Which models of cores take what of a run, and which keys of a machine they read."""

from __future__ import annotations

from typing import Final

from manyscale.models.workload.domain import (
    APART,
    TAKES,
    Domain,
    LeavesOut,
    Refuses,
    left_long,
    left_open,
    left_short,
    told,
)
from manyscale.models.workload.notes import Severity

_NEIGHBOURS: Final = left_short("ranks that share a node do not wait for each other in its caches and memory")
_FREE: Final = left_short(
    "classes of instructions take no time (node.core.instructions): only width, buffers and memory bound these"
)
_PREDICTED: Final = left_short("every branch is taken to be predicted (node.core.misprediction)")
_TRANSLATION: Final = left_short("address translation takes no time (node.tlbs)")
WALKS: Final = left_short("walks of page tables do not wait for each other (node.tlbs)")
UNINTERRUPTED: Final = left_short("other misses between the lines of a sequence stop no prefetcher")
EQUAL_THREADS: Final = left_open(
    "threads of a core are taken to be alike, each with an equal part of the core and its caches "
    "(node.core.hardware_threads)"
)
_ROWS: Final = left_open("every line takes node.main_memory's latency, whether its DRAM row is open or not")
_NO_TIMES: Final = LeavesOut(
    Severity.forbids,
    "the trace has no times to predict from; manyscale plan and profile read it",
)
_ONE_KIND: Final = Refuses("simulates cores of one kind; leave node.core_kinds out, or use cpu: burst or detailed")
_NODE: Final = {"nodes": (), "node.sockets": (), "node.cores_per_socket": ()}
_CORES: Final = {
    **_NODE,
    "node.frequency": (),
    "node.core": (),
    "node.caches": (),
    "node.main_memory": (),
    "node.numa": ("sockets",),
    "node.runtime_system": ("tasks",),
}

BURST: Final = Domain(
    {
        "traced-times": TAKES,
        "no-times": _NO_TIMES,
        "described-cores": told(
            "compute takes its traced time, times cpu_ratio: the target's cores, caches and memory play no part"
        ),
        "tasks": TAKES,
        "neighbours": APART,
        "sockets": APART,
        "unlike-cores": TAKES,
        "hardware-threads": APART,
        "address-translation": APART,
        "prefetchers": APART,
        "interrupted-prefetchers": APART,
        "dram-rows": APART,
        "free-instructions": APART,
        "free-mispredictions": APART,
    },
    {**_NODE, "node.caches": ("tasks",), "node.runtime_system": ("tasks",), "node.core_kinds": ("unlike-cores",)},
)
DETAILED: Final = Domain(
    {
        "traced-times": TAKES,
        "no-times": TAKES,
        "described-cores": TAKES,
        "tasks": TAKES,
        "neighbours": _NEIGHBOURS,
        "sockets": TAKES,
        "unlike-cores": TAKES,
        "hardware-threads": Refuses("simulates one thread on each core; leave node.core.hardware_threads out"),
        "address-translation": _TRANSLATION,
        "prefetchers": TAKES,
        "interrupted-prefetchers": UNINTERRUPTED,
        "dram-rows": TAKES,
        "free-instructions": _FREE,
        "free-mispredictions": _PREDICTED,
    },
    {**_CORES, "node.core_kinds": ("unlike-cores",)},
)
INTERVAL: Final = Domain(
    {
        **DETAILED.features,
        "unlike-cores": _ONE_KIND,
        "prefetchers": left_open(
            "the nearest level's prefetcher fetches in time what it fetches, and what it fetches in vain takes no "
            "bandwidth"
        ),
        "dram-rows": left_short("rows of DRAM that cores close for each other stay open"),
    },
    _CORES,
)
AMM: Final = Domain(
    {
        **DETAILED.features,
        "unlike-cores": _ONE_KIND,
        "tasks": left_open("task instances run one after the other, as they were traced"),
        "sockets": left_short("memory of other sockets is as near as the own one's"),
        "hardware-threads": EQUAL_THREADS,
        "interrupted-prefetchers": TAKES,
        "address-translation": WALKS,
        "dram-rows": _ROWS,
    },
    {**_NODE, "node.frequency": (), "node.core": (), "node.caches": (), "node.tlbs": (), "node.main_memory": ()},
)
# what AMM's equations leave out, and ``AMM`` takes with ``amm: {form: overlap}``
EQUATIONS: Final = {
    "address-translation": _TRANSLATION,
    "prefetchers": left_long("prefetchers fetch nothing"),
}

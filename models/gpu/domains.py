"""Which models of GPUs take what of a run, and which instructions are what features (``ROOTS``)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from manyscale.models.workload.asynchronous import PREFETCHING
from manyscale.models.workload.domain import TAKES, Domain, LeavesOut, left_long, left_open, left_short, told
from manyscale.models.workload.notes import Errs, Severity

COPIES: Final = ("UTMALDG", "UTMASTG", "UTMAREDG", "UBLKCP", "UBLKRED")
TRACED: Final = (*COPIES, *PREFETCHING, "SYNCS")  # asynchronous operations, where the trace has words of them
ROOTS: Final[Mapping[str, tuple[str, ...]]] = {  # how the roots of opcodes begin or end
    "matrix-instructions": ("*MMA",),
    "bulk-copies": COPIES,
    "bulk-prefetches": PREFETCHING,
    "group-products": ("*GMMA",),
    "block-clusters": ("UCGABAR*", "STAS", "REDAS"),
    "texture": ("TEX*", "TLD*", "TXD", "TXQ", "TMML"),
}

_READS: Final = {"nodes": (), "node.sockets": (), "node.cores_per_socket": (), "node.gpu": (), "node.gpus": ()}
DETAILED: Final = Domain(
    {
        "copies": left_short("copies of the host take no time, and change no cache"),
        "host-calls": told(
            "each CUDA call takes the host node.gpu.host_call, which is measured of launches in a row, by another host"
        ),
        "free-host-calls": left_short("CUDA calls take the host no time (the target has no node.gpu.host_call)"),
        "streams": left_long("launches of several streams run one after the other"),
        "launches-of-ranks": left_long(
            "what ranks give their GPUs is done when it is given, as with CUDA_LAUNCH_BLOCKING=1: hosts, streams and "
            "NCCL's messages do not overlap"
        ),
        "shared-gpus": left_short("ranks that share a GPU do not slow each other down"),
        "ranks-in-turn": left_open(
            "ranks that share a GPU run whole launches in the order in which they come, where hardware gives each "
            "slices of time; L2 is as the rank's own launches leave it"
        ),
        "folded-gpus": left_open("what several GPUs of a process did is done by those that the node has, in turn"),
        "several-gpus": told("all launches run on one GPU; the node's others stand idle"),
        "later-code": left_open("instructions of a later architecture take what those of their class take here"),
        "matrix-instructions": left_open(
            "matrix instructions of all shapes and types take what node.gpu.units.tensor says"
        ),
        "instruction-classes": left_open(
            "packed halves, counts of bits, conversions, shuffles and reductions take what the unit takes that "
            "Accel-Sim has them on (the target has no node.gpu.instructions of them)"
        ),
        "bulk-copies": LeavesOut(
            Severity.forbids,
            "the trace has bulk copies (TMA), and neither what they move nor the bytes that barriers expect: they take "
            "one instruction of the uniform unit",
            Errs.short,
        ),
        "asynchronous-operations": TAKES,
        "described-copies": TAKES,
        "bulk-prefetches": left_long(
            "prefetches of blocks and boxes (TMA) that the trace does not describe bring nothing into L2"
        ),
        "group-products": TAKES,
        "block-clusters": left_short(
            "thread blocks of a cluster run as any others (the target has no node.gpu.clusters); their bulk copies "
            "move no data, and their barriers in shared memory hold nobody up"
        ),
        "texture": left_open(
            "texture fetches whose addresses the trace has are loads through L1, whatever their filter; others take "
            "what node.gpu.units.texture says, and use no cache"
        ),
        "control-bits": told("the compiler's control bits say when instructions issue (node.gpu.core)"),
        "no-control-bits": left_open("launches without the compiler's control bits are issued by a scoreboard"),
        "gpu-dram-rows": TAKES,
    },
    _READS,
)
GPUMECH: Final = Domain(
    {
        **DETAILED.features,
        "asynchronous-operations": left_short("barriers in shared memory hold nobody up: each takes one instruction"),
        "described-copies": LeavesOut(
            Severity.forbids,
            "bulk copies (TMA) move no data in this model, and what waits for them waits for nothing; take model.gpu: "
            "detailed",
            Errs.short,
        ),
        "block-clusters": left_short("thread blocks of a cluster run as any others, and wait for each other nowhere"),
        "group-products": left_long("products of groups of warps (wgmma) wait for the sums of the one before"),
        "control-bits": left_open("a scoreboard says when instructions issue, whatever the compiler's control bits"),
        "gpu-dram-rows": left_open("rows and banks of DRAM play no part (dram.timing)"),
    },
    _READS,
)

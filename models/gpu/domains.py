"""Which models of GPUs take what of a run, and which instructions are what features (``ROOTS``)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from manyscale.models.workload.domain import TAKES, Domain, left_long, left_open, left_short, told

ROOTS: Final[Mapping[str, tuple[str, ...]]] = {  # how the roots of opcodes begin or end
    "matrix-instructions": ("*MMA",),
    "bulk-copies": ("UTMA*", "UBLK*"),
    "block-clusters": ("UCGABAR*", "STAS", "REDAS"),
    "texture": ("TEX*", "TLD*", "TXD", "TXQ", "TMML"),
}

_READS: Final = {"nodes": (), "node.sockets": (), "node.cores_per_socket": (), "node.gpu": (), "node.gpus": ()}
DETAILED: Final = Domain(
    {
        "copies": left_short("copies of the host take no time, and change no cache"),
        "streams": left_long("launches of several streams run one after the other"),
        "launches-of-ranks": left_long(
            "what ranks give their GPUs is done when it is given, as with CUDA_LAUNCH_BLOCKING=1: hosts, streams and "
            "NCCL's messages do not overlap"
        ),
        "shared-gpus": left_short("ranks that share a GPU do not slow each other down"),
        "several-gpus": told("all launches of a rank run on one GPU; the node's others stand idle"),
        "later-code": left_open("instructions of a later architecture take what those of their class take here"),
        "matrix-instructions": left_open(
            "matrix instructions of all shapes and types take what node.gpu.units.tensor says"
        ),
        "bulk-copies": left_short("bulk copies (TMA) move no data: they take one instruction of the uniform unit"),
        "block-clusters": left_open("thread blocks of a cluster run as any others"),
        "texture": left_open(
            "texture fetches whose addresses the trace has are loads through L1, whatever their filter; others take "
            "what node.gpu.units.texture says, and use no cache"
        ),
        "gpu-dram-rows": TAKES,
    },
    _READS,
)
GPUMECH: Final = Domain(
    {**DETAILED.features, "gpu-dram-rows": left_open("rows and banks of DRAM play no part (dram.timing)")},
    _READS,
)

"""Whether what a program keeps fits into a GPU's memory."""

from __future__ import annotations

from manyscale.models.gpu.parameters import Gpu
from manyscale.models.workload.notes import Note, changes


def exceeded(needed_bytes: float, of: str, count: int, gpu: Gpu) -> tuple[Note, ...]:
    """A note where ``needed_bytes`` of the fullest GPU (``of``: which that is) are more than the memory of ``gpu``;
    ``count``: GPUs that have too little."""
    size = gpu.dram.size_bytes
    if size is None or needed_bytes <= size:
        return ()
    text = (
        f"the fullest GPU ({of}) keeps {needed_bytes / 1e9:.1f} GB, {(needed_bytes - size) / 1e9:.1f} GB more than its "
        f"memory of {size / 1e9:.1f} GB holds: the step cannot run there as it is"
    )
    return (changes("memory-exceeded", text, count=count),)

"""The page of CUDA's calls that a traced program is refused, from the runtime's sources and the toolkit's headers."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from manyscale.runner.errors import UserError
from manyscale.runner.tracers.cuda import compiler, generate
from manyscale.runner.tracers.cuda.library import RUNTIME

_KINDS: Final = (  # the first that fits
    ("Graphics of other interfaces (OpenGL, Vulkan, Direct3D, EGL, VDPAU)", r"Graphics|GL[A-Z]|EGL|VDPAU|NvSci"),
    ("Memory, events and pools of other processes", r"Ipc|ShareableHandle|PoolExport|PoolImport"),
    ("Memory and semaphores of other interfaces", r"External"),
    ("Mipmaps, sparse and planar arrays, views of textures", r"Mipmap|Sparse|ArrayGet|ResourceView|Texture1DLinear"),
    ("Graphs", r"Graph|StreamUpdateCapture|Recapture"),
    ("Others", r""),
)
_HEAD: Final = (
    "# CUDA's calls that are refused",
    "",
    "A CUDA program that is [traced without a GPU](../howto/trace-cuda.md) is refused the calls of CUDA's runtime that"
    " are listed here: they return `cudaErrorNotSupported`, one line on standard error names the call, and the note"
    " `cuda-not-supported` travels with all results. Every other call of CUDA's headers is there. Encoders and"
    " decoders of video (NVENC, NVDEC) are libraries of NVIDIA's driver, which a program does not find.",
)


def page() -> str:
    """What is refused in part alone, where CUDA's headers are not installed."""
    sources = [path.read_text() for path in sorted(Path(RUNTIME).glob("*.c"))]
    in_part = {each for text in sources for each in re.findall(r'not_supported\("([^"]+)"\)', text)}
    lines = list(_HEAD)
    try:
        kit = compiler.toolkit()
        left = sorted(generate.refused(kit.include, sources))
        lines += ["", f"The headers are those of CUDA {kit.version // 1000}.{kit.version % 1000 // 10}."]
    except UserError:
        left = []
        lines += ["", "The list is made of CUDA's headers, which were not installed where this page was built."]
    for title, pattern in _KINDS:
        found = [name for name in left if re.search(pattern, name)]
        left = [name for name in left if name not in found]
        if found:
            lines += ["", f"## {title}", "", *(f"- `{name}`" for name in found)]
    lines += ["", "## Refused in part", "", *(f"- {each}" for each in sorted(in_part))]
    return "\n".join(lines) + "\n"

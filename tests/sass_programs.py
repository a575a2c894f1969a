"""Small kernels from lines of SASS, run by the interpreter alone: no CUDA compiler is needed, only one of C."""

from __future__ import annotations

import ctypes
import shutil
import struct
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest

from manyscale.runner.tracers.cuda import interpreter
from manyscale.runner.tracers.cuda.sass import decode

_PARAMETERS = 0x160
_STORED = 4  # words that a thread gives back


_LIBC = ctypes.CDLL(None)
_LIBC.fopen.restype = ctypes.c_void_p


class Texture(ctypes.Structure):
    """As texture.h has it."""

    _fields_ = [
        *((name, ctypes.c_uint64) for name in ("base", "pitch", "slice")),
        *((name, ctypes.c_uint32) for name in ("width", "height", "depth", "layers")),
        *((name, ctypes.c_uint8) for name in ("dimensions", "channels", "bits", "kind")),
        ("address", ctypes.c_uint8 * 3),
        *(
            (name, ctypes.c_uint8)
            for name in ("is_linear_memory", "is_array", "is_filtered", "is_normalised", "reads_normalised")
        ),
        ("border", ctypes.c_float * 4),
    ]


FIND_TEXTURE = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_uint32)


class Kernel(ctypes.Structure):
    """As sass.h has it."""

    _fields_ = [
        ("name", ctypes.c_char_p),
        ("code", ctypes.c_void_p),
        ("num_instructions", ctypes.c_uint32),
        ("num_registers", ctypes.c_uint32),
        ("shared_bytes", ctypes.c_uint32),
        ("local_bytes", ctypes.c_uint32),
        ("parameter_offset", ctypes.c_uint32),
        ("parameter_bytes", ctypes.c_uint32),
        ("architecture", ctypes.c_uint32),
        ("banks", ctypes.c_void_p * 8),
        ("bank_bytes", ctypes.c_uint32 * 8),
        ("parts", ctypes.c_void_p),
        ("num_parts", ctypes.c_uint32),
        ("cluster", ctypes.c_uint32 * 3),
    ]


class Launch(ctypes.Structure):
    _fields_ = [
        ("kernel", ctypes.POINTER(Kernel)),
        ("grid", ctypes.c_uint32 * 3),
        ("block", ctypes.c_uint32 * 3),
        ("dynamic_shared_bytes", ctypes.c_uint32),
        ("parameters", ctypes.c_void_p),
        ("local_base", ctypes.c_uint64),
        ("shared_base", ctypes.c_uint64),
        ("num_sms", ctypes.c_uint32),
        ("find_allocation", ctypes.c_void_p),
        ("record", ctypes.c_void_p),
        ("warp_instructions", ctypes.c_uint64),
        ("problem", ctypes.c_char * 512),
        ("error", ctypes.c_int),
        ("allocate", ctypes.c_void_p),
        ("release", ctypes.c_void_p),
        ("system_calls", ctypes.c_uint64 * 8),
        ("lanes", ctypes.c_void_p),
        ("cluster", ctypes.c_uint32 * 3),
        ("most_resident", ctypes.c_uint32),
        ("is_cooperative", ctypes.c_uint32),
        ("workers", ctypes.c_uint32),
        ("chunk", ctypes.c_uint32),
        ("find_quietly", ctypes.c_void_p),
        ("chunks", ctypes.c_uint32 * 2),
        ("workspace", ctypes.c_uint64),
        ("find_texture", FIND_TEXTURE),
        ("counts_only", ctypes.c_int),
        ("chosen", ctypes.c_void_p),
        ("num_chosen", ctypes.c_uint32),
        ("of_row", ctypes.c_void_p),
        ("num_rows", ctypes.c_uint32),
    ]


class StoppedError(Exception):
    """What the interpreter said."""


def build(folder: Path) -> ctypes.CDLL:
    """The interpreter as a shared library in ``folder``, unless it is there already."""
    compiler = next((name for name in ("cc", "gcc", "clang") if shutil.which(name)), None)
    if compiler is None:
        pytest.skip("there is no C compiler")
    made = folder / "libsass.so"
    if made.exists():
        return ctypes.CDLL(str(made))
    folder.mkdir(exist_ok=True)
    for name, text in interpreter.sources().items():
        (folder / name).write_text(text)
    sources = [str(path) for path in sorted(folder.glob("*.c"))]
    command = [compiler, *interpreter.FLAGS, *interpreter.machine_flags(), f"-I{folder}", *sources]
    done = subprocess.run([*command, "-o", str(made), "-lm"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return ctypes.CDLL(str(made))


def run(
    sass: ctypes.CDLL,
    lines: Sequence[str],
    inputs: Sequence[np.ndarray],
    *,
    words: dict[int, int] | None = None,
    block: int | None = None,
    shared_bytes: int = 0,
    stored: int = _STORED,
    architecture: int = 80,
    textures: Mapping[int, Texture] | None = None,
    record: Path | None = None,
) -> list[np.ndarray]:
    """What a thread for each row of the inputs (uint32[n, k] or uint32[n]) leaves in R24, R25, R26 and R27, or in
    ``stored`` registers from R24 on.

    The inputs stand in R4, R5, ... when ``lines`` begin; R0 is the thread. ``words``: of a line, the upper half of its
    encoding's low word, which holds an immediate that is written with a point; ``textures``: objects by their handles;
    ``record``: the file of what is recorded.
    Raises StoppedError.
    """
    table = np.ascontiguousarray(np.column_stack([each.reshape(len(each), -1).view(np.uint32) for each in inputs]))
    number, columns = table.shape
    out = np.zeros((number, stored), np.uint32)
    before = [
        "S2R R0, SR_TID.X",
        f"IMAD.WIDE.U32 R2, R0, {hex(4 * columns)}, c[0x0][0x160]",
        *(f"LDG.E R{4 + k}, [R2.64+{hex(4 * k)}]" for k in range(columns)),
    ]
    after = [
        f"IMAD.WIDE.U32 R2, R0, {hex(4 * stored)}, c[0x0][0x168]",
        *(f"STG.E [R2.64+{hex(4 * k)}], R{24 + k}" for k in range(stored)),
        "EXIT",
    ]
    texts = [*before, *lines, *after]
    encodings = [(words or {}).get(k - len(before), 0) << 32 for k in range(len(texts))]
    decoded = decode.decode(texts, [16 * k for k in range(len(texts))], encodings, architecture)
    assert decoded.unknown == {}
    code = np.ascontiguousarray(decoded.code)
    kernel = Kernel(
        name=b"kernel", code=code.ctypes.data, num_instructions=len(code), num_registers=255, shared_bytes=shared_bytes,
        parameter_offset=_PARAMETERS, parameter_bytes=16, architecture=architecture,
    )  # fmt: skip
    objects = dict(textures or {})
    parameters = ctypes.create_string_buffer(struct.pack("<QQ", table.ctypes.data, out.ctypes.data), 16)
    launch = Launch(
        kernel=ctypes.pointer(kernel), grid=(1, 1, 1), block=(block or number, 1, 1),
        parameters=ctypes.addressof(parameters), local_base=0x7E01 << 32, shared_base=0x7E00 << 32, num_sms=1,
        find_texture=FIND_TEXTURE(lambda handle: ctypes.addressof(objects[handle]) if handle in objects else None),
    )  # fmt: skip
    if record is not None:
        launch.record = _LIBC.fopen(bytes(record), b"wb")
    stopped = sass.sass_run(ctypes.byref(launch))
    if record is not None:
        _LIBC.fclose(ctypes.c_void_p(launch.record))
    if stopped:
        raise StoppedError(launch.problem.decode())
    return [out[:, k].copy() for k in range(stored)]

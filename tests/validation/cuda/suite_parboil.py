"""Parboil 2.5, as Accel-Sim's collection of programs has it, on small inputs that are made here.

Its own inputs are no part of the collection. So that results are right is not checked against Parboil's, but that they
are alike on all architectures and at both levels of optimisation.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path
from typing import Final

import numpy as np
from inputs import banded_matrix
from self_checking import BY_STATUS, Program, Suite

_ROOT: Final = "src/cuda/parboil"
_BENCHMARKS: Final = f"{_ROOT}/benchmarks"
_CONVERT: Final = f"{_BENCHMARKS}/spmv/common_src/convert-dataset"
_COMMON: Final = "../../../../common/src/parboil_cuda.c"
SEED: Final = 14
_ORDER: Final = "Atomic operations take threads in any order."


def _graph(folder: Path) -> None:
    """30,000 nodes of three to nine edges each."""
    rng = np.random.default_rng(SEED)
    nodes = 30_000
    degree = rng.integers(3, 10, nodes)
    first = np.concatenate(([0], np.cumsum(degree)[:-1]))
    ends = rng.integers(0, nodes, degree.sum())
    lines = [str(nodes), *(f"{a} {b}" for a, b in zip(first.tolist(), degree.tolist(), strict=True)), "", "0", "",
             str(len(ends)), *(f"{end} 1" for end in ends.tolist())]  # fmt: skip
    (folder / "graph.txt").write_text("\n".join(lines) + "\n")


def _atoms(folder: Path) -> None:
    """A box of 12 A that holds as many atoms as water does."""
    rng = np.random.default_rng(SEED)
    rows = np.concatenate((rng.uniform(0, 12, (170, 3)), rng.uniform(-1, 1, (170, 1))), axis=1)
    lines = (f"ATOM  {i} O WAT {i} {x:.3f} {y:.3f} {z:.3f} {q:.3f}" for i, (x, y, z, q) in enumerate(rows.tolist()))
    (folder / "atoms.pqr").write_text("\n".join(lines) + "\n")


def _image(folder: Path) -> None:
    """996 x 64 numbers around the middle of 996 x 128 bins."""
    rng = np.random.default_rng(SEED)
    bins = 996 * 128
    values = np.clip(rng.normal(bins / 2, bins / 8, 996 * 64), 0, bins - 1).astype("<u4")
    (folder / "image.bin").write_bytes(struct.pack("<4I", 996, 64, 996, 128) + values.tobytes())


def _obstacles(folder: Path) -> None:
    (folder / "cavity.of").write_text((("." * 120 + "\n") * 120 + "\n") * 2)


def _samples(folder: Path) -> None:
    """Samples of k-space along radial lines, so that bins near the centre hold far more than those outside."""
    rng = np.random.default_rng(SEED)
    count, side = 20_000, 32
    direction = rng.normal(size=(count, 3))
    direction /= np.linalg.norm(direction, axis=1, keepdims=True)
    place = direction * rng.uniform(0, 1, (count, 1))
    columns = np.concatenate((rng.normal(size=(count, 2)), place, np.ones((count, 1))), axis=1)
    columns.astype("<f4").tofile(folder / "samples.uks.data")
    half = f"{side // 2} {side // 2} {side // 2}"
    (folder / "samples.uks").write_text(
        f"aquisition.numsamples={count}\naquisition.kmax=1 1 1\naquisition.matrixSize={half}\n"
        f"reconstruction.matrixSize={half}\ngridding.matrixSize={side} {side} {side}\n"
        "gridding.oversampling=2\nkernel.width=5\nkernel.useLUT=1\n"
    )


def _trajectory(folder: Path) -> None:
    """256 samples and 2,048 pixels."""
    rng = np.random.default_rng(SEED)
    numbers = [rng.uniform(-1, 1, count).astype("<f4").tobytes() for count in (*3 * [256], *3 * [2048], 256, 256)]
    (folder / "data.bin").write_bytes(struct.pack("<2i", 256, 2048) + b"".join(numbers))


def _frames(folder: Path) -> None:
    """Two frames of 64 x 48 pixels, the second of which is the first one, moved and with noise."""
    rng = np.random.default_rng(SEED)
    frame = rng.integers(0, 256, (48, 64))
    moved = np.roll(frame, (2, 3), (0, 1)) ^ rng.integers(0, 4, (48, 64))
    for name, values in (("one.bin", frame), ("two.bin", moved)):
        (folder / name).write_bytes(struct.pack("<2H", 64, 48) + values.astype("<i2").tobytes())


def _matrices(folder: Path) -> None:
    rng = np.random.default_rng(SEED)
    for name, rows, columns in (("a.txt", 256, 64), ("b.txt", 64, 128), ("bt.txt", 128, 64)):
        values = " ".join(f"{value:.4f}" for value in rng.uniform(-1, 1, rows * columns).tolist())
        (folder / name).write_text(f"{rows} {columns} {values} \n")


def _sparse(folder: Path) -> None:
    banded_matrix(folder, 6_000, np.random.default_rng(SEED))


def _grid(folder: Path) -> None:
    np.random.default_rng(SEED).uniform(0, 1, 256 * 64 * 16).astype("<f4").tofile(folder / "grid.bin")


def _galaxies(folder: Path) -> None:
    rng = np.random.default_rng(SEED)
    for name in ("data.txt", "random.txt"):
        places = np.stack((rng.uniform(0, 360, 256), rng.uniform(-10, 70, 256)), axis=1)
        (folder / name).write_text("".join(f"{a:.5f} {b:.5f}\n" for a, b in places.tolist()))


def _program(
    name: str, sources: str, arguments: str, inputs: Callable[[Path], None], *edits: tuple[str, str, str],
    folder: str = "cuda", **more: object,
) -> Program:  # fmt: skip
    return Program(
        name, f"{_BENCHMARKS}/{name}/src/{folder}", sources=f"{sources} {_COMMON}", arguments=arguments, edits=edits,
        inputs=inputs, passes=BY_STATUS, fails=r"(?i)error|mismatch|\bfail", **more,  # type: ignore[arg-type]
    )  # fmt: skip


_TEXTURE: Final = "texture<unsigned short, 2, cudaReadModeElementType>"
_TEXTURE_OF_SAD: Final = (
    ("sad4.cu", f"{_TEXTURE} ref;", "static __device__ cudaTextureObject_t ref;"),
    ("sad4.cu", "tex2D(", "tex2D<unsigned short>("),
    ("sad4.cu", _TEXTURE + " &get_ref(void)\n{\n  return ref;\n}",
     "void bind_ref(cudaArray_t array)\n{\n  cudaResourceDesc resource = {};\n  cudaTextureDesc how = {};\n"
     "  cudaTextureObject_t made;\n  resource.resType = cudaResourceTypeArray;\n"
     "  resource.res.array.array = array;\n"
     "  how.addressMode[0] = how.addressMode[1] = cudaAddressModeClamp;\n"
     "  cudaCreateTextureObject(&made, &resource, &how, 0);\n  cudaMemcpyToSymbol(ref, &made, sizeof made);\n}"),
    ("sad4.h", f"{_TEXTURE} &get_ref(void);", "void bind_ref(cudaArray_t array);"),
    ("main.cu", "&get_ref().channelDesc,", "new cudaChannelFormatDesc(cudaCreateChannelDesc<unsigned short>()),"),
    ("main.cu", "cudaBindTextureToArray(get_ref(), ref_ary);", "bind_ref(ref_ary);"),
    ("main.cu", "cudaUnbindTexture(get_ref());", ""),
)  # fmt: skip

PROGRAMS: Final = (
    _program("bfs", "main.cu", "-i graph.txt -o out", _graph,
             ("kernel.cu", "texture<Node> g_graph_node_ref;", "TEXTURE(g_graph_node_ref, Node)"),
             ("kernel.cu", "texture<Edge> g_graph_edge_ref;", "TEXTURE(g_graph_edge_ref, Edge)")),
    _program("cutcp", "main.c readatom.c output.c excl.c cutcpu.c cutoff6overlap.cu", "-i atoms.pqr -o out", _atoms,
             ("main.c", "cutoff = 12.f", "cutoff = 4.f"), alike=1e-4),
    _program("histo", "*.cu", "-i image.bin -o out -- 1", _image),
    _program("lbm", "main.cc lbm.cu", "-i cavity.of -o out 2", _obstacles,
             ("layout_config.h", "SIZE_Z (150)", "SIZE_Z (2)"), alike=1e-4),
    _program("mri-gridding", "main.cu CUDA_interface.cu scanLargeArray.cu sort.cu CPU_kernels.c",
             "-i samples.uks -o out 32 0", _samples, alike=None, why=_ORDER),
    _program("mri-q", "main.cu file.cc", "-i data.bin -o out", _trajectory, words="--use_fast_math", alike=1e-3),
    _program("sad", "*.cu *.c", "-i one.bin,two.bin -o out", _frames, *_TEXTURE_OF_SAD),
    _program("sgemm", "main.cu io.cc", "-i a.txt,b.txt,bt.txt -o out", _matrices,
             ("io.cc", "v.pop_back();", "v.pop_back(); return true;"), alike=1e-4),
    _program("spmv", "main.cu file.cc gpu_info.cc ../../common_src/convert-dataset/convert_dataset.c "
             "../../common_src/convert-dataset/mmio.c", "-i matrix.mtx,vector.bin -o out", _sparse,
             ("main.cu", "i<50", "i<2"),
             ("spmv_jds.h", "texture<float,1> tex_x_float;", "TEXTURE(tex_x_float, float, 1)"),
             words="-I../../common_src/convert-dataset", alike=1e-4,
             needs=tuple(f"{_CONVERT}/{name}.{end}" for name in ("convert_dataset", "mmio") for end in "ch")),
    _program("stencil", "main.cu file.cc", "-i grid.bin -o out -- 256 64 16 2", _grid, words="--use_fast_math"),
    _program("tpacf", "main.cu args.cc model_io.cc", "-i data.txt,random.txt -o out -- -n 1 -p 256", _galaxies,
             alike=None, why=_ORDER),
)  # fmt: skip

SUITE: Final = Suite(
    "Parboil", "gpu-app-collection", "https://github.com/accel-sim/gpu-app-collection",
    "52c11fbccbe11fefd8bb27c1ec64ecfd1828b088", "NCSA", PROGRAMS,
    f"-I{{root}}/{_ROOT}/common/include -include {Path(__file__).parent}/texture_references.h "
    "-DcudaThreadSynchronize=cudaDeviceSynchronize", (f"{_ROOT}/common",), unoptimised_every=8,
)  # fmt: skip

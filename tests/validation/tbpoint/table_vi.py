"""The twelve programs of TBPoint's table VI (IPDPS 2014), or what is public of them today: sources, inputs, sizes.

| program | source | input |
| --- | --- | --- |
| bfs, sssp, mst | LonestarGPU 2.0 (accel-sim/gpu-app-collection) | made here: grids of roads |
| mri, spmv, lbm | Parboil 2.5 (accel-sim/gpu-app-collection) | made here, in the formats that they read |
| cfd, kmeans, hotspot, stream | Rodinia 3.1 (yuhc/gpu-rodinia) | made here |
| black, conv | cuda-samples (NVIDIA) | they make their own |

The table has one kernel of each program, its number of launches, and of thread blocks in all of them. `Program.full`
are arguments and edits for those numbers, as near as the program of today comes; `Program.small` for fewer launches of
the same grid, or a smaller one. LonestarGPU's blocks of 1,024 threads have 32 registers for each, as Fermi's SMs hold
no more.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import numpy as np
from inputs import banded_matrix

REPOSITORIES: Final = {
    "gpu-app-collection": (
        "https://github.com/accel-sim/gpu-app-collection", "52c11fbccbe11fefd8bb27c1ec64ecfd1828b088",
    ),
    "gpu-rodinia": ("https://github.com/yuhc/gpu-rodinia", ""),
    "cuda-samples": ("https://github.com/NVIDIA/cuda-samples", ""),
}  # fmt: skip
_LONESTAR: Final = "src/cuda/lonestargpu-2.0"
_PARBOIL: Final = "src/cuda/parboil"
_COMMON: Final = f"{_PARBOIL}/common/src/parboil_cuda.c"
_BENCHMARKS: Final = f"{_PARBOIL}/benchmarks"
_SAMPLES: Final = "Samples"
_TEXTURES: Final = "-include {validation}/cuda/texture_references.h"
_DECLARED: Final = r"texture\s*<([^>]*)>\s*(\w+)\s*;"
_WRITTEN: Final = r"TEXTURE(\2, \1)"
SEED: Final = 14

Edit = tuple[str, str, str]  # file, regular expression, what stands for it


@dataclass(frozen=True)
class Size:
    """``arguments`` of the program, in its folder of inputs; ``edits`` of its sources."""

    arguments: str
    edits: tuple[Edit, ...] = ()


@dataclass(frozen=True)
class Program:
    """``launches`` and ``blocks`` as in table VI; ``kernel``: regular expression of what is evaluated; ``files``
    of ``folders`` in a checkout of ``repository``, compiled with ``words``; ``inputs(folder, is_full)`` writes what it
    reads."""

    name: str
    is_regular: bool
    launches: int
    blocks: int
    repository: str
    kernel: str
    folders: tuple[str, ...]
    files: str
    words: str
    full: Size
    small: Size
    inputs: Callable[[Path, bool], None] = field(default=lambda folder, is_full: None)
    edits: tuple[Edit, ...] = ()


def road_graph(path: Path, side: int, far: int) -> None:
    """A grid of ``side`` x ``side`` crossings, of which some roads are missing, and ``far`` ones between any two, with
    weights, both ways, in Galois' format."""
    rng = np.random.default_rng(SEED)
    number = np.arange(side * side).reshape(side, side)
    ends = np.concatenate(
        [
            np.stack((number[:, :-1].ravel(), number[:, 1:].ravel())),
            np.stack((number[:-1].ravel(), number[1:].ravel())),
        ],
        axis=1,
    )
    ends = ends[:, rng.random(ends.shape[1]) < 0.85]
    ends = np.concatenate((ends, rng.integers(0, side * side, (2, far))), axis=1)
    weight = rng.integers(1, 10_000, ends.shape[1])
    source, target = np.concatenate((ends, ends[::-1]), axis=1)
    weight = np.concatenate((weight, weight))
    order = np.argsort(source, kind="stable")
    source, target, weight = source[order], target[order], weight[order]
    nodes, edges = side * side, len(source)
    with path.open("wb") as file:
        file.write(struct.pack("<4Q", 1, 4, nodes, edges))
        file.write(np.cumsum(np.bincount(source, minlength=nodes)).astype("<u8").tobytes())
        file.write(target.astype("<u4").tobytes() + b"\0" * (4 * (edges % 2)))
        file.write(weight.astype("<u4").tobytes())


def _roads(folder: Path, is_full: bool) -> None:
    road_graph(folder / "roads.gr", 515 if is_full else 128, 2000 if is_full else 0)


def _matrix(folder: Path, is_full: bool) -> None:
    """As many rows as 765 blocks of 192 threads have (bcsstk32: 44,609 rows)."""
    banded_matrix(folder, 44_609 if is_full else 20_000, np.random.default_rng(SEED))


def _obstacles(folder: Path, is_full: bool) -> None:
    """No obstacles but the walls that the program sets itself."""
    plane = ("." * 120 + "\n") * 120 + "\n"
    (folder / "cavity.of").write_text(plane * (150 if is_full else 30))


def _samples(folder: Path, is_full: bool) -> None:
    """Samples of k-space along radial lines, so that bins near the centre hold far more than those outside."""
    rng = np.random.default_rng(SEED)
    count, side = (2_655_910, 256) if is_full else (60_000, 64)
    direction = rng.normal(size=(count, 3))
    direction /= np.linalg.norm(direction, axis=1, keepdims=True)
    place = direction * rng.uniform(0, 1, (count, 1))
    columns = np.concatenate((rng.normal(size=(count, 2)), place, np.ones((count, 1))), axis=1)
    columns.astype("<f4").tofile(folder / "samples.uks.data")
    names = ["aquisition.numsamples=%d", "aquisition.kmax=1 1 1", "aquisition.matrixSize=%d %d %d",
             "reconstruction.matrixSize=%d %d %d", "gridding.matrixSize=%d %d %d", "gridding.oversampling=2",
             "kernel.width=5", "kernel.useLUT=1"]  # fmt: skip
    half = side // 2
    values = [(count,), (), (half, half, half), (half, half, half), (side, side, side), (), (), ()]
    (folder / "samples.uks").write_text("".join(n % v + "\n" for n, v in zip(names, values, strict=True)))


def _mesh(folder: Path, is_full: bool) -> None:
    """Quadrilaterals with random normals; 506 blocks of 192 cells."""
    rng = np.random.default_rng(SEED)
    rows = 304
    columns = 319 if is_full else 160
    lines = [str(rows * columns)]
    for cell in range(rows * columns):
        x, y = divmod(cell, rows)
        around = [cell if y else 0, cell + rows + 1 if x < columns - 1 else -2, cell + 2 if y < rows - 1 else 0,
                  cell - rows + 1 if x else -2]  # fmt: skip
        normals = np.array([[0, -1], [1, 0], [0, 1], [-1, 0]]) + rng.uniform(-0.1, 0.1, (4, 2))
        words = (f"{one} {n[0]:.6f} {n[1]:.6f} 0" for one, n in zip(around, normals, strict=True))
        lines.append(" ".join(["1.0", *words]))
    (folder / "mesh.txt").write_text("\n".join(lines) + "\n")


def _points(folder: Path, is_full: bool) -> None:
    """494,020 points of 34 numbers, as the KDD cup's of 1999; fewer."""
    rng = np.random.default_rng(SEED)
    count = 494_020 if is_full else 120_000
    with (folder / "points.txt").open("w") as file:
        for begin in range(0, count, 10_000):
            rows = rng.integers(0, 1000, (min(10_000, count - begin), 34))
            file.writelines(f"{begin + i} {' '.join(map(str, row))}\n" for i, row in enumerate(rows.tolist()))


def _plate(folder: Path, is_full: bool) -> None:
    rng = np.random.default_rng(SEED)
    for name, low, high in (("temp", 320, 345), ("power", 0, 0.01)):
        values = rng.uniform(low, high, 512 * 512)
        (folder / f"{name}_512").write_text("".join(f"{value:.6f}\n" for value in values))


def _lonestar(name: str, launches: int, blocks: int, kernel: str) -> Program:
    return Program(
        name, False, launches, blocks, "gpu-app-collection", kernel,
        (f"{_LONESTAR}/apps/{name}", f"{_LONESTAR}/include"), f"{_LONESTAR}/apps/{name}/main.cu",
        f"-DVARIANT=0 -maxrregcount=32 -I{_LONESTAR}/include", Size("roads.gr"), Size("roads.gr"), _roads,
    )  # fmt: skip


def _parboil(name: str, folder: str) -> tuple[str, ...]:
    return (f"{_BENCHMARKS}/{name}/src/{folder}", f"{_PARBOIL}/common")


_BLACK: Final = f"{_SAMPLES}/5_Domain_Specific/BlackScholes"
_CONV: Final = f"{_SAMPLES}/2_Concepts_and_Techniques/convolutionSeparable"
_INCLUDE: Final = f"-I{_PARBOIL}/common/include"

PROGRAMS: Final = (
    _lonestar("bfs", 41, 10_619, "drelax"),
    _lonestar("sssp", 49, 12_691, "drelax"),
    _lonestar("mst", 9, 2_331, "dfindelemin2"),
    Program(
        "mri", False, 7, 18_158, "gpu-app-collection", "splitSort", _parboil("mri-gridding", "cuda"),
        " ".join(f"{_BENCHMARKS}/mri-gridding/src/cuda/{one}" for one in (
            "main.cu", "CUDA_interface.cu", "scanLargeArray.cu", "sort.cu", "CPU_kernels.c",
        )) + f" {_COMMON}",
        _INCLUDE, Size("-i samples.uks -o out 32 0"), Size("-i samples.uks -o out 32 0"), _samples,
    ),
    Program(
        "spmv", True, 50, 38_250, "gpu-app-collection", "spmv_jds",
        (*_parboil("spmv", "cuda"), f"{_BENCHMARKS}/spmv/common_src"),
        " ".join(f"{_BENCHMARKS}/spmv/{one}" for one in (
            "src/cuda/main.cu", "src/cuda/file.cc", "src/cuda/gpu_info.cc",
            "common_src/convert-dataset/convert_dataset.c", "common_src/convert-dataset/mmio.c",
        )) + f" {_COMMON}",
        f"{_INCLUDE} -I{_BENCHMARKS}/spmv/common_src/convert-dataset {_TEXTURES}",
        Size("-i matrix.mtx,vector.bin -o out"),
        Size("-i matrix.mtx,vector.bin -o out", ((f"{_BENCHMARKS}/spmv/src/cuda/main.cu", r"i<50", "i<20"),)), _matrix,
        ((f"{_BENCHMARKS}/spmv/src/cuda/spmv_jds.h", _DECLARED, _WRITTEN),),
    ),
    Program(
        "lbm", True, 6, 108_000, "gpu-app-collection", "performStreamCollide", _parboil("lbm", "cuda"),
        f"{_BENCHMARKS}/lbm/src/cuda/main.cc {_BENCHMARKS}/lbm/src/cuda/lbm.cu {_COMMON}", _INCLUDE,
        Size("-i cavity.of -o out 6"),
        Size("-i cavity.of -o out 4", (
            (f"{_BENCHMARKS}/lbm/src/cuda/layout_config.h", r"SIZE_Z \(150\)", "SIZE_Z (30)"),
        )),
        _obstacles,
    ),
    Program(
        "cfd", True, 100, 50_600, "gpu-rodinia", "cuda_compute_flux", ("cuda/cfd", "cuda/hybridsort"),
        "cuda/cfd/euler3d.cu", "-Icuda/cfd -Icuda/hybridsort",
        Size("mesh.txt", (("cuda/cfd/euler3d.cu", r"define iterations\s+2000", "define iterations 34"),)),
        Size("mesh.txt", (("cuda/cfd/euler3d.cu", r"define iterations\s+2000", "define iterations 4"),)), _mesh,
    ),
    Program(
        "kmeans", True, 30, 58_080, "gpu-rodinia", "kmeansPoint", ("cuda/kmeans",),
        " ".join(f"cuda/kmeans/{one}" for one in (
            "kmeans_cuda.cu", "cluster.c", "getopt.c", "kmeans.c", "kmeans_clustering.c", "rmse.c",
        )),
        f"-Icuda/kmeans {_TEXTURES}",
        Size("-o -i points.txt", (("cuda/kmeans/kmeans_clustering.c", r"loop\+\+ < 500", "loop++ < 29"),)),
        Size("-o -i points.txt", (("cuda/kmeans/kmeans_clustering.c", r"loop\+\+ < 500", "loop++ < 9"),)), _points,
        (("cuda/kmeans/kmeans_cuda_kernel.cu", _DECLARED, _WRITTEN),
         ("cuda/kmeans/kmeans_cuda.cu", r'cudaMemcpyToSymbol\("c_clusters"', "cudaMemcpyToSymbol(c_clusters")),
    ),
    Program(
        "hotspot", True, 1, 1_849, "gpu-rodinia", "calculate_temp", ("cuda/hotspot",), "cuda/hotspot/hotspot.cu",
        "-Icuda/hotspot", Size("512 2 2 temp_512 power_512 out"), Size("512 2 2 temp_512 power_512 out"), _plate,
    ),
    Program(
        "stream", False, 21, 2_688, "gpu-rodinia", "kernel_compute_cost", ("cuda/streamcluster",),
        "cuda/streamcluster/streamcluster_cuda_cpu.cpp cuda/streamcluster/streamcluster_cuda.cu",
        "-Icuda/streamcluster",
        Size("10 20 256 65536 65536 1000 none out 1"), Size("10 20 16 16384 16384 100 none out 1"),
        edits=(("cuda/streamcluster/streamcluster_cuda.cu", "kernel_compute_cost<<<",
                "static int made = 0; if (made++ == 21) exit(0); kernel_compute_cost<<<"),),
    ),
    Program(
        "black", True, 87, 41_760, "cuda-samples", "BlackScholesGPU", (_BLACK, "Common"),
        f"{_BLACK}/BlackScholes.cu {_BLACK}/BlackScholes_gold.cpp", "-ICommon",
        Size("", ((f"{_BLACK}/BlackScholes.cu", r"NUM_ITERATIONS = 512", "NUM_ITERATIONS = 86"),
                  (f"{_BLACK}/BlackScholes.cu", r"OPT_N\s+= 4000000", "OPT_N = 122880"))),
        Size("", ((f"{_BLACK}/BlackScholes.cu", r"NUM_ITERATIONS = 512", "NUM_ITERATIONS = 19"),
                  (f"{_BLACK}/BlackScholes.cu", r"OPT_N\s+= 4000000", "OPT_N = 122880"))),
    ),
    Program(
        "conv", True, 11, 202_752, "cuda-samples", "convolutionRowsKernel", (_CONV, "Common"),
        f"{_CONV}/convolutionSeparable.cu {_CONV}/convolutionSeparable_gold.cpp {_CONV}/main.cpp", "-ICommon",
        Size("", ((f"{_CONV}/main.cpp", r"iterations = 16", "iterations = 10"),)),
        Size("", ((f"{_CONV}/main.cpp", r"iterations = 16", "iterations = 3"),
                  (f"{_CONV}/main.cpp", r"(image[WH]\s+=) 3072", r"\1 768"))),
    ),
)  # fmt: skip


def edited(text: str, old: str, new: str) -> str:
    """Raises ValueError where nothing is to be edited."""
    found, count = re.subn(old, new, text)
    if not count:
        raise ValueError(f"nothing is like {old}")
    return found

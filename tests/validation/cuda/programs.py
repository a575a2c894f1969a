"""Rodinia's 23 CUDA programs: how each is built, run and checked."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import references
from references import Copies


@dataclass(frozen=True)
class Ran:
    """What a check is given: folder of the inputs, of the run, its copies and output, and of the CPU version's run."""

    inputs: Path
    folder: Path
    copies: Copies
    printed: str
    peer: Path


@dataclass(frozen=True)
class Program:
    """``benchmark``: of the 23; ``sources`` in ``folder`` of ``cuda/``; in ``arguments`` ``{0}`` is the folder of the
    inputs. ``peer``: source of the CPU version in ``openmp/``, its compiler's further words and its arguments.
    ``check``: the error, at most ``limit``; ``depth`` of the folder below that of ``data/``.
    """

    name: str
    benchmark: str
    folder: str
    sources: str
    arguments: str
    how: str
    check: Callable[[Ran], float]
    limit: float = 0.0
    words: str = ""
    depth: int = 2
    peer: tuple[str, str, str] | None = None


def _of_copies(function: Callable[[Copies], float]) -> Callable[[Ran], float]:
    return lambda ran: function(ran.copies)


def _same_numbers(name: str, skipped: int = 0) -> Callable[[Ran], float]:
    return lambda ran: references.texts((ran.folder / name).read_text(), (ran.peer / name).read_text(), skipped)


def _fields(ran: Ran) -> float:
    """The worst of cfd's three files; their first lines hold the number of cells, as padded for the blocks."""
    return max(_same_numbers(name, 1)(ran) for name in ("density", "momentum", "density_energy"))


def _accuracy(ran: Ran) -> float:
    return float(ran.printed.rpartition("Accuracy: ")[2].split()[0])


def _passes(ran: Ran) -> float:
    return 0.0 if ran.printed.count("PASS! vectors are matching!") == 1 else 1.0


HERE = Path(__file__).parent
NUMPY = "NumPy"
PEER = "Rodinia's OpenMP version"
OWN = "its own check"
CPU = "its kernel compiled for the CPU"

PROGRAMS = (
    Program("backprop", "backprop", "backprop", "backprop.c facetrain.c imagenet.c backprop_cuda.cu", "4096", NUMPY,
            _of_copies(references.backprop), 1e-5),
    Program("bfs", "bfs", "bfs", "bfs.cu", "{0}/graph.txt", NUMPY, _of_copies(references.bfs)),
    Program("b+tree", "b+tree", "b+tree", "main.c kernel/kernel_gpu_cuda_wrapper.cu kernel/kernel_gpu_cuda_wrapper_2.cu"
            " util/timer/timer.c util/num/num.c util/cuda/cuda.cu", "file {0}/keys.txt command {0}/commands.txt", NUMPY,
            _of_copies(references.btree)),
    Program("cfd (euler3d)", "cfd", "cfd", "euler3d.cu", "{0}/mesh.txt", PEER, _fields, 1e-4, "-I../hybridsort",
            peer=("cfd/euler3d_cpu.cpp", "-Dblock_length=8", "{0}/mesh.txt")),
    Program("cfd (euler3d_double)", "cfd", "cfd", "euler3d_double.cu", "{0}/mesh.txt", PEER, _fields, 2e-5,
            "-I../hybridsort", peer=("cfd/euler3d_cpu_double.cpp", "-Dblock_length=8", "{0}/mesh.txt")),
    Program("dwt2d", "dwt2d", "dwt2d", "main.cu dwt.cu components.cu dwt_cuda/common.cu dwt_cuda/fdwt53.cu"
            " dwt_cuda/fdwt97.cu dwt_cuda/rdwt53.cu dwt_cuda/rdwt97.cu", "image.rgb -d 96x80 -f -5 -l 2 out", NUMPY,
            lambda ran: references.dwt2d(ran.inputs, ran.folder), words="-DOUTPUT"),
    Program("gaussian", "gaussian", "gaussian", "gaussian.cu", "-s 64 -q", NUMPY, _of_copies(references.gaussian),
            1e-4),
    Program("hotspot", "hotspot", "hotspot", "hotspot.cu", "64 2 4 {0}/temp_64 {0}/power_64 out", NUMPY,
            _of_copies(references.hotspot), 1e-6),
    Program("hotspot3D", "hotspot3D", "hotspot3D", "3D.cu", "64 8 4 {0}/power_64x8 {0}/temp_64x8 out", OWN, _accuracy,
            1e-4),
    Program("huffman", "huffman", "huffman", "main_test_cu.cu stats_logger.cpp vlc_kernel_sm64huff.cu scan.cu"
            " pack_kernels.cu cpuencode.cpp", "{0}/symbols.in", OWN, _passes, words="-DTESTING"),
    Program("kmeans", "kmeans", "kmeans", "kmeans_cuda.cu cluster.c getopt.c kmeans.c kmeans_clustering.c rmse.c",
            "-o -i {0}/points.txt", NUMPY, _of_copies(references.kmeans),
            words=f"-include {HERE / 'texture_references.h'}"),
    Program("lavaMD", "lavaMD", "lavaMD", "main.c kernel/kernel_gpu_cuda_wrapper.cu util/num/num.c util/timer/timer.c"
            " util/device/device.cu", "-boxes1d 2", NUMPY, _of_copies(references.lavamd), 1e-12),
    Program("lud", "lud", "lud/cuda", "lud.cu lud_kernel.cu ../common/common.c", "-s 64", NUMPY,
            _of_copies(references.lud), 1e-5, "-I../common"),
    Program("myocyte", "myocyte", "myocyte", "main.cu", "5 1 0", CPU, _same_numbers("output.txt"), 1e-3,
            peer=(str(HERE / "myocyte_cpu.cpp"), "-I../cuda/myocyte", "5")),
    Program("nn", "nn", "nn", "nn_cuda.cu", "{0}/files.txt -r 5 -lat 30 -lng 90", NUMPY, _of_copies(references.nn),
            1e-6),
    Program("nw", "nw", "nw", "needle.cu", "128 10", NUMPY, _of_copies(references.nw)),
    Program("particlefilter (float)", "particlefilter", "particlefilter", "ex_particle_CUDA_float_seq.cu",
            "-x 32 -y 32 -z 4 -np 500", NUMPY, _of_copies(references.particlefilter), 1e-9),
    Program("particlefilter (naive)", "particlefilter", "particlefilter", "ex_particle_CUDA_naive_seq.cu",
            "-x 32 -y 32 -z 4 -np 500", NUMPY, _of_copies(references.particlefilter_naive)),
    Program("pathfinder", "pathfinder", "pathfinder", "pathfinder.cu", "2000 20 5", NUMPY,
            _of_copies(references.pathfinder)),
    Program("srad (v1)", "srad", "srad/srad_v1", "main.cu", "3 0.5 64 32", NUMPY, _of_copies(references.srad_v1), 1e-5,
            depth=3),
    Program("srad (v2)", "srad", "srad/srad_v2", "srad.cu", "64 64 0 31 0 31 0.5 2", NUMPY,
            _of_copies(references.srad_v2), 1e-5),
    Program("streamcluster", "streamcluster", "streamcluster", "streamcluster_cuda_cpu.cpp streamcluster_cuda.cu",
            "3 5 16 512 512 100 none centers.txt 1", PEER, _same_numbers("centers.txt"), 1e-5,
            peer=("streamcluster/streamcluster_omp.cpp", "", "3 5 16 512 512 100 none centers.txt 1")),
)  # fmt: skip

NOT_BUILT = {
    "hybridsort": ("hybridsort", "bucketsort.cu mergesort.cu main.cu"),
    "leukocyte": ("leukocyte/CUDA", "find_ellipse_kernel.cu track_ellipse_kernel.cu"),
    "mummergpu": ("mummergpu/src", "mummergpu.cu"),
}
"""Programs with texture references, which CUDA 12 removed; they are compiled all the same, for the error."""

NOT_RIGHT = {
    "heartwall": "its kernel lacks a barrier: between lines 761 and 781 of `kernel.cu` a thread sums rows that other"
    " warps still write (the same step before it, line 460, has the barrier). Warps of a block run here one after the"
    " other up to a barrier, so that the sums are always wrong. With `__syncthreads()` added, the positions found in"
    " three frames equal those of the OpenMP version on sm_80 (482,151,428 warp instructions, 72 CPU s); it is not"
    " among the programs counted as right.",
}
"""Programs that run, and whose results depend on the order of warps."""

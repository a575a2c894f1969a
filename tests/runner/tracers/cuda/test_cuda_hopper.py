"""A program for sm_90a that checks itself: its kernels use TMA, barriers in shared memory, wgmma and clusters."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from manyscale.models.gpu import detailed
from manyscale.models.gpu.parameters import Gpu
from manyscale.models.workload import asynchronous
from manyscale.models.workload.asynchronous import FROM_SHARED, LOADS, PREFETCHES, REDUCES, WITHIN
from manyscale.models.workload.launch_trace import Space
from manyscale.runner.readers import workload_folder
from manyscale.runner.study.targets import shipped_content

PROGRAM = Path(__file__).parents[3] / "programs" / "cuda_hopper.cu"


@pytest.mark.slow
def test_a_program_for_compute_capability_9_computes_what_the_cpu_does(nvcc, trace):
    program = nvcc("hopper-90a", PROGRAM.read_text(), "-gencode", "arch=compute_90a,code=sm_90a")
    status, printed, told, folder = trace([str(program)], "--as", "h100")
    assert (status, printed[0]) == (0, "PASSED"), told
    workload = workload_folder.read(folder)
    assert {note.code for note in workload.notes} == {"cuda-active-clusters", "cuda-managed-memory"}
    traced = workload.gpu.trace(1)
    opcodes = [traced.static.opcodes[k] for k in traced.static.opcode[traced.instruction]]
    # 2 x 3 blocks, each of 4 steps of two copies, and of 4 products by 4 warps; two stores of a box
    assert opcodes.count("UTMALDG.2D") == 6 * 4 * 2
    assert opcodes.count("HGMMA.64x64x16.F32") == 6 * 4 * 4 * 4
    assert opcodes.count("UTMASTG.2D") == 6 * 2
    # what the tensor maps' boxes have: 64 x 64 halves of A and of B a step, 64 x 32 floats a store
    moved = asynchronous.copied_bytes(traced.words)
    none = {REDUCES: 0, WITHIN: 0, PREFETCHES: 0}
    assert moved == {LOADS: 6 * 4 * 2 * 64 * 64 * 2, FROM_SHARED: 6 * 2 * 64 * 32 * 4, **none}
    # 4 warps of a block wait for 4 steps, and one that loads for 4 free places: each once, however often it asked here
    assert [each.split(".")[1] for each in opcodes if each.startswith("SYNCS")].count("PHASECHK") == 6 * (4 * 4 + 4)
    # a cluster's blocks each load half of a box for both, and add 256 floats to global memory
    shared = workload.gpu.trace(2)
    assert (traced.cluster, shared.cluster) == ((1, 1, 1), (2, 1, 1))
    assert asynchronous.copied_bytes(shared.words) == {
        LOADS: 6 * 8 * 32 * 4,
        FROM_SHARED: 0,
        REDUCES: 6 * 256 * 4,
        WITHIN: 0,
        PREFETCHES: 0,
    }
    # on a target, what is moved passes L2: the boxes' sectors, and those of other accesses
    h100 = Gpu.model_validate(shipped_content("h100")["node"]["gpu"])
    found, _ = detailed.simulate(traced, h100)
    assert found.l2_accesses == (sum(moved.values())) // 32 + len(traced.sector)
    assert found.dram_reads >= (192 * 256 + 128 * 256) * 2 // 32  # A and B, once
    # a multicast passes L2 once, and blocks of a cluster begin together on SMs of their own
    found, _ = detailed.simulate(shared, h100)
    assert found.l2_accesses == 6 * (8 * 32 + 256) * 4 // 32 + len(shared.sector)
    assert found.block_sm[0] != found.block_sm[1]
    assert found.block_begin[0] == found.block_begin[1]
    # each warp of a cluster's blocks loads once what its peer has
    far = shared.static.space[shared.instruction] == Space.cluster
    assert {shared.static.opcodes[k] for k in shared.static.opcode[shared.instruction][far]} == {"LD.E"}
    assert np.count_nonzero(far) == 6 * 8

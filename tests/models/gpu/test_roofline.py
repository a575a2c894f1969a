"""Operations of instructions, and the peaks of GPUs, against specifications."""

from __future__ import annotations

import numpy as np
import pytest

from manyscale.models.gpu import detailed
from manyscale.models.gpu.gpumech import model as gpumech
from manyscale.models.gpu.launch_program import STATIC
from manyscale.models.gpu.parameters import UNITS
from manyscale.models.gpu.roofline.ceilings import ceilings
from manyscale.models.gpu.roofline.counts import RowCounts
from manyscale.models.gpu.roofline.operations import OPERATIONS, RESOURCES, operations_of, work_of
from manyscale.models.gpu.roofline.waits import KIND_OF, KINDS, spread
from manyscale.runner.problems import load_yaml
from manyscale.runner.study.targets import build_machine, shipped_targets


@pytest.mark.parametrize(
    ("opcode", "kind", "of_thread"),
    [
        ("FFMA.FTZ", "fp32", 2), ("FADD", "fp32", 1), ("FMUL", "fp32", 1), ("FFMA2", "fp32", 4), ("DFMA", "fp64", 2),
        ("DADD", "fp64", 1), ("HFMA2.MMA", "fp16", 4), ("HADD2.F32", "fp16", 2),
    ],
)  # fmt: skip
def test_a_fused_instruction_is_two_operations_and_a_pair_twice_as_many(opcode, kind, of_thread):
    assert operations_of(opcode) == (OPERATIONS.index(kind), of_thread, 0)


@pytest.mark.parametrize(
    ("opcode", "kind", "m", "n", "k", "warps"),
    [
        ("HMMA.16816.F32", "tensor_fp16", 16, 8, 16, 1),
        ("HMMA.1688.F32.BF16", "tensor_bf16", 16, 8, 8, 1),
        ("HMMA.1684.F32.TF32", "tensor_tf32", 16, 8, 4, 1),
        ("HMMA.SP.16832.F32", "tensor_fp16", 16, 8, 32, 1),
        ("DMMA.884", "tensor_fp64", 8, 8, 4, 1),
        ("DMMA.16x8x4", "tensor_fp64", 16, 8, 4, 1),
        ("IMMA.8816.S8.S8", "tensor_int8", 8, 8, 16, 1),
        ("IMMA.16864.S4.U4", "tensor_int4", 16, 8, 64, 1),
        ("BMMA.168256.XOR.POPC", "tensor_binary", 16, 8, 256, 1),
        ("QMMA.16832.F32.E4M3.E4M3", "tensor_fp8", 16, 8, 32, 1),
        ("HGMMA.64x256x16.F32", "tensor_fp16", 64, 256, 16, 4),
        ("QGMMA.64x8x32.F32.E4M3.E4M3", "tensor_fp8", 64, 8, 32, 4),
        ("HMMA.884.F32.F32.STEP0", "tensor_fp16", 8, 8, 4, 1),  # four products at once, in four steps
    ],
)
def test_a_product_of_matrices_is_two_operations_for_each_pair_of_elements(opcode, kind, m, n, k, warps):
    assert operations_of(opcode) == (OPERATIONS.index(kind), 0, 2 * m * n * k // warps)


@pytest.mark.parametrize("opcode", ["IMAD", "FMNMX", "MUFU.RCP", "LDG.E", "HMMA", "UTCHMMA"])
def test_others_are_none(opcode):
    assert operations_of(opcode) == (-1, 0, 0)


def test_a_launch_is_the_sum_of_what_it_executes():
    """Three FFMA by 32, 32 and 1 threads, and two HMMA that take 8 cycles each."""
    rows = np.zeros(3, STATIC)
    rows["kind"] = [UNITS.index("fp32"), UNITS.index("tensor"), 200]  # the last one has no unit
    rows["interval"] = [1, 8, 5]
    counts = RowCounts(np.array([3, 2, 7]), np.array([65, 64, 7]), np.array([0, 0, 7]))
    work = work_of(("FFMA", "HMMA.16816.F32", "LDG.E"), np.array([0, 1, 2]), rows, counts)
    amount = dict(zip(RESOURCES, work.amount.tolist(), strict=True))
    cycles = dict(zip(RESOURCES, work.cycles.tolist(), strict=True))
    assert {name: value for name, value in amount.items() if value} == {
        "fp32": 130, "tensor_fp16": 2 * 4096, "fp32_unit": 3, "tensor_unit": 2,
    }  # fmt: skip
    assert {name: value for name, value in cycles.items() if value} == {
        "fp32": 3, "tensor_fp16": 16, "fp32_unit": 3, "tensor_unit": 16,
    }  # fmt: skip


# NVIDIA, "A100 Tensor Core GPU Architecture" (2020), table 1, and "H100 Tensor Core GPU Architecture" (2022), SXM5:
# FLOP/s and B/s; those of the H100's tensor cores are for a clock of 1830 MHz
@pytest.mark.parametrize(
    ("name", "figures", "tensor_hz"),
    [
        ("a100", {"fp64": 9.7e12, "fp32": 19.5e12, "tensor_fp16": 312e12, "tensor_tf32": 156e12, "dram": 1555e9},
         1410e6),
        ("h100", {"fp64": 33.5e12, "fp32": 66.9e12, "tensor_bf16": 989.4e12, "tensor_fp8": 1979e12, "dram": 3352e9},
         1830e6),
    ],
)  # fmt: skip
def test_peaks_are_those_of_the_specification(name, figures, tensor_hz):
    gpu = build_machine(load_yaml(shipped_targets()[name]), name).node.gpu
    most = ceilings(gpu)
    for resource, figure in figures.items():
        hz = tensor_hz if resource.startswith("tensor") else gpu.frequency_hz
        assert most[resource] * hz == pytest.approx(figure, rel=0.01), resource
    assert most["issue"] == gpu.sms * 4


def test_every_part_of_a_stack_is_of_some_instructions_or_of_none():
    """Blocks without work left, and SMs without blocks, are nobody's."""
    causes = {*detailed.CAUSES, *gpumech.CAUSES}
    assert causes - set(KIND_OF) == {"drain", "empty", "DRAIN"}
    assert set(KIND_OF.values()) <= set(KINDS)


def test_cycles_are_spread_by_weights_and_those_of_nobody_left_out():
    weights = np.zeros((2, len(KINDS)))
    weights[:, KINDS.index("issue")] = [3, 1]
    weights[1, KINDS.index("memory")] = 5
    found = spread(("issue", "dram", "barrier", "drain"), np.array([8.0, 6.0, 4.0, 2.0]), weights)
    assert found.tolist() == [[6, 0, 0, 0], [2, 6, 0, 0]]  # no instruction is a barrier

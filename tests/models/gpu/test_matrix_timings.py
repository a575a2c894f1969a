"""What matrix instructions multiply and take: shapes of the PTX ISA, published figures of instructions, closed forms of
launches made of them."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from gpu_programs import Instruction, launch

from manyscale.models.gpu import detailed
from manyscale.models.gpu.gpumech.outline import outline_reads
from manyscale.models.gpu.launch_program import launch_program
from manyscale.models.gpu.matrix.shapes import parse
from manyscale.models.gpu.matrix.timing import timing
from manyscale.models.gpu.parameters import Gpu
from manyscale.models.workload.launch_trace import UnitClass
from manyscale.runner.study.targets import build_machine, shipped_content

BEGIN, END = 2, 1  # as in gpu_small
UNIFORM = 256


def target(name, **changes):
    content = {**shipped_content(name)["node"]["gpu"], **changes}
    return build_machine(
        {**shipped_content(name), "node": {**shipped_content(name)["node"], "gpu": content}}, name
    ).node.gpu


def of_opcode(opcode, warps):
    """A launch of one block, whose tensor instructions have this opcode."""
    trace = launch([warps])
    static = dataclasses.replace(trace.static, opcodes=(opcode,))
    return dataclasses.replace(trace, static=static)


def product(to, *sources):
    return Instruction(UnitClass.tensor, to, sources)


def cycles(opcode, warps, gpu):
    return detailed.simulate(of_opcode(opcode, warps), gpu, None)[0].busy_cycles


@pytest.mark.golden
@pytest.mark.parametrize(
    ("opcode", "shape", "element", "is_sparse", "multiply_adds"),
    [  # PTX ISA: shapes of mma, mma.sp and wgmma
        ("HMMA.16816.F32", (16, 8, 16), "fp16", False, 2048),
        ("HMMA.1688.F16", (16, 8, 8), "fp16", False, 1024),
        ("HMMA.1684.F32.TF32", (16, 8, 4), "tf32", False, 512),
        ("HMMA.1688.F32.TF32", (16, 8, 8), "tf32", False, 1024),
        ("HMMA.16816.F32.BF16", (16, 8, 16), "bf16", False, 2048),
        ("HMMA.SP.16832.F32", (16, 8, 32), "fp16", True, 4096),
        ("HMMA.884.F32.F32.STEP0", (8, 8, 4), "fp16", False, 256),  # a quarter of four products
        ("HMMA.884.F16.F16.STEP1", (8, 8, 4), "fp16", False, 512),
        ("IMMA.8816.S8.S8", (8, 8, 16), "int8", False, 1024),
        ("IMMA.16816.S8.U8", (16, 8, 16), "int8", False, 2048),
        ("IMMA.16832.S8.S8", (16, 8, 32), "int8", False, 4096),
        ("IMMA.16864.S4.S4", (16, 8, 64), "int4", False, 8192),
        ("IMMA.SP.16864.S8.S8.SAT", (16, 8, 64), "int8", True, 8192),
        ("BMMA.168256.XOR.POPC", (16, 8, 256), "binary", False, 32768),
        ("BMMA.88128.AND.POPC", (8, 8, 128), "binary", False, 8192),
        ("DMMA.884", (8, 8, 4), "fp64", False, 256),
        ("DMMA.8x8x4", (8, 8, 4), "fp64", False, 256),
        ("DMMA.16x8x16", (16, 8, 16), "fp64", False, 2048),
        ("QMMA.16832.F32.E4M3.E5M2", (16, 8, 32), "fp8", False, 4096),
        ("HGMMA.64x8x16.F32", (64, 8, 16), "fp16", False, 8192),
        ("HGMMA.64x256x16.F32.BF16", (64, 256, 16), "bf16", False, 262144),
        ("HGMMA.64x128x8.F32.TF32", (64, 128, 8), "tf32", False, 65536),
        ("HGMMA.SP.64x256x32.F32", (64, 256, 32), "fp16", True, 524288),
        ("QGMMA.64x256x32.F32.E4M3.E4M3", (64, 256, 32), "fp8", False, 524288),
        ("IGMMA.64x16x32.S8.S8", (64, 16, 32), "int8", False, 32768),
        ("BGMMA.64x8x256.AND.POPC", (64, 8, 256), "binary", False, 131072),
    ],
)
def test_what_instructions_multiply(opcode, shape, element, is_sparse, multiply_adds):
    found = parse(opcode)
    assert (found.rows, found.columns, found.depth) == shape
    assert (found.element, found.is_sparse, found.multiply_adds) == (element, is_sparse, multiply_adds)
    assert found.is_group == (shape[0] == 64)


@pytest.mark.parametrize(
    "opcode", ["FFMA", "HFMA2.MMA", "UTCHMMA", "OMMA.SF.16864.F32.E2M1", "QMMA.16832.F32.E3M2", "HMMA"]
)
def test_what_an_opcode_does_not_tell(opcode):
    assert parse(opcode) is None


DENSE = {  # NVIDIA's data sheets and whitepapers: Tflop/s, Top/s
    ("a100", "DMMA.884"): 19.5,
    ("a100", "HMMA.1688.F32.TF32"): 156,
    ("a100", "HMMA.16816.F32"): 312,
    ("a100", "HMMA.16816.F16"): 312,
    ("a100", "HMMA.16816.F32.BF16"): 312,
    ("a100", "HMMA.1688.F32"): 312,
    ("a100", "IMMA.16832.S8.S8"): 624,
    ("a100", "IMMA.16864.S4.S4"): 1248,
    ("a100", "BMMA.168256.XOR.POPC"): 4992,
    ("a100", "HMMA.SP.16832.F32"): 624,
    ("a100", "HMMA.SP.16816.F32.TF32"): 312,
    ("a100", "IMMA.SP.16864.S8.S8"): 1248,
    ("v100", "HMMA.884.F32.F32.STEP0"): 125,
    ("t4", "HMMA.1688.F16"): 65,
    ("t4", "IMMA.8816.S8.S8"): 130,
    ("t4", "IMMA.8832.S4.S4"): 260,
    ("l40", "HMMA.16816.F32"): 181.05,
    ("l40", "HMMA.1688.F32.TF32"): 90.5,
    ("l40", "QMMA.16832.F32.E4M3.E4M3"): 362,
    ("rtx4090", "HMMA.16816.F32"): 165.2,
    ("rtx4090", "HMMA.16816.F16"): 330.3,
    ("rtx4090", "IMMA.16832.S8.S8"): 660.6,
    ("h100", "DMMA.16x8x16"): 67,
    ("h100", "HGMMA.64x256x8.F32.TF32"): 494.7,
    ("h100", "HGMMA.64x256x16.F32"): 989.4,
    ("h100", "HGMMA.64x128x16.F16"): 989.4,
    ("h100", "HGMMA.64x128x16.F32.BF16"): 989.4,
    ("h100", "QGMMA.64x256x32.F32.E4M3.E4M3"): 1978.9,
    ("h100", "IGMMA.64x256x32.S8.S8"): 1978.9,
}
TENSOR_CLOCK = 1830e6  # of the H100's data sheet: 989.4 Tflop/s are 132 x 2 x 2,048 a cycle at this one


@pytest.mark.theory
@pytest.mark.parametrize(("name", "opcode"), DENSE)
def test_a_full_rate_stream_reaches_the_peak_of_the_data_sheet(name, opcode):
    """Instructions that depend on nothing, of eight warps of an SM: the multiply-adds of one more, twice, over its
    time, on all SMs."""
    gpu = target(name)
    shape = parse(opcode)
    stream = [product(10 + 2 * i, 210) for i in range(96)] * 3
    warps = 8
    short, long = (cycles(opcode, [stream[:n]] * warps, gpu) for n in (96, 288))
    products = (288 - 96) * warps / (4 if shape.is_group else 1)
    per_cycle = shape.multiply_adds * products / (long - short)
    clock = TENSOR_CLOCK if shape.is_group else gpu.frequency_hz
    assert 2 * per_cycle * gpu.sms * clock / 1e12 == pytest.approx(DENSE[name, opcode], rel=0.03)


@pytest.mark.golden
@pytest.mark.parametrize(
    ("name", "opcode", "expected"),
    [  # Sun and others (TPDS 2023), tables 3 and 6; Luo and others (2024), table VII: cycles
        ("a100", "HMMA.16816.F32", 24.7),
        ("a100", "HMMA.1688.F16", 17.7),
        ("a100", "HMMA.1688.F32.TF32", 25.0),
        ("a100", "IMMA.16832.S8.S8", 24.7),
        ("a100", "BMMA.168256.XOR.POPC", 26.0),
        ("a100", "HMMA.SP.16816.F32", 17.8),
        ("h100", "HMMA.16816.F32", 24.1),
        ("h100", "HMMA.SP.16832.F32", 24.0),
        ("h100", "IMMA.16832.S8.S8", 24.0),
        ("h100", "HGMMA.64x256x16.F32", 128.0),  # Luo and others, table VIII
        ("h100", "HGMMA.64x128x16.F32", 64.0),
        ("h100", "HGMMA.64x64x16.F32", 32.0),
        ("h100", "QGMMA.64x256x32.F32.E4M3.E4M3", 128.0),
        ("h100", "IGMMA.64x256x32.S8.S8", 128.0),
    ],
)
def test_a_dependent_chain_takes_the_published_latency_each(name, opcode, expected):
    gpu = target(name)
    short, long = (cycles(opcode, [[product(2, 2)] * count], gpu) for count in (10, 30))
    assert (long - short) / 20 == pytest.approx(expected, abs=0.5)


@pytest.mark.theory
def test_a_chain_from_its_first_cycle_to_its_last():
    """Every instruction waits for the latency before it: 24.7 cycles are 23 after a pipeline of 2."""
    gpu = target("a100", core=None)
    assert cycles("HMMA.16816.F32", [[product(2, 2)] * 7], gpu) == BEGIN + 7 * 25 + END


@pytest.mark.golden
@pytest.mark.parametrize(
    ("shape", "in_shared", "in_registers"),
    [  # Luo and others (2025), tables 8 and 9 on an H800: cycles by where A is; sparse ones: their section on wgmma
        ("HGMMA.64x256x16.F32", 128, 128),
        ("HGMMA.64x128x16.F32", 64, 64),
        ("HGMMA.64x64x16.F32", 32, 32),
        ("HGMMA.64x32x16.F32", 24, 16),
        ("HGMMA.64x16x16.F32", 20, 13),
        ("HGMMA.64x8x16.F32", 18, 13),
        ("HGMMA.64x256x16.F16", 128, 128),
        ("HGMMA.64x256x8.F32.TF32", 128, 128),
        ("QGMMA.64x256x32.F16.E4M3.E4M3", 128, 128),
        ("IGMMA.64x256x32.S8.S8", 128, 128),
        ("HGMMA.SP.64x256x32.F32", 144, 128),
    ],
)
def test_products_of_groups_take_what_is_published(shape, in_shared, in_registers):
    gpu = target("h100")
    assert timing(shape, gpu).interval == in_shared
    assert timing(shape, gpu, a_in_registers=True).interval == in_registers
    assert timing(shape, gpu).latency + gpu.pipeline_cycles == in_shared


@pytest.mark.parametrize(
    ("opcode", "sources", "interval"),
    [
        ("HGMMA.64x8x16.F32", (2, UNIFORM + 4), 18),
        ("HGMMA.64x8x16.F32", (2, 60, UNIFORM + 4), 13),
        ("HGMMA.SP.64x256x32.F32", (2, 60, UNIFORM + 4), 144),  # 60: the metadata
        ("HGMMA.SP.64x256x32.F32", (2, 60, 61, UNIFORM + 4), 128),
    ],
)
def test_where_a_lies_follows_from_the_registers(opcode, sources, interval):
    program = launch_program(of_opcode(opcode, [[product(2, *sources)]]), target("h100"))
    assert program.static["interval"][0] == interval


@pytest.mark.golden
@pytest.mark.parametrize(
    ("opcode", "tera_operations"),
    [
        ("HMMA.16816.F32", 68.2),
        ("HMMA.16816.F32.BF16", 68.2),
        ("HMMA.16816.F16", 136.4),
        ("HMMA.1688.F32.TF32", 34.1),
        ("IMMA.16832.S8.S8", 272.8),
        ("IMMA.16864.S4.S4", 545.6),
        ("HMMA.SP.16832.F16", 272.8),
    ],
)
def test_sums_of_16_bits_are_faster_on_geforce(opcode, tera_operations):
    """RTX 3080 Ti of 80 SMs at 1665 MHz (NVIDIA, GA102 whitepaper, table of peak rates)."""
    per_cycle = 4 * parse(opcode).multiply_adds / timing(opcode, target("rtx3080ti")).interval
    assert 2 * per_cycle * 80 * 1.665e9 / 1e12 == pytest.approx(tera_operations, rel=0.01)


def test_a_target_without_tensor_cores_by_shape():
    """All take what the unit takes."""
    gpu = target("rtx3070")
    for opcode in ("HMMA.16816.F32", "DMMA.884"):
        assert timing(opcode, gpu) is None
        static = launch_program(of_opcode(opcode, [[product(2, 2)]]), gpu).static
        assert (static["interval"][0], static["latency"][0]) == (
            gpu.units["tensor"].interval_cycles, gpu.units["tensor"].latency_cycles,
        )  # fmt: skip


def test_latencies_of_shapes_that_the_table_lacks():
    """As many rows and bits of depth: m16n8k16 of INT8 as m16n8k8 of FP16; of double precision none."""
    gpu = target("a100")
    assert timing("IMMA.16816.S8.S8", gpu).latency == timing("HMMA.1688.F32", gpu).latency == 16
    assert timing("HMMA.1684.F32.TF32", gpu).latency == 16
    assert timing("IMMA.8832.S4.S4", gpu).latency == timing("IMMA.8816.S8.S8", gpu).latency
    assert timing("DMMA.16x8x16", gpu) is None  # of Hopper alone
    assert timing("QMMA.16832.F32.E4M3.E4M3", gpu) is None


@pytest.mark.parametrize("name", ["HGMMA.64x64x16", "FFMA", "HMMA.16816.F32", "DMMA.8x8x4"])
def test_names_of_timings(name):
    content = shipped_content("a100")["node"]["gpu"]
    with pytest.raises(ValueError, match="no name of a warp's matrix instruction"):
        Gpu.model_validate({**content, "matrix": {"rates": {"fp16": 1024}, "latencies": {name: "3 cycles"}}})


def test_rows_of_other_units_are_left_alone():
    gpu = target("a100")
    static = launch_program(launch([[[Instruction(UnitClass.fp32, 2, (2,)), product(3, 3)]]]), gpu).static
    assert np.array_equal(
        static["interval"][:2], [gpu.units["fp32"].interval_cycles, gpu.units["tensor"].interval_cycles]
    )


def test_outlines_depend_on_tensor_cores():
    """GPUMech's outlines hold the times of static instructions: those for one table do not serve for another."""
    content = shipped_content("a100")["node"]["gpu"]["matrix"]
    slower = target("a100", matrix={**content, "rates": {**content["rates"], "fp16": 512}})
    assert outline_reads(target("a100")) == outline_reads(target("a100"))
    assert outline_reads(target("a100")) != outline_reads(slower)

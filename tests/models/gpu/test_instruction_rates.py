"""Rates of classes of instructions: NVIDIA's table, and what launches made of them reach."""

from __future__ import annotations

import csv
import lzma
import os
import re
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from gpu_programs import Instruction, launch
from gpu_small import gpu as small

from manyscale.models.gpu import detailed
from manyscale.models.gpu.arithmetic.classes import CLASSES, class_of
from manyscale.models.gpu.gpumech.outline import outline_reads
from manyscale.models.gpu.launch_program import launch_program
from manyscale.models.gpu.parameters import FRONTS, UNITS, Gpu
from manyscale.models.workload.launch_trace import UnitClass
from manyscale.runner.problems import load_yaml
from manyscale.runner.readers.accelsim.opcodes import classify, is_known_root
from manyscale.runner.study.targets import build_machine, shipped_targets

DATA = Path(os.environ.get("MANYSCALE_DATA", "/nonexistent")) / "gpu"
BY_HARDWARE = ("h100-pcie", "v100", "t4", "a100", "h100", "h200", "rtx3080ti", "l40", "rtx4090")
OPCODES = {  # one of each row of the table
    "half": "HFMA2", "bfloat16": "HFMA2.BF16_V2", "fp32": "FFMA", "fp64": "DFMA", "sfu": "MUFU.RCP", "int": "IADD3",
    "multiply": "IMAD", "compare": "FMNMX", "bits": "POPC", "shuffle": "SHFL.BFLY", "reduce": "REDUX.SUM",
    "convert64": "F2F.F64.F32", "convert": "F2I.TRUNC.NTZ",
}  # fmt: skip


def published():
    """(row, what it is of, compute capability, results a cycle of an SM)."""
    lines = (Path(__file__).parent / "published_throughput.csv").read_text().splitlines()
    for line in csv.DictReader(each for each in lines if not each.startswith("#")):
        for name, rate in line.items():
            if name[0].isdigit() and rate:
                yield line["row"], line["of"], int(name.replace(".", "")), float(rate)


ROWS = list(published())


@cache
def target(name):
    return build_machine(load_yaml(shipped_targets()[name]), name).node.gpu


def instruction(opcode, to, *sources):
    return Instruction(classify(opcode, False, 80).unit, to, sources, opcode=opcode)


def cycles(warps, gpu):
    return detailed.simulate(launch([warps]), gpu, None)[0].busy_cycles


def test_the_table_has_a_row_for_each_class_that_it_tells():
    assert {of for _, of, _, _ in ROWS} >= {*CLASSES} - {"pack"}
    assert {of for _, of, _, _ in ROWS} <= {*CLASSES, *UNITS}


@pytest.mark.golden
@pytest.mark.parametrize("name", BY_HARDWARE)
def test_rates_of_targets_are_those_of_the_table(name):
    gpu = target(name)
    found = {(row, of): rate for row, of, capability, rate in ROWS if capability == gpu.compute_capability}
    assert len(found) >= 15
    for (row, of), rate in found.items():
        own = gpu.instructions[of].rate if of in CLASSES else 32 * gpu.schedulers / gpu.units[of].interval_cycles
        assert own == rate, row


@pytest.mark.theory
@pytest.mark.parametrize("name", ["a100", "h100", "l40"])
@pytest.mark.parametrize("of", OPCODES)
def test_a_stream_reaches_the_published_rate(name, of):
    """Instructions that depend on nothing, of eight warps: the results of as many more, over their time. An SM issues
    128 results a cycle at most, 256 of pairs."""
    gpu = target(name)
    expected = next(rate for _, each, capability, rate in ROWS if (each, capability) == (of, gpu.compute_capability))
    warps = 8
    results = 64 if of in ("half", "bfloat16") else 32
    stream = [instruction(OPCODES[of], 10 + 2 * i, 210) for i in range(96)]
    short, long = (cycles([stream[:n]] * warps, gpu) for n in (48, 96))
    assert 48 * warps * results / (long - short) == pytest.approx(expected, rel=0.03)


@pytest.mark.golden
@pytest.mark.parametrize(
    ("name", "opcode", "latency"),
    [  # the least distance that nvcc 13 leaves for sm_80, sm_90 and sm_86 to an instruction that needs the result
        ("a100", "HFMA2", 5), ("a100", "HFMA2.BF16_V2", 4), ("a100", "IMAD", 4), ("a100", "F2FP.PACK_AB", 4),
        ("h100", "HFMA2", 5), ("h100", "IMAD", 4), ("h100", "I2FP.F32.S32", 4),
        ("rtx3080ti", "HFMA2", 4), ("rtx3080ti", "IDP.4A.S8.S8", 4),
    ],
)  # fmt: skip
def test_a_chain_takes_the_latency_each(name, opcode, latency):
    short, long = (cycles([[instruction(opcode, 2, 2)] * n], target(name)) for n in (10, 30))
    assert (long - short) / 20 == latency


@pytest.mark.theory
@pytest.mark.parametrize(
    ("name", "first", "second", "side_by_side"),
    [
        ("a100", "IMAD", "FFMA", False),  # one pipe: "FMA pipe handles IMAD, IDP, and FP32 operations"
        ("a100", "IMAD", "IADD3", True),
        ("a100", "FMNMX", "FFMA", True),
        ("a100", "FMNMX", "IADD3", False),
        ("h100", "IMAD", "IADD3", True),
        ("rtx3080ti", "POPC", "MUFU.RCP", False),
        ("rtx3080ti", "F2F.F64.F32", "DFMA", False),
        ("rtx3080ti", "SHFL.BFLY", "POPC", True),
    ],
)
def test_which_instructions_wait_for_each_other(name, first, second, side_by_side):
    """In turn, of eight warps: as long as the slower one alone, or as both one after the other."""
    gpu = target(name)

    def taken(*opcodes):
        stream = [instruction(opcode, 10 + 2 * i + k, 210) for i in range(40) for k, opcode in enumerate(opcodes)]
        short, long = (cycles([stream[: n * len(opcodes)]] * 8, gpu) for n in (20, 40))
        return long - short

    alone = taken(first), taken(second)
    expected = max(alone) if side_by_side else sum(alone)
    assert taken(first, second) == pytest.approx(expected, rel=0.03)


@pytest.mark.parametrize(
    ("opcode", "expected"),
    [
        ("HFMA2.MMA", "half"), ("HADD2.F32", "half"), ("HFMA2.MMA.BF16_V2", "bfloat16"), ("HMUL2.BF16", "bfloat16"),
        ("FSETP.GEU.AND", "compare"), ("IMAD.WIDE.U32", "multiply"), ("IDP.4A.S8.S8", "multiply"), ("FLO.U32", "bits"),
        ("F2F.F32.F64", "convert64"), ("I2F.S64", "convert64"), ("F2I.S64.TRUNC", "convert64"), ("I2F.U16", "convert"),
        ("FRND.FLOOR", "convert"), ("F2FP.BF16.F32.PACK_AB", "pack"), ("MATCH.ANY", "reduce"), ("VOTE.ANY", None),
        ("FFMA", None), ("IADD3", None), ("LDG.E", None), ("HMMA.16816.F32", None), ("VOTEU.ANY", None),
    ],
)  # fmt: skip
def test_classes(opcode, expected):
    assert class_of(opcode) == expected


def test_every_class_is_of_known_instructions():
    for opcode in OPCODES.values():
        assert is_known_root(opcode.split(".")[0])


def test_a_target_without_classes_takes_what_units_take():
    gpu = target("rtx3070")
    opcodes = ["HFMA2", "POPC", "F2F.F64.F32", "SHFL.BFLY"]
    static = launch_program(launch([[[instruction(each, 2, 3) for each in opcodes]]]), gpu).static[:4]
    units = [classify(each, False, 80).unit for each in opcodes]
    assert np.array_equal(static["kind"], units)
    assert np.array_equal(static["interval"], [gpu.units[UNITS[unit]].interval_cycles for unit in units])


def test_a_class_by_a_target():
    """Rate, unit and latency; an SM of fewer schedulers has fewer units for the same rate."""
    own = {"bits": {"rate": 8, "unit": "sfu"}, "shuffle": {"rate": 64, "unit": "exchange", "latency": "25 cycles"}}
    gpu = small(instructions=own, schedulers=2)
    static = launch_program(launch([[[instruction("POPC", 2, 3), instruction("SHFL.IDX", 4, 3)]]]), gpu).static
    assert [FRONTS[each] for each in static["front"][:2]] == ["sfu", "exchange"]
    assert static["interval"][:2].tolist() == [2 * 32 // 8, 1]
    assert static["latency"][:2].tolist() == [gpu.units["sfu"].latency_cycles, 25 - gpu.pipeline_cycles]


def test_a_class_on_a_unit_of_its_own_has_a_latency():
    content = load_yaml(shipped_targets()["a100"])["node"]["gpu"]
    content["instructions"]["shuffle"] = {"rate": 32, "unit": "exchange"}
    with pytest.raises(ValueError, match=r"instructions\.shuffle: no latency, which the unit exchange does not tell"):
        Gpu.model_validate(content)


def test_outlines_depend_on_classes():
    """GPUMech's outlines hold the times of static instructions."""
    content = load_yaml(shipped_targets()["a100"])["node"]["gpu"]
    content["instructions"]["half"]["rate"] = 128
    assert outline_reads(target("a100")) != outline_reads(Gpu.model_validate(content))


def test_units_of_traces_are_those_of_accel_sim():
    """Classes are a target's: what a trace says of a unit stays."""
    assert classify("IMAD", False, 80).unit == classify("SHFL", False, 80).unit == UnitClass.int


@pytest.mark.slow
@pytest.mark.skipif(not DATA.is_dir(), reason="MANYSCALE_DATA does not name the folder of the traces")
def test_every_opcode_of_public_traces_has_a_unit_or_a_class():
    """Of those that are known by name; of others a note tells the share (test_untimed_instructions.py)."""
    paths = [path for path in DATA.rglob("*.traceg*") if path.stat().st_size < 3_000_000]
    opcodes = set()
    for path in paths:
        with lzma.open(path, "rt") if path.suffix == ".xz" else path.open() as lines:
            for words in map(str.split, lines):
                if len(words) > 3 and re.fullmatch("[0-9a-f]{4}", words[0]):
                    opcodes.add(words[3 + int(words[2])])
    assert len(opcodes) > 30
    assert {each for each in opcodes if not is_known_root(each.split(".")[0])} == set()
    assert {class_of(each) for each in opcodes} >= {"half", "compare", "multiply"}

"""Traces at several inputs: what is asked on the command line, and blocks that are the same in all."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from manyscale.models.memory.access_stream import sites_of
from manyscale.runner.errors import UserError
from manyscale.runner.predict.memory.training import parse_inputs, parse_sizes, read_training

DETAIL = Path(__file__).parents[3] / "data" / "detail"


@pytest.mark.contract
@pytest.mark.parametrize("text", ["10", "=x", "0=x", "a=x", "1.5=x", "10=", "-3=x"])
def test_an_input_is_a_size_and_a_trace(text):
    with pytest.raises(UserError, match="write SIZE=TRACE"):
        parse_inputs([text])


@pytest.mark.contract
def test_inputs_are_sorted_and_differ():
    assert parse_inputs(["20=b", "10=a=c"]) == [(10, "a=c"), (20, "b")]
    with pytest.raises(UserError, match="same size"):
        parse_inputs(["20=b", "20=a"])


@pytest.mark.contract
@pytest.mark.parametrize("text", ["", "10,", "0", "x", "10;20", "-1"])
def test_sizes_are_whole_numbers(text):
    with pytest.raises(UserError, match="--sizes"):
        parse_sizes(text)


@pytest.mark.theory
def test_sizes_are_sorted_once():
    assert parse_sizes("400, 100,400") == [100, 400]


@pytest.mark.contract
def test_equal_blocks_have_one_number(tmp_path):
    """The same trace twice, as two inputs: every block and site of one is that of the other."""
    path = DETAIL / "bs16_O1.lk.xz"
    training = read_training([(16, str(path)), (32, str(path))], "auto", tmp_path)
    first, second = training.runs
    assert np.array_equal(first.block_number, second.block_number)
    assert np.array_equal(first.site_number, second.site_number)
    assert training.sites.num_blocks == first.workload.tables["blocks"].num_rows
    own = sites_of(first.workload)
    assert np.array_equal(training.sites.bytes[first.site_number], own.bytes)
    assert np.array_equal(training.sites.block[first.site_number], first.block_number[own.block])


@pytest.mark.contract
def test_the_program_has_every_block_with_its_instructions_and_accesses(tmp_path):
    names = ["bs16_O1.lk.xz", "bs16_clangO1_sancov.npz", "matmul25_O1.lk.xz"]
    training = read_training([(i + 1, str(DETAIL / name)) for i, name in enumerate(names)], "auto", tmp_path)
    program = training.program
    own = sites_of(program)
    assert np.array_equal(own.block, training.sites.block)
    assert np.array_equal(own.bytes, training.sites.bytes)
    assert np.array_equal(own.is_store, training.sites.is_store)
    seen = np.zeros(training.sites.num_blocks, bool)
    for run in training.runs:
        for column in ("offset", "module", "num_instructions"):
            theirs = run.workload.tables["blocks"].column(column).to_pylist()
            mine = program.tables["blocks"].column(column).to_pylist()
            assert [mine[number] for number in run.block_number[~seen[run.block_number]]] == [
                theirs[i] for i in np.flatnonzero(~seen[run.block_number])
            ]
        counts = [
            np.bincount(w.column("instructions", "block_id"), minlength=w.tables["blocks"].num_rows)
            for w in (program, run.workload)
        ]
        fresh = ~seen[run.block_number]
        assert np.array_equal(counts[0][run.block_number[fresh]], counts[1][fresh])
        seen[run.block_number] = True
    assert seen.all()


@pytest.mark.contract
def test_blocks_of_different_programs_are_apart(tmp_path):
    paths = [DETAIL / "bs16_O1.lk.xz", DETAIL / "matmul25_O1.lk.xz"]
    training = read_training([(index + 1, str(path)) for index, path in enumerate(paths)], "auto", tmp_path)
    numbers = [set(run.block_number.tolist()) for run in training.runs]
    # addresses of code are all that lackey tells, so a few blocks may look alike
    assert len(numbers[0] & numbers[1]) <= 1
    assert numbers[0] | numbers[1] == set(range(training.sites.num_blocks))


@pytest.mark.contract
def test_a_trace_without_accesses_is_named(tmp_path):
    with pytest.raises(UserError, match=r"phases\.m\.bb\.xz: has no detailed level"):
        read_training([(1, str(DETAIL / "phases.m.bb.xz"))], "auto", tmp_path)

"""Accesses, blocks and instructions of programs whose counts follow from their source, or from Valgrind."""

from __future__ import annotations

import re
import subprocess
from itertools import pairwise

import numpy as np
import pytest
from tracer_programs import need

from manyscale.models.workload.detail_tables import InstructionClass


def symbols(program) -> dict[str, int]:
    need("nm")
    lines = subprocess.run(["nm", program], capture_output=True, text=True, check=True).stdout.splitlines()
    return {line.split()[2]: int(line.split()[0], 16) for line in lines if len(line.split()) == 3}


@pytest.mark.theory
def test_matrix_multiplication_makes_the_accesses_of_its_source(recorded, detail_programs):
    """2 n^3 + n^2 loads and n^2 stores, each at the address that the loops say."""
    run, n = recorded("mm50.c"), 50
    assert run.of("multiply")["loads"] == 2 * n**3 + n**2 == 252_500
    assert run.of("multiply")["stores"] == n**2 == 2_500
    place = symbols(detail_programs.build("mm50.c"))
    base = next(each["base"] for each in run.process.definitions if each.get("module", "").endswith("mm50_c-detailed"))
    a, b, c = (base + place[name] for name in "abc")
    i, j, k = np.meshgrid(np.arange(n), np.arange(n), np.arange(n), indexing="ij")
    inner = np.stack([a + 8 * (n * i + k), b + 8 * (n * k + j)], axis=-1).reshape(n, n, 2 * n)
    around = (c + 8 * (n * i + j))[:, :, :1]
    expected = np.concatenate([around, inner, around], axis=2).reshape(-1)
    mine = (run.blocks.function == "multiply").to_numpy()[run.access_blocks]
    assert np.array_equal(run.addresses[mine], expected.astype(np.uint64))


@pytest.mark.theory
def test_stream_loads_six_and_stores_four_values_an_element(recorded):
    run, n, repeats = recorded("stream.c", "1000", "3"), 1000, 3
    accesses = run.tables["block_accesses"].to_pandas()
    size = accesses.groupby(["block_id", "is_store"])["bytes"].sum()
    for function, loads, stores in (("copy", 1, 1), ("scale", 1, 1), ("add", 2, 1), ("triad", 2, 1)):
        mine = run.blocks[run.blocks.function == function]
        for is_store, values in ((False, loads), (True, stores)):
            moved = sum(
                int(executions) * int(size.get((block, is_store), 0)) for block, executions in mine.executions.items()
            )
            assert moved == 8 * values * n * repeats, function


@pytest.mark.theory
def test_black_scholes_sees_the_programs_own_accesses(recorded):
    """Five loads and one store an option; the calls of libm end blocks."""
    run = recorded("black_scholes.c", "16")
    own = run.of("price") + run.of("cumulative")  # the inlined function is named by its own source
    assert (own["loads"], own["stores"]) == (5 * 16, 16)
    calls = run.tables["instructions"].to_pandas().query(f"instruction_class == {int(InstructionClass.call)}")
    executed = run.blocks.executions[
        calls.block_id[run.blocks.function[calls.block_id].isin(["price", "cumulative"]).values]
    ]
    assert executed.sum() == 16 * 4  # log, erfc, exp, erfc


@pytest.mark.theory
@pytest.mark.parametrize(
    ("function", "loads", "stores"),
    [
        ("fibonacci", 177 + 88, 177 + 88),
        ("exponentials", 64, 64),
        ("three_leaves", 0, 0),
        ("leaf", 15 + 3 + 1, 15 + 3 + 1),
        ("tail", 3, 3),
        ("deep", 0, 0),
    ],
)
def test_calls_do_not_mix_up_whose_access_it_is(recorded, function, loads, stores):
    run = recorded("calls.c")
    assert (run.of(function)["loads"], run.of(function)["stores"]) == (loads, stores)
    compared = run.of("compare")
    assert compared["loads"] == 3 * compared["stores"] > 0
    assert run.notes == []


@pytest.mark.theory
def test_recursion_is_followed_through_blocks_without_accesses(recorded):
    """The order of fibonacci's blocks, which is known: entry, three parts around two calls, end."""
    run = recorded("calls.c")
    mine = run.blocks.index[run.blocks.function == "fibonacci"].tolist()
    accesses = run.tables["block_accesses"].to_pandas().groupby("block_id").size()
    entry = next(block for block in mine if run.blocks.is_entry[block])
    behind = next(block for block in mine if block != entry and accesses.get(block, 0))
    first, second = behind - 2, behind - 1
    (end,) = set(mine) - {entry, first, second, behind}

    def expected(n: int) -> list[int]:
        if n < 2:
            return [entry, end]
        return [entry, first, *expected(n - 1), second, *expected(n - 2), behind, end]

    assert run.sequence("fibonacci") == expected(10)


@pytest.mark.theory
def test_parts_around_calls_lie_around_what_is_called(recorded):
    run = recorded("calls.c")
    leaf = run.blocks.index[run.blocks.function == "leaf"].tolist()
    parts = run.blocks.index[run.blocks.function == "three_leaves"].tolist()
    assert len(leaf) == 1
    assert len(parts) == 4
    (a, b, c, d), inner = parts, leaf[0]
    order = run.sequence("three_leaves", "leaf")
    assert order[: 7 * 5] == [a, inner, b, inner, c, inner, d] * 5
    before, after = sorted(
        block for block in run.blocks.index[run.blocks.function == "exponentials"] if run.blocks.executions[block] == 64
    )
    loop = [block for block in run.sequence("exponentials") if block in (before, after)]
    assert loop == [before, after] * 64


@pytest.mark.peer
@pytest.mark.parametrize("source", ["mm50.c", "stream.c", "calls.c", "black_scholes.c"])
def test_instructions_are_within_15_percent_of_valgrinds(recorded, detail_programs, source, tmp_path):
    """Callgrind counts the plain build; what is compared is the program's own code."""
    need("valgrind", "callgrind_annotate")
    plain, out = detail_programs.build(source, "plain"), tmp_path / "callgrind"
    command = ["valgrind", "--tool=callgrind", f"--callgrind-out-file={out}", str(plain)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"valgrind: {done.stderr.splitlines()[-1:]}")
    told = subprocess.run(["callgrind_annotate", "--threshold=100", out], capture_output=True, text=True, check=True)
    lines = re.findall(r"^ *([\d,]+) \(.*?\)  (\S+):\S+ \[", told.stdout, re.MULTILINE)
    expected = sum(int(number.replace(",", "")) for number, file in lines if file.endswith(source))
    assert expected > 1000
    assert recorded(source).blocks.instructions.sum() == pytest.approx(expected, rel=0.15)


@pytest.mark.peer
def test_blocks_begin_where_objdump_sees_instructions(recorded, detail_programs):
    need("objdump")
    for source in ("mm50.c", "calls.c"):
        program = detail_programs.build(source)
        text = subprocess.run(["objdump", "-d", program], capture_output=True, text=True, check=True).stdout
        known = {int(found, 16) for found in re.findall(r"^ +([0-9a-f]+):\t", text, re.MULTILINE)}
        entries = {int(place, 16): name for place, name in re.findall(r"^0*([0-9a-f]+) <(\w+)>:", text, re.MULTILINE)}
        blocks = recorded(source).blocks
        assert set(blocks.offset) <= known
        for row in blocks[blocks.is_entry].itertuples():
            assert entries[row.offset] == row.function


@pytest.mark.theory
def test_blocks_know_their_lines(recorded):
    run = recorded("mm50.c")
    inner = run.blocks.loc[run.blocks.executions.idxmax()]
    assert inner.file.endswith("mm50.c")
    assert inner.function == "multiply"
    assert 16 <= inner.line <= 18


@pytest.mark.theory
def test_a_loops_arithmetic_is_classified(recorded):
    """Per iteration of the innermost loop a multiplication and an addition, which waits for the one before."""
    run = recorded("mm50.c")
    block = int(run.blocks.executions.idxmax())
    rows = run.tables["instructions"].to_pandas().query(f"block_id == {block}")
    loads = int(run.blocks.loads[block] // run.blocks.executions[block])
    kinds = [InstructionClass(kind) for kind in rows.instruction_class]
    assert kinds.count(InstructionClass.fp_mul) == kinds.count(InstructionClass.fp_add) == loads // 2
    assert kinds[-1] == InstructionClass.branch
    assert set(rows.lanes) == {1}
    additions = rows[rows.instruction_class == InstructionClass.fp_add]
    for before, after in pairwise(additions.itertuples()):
        assert set(before.destinations) & set(after.sources)
    accesses = run.tables["block_accesses"].to_pandas().query(f"block_id == {block}")
    assert (accesses.instruction >= 0).all()
    assert (accesses["bytes"] == 8).all()


@pytest.mark.theory
def test_a_library_that_calls_back(detail_programs):
    """Two modules with coverage: each access belongs to its own."""
    library = detail_programs.folder / "liblibrary.so"
    detail_programs.build("library.c", "detailed", "-shared", "-fPIC").rename(library)
    words = (f"-L{library.parent}", "-llibrary", f"-Wl,-rpath,{library.parent}")
    raw, done = detail_programs.run(detail_programs.build("library_user.c", "detailed", *words))
    assert done.returncode == 0, done.stderr
    run = detail_programs.read(raw)
    for function, loads, stores in (
        ("library_map", 20, 20),
        ("library_add", 20, 20),
        ("twice", 20, 20),
        ("library_sum", 1, 0),
    ):
        assert (run.of(function)["loads"], run.of(function)["stores"]) == (loads, stores), function
    modules = run.blocks.groupby("function").module.unique()
    assert modules["library_add"].tolist() == ["liblibrary.so"]
    assert modules["twice"].tolist() != ["liblibrary.so"]
    before, after = (
        block for block in run.blocks.index[run.blocks.function == "library_map"] if run.blocks.executions[block] == 20
    )
    twice = run.blocks.index[run.blocks.function == "twice"].tolist()
    (add,) = run.blocks.index[run.blocks.function == "library_add"]
    order = run.sequence("library_map", "twice", "library_add")
    assert [block for block in order if block in (before, after, *twice, add)] == [
        before,
        twice[0],
        add,
        twice[1],
        after,
    ] * 20


@pytest.mark.theory
def test_virtual_calls_and_exceptions(recorded):
    """12 calls of which each third throws through two frames."""
    run = recorded("exceptions.cpp")
    assert (run.of("outer")["loads"], run.of("outer")["stores"]) == (12 + 8, 12 + 8)
    assert run.of("inner")["loads"] == 4
    assert run.of("inner")["stores"] == 4 + 4  # and the exception's value
    assert run.of("Disc::area")["loads"] == 1
    assert run.of("Square::area")["loads"] in (3, 6)
    assert run.notes == []


@pytest.mark.theory
def test_what_is_jumped_over_is_not_executed(recorded):
    """deep() calls itself three times and jumps back to main: nothing behind its calls. inner() throws four times."""
    deep = recorded("calls.c").blocks.query("function == 'deep'").executions.tolist()
    assert sorted(deep) == [0, 1, 3, 4]
    thrown = recorded("exceptions.cpp").blocks
    assert thrown[thrown.function.str.startswith("outer(")].executions.tolist() == [12, 8]


@pytest.mark.theory
def test_a_jump_to_another_function_is_a_call_of_it(recorded):
    run = recorded("calls.c")
    (tail,), (leaf,) = (run.blocks.index[run.blocks.function == name].tolist() for name in ("tail", "leaf"))
    around = [block for block in run.block_ids.tolist() if run.blocks.function[block] in ("main", "tail", "leaf")]
    first = around.index(tail)
    part = around[first - 1]
    assert around[first - 1 : first + 8] == [part, tail, leaf, part + 1, tail, leaf, part + 2, tail, leaf]


@pytest.mark.theory
def test_a_square_root_is_executed_although_code_generation_put_a_call_beside_it(recorded):
    """Once for each of 1,000 elements, with its load; the library's function for none of them."""
    run = recorded("roots.c")
    mine = run.tables["instructions"].to_pandas()
    mine = mine[run.blocks.function[mine.block_id].to_numpy() == "sum_of_roots"]
    executions = run.blocks.executions[mine.block_id].to_numpy()
    assert executions[mine.instruction_class == InstructionClass.fp_sqrt].sum() == 1000
    assert not (executions[mine.instruction_class == InstructionClass.call] > 0).any()
    assert run.of("sum_of_roots")["loads"] == 1000

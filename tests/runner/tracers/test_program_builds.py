"""The programs that the tracer's tests trace: each builds, runs, and notices a wrong result; counts follow from it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from program_builds import BUILD, KERNEL_CALLS, LONGER, SMALL, build, run
from programs import counts
from tracer_programs import MPI

# One slip per program, which its check has to notice.
SLIPS = {
    "cholesky": ("sum -= x[i * block_size + k] * y", "sum += x[i * block_size + k] * y"),
    "sparselu": ("there[i * num_blocks + j] = 1;", "if (i != j + 2) there[i * num_blocks + j] = 1;"),
    "jacobi": ("below[j] + here[j - 1]", "below[j] + here[j]"),
    "multizone": ("right ? 0 : zones[other].width - 1", "right ? 1 : zones[other].width - 1"),
    "convolution_2d": ("row * side + column] * corner", "column * side + row] * corner"),
    "fft": ("bit = length / 2;", "bit = length / 4;"),
    "histogram": ("own[i] >> level] += 1", "own[i] / 2 >> level] += 1"),
    "k_means": ("square < least", "square > least"),
    "matrix_multiply": ("factor * right[k * block_size + j]", "factor * right[j * block_size + k]"),
    "merge_sort": ("x[i] <= y[j])", "x[i] >= y[j])"),
    "monte_carlo": ("state ^= state << 13;", "state |= state << 13;"),
    "n_body": ("partner * stride + num_blocks", "partner * partner * stride + num_blocks"),
    "reduction": ("for (int stride = 1; stride <", "for (int stride = 1; 2 * stride <"),
    "sparse_matrix_vector": ("from[column[element]];", "from[column[element] / 2];"),
    "stencil": ("in[z + plane]", "in[z + 2]"),
    "vector_operation": ("i < count; i++", "i + 1 < count; i++"),
}
# One that shows only where the argument that follows the iterations is not its default.
LONGER_SLIPS = {
    "convolution_2d": ("+ j * step;", "+ j;"),
    "histogram": ("own[i] >> level] += 1", "own[i] >> level / 2] += 1"),
    "k_means": ("own[i] += other[i]", "own[i] -= other[i]"),
    "matrix_multiply": ("i < num_rows; i++", "i < num_blocks; i++"),
    "reduction": ("number < num_shares", "number < (num_shares + 1) / 2"),
    "sparse_matrix_vector": ("x + (size_t)vector * num_columns;", "x;"),
    "stencil": ("number < 2 * rounds", "number < 2"),
    "vector_operation": ("update < updates", "update < (updates + 1) / 2"),
}


# the second compiler's and library's turns are among the slower tests: test_programs_traced.py has GCC's kernels
@pytest.fixture(scope="session", params=["clang", pytest.param("gcc", marks=pytest.mark.slow)])
def kernels(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("kernels"), request.param, None, *counts.KERNELS)


@pytest.fixture(
    scope="session",
    params=[
        ("clang", "mpich"),
        *(pytest.param((compiler, "openmpi"), marks=pytest.mark.slow) for compiler in ("clang", "gcc")),
    ],
    ids="-".join,
)
def apps(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    compiler, library = request.param
    return build(tmp_path_factory.mktemp("apps"), compiler, library, "--marks", *counts.APPS), library


@pytest.mark.theory
@pytest.mark.parametrize(("program", "arguments"), KERNEL_CALLS)
def test_kernels_say_ok(kernels: Path, program: str, arguments: tuple[int, ...]) -> None:
    for threads in (1, 2):
        done = run([kernels / program, *map(str, arguments)], threads)
        assert (done.returncode, done.stdout, done.stderr) == (0, f"{program} ok\n", "")


@pytest.mark.theory
@pytest.mark.parametrize("program", counts.APPS)
def test_distributed_programs_say_ok(apps: tuple[Path, str], program: str) -> None:
    folder, library = apps
    done = run([*MPI[library][1], "4", folder / program, *map(str, SMALL[program])])
    assert (done.returncode, done.stdout) == (0, f"{program} ok\n"), done.stderr


@pytest.mark.parametrize(
    ("program", "slip", "arguments"),
    [(program, slip, SMALL[program]) for program, slip in SLIPS.items()]
    + [(program, slip, LONGER[program]) for program, slip in LONGER_SLIPS.items()],
)
def test_a_slip_is_noticed(program: str, slip: tuple[str, str], arguments: tuple[int, ...], tmp_path: Path) -> None:
    folder = tmp_path / "programs"
    shutil.copytree(counts.PROGRAMS_FOLDER, folder, ignore=shutil.ignore_patterns("__pycache__"))
    source = folder / counts.source(program).relative_to(counts.PROGRAMS_FOLDER)
    before, after = slip
    assert source.read_text().count(before) == 1
    source.write_text(source.read_text().replace(before, after))
    compiler = next((name for name in ("clang", "gcc") if shutil.which(name)), None)
    wrapper = next((name for name in ("mpicc.mpich", "mpicc") if shutil.which(name)), None)
    if compiler is None or (wrapper is None and program in counts.APPS):
        pytest.skip("no compiler, or no MPI")
    built = run([folder / "build.sh", tmp_path, "--cc", compiler, "--mpicc", wrapper or "mpicc", program])
    assert built.returncode == 0, built.stderr
    # A program of MPI is its own only rank without a launcher.
    done = run([tmp_path / program, *map(str, arguments)])
    assert (done.returncode, done.stdout) == (1, f"{program} WRONG\n")


def test_arguments_are_checked(kernels: Path) -> None:
    for bad in ("many", "0", "-3", "1e9", ""):
        done = run([kernels / "monte_carlo", "10", bad])
        assert done.returncode == 2
        assert f"argument 2 is '{bad}': give a whole number from 1" in done.stderr


@pytest.mark.parametrize(
    ("program", "last", "told"),
    [
        ("histogram", 32, "histogram: give at most 31 levels"),
        ("k_means", 1, "argument 6 is '1': give a whole number from 2"),
        ("reduction", 6, "reduction: the shares are a power of two"),
    ],
)
def test_what_follows_the_iterations_is_checked(kernels: Path, program: str, last: int, told: str) -> None:
    done = run([kernels / program, *map(str, SMALL[program]), str(last)])
    assert (done.returncode, done.stdout) == (2, "")
    assert told in done.stderr


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ([], "name the folder"),
        (["out", "--variant", "fast"], "unknown variant fast"),
        (["out", "--vectors"], "unknown option --vectors"),
        (["out", "--cc"], "--cc needs a value"),
        (["out", "--cc", "no-such-compiler"], "no compiler no-such-compiler"),
        (["out", "no_such_program"], "no program no_such_program"),
    ],
)
def test_the_build_refuses(arguments: list[str], told: str, tmp_path: Path) -> None:
    done = run([BUILD, *(str(tmp_path) if part == "out" else part for part in arguments)])
    assert done.returncode == 2
    assert told in done.stderr


def test_variants_build_with_the_flags_that_are_printed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, line in (("compiler", 'printf "%s\\n" "$@"'), ("manyscale", r"printf '%s\n' '-Done '\''-Dtwo=1 + 1'\'")):
        (tmp_path / name).write_text(f"#!/bin/sh\n{line}\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    done = run([BUILD, tmp_path, "--variant", "coverage", "--cc", "compiler", "histogram"])
    assert done.returncode == 0, done.stderr
    words = done.stdout.splitlines()
    first = words.index("-Done")
    assert words[first : first + 4] == ["-Done", "-Dtwo=1 + 1", "-Wall", "-Wextra"]


@pytest.mark.skipif(shutil.which("shellcheck") is None, reason="shellcheck is not installed")
def test_the_build_script_is_clean() -> None:
    done = run(["shellcheck", BUILD])
    assert done.returncode == 0, done.stdout


@pytest.mark.theory
def test_cholesky_of_four_blocks_on_one_rank() -> None:
    (only,) = counts.expected("cholesky", (4, 8, 1))
    assert only.tasks == {"potrf": 4, "trsm": 6, "syrk": 6, "gemm": 4}
    assert (only.num_edges, only.num_sent, only.num_received) == (30, 0, 0)


@pytest.mark.theory
@pytest.mark.parametrize("n", range(1, 9))
def test_cholesky_has_the_closed_forms_of_its_source(n: int) -> None:
    (only,) = counts.expected("cholesky", (n, 8, 1))
    pairs, triples = n * (n - 1) // 2, n * (n - 1) * (n - 2) // 6
    tasks = {"potrf": n, "trsm": pairs, "syrk": pairs, "gemm": triples}
    assert only.tasks == {name: count for name, count in tasks.items() if count}
    potrf, trsm = n - 1, pairs + (n - 1) * (n - 2) // 2
    syrk, gemm = pairs + (n - 1) * (n - 2) // 2, 2 * triples + (n - 1) * (n - 2) * (n - 3) // 6
    assert only.num_edges == potrf + trsm + syrk + gemm


@pytest.mark.theory
@pytest.mark.parametrize("program", counts.APPS)
@pytest.mark.parametrize("num_ranks", [1, 2, 6, 8])
def test_ranks_share_the_work(program: str, num_ranks: int) -> None:
    arguments = SMALL[program] if program == "multizone" else (6, 8, 3)
    ranks = counts.expected(program, arguments, num_ranks)
    assert sum(rank.num_sent for rank in ranks) == sum(rank.num_received for rank in ranks)
    assert sum(rank.sent_bytes for rank in ranks) == sum(rank.received_bytes for rank in ranks)
    assert (sum(rank.num_sent for rank in ranks) > 0) == (num_ranks > 1)
    if program == "jacobi":  # every rank has its own blocks
        for rank in ranks:
            assert rank.tasks == {"exchange": 3 * 4 * 6, "update": 3 * 36}
            assert rank.num_edges == 3 * (8 * 6 - 1)
    elif program == "multizone":  # every rank has its own zones
        zones, rows, *_, iterations = arguments
        assert all(rank.tasks["smooth"] == zones * rows * iterations for rank in ranks)
        assert sum(rank.num_sent for rank in ranks) == (num_ranks > 1) * iterations * 2 * (zones * num_ranks - 1)
    else:
        (alone,) = counts.expected(program, arguments)
        assert sum((rank.tasks for rank in ranks), start=type(alone.tasks)()) == alone.tasks


@pytest.mark.theory
def test_zones_grow_like_a_geometric_series() -> None:
    # 1, 2, 4, 8 blocks wide; zones 0 and 2 belong to rank 0, which has one neighbour on each side of them but the first
    first, second = counts.expected("multizone", (2, 3, 1, 4, 8, 1, 2), 2)
    assert first.tasks == {"smooth": 12, "solve": 2 * (1 + 4)}
    assert second.tasks == {"smooth": 12, "solve": 2 * (2 + 8)}
    assert (first.num_sent, first.sent_bytes) == (second.num_received, second.received_bytes) == (6, 6 * 96)


@pytest.mark.theory
def test_merge_sort_has_the_closed_form_of_its_source() -> None:
    n, leaf, grain = 32768, 64, 512
    merges = sum(2 * (n // grain - n // size) for size in (1024, 2048, 4096, 8192, 16384, 32768))
    assert counts.merge_sort(n, leaf, grain, 1).tasks == {"sort": 2 * (n // leaf - 1), "merge": merges}


@pytest.mark.theory
@pytest.mark.parametrize(("group", "gathers"), [(2, 5 + 3 + 2), (3, 4 + 2), (9, 2), (10, 0), (None, 0)])
def test_k_means_gathers_groups_of_groups_until_one_is_left(group: int | None, gathers: int) -> None:
    assert counts.k_means(10, 16, 3, 4, 1, group).tasks == {"assign": 10, "gather": gathers, "collect": 3}


def _n_body(siblings: counts.Siblings, blocks: int, bodies: int, partners: int) -> None:
    stride = blocks // (2 * partners + 2)
    for block in range(blocks):
        for partner in range(-partners, partners + 1):
            other = (block + partner * stride) % blocks
            siblings.create("force", reads=[("at", block), ("at", other)], writes=[("force", block)])
    for block in range(blocks):
        siblings.create("move", writes=[("at", block), ("force", block)])


def _reduction(siblings: counts.Siblings, leaves: int, rows: int, width: int, shares: int = 1) -> None:
    for leaf in range(leaves):
        siblings.create("sum", writes=[leaf])
    stride = 1
    while stride < leaves:
        for leaf in range(0, leaves - stride, 2 * stride):
            siblings.create("add", reads=[leaf + stride], writes=[leaf])
        stride *= 2


def _stencil(
    siblings: counts.Siblings, x_blocks: int, y_blocks: int, z_blocks: int, block_size: int, rounds: int = 1
) -> None:
    for array in (0, 1) * rounds:
        for x in range(x_blocks):
            for y in range(y_blocks):
                for z in range(z_blocks):
                    around = [(x - 1, y, z), (x + 1, y, z), (x, y - 1, z), (x, y + 1, z), (x, y, z - 1), (x, y, z + 1)]
                    reads = [(array, place) for place in [(x, y, z), *around]]
                    siblings.create("sweep", reads=reads, writes=[(1 - array, (x, y, z))])


def _matrix_multiply(siblings: counts.Siblings, blocks: int, block_size: int, rows: int | None = None) -> None:
    for i in range(rows or blocks):
        for j in range(blocks):
            for k in range(blocks):
                siblings.create("multiply", reads=[("a", i, k), ("b", k, j)], writes=[("c", i, j)])


@pytest.mark.theory
@pytest.mark.parametrize("walk", [_n_body, _reduction, _stencil, _matrix_multiply])
def test_kernels_with_dependences_have_their_closed_forms(walk: Callable[..., None]) -> None:
    program = walk.__name__[1:]
    *arguments, iterations = SMALL[program]
    for last in ((), LONGER.get(program, ())[-1:]):
        siblings = counts.Siblings()
        walk(siblings, *arguments, *last)
        expected = counts.KERNELS[program](*arguments, iterations, *last)
        assert expected.tasks == {name: count * iterations for name, count in siblings.tasks.items()}
        assert expected.num_edges == siblings.num_edges * iterations


@pytest.mark.contract
@pytest.mark.parametrize("program", [*counts.APPS, *counts.KERNELS])
def test_every_type_that_is_counted_has_a_construct(program: str) -> None:
    for rank in counts.expected(program, SMALL[program]):
        assert set(rank.tasks) == set(counts.task_names(program).values())

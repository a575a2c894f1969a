"""``manyscale extrapolate``: halo exchanges whose messages a formula counts, and what is refused.

A halo on a box of a x b x c cells sends a message over each ordered pair of neighbours: (3a - 2)(3b - 2)(3c - 2) - abc
of them; on a torus each of the abc cells sends 26.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from itertools import product
from math import prod
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from told import told

from manyscale.models.machine.storage import accesses
from manyscale.models.workload import COLLECTIVES, OPERATIONS_SCHEMA, SCHEMAS, OperationKind, Workload
from manyscale.models.workload.columns import to_arrow
from manyscale.runner.readers import simgrid_ti, workload_folder
from manyscale.runner.run.extrapolation.neighbours import (
    Distances,
    Grid,
    Pattern,
    PatternError,
    edges_of,
    find_pattern,
)
from manyscale.runner.run.extrapolation.quantities import burst_name, follow
from manyscale.runner.run.extrapolation.workload import Ratios, extrapolate_workload

BYTE = 6
Shape = tuple[int, ...]
Lines = dict[int, list[str]]


def halo(
    shape: Shape, *, torus: bool = False, last_fastest: bool = False, compute: int = 1000, face: int = 64
) -> Lines:
    """Two steps of a halo exchange with up to 26 neighbours and an allreduce; sizes by the axes that a message goes
    along."""
    cells = list(product(*(range(n) for n in shape)))
    strides = [prod(shape[d + 1 :]) if last_fastest else prod(shape[:d]) for d in range(3)]
    size = {1: face, 2: 8, 3: 1}

    def number(cell: Shape) -> int:
        return sum(place * stride for place, stride in zip(cell, strides, strict=True))

    lines: Lines = {rank: [] for rank in range(len(cells))}
    for cell in cells:
        partners = []
        for step in product((-1, 0, 1), repeat=3):
            there = tuple(place + away for place, away in zip(cell, step, strict=True))
            if torus:
                there = tuple(place % n for place, n in zip(there, shape, strict=True))
            if any(step) and all(0 <= place < n for place, n in zip(there, shape, strict=True)):
                partners.append((number(there), size[sum(map(abs, step))]))
        one = [f"irecv {peer} 0 {count} {BYTE}" for peer, count in partners]
        one += [f"compute {compute}"]
        one += [f"send {peer} 0 {count} {BYTE}" for peer, count in partners]
        one += [f"wait {peer} {number(cell)} 0" for peer, _ in partners]
        lines[number(cell)] = ["init", *([*one, "allreduce 1 0 6"] * 2), "finalize"]
    return lines


def num_pairs(shape: Shape) -> int:
    return prod(3 * n - 2 for n in shape) - prod(shape)


@pytest.fixture
def read(write_trace: Callable[..., Path]) -> Callable[[Lines], Workload]:
    """A trace of these lines, written and read."""
    count = iter(range(100))
    return lambda lines: simgrid_ti.read(write_trace(lines, f"trace-{next(count)}"))


def pattern_of(workload: Workload) -> Pattern:
    return find_pattern(edges_of(workload))


def extrapolated(template: Workload, num_ranks: int, shape: tuple[int, int, int] | None = None) -> Workload:
    pattern = pattern_of(template)
    larger = pattern.resized(num_ranks, shape)
    return extrapolate_workload(template, pattern, larger, Ratios.ones(template), "larger").workload


def operations(workload: Workload) -> pa.Table:
    return workload.tables["operations"]


@pytest.mark.theory
@pytest.mark.parametrize(
    ("small", "large", "torus"),
    [
        ((3, 3, 3), (4, 5, 6), False),
        ((3, 4, 3), (2, 2, 2), False),
        ((4, 3, 5), (7, 3, 4), False),
        ((3, 3, 3), (5, 4, 3), True),
    ],
)
@pytest.mark.parametrize("last_fastest", [False, True])
def test_a_halo_is_that_of_the_larger_box(read, small: Shape, large: Shape, torus: bool, last_fastest: bool) -> None:
    """Every operation of every rank is the one that the generator writes for the larger box."""
    order = slice(None, None, -1) if last_fastest else slice(None)
    template = read(halo(small, torus=torus, last_fastest=last_fastest))
    expected = read(halo(large, torus=torus, last_fastest=last_fastest))
    assert pattern_of(template) == Grid(small[order], (torus,) * 3)
    made = extrapolated(template, prod(large), large[order])
    assert len(made.send_rows) == 2 * (26 * prod(large) if torus else num_pairs(large))
    if torus:  # round the corner the order of partners is another
        for workload in (made, expected):
            assert np.all(np.bincount(workload.column("operations", "peer")[workload.send_rows]) == 52)
    else:
        assert operations(made).equals(operations(expected))
        assert made.digest == expected.digest
    assert made.tables["phases"].equals(expected.tables["phases"])


@pytest.mark.theory
def test_grids_and_distances_are_found(read) -> None:
    ring = {rank: [f"isend {(rank + 3) % 10} 0 8 {BYTE}", f"recv {(rank - 3) % 10} 0 8 {BYTE}"] for rank in range(10)}
    template = read(ring)
    assert pattern_of(template) == Distances(10, (3,))
    made = extrapolated(template, 17)
    peers = made.column("operations", "peer")
    assert peers[np.isin(made.column("operations", "kind"), (OperationKind.isend, OperationKind.recv))].tolist() == [
        partner for rank in range(17) for partner in ((rank + 3) % 17, (rank - 3) % 17)
    ]
    chain = {rank: [f"send {rank + 1} 0 8 {BYTE}"] if rank < 11 else ["init"] for rank in range(12)}
    assert find_pattern(edges_of_sends(chain)) == Grid((12, 1, 1))
    assert pattern_of(read({rank: ["barrier"] for rank in range(4)})) == Distances(4)


def edges_of_sends(lines: Lines):  # type: ignore[no-untyped-def]
    from manyscale.runner.run.extrapolation.neighbours import Edges

    pairs = sorted((rank, int(line.split()[1])) for rank, one in lines.items() for line in one if "send" in line)
    return Edges(len(lines), np.array([a for a, _ in pairs]), np.array([b for _, b in pairs]))


@pytest.mark.theory
def test_strong_scaling_of_a_cube(write_trace, cli, tmp_path: Path) -> None:
    """A cube of 60^3 cells on n^3 ranks: compute (60 / n)^3, faces (60 / n)^2, exactly, and messages by the formula."""
    traces = [
        write_trace(halo((n,) * 3, compute=1000 * (60 // n) ** 3, face=(60 // n) ** 2), f"n{n}") for n in (3, 4, 5)
    ]
    outcome = cli("extrapolate", *traces, "--ranks", 216, "-o", tmp_path / "out")
    assert outcome.status == 0, outcome.err
    made = workload_folder.read(tmp_path / "out")
    sent = made.column("operations", "bytes")[made.send_rows]
    assert len(sent) == 2 * num_pairs((6, 6, 6))
    assert np.unique(sent).tolist() == [1, 8, 100]
    assert np.count_nonzero(sent == 100) == 2 * 6 * 5 * 36
    assert set(made.column("phases", "duration_ps").tolist()) == {10**6 * 1000}
    figures = json.loads((tmp_path / "out" / "extrapolation.json").read_text())
    face = next(each for each in figures["quantities"] if each["name"] == "message size x")
    assert (face["form"], face["values"]) == ("a P^b", [400.0, 225.0, 144.0])
    assert face["parameters"] == pytest.approx([3600.0, -2 / 3])
    assert face["prediction"] == pytest.approx(100)
    assert figures["workload"]["messages"] == 2 * num_pairs((6, 6, 6))
    assert figures["workload"]["compute_per_rank_s"]["value"] == pytest.approx(2e-3)
    for check in figures["checks"]:
        assert check["predicted"]["bytes"] == check["traced"]["bytes"]
    assert "message size xyz" in outcome.out
    assert "left-out error" in outcome.out


def test_the_workload_says_what_it_is(write_trace, cli, tmp_path: Path) -> None:
    traces = [write_trace(halo((n,) * 3), f"n{n}") for n in (2, 3)]
    for name in ("one", "two"):
        assert cli("extrapolate", *traces, "--ranks", 64, "-o", tmp_path / name).status == 0
    one, two = (workload_folder.read(tmp_path / name) for name in ("one", "two"))
    assert one.digest == two.digest
    assert (tmp_path / "one/extrapolation.json").read_bytes() == (tmp_path / "two/extrapolation.json").read_bytes()
    assert told(one.notes)[0].startswith("EXTRAPOLATED, not traced: 64 ranks (4x4x4), 2.37 times the largest traced")
    for path, digest in ((path, simgrid_ti.read(path).digest) for path in traces):
        assert f"{path} (digest {digest})" in told(one.notes)[0]
    assert "of two rank counts no error can be said" in " ".join(told(one.notes))
    run = cli("run", "--workload", tmp_path / "one", "--target", "crossbar256", "-o", tmp_path / "run")
    assert run.status == 0, run.err
    assert "EXTRAPOLATED, not traced" in (tmp_path / "run" / "report.html").read_text()


@pytest.mark.theory
def test_bursts_are_means_over_all_passages(read) -> None:
    """Of three passages from barrier to barrier one has compute: 30 ns in 3."""
    trace = read({0: ["compute 7", "barrier", "compute 30", "barrier", "barrier", "barrier", "finalize"]})
    bursts = follow(trace, Distances(1)).bursts
    named = {burst_name(one): value for one, value in bursts.items()}
    assert named == {
        "burst start to barrier (start to barrier)": (7000, 1),
        "burst barrier to barrier (barrier to barrier)": (30000, 3),
        "burst barrier to finalize (barrier to end)": (0, 1),
    }


def test_differences_between_ranks_stay(read) -> None:
    """Ranks between the boundaries take after those at the same share of the way; the rest after their own corner."""
    lines = halo((4, 4, 4))
    for rank in lines:
        lines[rank] = [line.replace("compute 1000", f"compute {1000 + rank}") for line in lines[rank]]
    made = extrapolated(read(lines), 216)
    duration = made.column("phases", "duration_ps").reshape(6, 6, 6, 2)[:, :, :, 0] // 1000 - 1000
    taken = np.array([0, 1, 1, 2, 2, 3])  # 1 + (i - 1) * 2 // 4 between
    expected = taken[:, None, None] * 16 + taken[None, :, None] * 4 + taken[None, None, :]
    assert np.array_equal(duration, expected)


@pytest.mark.theory
def test_collectives_scale_with_the_world(read) -> None:
    """alltoallv: each rank's sizes are filled with the mean of all; roots stay first or become last."""
    table = np.arange(16).reshape(4, 4)
    lines = {
        rank: [
            "bcast 10 0 6",
            "reduce 10 0 3 6",
            f"alltoallv 0 {' '.join(map(str, table[rank]))} 0 {' '.join(map(str, table[:, rank]))} 6 6",
        ]
        for rank in range(4)
    }
    made = extrapolated(read(lines), 6)
    kind = made.column("operations", "kind")
    assert np.count_nonzero(np.isin(kind, COLLECTIVES)) == 18
    assert made.column("operations", "peer")[kind == int(OperationKind.bcast)].tolist() == [0] * 6
    assert made.column("operations", "peer")[kind == int(OperationKind.reduce)].tolist() == [5] * 6
    for side in ("send_counts", "receive_counts"):
        offsets, counts = made.lists("operations", side)
        assert np.diff(offsets)[kind == int(OperationKind.alltoallv)].tolist() == [6] * 6
        assert counts.tolist() == [8] * 36  # 7.5, rounded to even


def test_ranks_access_files_as_their_own(read) -> None:
    """What is read alone stands for an access by each of the more ranks."""
    trace = read({rank: ["barrier", "bcast 10 0 6"] for rank in range(4)})
    rows = operations(trace).to_pylist()
    for row in rows:
        if row["kind"] == "bcast":
            row |= {"kind": "other", "peer": row["rank"], "bytes": 10}
    changed = pa.Table.from_pylist(rows, operations(trace).schema)
    made = extrapolated(replace(trace, tables={**trace.tables, "operations": changed}), 6)
    assert accesses(made).rank.tolist() == list(range(6))


def with_communicator(workload: Workload, members: list[int]) -> Workload:
    """All operations on a second communicator."""
    group = to_arrow(np.ones(workload.num_operations, np.int32))
    index = OPERATIONS_SCHEMA.get_field_index("communicator_id")
    changed = operations(workload).set_column(index, OPERATIONS_SCHEMA.field("communicator_id"), group)
    groups = pa.table([pa.array([list(range(workload.num_ranks)), members], pa.list_(pa.int32()))],
                      schema=SCHEMAS["communicators"])  # fmt: skip
    return Workload("other", workload.num_ranks, {**workload.tables, "operations": changed, "communicators": groups})


def test_only_copies_of_the_world_are_known(read) -> None:
    trace = read({rank: ["allreduce 1 0 6"] for rank in range(4)})
    made = extrapolated(with_communicator(trace, [0, 1, 2, 3]), 8)
    offsets, members = made.lists("communicators", "members")
    assert offsets.tolist() == [0, 8, 16]
    assert members.tolist() == [*range(8), *range(8)]
    with pytest.raises(PatternError, match=r"operation 0 \(allreduce\) is on communicator 1 of 2 of the 4 ranks"):
        extrapolated(with_communicator(trace, [0, 1]), 8)


def test_a_root_between_is_refused(read) -> None:
    trace = read({rank: ["bcast 10 1 6"] for rank in range(4)})
    with pytest.raises(PatternError, match=r"\(bcast\) has root 1: which rank that is among 8 is not known"):
        extrapolated(trace, 8)


def butterfly(num_ranks: int) -> Lines:
    lines: Lines = {}
    for rank in range(num_ranks):
        lines[rank] = []
        for bit in range(num_ranks.bit_length() - 1):
            peer = rank ^ (1 << bit)
            lines[rank] += [f"irecv {peer} 0 8 {BYTE}", f"send {peer} 0 8 {BYTE}", f"wait {peer} {rank} 0"]
    return lines


@pytest.mark.parametrize(
    ("traces", "arguments", "needles"),
    [
        ([halo((3, 3, 3))], ["--ranks", 64], ["one trace has no trend"]),
        ([halo((3, 3, 3))] * 2, ["--ranks", 64], ["both have 27 ranks", "t0", "t1"]),
        ([butterfly(8), butterfly(32)], ["--ranks", 64], ["rank 0 sends to rank 4", "no neighbour in a grid of", "t1"]),
        ([halo((2, 2, 2)), {0: ["init"], 1: ["finalize"]}], ["--ranks", 64], ["calls send", "t1 does not"]),
        ([halo((2, 2, 2)), halo((3, 3, 3))], ["--ranks", 7], ["7 ranks are no grid of 3 dimensions"]),
        ([halo((2, 2, 2)), halo((3, 3, 3))], ["--ranks", 64, "--grid", "4x4x3"], ["4x4x3 has 48 ranks, not 64"]),
        ([halo((2, 2, 2)), halo((3, 3, 3))], ["--ranks", 64, "--grid", "8x8"], ["8x8x1", "one plane cannot become"]),
        ([halo((2, 2, 2)), halo((3, 3, 3))], ["--ranks", 64, "--grid", "4xa"], ["--grid 4xa: write one to three"]),
        ([halo((2, 2, 2)), halo((2, 2, 3))], ["--ranks", 64], ["fewer than 3 planes along x", "27 ranks"]),
        ([halo((2, 2, 2)), halo((3, 3, 3))], ["--ranks", 0], ["--ranks 0: between 1 and"]),
        ([{0: ["barrier"], 1: ["barrier"]}, {r: ["barrier"] for r in range(4)}], ["--ranks", 8, "--grid", "8"],
         ["collectives only", "leave --grid out"]),
    ],
    ids=["one", "equal", "butterfly", "programs", "prime", "product", "flat", "grid", "planes", "ranks", "no grid"],
)  # fmt: skip
def test_refused_in_one_line(write_trace, cli, refused, tmp_path: Path, traces, arguments, needles) -> None:
    paths = [write_trace(lines, f"t{i}") for i, lines in enumerate(traces)]
    refused(cli("extrapolate", *paths, *arguments, "-o", tmp_path / "out"), *needles)
    assert not (tmp_path / "out").exists()

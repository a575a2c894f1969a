"""A training step on more groups than were traced: held-out counts of a step whose rules are known, and speeds."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from itertools import product
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from kineto_traces import two_ranks

from manyscale.models.workload import (
    NO_RANK,
    NO_REQUEST,
    OPERATIONS_SCHEMA,
    SCHEMAS,
    OperationKind,
    PhaseKind,
    Workload,
)
from manyscale.models.workload.gpu_step_tables import KernelClass
from manyscale.models.workload.gpu_tables import GpuOperationKind
from manyscale.runner.errors import UserError
from manyscale.runner.readers import kineto, workload_folder
from manyscale.runner.readers.options import ReadOptions
from manyscale.runner.run.extrapolation import roles
from manyscale.runner.run.extrapolation.roles import scaled
from manyscale.runner.run.extrapolation.roles.sizes import counts
from manyscale.runner.run.extrapolation.roles.sizes import grown as grown_group
from manyscale.runner.run.extrapolation.roles.speeds import cpu_times, gpu_times, measured
from manyscale.runner.run.extrapolation.roles.wanted import Wanted, parsed_roles
from manyscale.sampling.ranks.stragglers import spread

K, G = OperationKind, GpuOperationKind
GRADIENT = 1 << 20  # bytes of each stage's gradients
ROUTED = 1 << 16  # bytes that each rank sends its data parallel peers in all
SHARDED = 4 << 20  # ps of the optimiser on one rank
Sizes = Mapping[str, int]


@dataclass
class Step:
    """A step on groups of these sizes, the first of which varies fastest. ``cpu`` and ``gpu``: by rank, what times are
    multiplied with; ``zero``: whether gradients are scattered, but in ``whole_stages``; ``named``: whether groups have
    names; ``chief``: whether data parallel rank 0 does more than the others."""

    sizes: Sizes
    cpu: Mapping[int, float] = field(default_factory=dict)
    gpu: Mapping[int, float] = field(default_factory=dict)
    zero: bool = True
    named: bool = True
    chief: bool = False
    missing: tuple[int, ...] = ()
    whole_stages: tuple[int, ...] = ()
    tables: dict[str, list[dict[str, Any]]] = field(default_factory=lambda: {level: [] for level in SCHEMAS})

    def workload(self) -> Workload:
        names = list(self.sizes)
        places = [dict(zip(names, reversed(at), strict=True))
                  for at in product(*(range(self.sizes[name]) for name in reversed(names)))]  # fmt: skip
        rank_at = {tuple(at.values()): rank for rank, at in enumerate(places)}
        groups = self._groups(places)
        for rank, at in enumerate(places):
            if rank not in self.missing:
                self._rank(rank, at, groups, lambda where: rank_at[tuple(where.values())])
        shards = self.sizes["dp"] if self.zero else 1
        unshaped = {"blocks": 0, "block_threads": 0}
        gemm = {"kernel_name": "gemm", "kernel_class": int(KernelClass.matrix), "precision": "fp16"} | unshaped
        adam = {"kernel_name": "adam", "kernel_class": int(KernelClass.optimiser), "precision": "fp32"} | unshaped
        self.tables["kernels"] = [
            {**gemm, "flops": 1e9, "bytes": 1e6},
            {**adam, "flops": 2.0**20 / shards, "bytes": 2.0**24 / shards},
        ]
        share = self.sizes["tp"] * self.sizes["pp"]
        model = {"model_name": "m", "precision": "fp16", "parameters": 1e6 * share, "tokens": 1e3 * self.sizes["dp"]}
        self.tables["trained_models"] = [{**model, "flops": 6e9 * prod(self.sizes.values())}]
        made = {level: pa.Table.from_pylist(rows, SCHEMAS[level]) for level, rows in self.tables.items()}
        return Workload("step", prod(self.sizes.values()), made)

    def _groups(self, places: list[dict[str, int]]) -> dict[tuple[str, tuple[int, ...]], int]:
        found: dict[tuple[str, tuple[int, ...]], int] = {}
        members: list[list[int]] = [list(range(len(places)))]
        for name in self.sizes:
            for rank, at in enumerate(places):
                key = (name, tuple(place for other, place in at.items() if other != name))
                if key not in found:
                    found[key] = len(members)
                    members.append([])
                    if self.named:
                        self.tables["groups"].append({"communicator_id": found[key], "group_name": name})
                members[found[key]].append(rank)
        self.tables["communicators"] = [{"members": each} for each in members]
        return found

    def _rank(self, rank: int, at: dict[str, int], groups: Any, rank_at: Any) -> None:
        group = {name: groups[name, tuple(place for other, place in at.items() if other != name)] for name in at}
        dp, last = self.sizes["dp"], self.sizes["pp"] - 1
        count = 0

        def call(kind: K, gpu: G | None = None, gap: int = 1000, **columns: Any) -> None:
            nonlocal count
            row = {"rank": rank, "kind": kind.name, "peer": NO_RANK, "source": NO_RANK, "tag": 0, "bytes": 0,
                   "receive_bytes": 0, "communicator_id": 0, "request": NO_REQUEST, "completes": [],
                   "send_counts": [], "receive_counts": []}  # fmt: skip
            given = {"rank": rank, "operation_id": count, "kind": int(gpu or 0), "stream": 7, "launch_id": 0,
                     "bytes": 0, "event": 0, "device": 0, "peer": -1, "priority": 0, "flags": 0, "thread": 0,
                     "kernel_id": -1, "duration_ps": -1}  # fmt: skip
            for name, value in columns.items():
                (given if name in ("stream", "kernel_id", "duration_ps") else row)[name] = value
            self.tables["operations"].append(row)
            if gpu is not None:
                self.tables["gpu_operations"].append(given)
            duration = round(gap * self.cpu.get(rank, 1.0))
            self.tables["phases"].append({"rank": rank, "operation_id": count, "kind": int(PhaseKind.compute),
                                          "region_id": -1, "duration_ps": duration})  # fmt: skip
            count += 1

        def kernel(number: int, duration: float) -> None:
            time = round(duration * self.gpu.get(rank, 1.0))
            call(K.other, G.launch, kernel_id=number, duration_ps=time)

        def along(pipe: int) -> int:
            return rank_at({**at, "pp": at["pp"] + pipe})

        call(K.other)
        for _ in range(2):
            if at["pp"] > 0:
                call(K.irecv, G.communication, stream=20, peer=along(-1), bytes=4096, communicator_id=group["pp"])
            kernel(0, 5_000_000)
            call(K.allreduce, G.communication, stream=9, bytes=4096, communicator_id=group["tp"], duration_ps=777)
            if at["pp"] < last:
                call(K.isend, G.communication, stream=20, peer=along(1), bytes=4096, communicator_id=group["pp"],
                     duration_ps=55)  # fmt: skip
        call(K.alltoallv, G.communication, bytes=ROUTED, communicator_id=group["dp"], duration_ps=333,
             send_counts=[ROUTED // dp] * dp, receive_counts=[ROUTED // dp] * dp)  # fmt: skip
        if self.zero and at["pp"] not in self.whole_stages:
            call(K.reduce_scatter, G.communication, bytes=4, receive_bytes=GRADIENT // dp, communicator_id=group["dp"],
                 duration_ps=888)  # fmt: skip
            kernel(1, SHARDED // dp)
            call(K.allgather, G.communication, bytes=GRADIENT // dp, communicator_id=group["dp"], duration_ps=888)
        else:
            call(K.allreduce, G.communication, bytes=GRADIENT, communicator_id=group["dp"], duration_ps=888)
            kernel(1, SHARDED)
        if self.chief and at["dp"] == 0:
            call(K.other, gap=9000)
        call(K.bcast, G.communication, bytes=8, peer=1 if at["pp"] else 0, communicator_id=group["tp"])
        call(K.other)
        self.tables["steps"].append({"rank": rank, "step": 4, "first_operation_id": 0, "last_operation_id": count - 1})
        self.tables["traced_gpus"].append({"rank": rank, "device": 0, "gpu_name": "A100"})


EIGHT = {"tp": 2, "dp": 2, "pp": 2}


def by_groups(workload: Workload) -> dict[str, list[dict[str, Any]]]:
    """All tables as rows, with the members of communicators for their numbers."""
    members = [tuple(row["members"]) for row in workload.tables["communicators"].to_pylist()]
    found = {level: table.to_pylist() for level, table in workload.tables.items()}
    for level in ("operations", "groups"):
        for row in found[level]:
            row["communicator_id"] = members[row["communicator_id"]]
    found["groups"].sort(key=str)
    del found["communicators"]
    return found


def grown(workload: Workload, **wanted: Any) -> Workload:
    return scaled("trace", workload, Wanted(**wanted)).workload


def without_times(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [row | {"duration_ps": 0} if row["kind"] == G.communication else row for row in rows]


@pytest.mark.parametrize("zero", [True, False])
def test_a_step_of_8_ranks_gives_that_of_64(zero: bool) -> None:
    """The step's own rules on 64 ranks; times of collectives are traced or the model's."""
    made = by_groups(grown(Step(EIGHT, zero=zero).workload(), groups={"tp": 2, "dp": 16, "pp": 2}))
    own = by_groups(Step({"tp": 2, "dp": 16, "pp": 2}, zero=zero).workload())
    for level in own:
        if level == "gpu_operations":
            assert without_times(made[level]) == without_times(own[level])
        else:
            assert made[level] == own[level], level


@pytest.mark.parametrize("is_known", [True, False])
def test_memory_of_gpus_is_not_that_of_another_number(is_known: bool) -> None:
    step = Step(EIGHT)
    parts = dict.fromkeys(("weights_bytes", "gradients_bytes", "optimiser_bytes", "activations_bytes"), 1e9)
    step.tables["gpu_memory"] = [{"rank": rank, "device": 0, **parts} for rank in range(8)] if is_known else []
    made = grown(step.workload(), groups={"tp": 2, "dp": 16, "pp": 2})
    assert made.tables["gpu_memory"].num_rows == 0
    assert ("memory-not-extrapolated" in {note.code for note in made.notes}) == is_known


def test_kernels_do_less_where_they_take_less() -> None:
    """One stage scatters gradients among 16 in place of 2, the other one does not."""
    made = grown(Step(EIGHT, whole_stages=(1,)).workload(), groups={"tp": 2, "dp": 16, "pp": 2})
    kernel, took = (made.column("gpu_operations", name) for name in ("kernel_id", "duration_ps"))
    updates = (kernel >= 0) & (made.column("kernels", "kernel_class")[kernel] == KernelClass.optimiser)
    for name, traced in (("flops", 2.0**19), ("bytes", 2.0**23)):
        parts = np.stack((made.column("kernels", name)[kernel[updates]], took[updates]))
        assert np.unique(parts, axis=1).T.tolist() == [[traced / 8, SHARDED // 16], [traced, SHARDED]]


def test_the_same_groups_give_the_same_step() -> None:
    trace = Step(EIGHT, cpu={0: 1.3, 5: 0.8}, gpu={3: 1.1}).workload()
    assert by_groups(grown(trace, groups=EIGHT)) == by_groups(trace)


def test_times_of_groups_that_grow_or_move_are_the_models() -> None:
    """Tensor parallel pairs stay as they are; data parallel groups grow; the next stage is 32 ranks away, not 4."""
    made = grown(Step(EIGHT).workload(), groups={"tp": 2, "dp": 16, "pp": 2})
    kinds = made.column("operations", "kind")[made.rank_offsets[made.column("gpu_operations", "rank")]
                                              + made.column("gpu_operations", "operation_id")]  # fmt: skip
    times = made.column("gpu_operations", "duration_ps")
    of = {kind: set(times[kinds == int(kind)].tolist()) for kind in (K.allreduce, K.alltoallv, K.allgather, K.isend)}
    assert of == {K.allreduce: {777}, K.alltoallv: {-1}, K.allgather: {-1}, K.isend: {-1}}
    moved = grown(Step(EIGHT).workload(), groups={"dp": 2, "tp": 2, "pp": 2})  # tensor parallel pairs are 2 apart
    at = moved.column("gpu_operations", "duration_ps")[moved.column("gpu_operations", "stream") == 9]
    assert set(at.tolist()) == {-1}


def test_the_first_rank_alone_does_what_it_alone_did() -> None:
    """Of data parallel ranks the first has one call more; those that are new take after the others."""
    sizes = {"tp": 1, "dp": 4, "pp": 1}
    made = grown(Step(sizes, chief=True).workload(), groups={"dp": 16})
    own = Step({**sizes, "dp": 16}, chief=True).workload()
    assert made.rank_offsets.tolist() == own.rank_offsets.tolist()


def test_a_longer_pipeline_has_more_stages_between() -> None:
    """The step gives each stage the same number of micro batches, so that a deeper one follows its rules, too."""
    found = scaled("trace", Step({"tp": 2, "dp": 1, "pp": 3}).workload(), Wanted(groups={"tp": 2, "dp": 1, "pp": 6}))
    made, own = by_groups(found.workload), by_groups(Step({"tp": 2, "dp": 1, "pp": 6}).workload())
    assert made["operations"] == own["operations"]
    assert made["trained_models"] == own["trained_models"]
    assert "pipeline-grown" in {note.code for note in found.workload.notes}
    with pytest.raises(UserError, match="2 places along pp, in which messages go"):
        grown(Step(EIGHT).workload(), groups={"pp": 4})


def test_another_rank_stands_in_for_one_that_is_missing() -> None:
    """Ranks 2 and 3 are alike; rank 4 is of another stage than rank 0, and cannot behave as it."""
    trace, whole = Step(EIGHT, missing=(3,)).workload(), Step(EIGHT).workload()
    with pytest.raises(UserError, match="has no operations of ranks 3; say after which rank each takes"):
        grown(trace, groups=EIGHT)
    made, own = (by_groups(each) for each in (grown(trace, groups=EIGHT, stand_ins={3: 2}), whole))
    assert without_times(made.pop("gpu_operations")) == without_times(own.pop("gpu_operations"))
    assert made == own
    more = {**EIGHT, "dp": 4}
    made = by_groups(grown(trace, groups=more, stand_ins={3: 2}))
    assert made["operations"] == by_groups(Step(more).workload())["operations"]
    with pytest.raises(UserError, match="rank 0 would send rank 4 another number of messages"):
        grown(Step(EIGHT, missing=(4,)).workload(), stand_ins={4: 0}, groups=EIGHT)


def test_the_other_rank_of_two_stands_in_with_all_that_is_known(tmp_path: Path) -> None:
    """The profiler's trace of one rank of two: its collective's time holds the wait for the other, so that it becomes
    the model's."""
    (two_ranks(tmp_path) / "rank1.pt.trace.json").unlink()
    trace = kineto.read(tmp_path, ReadOptions(missing_ranks="keep"))
    made = grown(trace, stand_ins={1: 0})
    rows = made.tables["operations"].to_pylist()
    half = len(rows) // 2
    assert rows[half:] == [row | {"rank": 1} for row in rows[:half]]
    is_collective = made.column("gpu_operations", "kind") == G.communication
    assert made.column("gpu_operations", "duration_ps")[is_collective].tolist() == [-1, -1]
    assert "ranks-stood-in" in {note.code for note in made.notes}


def test_a_group_of_one_grows() -> None:
    """Each rank is alone in its role: no spread is known, and a note says so."""
    sizes = {"tp": 2, "dp": 1, "pp": 2}
    made = grown(Step(sizes, cpu={0: 1.5}).workload(), groups={**sizes, "dp": 8})
    assert by_groups(made)["operations"] == by_groups(Step({**sizes, "dp": 8}).workload())["operations"]
    assert cpu_times(made)[[0, 2, 4]].tolist() == [cpu_times(made)[0]] * 3
    assert {"spread-unknown", "extrapolated"} <= {note.code for note in made.notes}


def test_speeds_of_new_ranks_are_drawn_and_those_of_traced_ones_kept() -> None:
    """Two ranks of each role, distances d and -d of the logarithm: a standard deviation of sqrt(2) d, found again
    within 5 of its own (deviation / sqrt(2 n)) in 392 drawn ranks; the largest of 100 normal draws is expected at
    2.50759 (Harter), and by Jensen's inequality that of their exponentials lies above, by half of the variance."""
    distance, deviation = 0.1, np.sqrt(0.02)
    factors = {rank: float(np.exp(distance if rank & 2 else -distance)) for rank in range(8)}
    trace, sizes = Step(EIGHT, cpu=factors).workload(), {**EIGHT, "dp": 100}
    found = scaled("trace", trace, Wanted(groups=sizes, seed=3))
    factor = found.speeds[0].factor
    assert np.std(np.log(factor[~found.sources.is_traced])) == pytest.approx(deviation, rel=5 / np.sqrt(2 * 392))
    of_role = np.log(cpu_times(found.workload).reshape(2, 100, 2)[0, :, 0])  # one place of tp and pp
    np.testing.assert_allclose(of_role[:2], np.log(cpu_times(trace)[[0, 2]]))
    np.testing.assert_allclose(of_role - of_role[:2].mean(), np.log(factor[:200:2]), atol=1e-3)
    assert np.unique(gpu_times(found.workload).reshape(2, 100, 2)[0, :, 0]).size == 1  # GPUs were equal
    slowest = next(each for each in found.stragglers if each.group == "dp" and each.what == "CPU")
    least = np.exp(2.50759 * deviation)
    assert least < slowest.expected < 1.01 * least
    assert slowest.of_traced < slowest.expected


def test_speeds_as_measured() -> None:
    """Distances from the mean of two, times sqrt(2): their variance is then the unbiased one. A seed is a workload."""
    trace = Step(EIGHT, cpu={rank: 1.2 if rank & 2 else 1.0 for rank in range(8)}).workload()
    wanted = {"groups": {**EIGHT, "dp": 6}, "spread": "measured"}
    found = scaled("trace", trace, Wanted(**wanted))
    drawn = np.abs(np.log(found.speeds[0].factor[~found.sources.is_traced]))
    np.testing.assert_allclose(drawn, np.log(1.2) / 2 * np.sqrt(2))
    assert grown(trace, **wanted).digest == found.workload.digest != grown(trace, **wanted, seed=1).digest
    assert set(cpu_times(grown(trace, **wanted | {"spread": "none"}))[:24:2]) == set(cpu_times(trace)[:4:2])


def test_ranks_that_are_as_fast_as_their_role_are_drawn_as_well() -> None:
    """Three ranks, whose middle one is at the mean: a third of the draws are of it."""
    found = spread(np.array([2.0, 1.0, 0.5, 5.0]), np.array([0, 0, 0, 1]))
    np.testing.assert_allclose(measured(found), np.log([2.0, 1.0, 0.5]) * np.sqrt(3 / 2), atol=1e-12)


@pytest.mark.parametrize("text", ["5-3=0", "1-99999999999=0"])
def test_ranges_of_missing_ranks_go_upwards_and_end(text: str) -> None:
    with pytest.raises(UserError, match="ranks go upwards, and are below 1048576"):
        parsed_roles([text])


def test_blocks_that_are_named_for_each_member_become_one_size() -> None:
    """As profilers' traces have a reduce_scatter: 4 ranks of 256 KiB become 64 of 16 KiB; as many ranks keep theirs."""
    trace = Step({"tp": 1, "dp": 4, "pp": 1}).workload()
    rows = trace.tables["operations"].to_pylist()
    for row in rows:
        if row["kind"] == "reduce_scatter":
            row |= {"receive_bytes": 0, "receive_counts": [GRADIENT // 4] * 4}
    changed = replace(trace, tables={**trace.tables, "operations": pa.Table.from_pylist(rows, OPERATIONS_SCHEMA)})
    made = grown(changed, groups={"dp": 64}).tables["operations"].to_pylist()
    sizes = {(row["receive_bytes"], len(row["receive_counts"])) for row in made if row["kind"] == "reduce_scatter"}
    assert sizes == {(16 << 10, 0)}
    assert grown(changed, groups={"dp": 4}).tables["operations"].to_pylist() == rows


def test_an_uneven_all_to_all_keeps_its_bytes() -> None:
    """Two ranks become six, in turn: what rank a sent b goes to the three that take after b, and each of these gets
    from the three that take after a as much as b did."""
    matrix = np.array([[3, 50], [7, 11]])
    group = grown_group(np.array([0, 1]), np.array([0, 1, 0, 1, 0, 1]))
    kind = int(K.alltoallv)
    sent = np.array([counts(kind, "send_counts", matrix[[p]], group, a)[0] for a, p in enumerate(group.position)])
    received = np.array(
        [counts(kind, "receive_counts", matrix.T[[p]], group, b)[0] for b, p in enumerate(group.position)]
    )
    np.testing.assert_array_equal(sent, received.T)
    np.testing.assert_array_equal(sent.reshape(3, 2, 3, 2).sum(axis=2), [matrix] * 3)
    np.testing.assert_array_equal(sent.reshape(3, 2, 3, 2).sum(axis=0).transpose(1, 0, 2), [matrix] * 3)
    assert sent.max() - sent[np.ix_([0, 2, 4], [1, 3, 5])].min() <= 1


@pytest.mark.parametrize(
    ("step", "wanted", "needle"),
    [
        (Step(EIGHT, named=False), {"groups": {"dp": 4, "tp": 2, "pp": 2}}, "give it as --traced"),
        (Step(EIGHT), {"groups": {"dp": 4}, "traced": {"dp": 4}}, "--traced dp=4: these are 4 ranks; trace has 8"),
        (Step(EIGHT), {"groups": {"dp": 4}, "traced": {"dp": 8}}, "spans no dimension of dp=8 whole"),
        (Step(EIGHT), {"groups": {"dp": 4}, "ranks": 64}, "--ranks 64: the groups tp=2,dp=4,pp=2 have 16 ranks"),
        (Step(EIGHT), {"groups": {"dp": 1}}, "dp would shrink from 2 to 1"),
        (Step(EIGHT), {"groups": {"dp": 2}, "stand_ins": {9: 0}}, "--role 9=0: trace has ranks 0 to 7, not 9"),
        (Step(EIGHT), {"groups": {"dp": 2}, "stand_ins": {3: 2}}, "--role 3=2: trace has operations of rank 3"),
        (Step(EIGHT), {"groups": {"dp": 4}, "spread": "normal"}, "--spread normal: is none of fitted, measured, none"),
        (Step(EIGHT), {"groups": {"dp": 4}, "seed": -1}, "--seed -1: is negative"),
    ],
    ids=["unnamed", "traced", "wrong", "ranks", "smaller", "role", "there", "spread", "seed"],
)
def test_refused(step: Step, wanted: dict[str, Any], needle: str) -> None:
    with pytest.raises(UserError, match=needle):
        grown(replace(step).workload(), **wanted)


def test_what_does_not_fit_into_memory_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """13 operations of each rank: 3 for each of 2 micro batches, and 7 more."""
    monkeypatch.setattr(roles, "memory_bytes", lambda: 10_000)
    with pytest.raises(UserError, match="trace: 64 ranks of it have 832 operations, which need"):
        grown(Step(EIGHT).workload(), groups={"dp": 16})


def test_groups_without_names_are_known_by_the_layout_of_the_trace() -> None:
    more = {**EIGHT, "dp": 8}
    made = by_groups(grown(Step(EIGHT, named=False).workload(), groups=more, traced=EIGHT))
    own = by_groups(Step(more).workload())
    assert made["operations"] == own["operations"]
    assert made["groups"] == own["groups"]


def test_what_a_group_of_one_would_exchange_is_not_known() -> None:
    """Communicators of one rank without a name are nobody's group: they stay, and a note says what is missing."""
    sizes = {"tp": 2, "dp": 1, "pp": 1}
    made = grown(Step(sizes, named=False, zero=False).workload(), groups={"dp": 4}, traced=sizes)
    bounds, _ = made.lists("communicators", "members")
    assert set(np.diff(bounds)[1:].tolist()) == {1, 2}
    assert "group-not-traced" in {note.code for note in made.notes}


def test_the_command(cli: Any, tmp_path: Path) -> None:
    workload_folder.write(Step(EIGHT, missing=(3,)).workload(), tmp_path / "eight")
    words = ("--ranks", 16, "--groups", "tp=2,dp=4,pp=2", "--role", "3=2", "-o", tmp_path / "more")
    finished = cli("extrapolate", tmp_path / "eight", *words)
    assert finished.status == 0, finished.err
    assert workload_folder.read(tmp_path / "more").num_ranks == 16
    figures = json.loads((tmp_path / "more" / "extrapolation.json").read_text())
    assert figures["sources"][3] == 2
    assert "tp=2,dp=2,pp=2 -> tp=2,dp=4,pp=2" in finished.out

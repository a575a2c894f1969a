"""Runs whose ranks schedule task instances on several cores, from the study to the run directory."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from programs import counts
from rank_events import Recorder

import manyscale
from manyscale.models.workload.columns import to_numpy
from manyscale.runner.errors import UserError
from manyscale.runner.predict.node.rank_part import RankPart
from manyscale.runner.predict.node.schedule_units import schedule_rank
from manyscale.runner.readers import workload_folder
from manyscale.runner.run.questions.factors import NAMES
from manyscale.runner.shipped import folder


def study(name: str, cores: int = 1, **more):
    mapping = {"cores_per_rank": cores, "ranks_per_node": max(1, 16 // max(cores, 1)), **more.pop("mapping", {})}
    return {
        "workload": {"path": str(folder() / f"{name}.tar.zst")},
        "target": "marenostrum3",
        "mapping": mapping,
        **more,
    }


def run(content, directory: Path, **options):
    return manyscale.run(content, directory, executor="local", report=False, **options)


@pytest.mark.theory
def test_one_core_takes_the_traced_times(tmp_path):
    """Priorities make the runtime system a matter of the study, but on one core their order changes no sum."""
    plain = run(study("sparselu-8"), tmp_path / "plain")
    scheduled = run(study("sparselu-8", runtime={"policy": "lifo"}), tmp_path / "scheduled")
    assert plain.cores is None
    assert scheduled.cores is not None
    assert scheduled.ranks.equals(plain.ranks)


@pytest.mark.theory
def test_compute_is_between_the_work_and_its_share_per_core(tmp_path):
    serial = run(study("sparselu-8"), tmp_path / "1").statistics["application.compute"].value
    for cores in (2, 4):
        found = run(study("sparselu-8", cores), tmp_path / str(cores)).statistics["application.compute"].value
        assert serial / cores <= found < serial


@pytest.mark.theory
def test_costs_of_the_runtime_system_add_up_on_one_core(tmp_path):
    """Each instance is created, scheduled and completed once."""
    base = run(study("sparselu-8"), tmp_path / "a")
    costs = {"create": "100 ns", "schedule": "20 ns", "complete": "3 ns"}
    dear = run(study("sparselu-8", runtime=costs), tmp_path / "b")
    instances = dear.statistics["node.task_instances"].value
    more = 8 * (dear.statistics["application.compute"].value - base.statistics["application.compute"].value)
    assert more == pytest.approx(instances * 123e-9, rel=1e-6)
    assert dear.statistics["node.core_overhead"].value > 0


@pytest.mark.theory
def test_no_core_does_two_things_at_once_and_cores_table_holds_the_work(tmp_path):
    found = run(study("sparselu-8", 4), tmp_path / "run")
    table = pq.read_table(tmp_path / "run" / "timeline" / "cores.parquet")
    for name in ("start_ps", "end_ps", "task_instance_id"):
        assert table.column(name).equals(found.cores.column(name))
    rank, core, start, end = (to_numpy(table.column(name)) for name in ("rank", "core", "start_ps", "end_ps"))
    assert core.max() == 3
    order = np.lexsort((start, core, rank))
    same = (np.diff(rank[order]) == 0) & (np.diff(core[order]) == 0)
    assert np.all(start[order][1:][same] >= end[order][:-1][same])
    busy = found.statistics["node.core_utilisation"].value
    assert 0 < busy < 1
    compute = 8 * 4 * found.statistics["application.compute"].value * 1e12
    assert (end - start).sum() == pytest.approx(busy * compute, rel=1e-6)
    number, creator, task = (to_numpy(table.column(name)) for name in ("instance_id", "creator_id", "task_instance_id"))
    of_place = {(a, b): c for a, b, c in zip(rank.tolist(), task.tolist(), number.tolist(), strict=True) if b >= 0}
    assert len(set(of_place.values())) == len(of_place) > 1000
    # each was created while a row of its creator ran, and none began before it was ready
    created, ready = (to_numpy(table.column(name)) for name in ("created_ps", "ready_ps"))
    assert np.all((created <= ready) & (ready <= start))
    runs = {each: np.flatnonzero(number == each) for each in np.unique(creator[creator >= 0]).tolist()}
    assert all(
        np.any((start[runs[who]] <= when) & (when <= end[runs[who]]))
        for who, when in zip(creator[creator >= 0].tolist(), created[creator >= 0].tolist(), strict=True)
    )
    # (in this program initial tasks create all others, of which each has one number)
    assert np.all(np.where(task > 0, creator, number) == np.array([of_place[each, 0] for each in rank.tolist()]))


@pytest.mark.theory
def test_communication_inside_tasks_is_overlapped(tmp_path):
    """Jacobi exchanges halos in tasks: its ranks join the replay, and more cores are not slower."""
    runs = [run(study("jacobi-8", cores), tmp_path / str(cores)) for cores in (1, 2, 4)]
    assert runs[2].makespan_seconds <= runs[1].makespan_seconds < runs[0].makespan_seconds


@pytest.mark.theory
def test_no_efficiency_is_above_100_per_cent_where_tasks_communicate(tmp_path):
    """On this placement a rank computes for longer than the whole run takes on an ideal network, where its tasks come
    together: that was a serialisation of 100.3 %. What cores execute is the same on both."""
    found = run(study("jacobi-8", 4, mapping={"ranks_per_node": 1}), tmp_path / "run").statistics
    efficiency = {name.removeprefix("application."): each.value for name, each in found.items()}
    assert all(value <= 1 for name, value in efficiency.items() if name.endswith(("_efficiency", "balance")))
    busy = found["cores.busy"].value
    assert efficiency["parallel_efficiency"] == pytest.approx(busy / (8 * 4 * efficiency["makespan"]), rel=1e-9)
    of_processes = ("load_balance", "serialisation_efficiency", "transfer_efficiency", "thread_efficiency")
    assert math.prod(efficiency[name] for name in of_processes) == pytest.approx(efficiency["parallel_efficiency"])


@pytest.mark.theory
@pytest.mark.parametrize(("speed", "took"), [(1, "0.001500000"), (0.5, "0.003000000")])
def test_efficiencies_of_cores_worked_out_by_hand(tmp_path, cli, speed, took):
    """Two tasks of 1 ms at once on 4 cores, then 0.5 ms of the initial task: 2.5 of 6 ms, with 4 ms that cores work or
    wait for the initial task; the same of cores of half the speed."""
    recorder = Recorder(lap_ps=0)
    for _ in range(2):
        with recorder.execute(recorder.create()):
            recorder.lap_ps = 10**9
        recorder.lap_ps = 0
    recorder.wait()
    recorder.lap_ps = 5 * 10**8
    workload_folder.write(recorder.workload(), tmp_path / "two-tasks")
    options = ("--target", "marenostrum3", "--set", "mapping.cores_per_rank=4", "--no-report", "-o", tmp_path / "run")
    kinds = f"target.node.core_kinds=[{{cores: 16, speed: {speed}}}]"
    outcome = cli("run", "--workload", tmp_path / "two-tasks", *options, "--set", kinds)
    assert outcome.status == 0, outcome.err
    line = f"{took} s; parallel efficiency 41.7 % of 4 cores (serial parts 62.5 %, load balance 66.7 %, scheduling"
    assert line in outcome.out
    told = json.loads((tmp_path / "run" / "stats.json").read_text())
    values = {name: told[f"application.{name}"]["value"] for name in NAMES}
    assert values["parallel_efficiency"] == values["thread_efficiency"] == pytest.approx(2.5 / 6)
    assert values["process_efficiency"] == values["scheduling_efficiency"] == 1
    assert values["serial_efficiency"] == pytest.approx(2.5 / 4)
    assert values["thread_load_balance"] == pytest.approx(4 / 6)


@pytest.mark.theory
def test_sleep_takes_as_long_on_a_slow_core_where_the_replay_schedules():
    """Pieces are told as a core of the speed 1 takes them: 7 ns of sleep on one of half the speed are 3.5 there."""
    recorder = Recorder(lap_ps=100)
    with recorder.execute(recorder.create()):
        recorder.operation()
    recorder.operation(sleep_ps=7_000)
    given = {"runtime": {}, "rank": 0, "cores": 2, "scale": [1.0] * 3, "is_simulated": False}
    part = {"part": RankPart(0, recorder.workload(), 0)}
    base, slow = (schedule_rank(given | each, part)["piece_ps"] for each in ({}, {"speeds": [0.5, 0.5]}))
    assert base.max() == 7_000
    assert slow.tolist() == np.where(base == 7_000, 3_500, base).tolist()


@pytest.mark.theory
def test_task_types_can_be_faster(tmp_path):
    slow = run(study("sparselu-8"), tmp_path / "a")
    factors = {"task_types": {"factorise_panels": 2.0}}
    fast = run(study("sparselu-8", ipc_correction=factors), tmp_path / "b")
    assert fast.statistics["application.compute"].value < slow.statistics["application.compute"].value


@pytest.mark.contract
def test_jittered_repetitions_have_the_same_bytes_and_a_seed(tmp_path):
    content = study("sparselu-8", 2, timeline={"ranks": [0], "iterations": [0, 4]})
    content["workload"]["repeat"] = {"iterations": 6, "jitter": 0.2}
    first = run(content, tmp_path / "a")
    run(content, tmp_path / "b", cache=tmp_path / "cache")
    other = run({**content, "seed": 1}, tmp_path / "c")
    names = ("timeline/cores.parquet", "timeline/ranks.parquet", "stats.json")
    for name in names:
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()
    assert other.makespan_seconds != first.makespan_seconds
    assert set(to_numpy(first.cores.column("rank"))) == {0}


@pytest.mark.contract
def test_what_a_sweep_over_the_network_shares(tmp_path):
    """Points that differ in the network alone schedule once."""
    content = study("sparselu-8", 4, sweep={"target.network.latency": ["1 us", "2 us", "4 us"]})
    manyscale.sweep(content, tmp_path / "sweep", executor="local", report=False, cache=tmp_path / "cache")
    units = json.loads((tmp_path / "sweep" / "simulator.json").read_text())["units"]
    assert units["simulated"] == 8 + 8 + 3  # schedules, bursts, replays


@pytest.mark.theory
@pytest.mark.parametrize(
    ("content", "message"),
    [
        (study("nas-is-A-8", 4), "has no task level"),
        (study("sparselu-8", 4, mapping={"ranks_per_node": 8}), "would run 8 ranks of 4 cores each on 16 cores"),
        (study("sparselu-8", 0), "mapping.cores_per_rank"),
        (study("sparselu-8", 17), "a node of marenostrum3 has 16 cores, not 17"),
        (study("sparselu-8", model={"cpu": "detailed"}), "has no detailed level"),
        (study("sparselu-8", sampling={"tasks": "lazy"}), "sampling: model cpu: burst takes all from the trace"),
        (study("sparselu-8", 2, sampling={"ranks": "one-in-2"}), "sampling.ranks chooses among traced times"),
        (study("sparselu-8", 2, runtime={"priorities": {"lu0": 1}}), "runtime.priorities: unknown task type 'lu0'"),
        (study("sparselu-8", 2, runtime={"policy": "best"}), "runtime.policy"),
        (study("sparselu-8", 2, runtime={"create": 3}), "has no unit"),
        (
            study("sparselu-8", 2, ipc_correction={"task_types": {"factorise_panel": 2}}),
            "unknown task type 'factorise_panel'; did you mean 'factorise_panels'?",
        ),
    ],
)  # fmt: skip
def test_what_makes_no_sense_is_refused(content, message, tmp_path):
    with pytest.raises(UserError, match=message.replace("?", r"\?")):
        run(content, tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
@pytest.mark.theory
def test_sixteen_thousand_cores(tmp_path, cli):
    """The shipped study has as many task instances, messages and bytes as the program's source makes of 250 iterations
    on 256 ranks (tests/programs/apps/multizone.c), and its efficiencies are factors of that of all cores."""
    outcome = cli("run", "multizone-16384", "-o", tmp_path / "run", "--no-report")
    assert outcome.status == 0, outcome.err
    assert " of 16,384 cores = processes " in outcome.out
    expected = counts.expected("multizone", (2, 16, 8, 8, 20, 1, 250), 256)
    told = {name: each["value"] for name, each in json.loads((tmp_path / "run" / "stats.json").read_text()).items()}
    assert told["node.task_instances"] == sum(sum(rank.tasks.values()) for rank in expected)
    assert told["application.messages"] == sum(rank.num_sent for rank in expected) == 250 * 2 * 511
    assert told["application.bytes"] == sum(rank.sent_bytes for rank in expected)
    value = {name: told[f"application.{name}"] for name in NAMES}
    assert all(0 < each <= 1 for each in value.values())
    of_threads = ("serial_efficiency", "thread_load_balance", "scheduling_efficiency")
    of_processes = ("load_balance", "serialisation_efficiency", "transfer_efficiency")
    product = math.prod(value[name] for name in (*of_threads, *of_processes))
    assert product == pytest.approx(value["parallel_efficiency"], rel=1e-9)


def _kinds(*pairs: tuple[int, float]) -> dict[str, object]:
    return {"target.node.core_kinds": [{"cores": cores, "speed": speed} for cores, speed in pairs]}


@pytest.mark.theory
def test_each_rank_has_its_own_cores(tmp_path):
    """Eight ranks of one core each: four on the fast cores, four on those of a quarter of the speed."""
    content = study("sparselu-8", 1, runtime={"policy": "lifo"}, mapping={"ranks_per_node": 8})
    compute = []
    for name, keys in (("base", {}), ("kinds", _kinds((4, 1.0), (12, 0.25)))):
        table = run(content, tmp_path / name, set=keys).ranks.to_pandas()
        own = table[table.state == "compute"]
        compute.append((own.end_ps - own.start_ps).groupby(own["rank"]).sum())
    ratio = compute[1] / compute[0]
    assert ratio.tolist() == pytest.approx([1.0] * 4 + [4.0] * 4, rel=1e-6)


@pytest.mark.theory
def test_coupled_ranks_of_half_the_speed_compute_for_twice_as_long(tmp_path):
    keys = {"base": {}, "slow": _kinds((8, 0.5), (8, 0.5))}
    runs = [run(study("jacobi-8", 4), tmp_path / name, set=each).cores.to_pandas() for name, each in keys.items()]
    base, slow = (float((found.end_ps - found.start_ps).sum()) for found in runs)
    assert slow == pytest.approx(2 * base, rel=1e-6)


@pytest.mark.contract
@pytest.mark.parametrize(
    ("name", "more", "said"),
    [
        ("sparselu-8", {"model": {"cpu": "interval"}}, "model.cpu: interval simulates cores of one kind"),
        ("lulesh-8", {}, "has several kinds of cores"),
        ("sparselu-8", {"target.node.core_kinds": [{"cores": 4, "speed": 1}]}, "they are 4 cores in all"),
    ],
)
def test_what_knows_one_kind_of_core_says_so(name, more, said, tmp_path):
    content = study(name, 4 if name != "lulesh-8" else 1, **{k: v for k, v in more.items() if "." not in k})
    keys = _kinds((4, 1.0), (12, 0.4)) | {key: value for key, value in more.items() if "." in key}
    with pytest.raises(UserError, match=said):
        run(content, tmp_path / "run", set=keys)

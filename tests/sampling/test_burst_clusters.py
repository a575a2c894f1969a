"""Phase clusters of bursts: made of known groups, they must be found; and the command that writes them."""

from __future__ import annotations

import dataclasses

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from manyscale.models.workload import COUNTERS_SCHEMA, PHASES_SCHEMA, SCHEMAS, Workload
from manyscale.runner.readers import workload_folder
from manyscale.sampling.phases.burst_clusters import (
    NOISE,
    NOT_CLUSTERED,
    ClusterParameters,
    cluster_bursts,
    counter_values,
)

# (bursts, duration in us, instructions) of each group; spread 2 % in both
GROUPS = ((300, 1000, 2e6), (300, 100, 4e5), (300, 100, 5e4))


def workload(duration_us, instructions=None, num_ranks: int = 1, kinds=None, regions=None) -> Workload:
    """A burst before each of as many operations, dealt out to the ranks in contiguous parts."""
    count = len(duration_us)
    rank = (np.arange(count) * num_ranks // count).astype(np.int32)
    operation = np.arange(count) - np.searchsorted(rank, rank)
    rows = [
        {
            "rank": int(r), "kind": "barrier" if kinds is None else kinds[i], "peer": -2, "source": -2, "tag": 0,
            "bytes": 0, "receive_bytes": 0, "communicator_id": 0, "request": -1,
        }
        for i, r in enumerate(rank)
    ]  # fmt: skip
    phases = pa.table(
        {
            "rank": pa.array(rank),
            "operation_id": pa.array(operation.astype(np.int32)),
            "kind": pa.array(np.zeros(count, np.int8)),
            "region_id": pa.array(np.full(count, -1, np.int32) if regions is None else np.array(regions, np.int32)),
            "duration_ps": pa.array(np.rint(np.asarray(duration_us) * 1e6).astype(np.int64)),
        },
        schema=PHASES_SCHEMA,
    )
    tables = {
        "operations": pa.Table.from_pylist(rows, schema=SCHEMAS["operations"]),
        "phases": phases,
        "regions": pa.table({"name": pa.array(["one", "two"])}, schema=SCHEMAS["regions"]),
        "communicators": pa.Table.from_pylist([{"members": list(range(num_ranks))}], schema=SCHEMAS["communicators"]),
    }
    if instructions is not None:
        columns = [
            pa.array(np.repeat(np.arange(count), 2)),
            pa.array(["PAPI_TOT_INS", "PAPI_TOT_CYC"] * count).dictionary_encode().cast(
                COUNTERS_SCHEMA.field("counter").type
            ),
            pa.array(np.column_stack((instructions, 2 * np.asarray(instructions))).ravel().astype(np.int64)),
        ]  # fmt: skip
        tables["counters"] = pa.Table.from_arrays(columns, schema=COUNTERS_SCHEMA)
    return Workload("made", num_ranks, tables)


def groups(seed: int = 0):
    """(duration_us, instructions, group) of GROUPS, shuffled."""
    random = np.random.default_rng(seed)
    group = random.permutation(np.repeat(np.arange(len(GROUPS)), [count for count, *_ in GROUPS]))
    duration = np.array([mean for _, mean, _ in GROUPS])[group] * random.normal(1, 0.02, len(group))
    instructions = np.array([mean for *_, mean in GROUPS])[group] * random.normal(1, 0.02, len(group))
    return duration, instructions, group


@pytest.mark.theory
class TestGroups:
    def test_finds_them_and_numbers_them_by_time(self):
        duration, instructions, group = groups()
        found = cluster_bursts(workload(duration, instructions), ClusterParameters(coverage=1.0))
        assert found.axes == "instructions"
        assert found.num_clusters == 3
        number = np.array([np.bincount(found.cluster[group == i]).argmax() for i in range(3)])
        assert sorted(number) == [1, 2, 3]
        assert ((found.cluster == number[group]) | (found.cluster == NOISE)).all()
        total = [duration[found.cluster == i].sum() for i in (1, 2, 3)]
        assert total == sorted(total, reverse=True)
        assert np.count_nonzero(found.cluster == NOISE) < 0.05 * len(group)

    def test_duration_alone_cannot_tell_two_of_them(self):
        duration, instructions, group = groups()
        found = cluster_bursts(workload(duration, instructions), ClusterParameters("duration", coverage=1.0))
        assert found.num_clusters == 2
        assert len(np.unique(found.cluster[(group > 0) & (found.cluster > 0)])) == 1

    def test_without_counters_bursts_of_other_calls_or_regions_are_apart(self):
        kinds = ["barrier", "allreduce"] * 50
        found = cluster_bursts(workload(np.full(100, 5.0), kinds=kinds), ClusterParameters(coverage=1.0))
        assert found.axes == "duration"
        assert [sorted(set(found.cluster[1:][i::2].tolist())) for i in range(2)] == [[1], [2]]
        regions = [0, 0, 1, 1] * 25
        found = cluster_bursts(workload(np.full(100, 5.0), regions=regions), ClusterParameters(coverage=1.0))
        assert found.num_clusters == 2

    def test_ipc_as_an_axis(self):
        duration, instructions, _ = groups()
        found = cluster_bursts(workload(duration, np.rint(instructions)), ClusterParameters("ipc", coverage=1.0))
        assert (found.axes, found.num_clusters) == ("ipc", 2)  # IPC is 0.5 everywhere

    def test_short_bursts_are_left_out(self):
        duration = np.concatenate((np.full(5000, 0.01), np.full(50, 1000.0)))  # 0.05 ms and 50 ms in all
        found = cluster_bursts(workload(duration), ClusterParameters(min_points=5))
        assert (found.cluster[:5000] == NOT_CLUSTERED).all()
        assert (found.cluster[5000:] == 1).all()

    def test_lonely_bursts_are_noise(self):
        duration = np.concatenate((np.full(50, 10.0), [1e4, 3e5]))
        found = cluster_bursts(workload(duration), ClusterParameters(coverage=1.0))
        assert found.cluster[1:].tolist() == [1] * 49 + [NOISE] * 2
        assert found.cluster[0] == NOISE  # no call comes before it

    def test_a_sample_gives_the_clusters_of_the_whole(self):
        duration, instructions, _ = groups()
        trace = workload(duration, instructions)
        whole = cluster_bursts(trace, ClusterParameters(eps=0.05, coverage=1.0))
        some = cluster_bursts(trace, ClusterParameters(eps=0.05, coverage=1.0, most_fitted=200))
        assert np.mean(whole.cluster == some.cluster) > 0.98

    def test_counters(self):
        trace = workload([1.0, 2.0], [10, 20])
        assert counter_values(trace, "PAPI_TOT_CYC").tolist() == [20, 40]
        assert np.isnan(counter_values(trace, "PAPI_L2_DCM")).all()

    def test_nothing_to_cluster(self):
        assert cluster_bursts(workload([0.0, 0.0])).cluster.tolist() == [NOT_CLUSTERED] * 2

    def test_missing_counters_are_refused(self):
        with pytest.raises(ValueError, match="does not have PAPI_TOT_INS and PAPI_TOT_CYC for every phase"):
            cluster_bursts(workload([1.0, 2.0]), ClusterParameters("ipc"))

    @pytest.mark.parametrize("wrong", [{"eps": 0.0}, {"min_points": 0}, {"coverage": 1.5}, {"most_fitted": 3}])
    def test_parameters_are_validated(self, wrong):
        with pytest.raises(ValueError, match=next(iter(wrong))):
            ClusterParameters(**wrong)


@pytest.mark.property
@settings(deadline=None, max_examples=30)
@given(
    duration=st.lists(st.sampled_from([0.5, 1.0, 1.02, 7.0, 500.0]), min_size=1, max_size=80),
    coverage=st.floats(0.5, 1.0),
)
def test_any_bursts(duration, coverage):
    trace = workload(duration, num_ranks=min(3, len(duration)))
    parameters = ClusterParameters(min_points=4, coverage=coverage, most_fitted=40)
    found = cluster_bursts(trace, parameters)
    assert np.array_equal(found.cluster, cluster_bursts(trace, parameters).cluster)
    time = np.array(duration)
    left = found.cluster != NOT_CLUSTERED
    assert time[left].sum() >= coverage * time.sum() * (1 - 1e-9)
    assert set(np.unique(found.cluster[found.cluster > 0])) == set(range(1, found.num_clusters + 1))
    totals = np.bincount(found.cluster[left], time[left])[1:]
    assert (np.diff(totals) <= 1e-9).all()


@pytest.mark.contract
class TestCommand:
    def test_writes_table_and_page(self, cli, tmp_path):
        duration, instructions, _ = groups()
        trace = dataclasses.replace(workload(duration, instructions, num_ranks=4), name="made")
        (tmp_path / "made").mkdir()
        workload_folder.write(trace, tmp_path / "made")
        outcome = cli("clusters", "made", "-o", "out", "--coverage", "1")
        assert outcome.status == 0, outcome.err
        table = pq.read_table(tmp_path / "out" / "clusters.parquet").to_pydict()
        assert table["phase_id"] == list(range(900))
        assert set(table["cluster"]) <= {0, 1, 2, 3}
        page = (tmp_path / "out" / "clusters.html").read_text()
        assert "cluster 3" in page
        assert "https://" not in page.split('<script id="plotly">')[0]
        first = next(line for line in outcome.out.splitlines() if line.startswith("1 "))
        assert first.split()[-2:] == ["100.0", "%"]
        assert "0.500" in first  # IPC

    @pytest.mark.parametrize(
        ("arguments", "needle"),
        [
            (("trace", "--axes", "ipc"), "does not have PAPI_TOT_INS"),
            (("trace", "--coverage", "0"), "coverage is 0.0"),
            (("nowhere",), "nowhere: does not exist"),
        ],
    )
    def test_refused(self, cli, write_trace, arguments, needle):
        write_trace({0: ["init", "compute 5", "finalize"]})
        outcome = cli("clusters", *arguments)
        assert outcome.status == 2
        assert needle in outcome.err
        assert outcome.err.startswith("manyscale: ")
        assert outcome.err.count("\n") == 1

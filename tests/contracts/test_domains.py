"""Every model says of every feature of its level whether it takes, leaves out or refuses it, and keeps to it."""

from __future__ import annotations

import copy
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from gpu_launches import Launch, gpu_workload

from manyscale.models.network.program import build_program
from manyscale.models.network.replay.timeline import Placement
from manyscale.models.workload import ANY_SOURCE, KIND_NAMES, OperationKind, WorkloadError
from manyscale.models.workload.detail_tables import InstructionClass
from manyscale.models.workload.domain import APART, FEATURES, TAKES, LeavesOut, Refuses
from manyscale.models.workload.gpu_tables import COPIES_SCHEMA
from manyscale.runner.predict import domain_table
from manyscale.runner.predict.features import domain_notes, found_features, setting_notes
from manyscale.runner.predict.memory import amm_source
from manyscale.runner.predict.node.cells import cell_units
from manyscale.runner.predict.phase_source import Case, SweepShared
from manyscale.runner.readers import goal, simgrid_ti, simpoint_bb
from manyscale.runner.readers.stacks import folded
from manyscale.runner.registry import lookup, names
from manyscale.runner.run.pipeline import compute_per_operation
from manyscale.runner.study import parse_study
from manyscale.runner.study.targets import build_machine, resolve_target, shipped_content, shipped_targets
from manyscale.runner.study.traces import read_workload

pytestmark = pytest.mark.contract

MODELS = [(level, name) for level in FEATURES for name in names(level)]
BOTH_WAYS = ["init", "compute 1e6", "send {0} 0 100 6", "recv {0} 0 100 6", "finalize"]


@pytest.mark.parametrize(("level", "name"), MODELS)
def test_every_feature_has_a_stance(level, name):
    domain = lookup(level, name).DOMAIN
    assert set(domain.features) == set(FEATURES[level])
    assert all(each in (TAKES, APART) or isinstance(each, LeavesOut | Refuses) for each in domain.features.values())
    known = {feature for features in FEATURES.values() for feature in features}
    assert {need for needs in domain.reads.values() for need in needs} <= known


def test_a_feature_has_one_name_over_all_levels():
    every = [feature for features in FEATURES.values() for feature in features]
    assert len(every) == len(set(every))


def test_the_page_is_what_the_models_say():
    assert (Path(__file__).parents[2] / "docs" / "models" / "domains.md").read_text() == domain_table.markdown()


def case_of(workload, target="crossbar256", shared=None, **keys):
    study = parse_study({"workload": {"path": "none"}, "target": target, **keys}, "study")
    return Case(workload, study, *resolve_target(study), shared or SweepShared())


@pytest.mark.parametrize(("level", "name"), MODELS)
def test_what_is_left_out_is_noted(level, name, write_trace):
    """Of each model and feature: a note if and only if the feature is there and the model leaves it out."""
    workload = simgrid_ti.read(write_trace({0: ["init", "finalize"]}))
    chosen = case_of(workload, model={level: name})
    of_launches = level == "gpu"
    assert not domain_notes(chosen, {}, has_launches=of_launches)
    for feature, stance in lookup(level, name).DOMAIN.features.items():
        found = domain_notes(chosen, {feature: 7}, has_launches=of_launches)
        mine = [note for note in found if note.where == f"model {level}: {name}"]
        if isinstance(stance, LeavesOut):
            (note,) = mine
            assert (note.code, note.severity, note.text) == (feature, stance.severity, stance.text)
            assert (note.count, note.errs) == (7, stance.errs)
        else:
            assert not mine


def test_a_plug_in_that_does_not_know_a_feature_is_told_of(write_trace, monkeypatch):
    module = lookup("network", "latency-bandwidth")
    known = {name: stance for name, stance in module.DOMAIN.features.items() if name != "wildcard-receives"}
    monkeypatch.setattr(module, "DOMAIN", replace(module.DOMAIN, features=known))
    chosen = case_of(simgrid_ti.read(write_trace({0: ["init", "finalize"]})))
    (note,) = domain_notes(chosen, {"wildcard-receives": 7}, has_launches=False)
    assert (note.code, note.count) == ("domain-unknown", 7)
    assert "receives from any source" in note.text
    assert not domain_notes(chosen, {}, has_launches=False)


def ring(write_trace):
    return simgrid_ti.read(write_trace({rank: [each.format(1 - rank) for each in BOTH_WAYS] for rank in (0, 1)}))


def features(workload, nodes=(0, 1), target="crossbar256", launches=None, **keys):
    return found_features(case_of(workload, target, **keys), np.array(nodes), launches)


def test_messages_are_found_by_where_their_ranks_are(write_trace):
    workload = ring(write_trace)
    assert {"messages-between-nodes": 2, "shared-links": 2}.items() <= features(workload).items()
    one_node = features(workload, (0, 0))
    assert one_node["messages-within-nodes"] == 2
    assert not {"messages-between-nodes", "shared-links", "messages-to-self"} & set(one_node)


def test_rates_that_are_solved_in_steps(write_trace):
    workload = ring(write_trace)
    assert "rates-in-steps" not in features(workload)
    target = {"name": "crossbar256", "network": {"flow": {"step": "1 us"}}}
    assert features(workload, target=target)["rates-in-steps"] == 1
    assert "rates-in-steps" not in features(
        workload, target={"name": "crossbar256", "network": {"flow": {"weight": "1 B"}}}
    )


def test_messages_to_oneself(write_trace):
    lines = ["init", "isend 0 0 100 6", "recv 0 0 100 6", "finalize"]
    found = features(simgrid_ti.read(write_trace({0: lines})), (0,))
    assert found["messages-to-self"] == 1
    assert not {"messages-between-nodes", "messages-within-nodes"} & set(found)


def test_collectives_by_messages_and_by_formulas(write_trace):
    workload = simgrid_ti.read(write_trace({rank: ["init", "barrier", "finalize"] for rank in range(3)}))
    found = features(workload, (0, 0, 1))
    assert (found["collectives"], found["messages-between-nodes"], found["messages-within-nodes"]) == (3, 3, 3)
    target = {"name": "crossbar256", "network": {"collectives": "dimemas"}}
    found = features(workload, (0, 0, 1), target)
    assert found["collective-formulas"] == 3
    assert not {"collectives", "messages-between-nodes"} & set(found)
    assert "collectives" not in features(simgrid_ti.read(write_trace({0: ["init", "barrier"]}, "one")), (0,))


def test_large_messages_wait_and_small_ones_do_not(write_trace):
    lines = {0: ["init", "send 1 0 {} 6", "finalize"], 1: ["init", "recv 0 0 {} 6", "finalize"]}
    for size, waits in ((65535, False), (65536, True)):
        trace = write_trace({rank: [line.format(size) for line in each] for rank, each in lines.items()}, f"t{size}")
        assert ("rendezvous" in features(simgrid_ti.read(trace))) == waits


def test_receives_from_any_source_and_waits_for_any(write_trace):
    workload = ring(write_trace)
    assert not {"wildcard-receives", "waits-for-any"} & set(features(workload))
    table = workload.tables["operations"]
    receives = workload.column("operations", "kind") == OperationKind.recv
    peer = np.where(receives, np.int32(ANY_SOURCE), workload.column("operations", "peer"))
    kind = np.where(receives, np.int8(OperationKind.waitany), workload.column("operations", "kind"))
    for name, column in (
        ("peer", pa.array(peer)),
        ("kind", pa.DictionaryArray.from_arrays(pa.array(kind), KIND_NAMES)),
    ):
        at = table.schema.get_field_index(name)
        tables = {**workload.tables, "operations": table.set_column(at, table.schema.field(name), column)}
        found = features(replace(workload, tables=tables, is_checked=True))
        assert {"peer": "wildcard-receives", "kind": "waits-for-any"}[name] in found


def test_accesses_of_files(write_trace):
    """Two calls of two ranks together, one of which does not block, and one of a rank alone."""
    lines = ["init", "barrier", "bcast 8 0 6", "ibarrier", "bcast 8 0 6", "waitall 1", "bcast 8 0 6", "finalize"]
    workload = simgrid_ti.read(write_trace(dict.fromkeys((0, 1), lines)))
    assert not {"file-accesses", "storage-unnamed"} & set(features(workload))
    rows = workload.tables["operations"].to_pylist()
    is_access = [row["kind"] == "bcast" for row in rows]
    for place, row in enumerate(rows):
        if is_access[place]:
            is_alone = rows[place - 1]["kind"] not in ("barrier", "ibarrier")
            row |= {"kind": "other", "peer": row["rank"], "bytes": 8, "communicator_id": int(not is_alone)}
    members = pa.Table.from_pylist([{"members": [0, 1]}] * 2, workload.tables["communicators"].schema)
    operations = pa.Table.from_pylist(rows, workload.tables["operations"].schema)
    found = replace(workload, tables={**workload.tables, "operations": operations, "communicators": members})
    of_files = {"file-accesses", "storage-unnamed", "lone-accesses", "open-accesses"}
    unnamed = features(found)
    assert {name: unnamed[name] for name in of_files & set(unnamed)} == {"file-accesses": 6, "storage-unnamed": 6}
    named = features(found, target={"name": "crossbar256", "storage": {"latency": "1 us", "bandwidth": "1 GB/s"}})
    assert {name: named[name] for name in of_files & set(named)} == {
        "file-accesses": 6, "lone-accesses": 2, "open-accesses": 2,
    }  # fmt: skip


def test_operations_without_an_order(tmp_path):
    path = tmp_path / "graph.goal"
    path.write_text(
        "num_ranks 2\nrank 0 {\na: calc 9\nb: calc 5\ns: send 8b to 1 tag 0\ns requires b\n}\n"
        "rank 1 {\nr: recv 8b from 0 tag 0\nc: calc 5\nd: calc 2\nd requires r\n}\n"
    )
    workload = goal.read(path)
    assert "unordered-operations" in features(workload)
    for name in names("network"):
        network = resolve_target(case_of(workload).study)[0].network
        refuses = isinstance(lookup("network", name).DOMAIN.features["unordered-operations"], Refuses)
        if refuses:
            with pytest.raises(WorkloadError, match="graph"):
                build_program(workload, network.collectives)
            continue
        program = build_program(workload, network.collectives, keep_graph=True)
        compute = compute_per_operation(workload, workload.column("phases", "duration_ps"))
        timeline = lookup("network", name).replay(program, compute, network, Placement.one_per_node(2))
        assert timeline.makespan_ps > 0


def test_features_of_cores(write_trace):
    workload = ring(write_trace)
    plain = features(workload)
    assert plain["traced-times"] == 2
    assert not {"described-cores", "neighbours", "tasks"} & set(plain)
    found = features(workload, (0, 0), "marenostrum3")
    assert (found["described-cores"], found["neighbours"]) == (2, 2)
    node = resolve_target(case_of(workload, "marenostrum3").study)[0].node
    assert ("address-translation" in found) == bool(node.tlbs)
    assert ("prefetchers" in found) == any(cache.prefetcher for cache in node.caches.values())
    assert ("dram-rows" in found) == (node.main_memory.dram is not None)


def test_a_profile_without_times(tmp_path, write_trace):
    (tmp_path / "a.folded").write_text("main;read 40\nmain;sort 60\n")
    assert "no-times" in features(folded.read(tmp_path / "a.folded"), nodes=(0,))
    (tmp_path / "a.bb").write_text("T:1:70 :2:30\nT:1:30 :2:70\n")
    assert "no-times" in features(simpoint_bb.read(tmp_path / "a.bb"), nodes=(0,))
    assert "no-times" not in features(simgrid_ti.read(write_trace({0: ["init", "finalize"]})), nodes=(0,))


def test_instructions_without_latency(write_trace):
    workload = ring(write_trace)
    content = shipped_content("marenostrum3")
    assert not {"free-instructions", "free-mispredictions"} & set(features(workload, target={**content}))
    free = copy.deepcopy(content)
    for cost in free["node"]["core"]["instructions"].values():
        cost["latency"] = "0 cycles"
    assert features(workload, target=free)["free-instructions"] == len(InstructionClass) - 1  # nop has nothing to do
    some = copy.deepcopy(content)
    some["node"]["core"]["instructions"]["fp_add"]["latency"] = "0 cycles"
    assert features(workload, target=some)["free-instructions"] == 1
    some["node"]["core"]["misprediction"] = "0 cycles"
    assert features(workload, target=some)["free-mispredictions"] == 1


def test_of_the_shipped_targets_those_of_tasksim_alone_have_free_instructions(write_trace):
    workload = ring(write_trace)
    free = {name for name in shipped_targets() if "free-instructions" in features(workload, target=name)}
    assert free == {name for name in shipped_targets() if name.endswith("-tasksim")}
    assert len(free) == 5


@pytest.mark.parametrize(
    ("feature", "launch"),
    [
        ("matrix-instructions", Launch("k", (4, 3), opcode="HMMA.16816.F32")),
        ("instruction-classes", Launch("k", (4, 3), opcode="POPC")),
        ("bulk-copies", Launch("k", (4, 3), opcode="UTMALDG.2D")),
        ("bulk-prefetches", Launch("k", (4, 3), opcode="UTMAPF.L2.2D")),
        ("group-products", Launch("k", (4, 3), opcode="HGMMA.64x256x16.F32")),
        ("block-clusters", Launch("k", (4, 3), opcode="UCGABAR_ARV")),
        ("texture", Launch("k", (4, 3), opcode="TEX.SCR.B.LL")),
        ("later-code", Launch("k", (4, 3), binary_version=90)),
    ],
)
def test_features_of_launches(feature, launch):
    plain = gpu_workload(Launch("k", (4, 3)), Launch("k", (4, 3)))
    assert feature not in features(plain, (0,), "rtx3070", plain)
    workload = gpu_workload(Launch("k", (4, 3)), launch)
    assert features(workload, (0,), "rtx3070", workload)[feature] in (1, 7)


def test_classes_that_a_target_does_not_time_beside_others():
    counts, halves = (gpu_workload(Launch("k", (4, 3), opcode=opcode)) for opcode in ("POPC", "HFMA2"))
    target = {"name": "rtx3070", "node": {"gpu": {"instructions": {"bits": {"rate": 16, "unit": "sfu"}}}}}
    assert "instruction-classes" not in features(counts, (0,), target, counts)
    assert features(halves, (0,), target, halves)["instruction-classes"] == 7


def test_bulk_copies_whose_bytes_the_trace_has():
    """They are no copies of which it lacks these, which forbid a number."""
    workload = gpu_workload(Launch("k", (4, 3), opcode="UTMALDG.2D"))
    assert lookup("gpu", "detailed").DOMAIN.features["bulk-copies"].severity == "forbids"
    workload.gpu.has_words = lambda launch_id: True
    found = features(workload, (0,), "h100", workload)
    assert (found.get("bulk-copies"), found["asynchronous-operations"], found["described-copies"]) == (None, 7, 7)
    assert lookup("gpu", "gpumech").DOMAIN.features["described-copies"].severity == "forbids"
    prefetches = gpu_workload(Launch("k", (4, 3), opcode="UTMAPF.L2.2D"))
    prefetches.gpu.has_words = lambda launch_id: True
    assert "bulk-prefetches" not in features(prefetches, (0,), "h100", prefetches)
    # those of a cluster move nothing where its blocks do not run together, whether or not these meet each other
    workload.gpu.cluster_blocks = lambda launch_id: 2
    assert "block-clusters" not in features(workload, (0,), "h100", workload)
    assert features(workload, (0,), "a100", workload)["block-clusters"] == 7


def test_copies_and_other_gpus():
    workload = gpu_workload(Launch("k", (4, 3)))
    copies = pa.Table.from_pylist([{"before_launch_id": 1, "address": 0, "bytes": 8}], COPIES_SCHEMA)
    copied = replace(workload, tables={**workload.tables, "copies": copies}, is_checked=True)
    assert "copies" not in features(copied, (0,), "rtx3070", copied)
    without = {"name": "rtx3070", "node": {"gpu": {"host_link": None}}}
    assert features(copied, (0,), without, copied)["copies"] == 1
    several = {"name": "rtx3070", "node": {"gpus": 4}}
    assert features(workload, (0,), several, workload)["several-gpus"] == 3
    assert not {"copies", "several-gpus"} & set(features(workload, (0,), "rtx3070", workload))


def test_streams_are_left_out_where_the_network_knows_none():
    workload = gpu_workload(Launch("k", (4, 3)), Launch("k", (4, 3), stream=1))
    assert "streams" not in features(workload, (0,), "rtx3070", workload)
    assert features(workload, (0,), "rtx3070", workload, model={"network": "loggops"})["streams"] == 1


EVERYTHING = {  # of network blocks, with values that bind
    "loggops": {"overhead": "3 us", "gap": "2 us", "overhead_bandwidth": "1 GB/s"},
    "dimemas": {
        "inter_node": {"output_links": 1, "input_links": 1, "buses": 1}, "intra_node": {"buses": 1},
        "cpu_ratios": [2.0],
    },
    "flow": {"bandwidth_factors": [{"above": "0 B", "factor": 0.5}], "window": "4 kB"},
    "topology": {"kind": "crossbar", "loopback": "own"},
}  # fmt: skip
CHANGES = {
    "latency": "300 us", "bandwidth": "20 MB/s", "envelope": "4000 B", "eager_threshold": "10 B",
    "transfer_start": "eager", "collectives": "openmpi", "intra_node": {"latency": "900 us", "bandwidth": "20 MB/s"},
    "self": {"latency": "900 us", "bandwidth": "20 MB/s"},
    "topology": {"kind": "crossbar", "loopback": "through-links"},
    "loggops": {"overhead": "90 us", "gap": "90 us", "overhead_bandwidth": "0.1 GB/s"},
    "dimemas": {"cpu_ratios": [0.5]}, "flow": {"bandwidth_factors": [{"above": "0 B", "factor": 0.1}]},
}  # fmt: skip


@pytest.mark.parametrize("name", names("network"))
def test_a_network_reads_what_it_says_it_reads(name, write_trace):
    """Each key of a network is changed by itself: the makespan changes if and only if the model's domain has the key.
    The workload has messages of all kinds, small and large, and collectives."""
    model = lookup("network", name)
    lines = [
        "init", "compute {2}", "isend {0} 0 60 6", "isend {0} 0 200000 6", "compute 500000", "recv {0} 0 60 6",
        "recv {0} 0 200000 6", "waitall 2", "isend {1} 0 100 6", "recv {1} 0 100 6", "waitall 1",
        "isend {1} 0 70000 6", "compute 90000", "recv {1} 0 70000 6", "waitall 1", "allreduce 8 0 6", "bcast 70000 0 6",
        "isend {3} 0 100 6", "recv {3} 0 100 6", "waitall 1",
    ]  # fmt: skip
    ranks = {r: [line.format(r ^ 1, r ^ 2, (r + 1) * 300000, r) for line in lines] for r in range(4)}
    for rank, each in ranks.items():  # a sender that would go on to compute for long, a receiver that is late
        late = [f"recv {rank ^ 2} 0 5000 6"] if rank & 2 else [f"send {rank ^ 2} 0 5000 6"]
        each += ["compute 3000000", *late] if rank & 2 else [*late, "compute 9000000"]
        each += ["barrier", "finalize"]
    workload = simgrid_ti.read(write_trace(ranks))
    content = copy.deepcopy(shipped_content("crossbar256"))
    content["network"] |= EVERYTHING
    content["nodes"] = 2
    placement = Placement(np.array([0, 0, 1, 1], np.int32), 2)
    compute = compute_per_operation(workload, workload.column("phases", "duration_ps"))

    def makespan(changes):
        machine = build_machine({**content, "network": {**content["network"], **changes}}, "test")
        program = build_program(workload, machine.network.collectives)
        return model.replay(program, compute, machine.network, placement).makespan_ps

    base = makespan({})
    assert set(CHANGES) == set(content["network"])
    reads = {key for key, change in CHANGES.items() if makespan({key: change}) != base}
    assert reads == {key.partition(".")[2] for key in model.DOMAIN.reads if key.startswith("network.")}


def test_cores_read_what_they_say_they_read():
    """What units of work are keyed by is what models are handed."""
    of = {"frequency_hz": "frequency"}
    for name, read in (
        ("detailed", cell_units.READ_IN_DETAIL),
        ("interval", cell_units.READ_OF_NODE),
        ("amm", amm_source.READ_OF_NODE),
    ):  # fmt: skip
        domain = lookup("cpu", name).DOMAIN
        declared = {key.partition(".")[2] for key in domain.reads if key.startswith("node.")}
        declared -= {"runtime_system"}  # a part of what the study says of it (RuntimeSystem.on)
        assert declared - {"sockets", "cores_per_socket"} == {of.get(key, key) for key in read} - {
            "sockets", "cores_per_socket",
        }  # fmt: skip


def settings(workload, target, nodes=(0, 1), **keys):
    chosen = case_of(workload, target, **keys)
    found = found_features(chosen, np.array(nodes), None)
    notes = setting_notes(chosen, found, has_launches=False)
    return {note.where: note.text for note in notes if note.code == "setting-without-effect"}


@pytest.mark.parametrize(
    ("key", "value", "nodes", "reason"),
    [
        ("network.bandwidth", "1 MB/s", (0, 0), "the run has no messages between ranks on different nodes"),
        ("network.bandwidth", "1 MB/s", (0, 1), ""),
        ("network.intra_node", {"latency": "1 us", "bandwidth": "1 GB/s"}, (0, 1), "no messages between ranks of one"),
        ("network.intra_node", {"latency": "1 us", "bandwidth": "1 GB/s"}, (0, 0), ""),
        ("network.collectives", "mpich", (0, 1), "the run has no collectives"),
        ("network.flow", {"window": "1 MB"}, (0, 1), "none of the models"),
        ("node.frequency", "3 GHz", (0, 1), "none of the models (cpu: burst, network: latency-bandwidth) reads it"),
        ("node.cores_per_socket", 2, (0, 1), ""),
        ("nodes", 4, (0, 1), ""),
    ],
)
def test_settings_that_play_no_part(key, value, nodes, reason, write_trace):
    target = {"name": "crossbar256"}
    part = target
    *way, last = key.split(".")
    for each in way:
        part = part.setdefault(each, {})
    part[last] = value
    found = settings(ring(write_trace), target, nodes)
    assert all(where.startswith(f"target.{key}") for where in found)
    assert bool(found) == bool(reason)
    assert all(reason in text for text in found.values())


def test_a_whole_machine_is_held_against_the_shipped_one_of_its_name(write_trace):
    content = copy.deepcopy(shipped_content("crossbar256"))
    assert not settings(ring(write_trace), content)
    content["network"]["bandwidth"] = "3 GB/s"
    assert set(settings(simgrid_ti.read(write_trace({0: ["init", "finalize"]}, "one")), content, (0,))) == {
        "target.network.bandwidth"
    }
    content["name"] = "somebody's"
    assert not settings(simgrid_ti.read(write_trace({0: ["init", "finalize"]}, "two")), content, (0,))


def test_blocks_of_options_that_play_no_part(write_trace):
    workload = ring(write_trace)
    found = settings(
        workload, "crossbar256", amm={"form": "printed"}, gpu={"caches": "warm"}, runtime={"policy": "lifo"},
        taskpoint={"history": 4}, tbpoint={"launches": {"threshold": 0.5}}, detailed={"caches": "cold"},
        timeline={"ranks": [0]},
    )  # fmt: skip
    assert set(found) == {"amm", "gpu.caches", "runtime", "taskpoint", "tbpoint", "detailed", "timeline"}
    assert not settings(workload, "crossbar256")


def test_a_trace_of_the_detailed_level_that_no_core_is_simulated_from(write_trace):
    path = write_trace({0: ["init", "compute 5", "finalize"]})
    for model, is_used in (("burst", False), ("detailed", True)):
        chosen = {
            "workload": {"path": str(path), "detail": "elsewhere"},
            "target": "crossbar256",
            "model": {"cpu": model},
        }
        study = parse_study(chosen, "study")
        case = Case(read_workload(study.workload), study, *resolve_target(study), SweepShared())
        found = {note.where for note in setting_notes(case, {}, has_launches=False)}
        assert ("workload.detail" in found) != is_used


def test_options_that_the_format_does_not_ask_for(write_trace, tmp_path):
    path = write_trace({0: ["init", "compute 5", "finalize"]})
    for option, value, is_used in (
        ("flop_rate", "2 Gflop/s", True),
        ("time_unit", "1 us", False),
        ("application", 2, False),
    ):
        study = parse_study({"workload": {"path": str(path), option: value}, "target": "crossbar256"}, "study")
        case = Case(read_workload(study.workload), study, *resolve_target(study), SweepShared())
        found = {note.where for note in setting_notes(case, {}, has_launches=False)}
        assert found == (set() if is_used else {f"workload.{option}"})

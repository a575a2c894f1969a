"""Target machines: every shipped file loads, and studies may replace keys of one."""

from __future__ import annotations

import pytest
import yaml

from manyscale.models.machine.topology import FatTree, Torus
from manyscale.runner.errors import UserError
from manyscale.runner.study import Study
from manyscale.runner.study.targets import build_machine, resolve_target, shipped_targets


def study(target: object) -> Study:
    return Study.model_validate({"workload": {"path": "x"}, "target": target})


@pytest.mark.contract
@pytest.mark.parametrize("name", shipped_targets())
def test_shipped_target_loads_under_its_own_name(name):
    machine, content = resolve_target(study(name))
    assert machine.name == name
    assert build_machine(content, "again") == machine
    assert all(len(text) > 10 for text in machine.sources.values())


def test_there_are_shipped_targets():
    topologies = {"dragonfly-xc", "fattree256", "torus-4x4x4"}
    grass = set(GRASS) | {f"{name}-tasksim" for name in GRASS}
    assert {"crossbar256", "laptop", "marenostrum3"} | topologies | grass <= set(shipped_targets())


def test_figures_of_the_contention_free_reference():
    machine, _ = resolve_target(study("crossbar256"))
    assert (machine.num_nodes, machine.node.num_cores) == (256, 1)
    network = machine.network
    assert (network.latency_ps, network.ps_per_byte, network.envelope_bytes) == (10_000_000, 800.0, 16)
    assert (network.eager_threshold_bytes, network.transfer_start) == (65536, "match")


# Grass, UPC 2017, tables 5.1 and 6.3: reorder buffer, issue width, caches (KiB, cores that share, cycles, ways), and
# channels of DRAM, which only the latter names.
GRASS = {
    "grass-high-performance": (168, 4, [(32, 1, 4, 8), (2048, 1, 11, 8), (20480, 64, 28, 20)], 4),
    "grass-low-power": (40, 3, [(32, 1, 4, 2), (1024, 8, 21, 16)], 3),
    "musa-high-performance": (168, 4, [(32, 1, 4, 8), (256, 1, 11, 8), (125000, 64, 28, 20)], 4),  # 128 MB
    "musa-low-power": (40, 4, [(32, 1, 4, 2), (8192, 64, 21, 16)], 3),
    "musa-stacked-dram": (72, 4, [(32, 1, 4, 8), (32768, 64, 16, 16)], 8),
}


@pytest.mark.golden
@pytest.mark.parametrize("name", GRASS)
@pytest.mark.parametrize("variant", ["", "-tasksim"])
def test_figures_of_the_processors_of_taskpoint_and_musa(name, variant):
    node = resolve_target(study(name + variant))[0].node
    assert node.core is not None
    assert node.main_memory is not None
    assert node.main_memory.dram is not None
    caches = [(c.size_bytes // 1024, c.shared_by_cores, c.latency_cycles, c.ways) for c in node.caches.values()]
    channels = node.main_memory.dram.channels
    assert (node.core.reorder_buffer, node.core.width, caches, channels) == GRASS[name]
    assert node.core.commit == node.core.width
    # reorder-buffer occupancy analysis: only memory takes time, and each instruction has a place of its own
    assert bool(node.core.free_classes) == (variant == "-tasksim")
    assert (node.core.misprediction_cycles == 0) == (variant == "-tasksim")
    assert node.core.fuses_branches == (variant == "" and "high-performance" in name)


# Latency and reciprocal throughput of floating point, branch misprediction, loads and stores per cycle. Sandy Bridge:
# LLVM's X86SchedSandyBridge.td (WriteFAdd64, WriteFMul64, WriteFDiv64, MispredictPenalty). Cortex-A15: gem5's
# O3_ARM_v7a.py (FloatAdd, FloatMult of two units), GCC's cortex-a15-neon.md (fdivd), LLVM's AArch64SchedA57.td. Knights
# Landing: the tables named in the target; LLVM's X86ScheduleSLM.td.
CORES = {
    "high-performance": ((3, 1), (5, 1), (22, 22), 16, 2, 1),
    "low-power": ((5, 0.5), (4, 0.5), (18, 18), 16, 1, 1),
    "stacked-dram": ((6, 0.5), (6, 0.5), (40, 33), 10, 2, 1),
}


@pytest.mark.golden
@pytest.mark.parametrize("name", GRASS)
def test_cores_cost_what_their_sources_say(name):
    core = resolve_target(study(name))[0].node.core
    costs = [core.instructions[each] for each in ("fp_add", "fp_mul", "fp_div")]
    found = [(each.latency_cycles, each.reciprocal_throughput_cycles) for each in costs]
    rest = core.misprediction_cycles, core.loads_per_cycle, core.stores_per_cycle
    assert (*found, *rest) == CORES[name.partition("-")[2]]


def test_keys_of_a_target_are_replaced_one_by_one():
    plain, _ = resolve_target(study("laptop"))
    changed, content = resolve_target(study({"name": "laptop", "nodes": 2, "network": {"self": {"latency": "1 ns"}}}))
    assert changed.num_nodes == 2
    assert changed.network.self_route.latency_ps == 1000
    assert changed.network.self_route.ps_per_byte == plain.network.self_route.ps_per_byte
    assert changed.network.latency_ps == plain.network.latency_ps
    assert changed.name == "laptop"
    assert build_machine(content, "again") == changed


def test_a_topology_of_another_kind_is_replaced_whole():
    torus = {"kind": "torus", "dimensions": [16, 16]}
    changed, _ = resolve_target(study({"name": "fattree256", "network": {"topology": torus}}))
    assert changed.network.topology == Torus(kind="torus", dimensions=(16, 16))
    same_kind = {"kind": "fat-tree", "routing": "s-mod-k"}
    for change in (same_kind, {"routing": "s-mod-k"}):
        changed, _ = resolve_target(study({"name": "fattree256", "network": {"topology": change}}))
        assert changed.network.topology == FatTree(kind="fat-tree", down=(16, 16), up=(1, 4), routing="s-mod-k")


def test_a_whole_machine_in_the_study_needs_no_file():
    _, content = resolve_target(study("laptop"))
    machine, _ = resolve_target(study({**content, "name": "mine"}))
    assert machine.name == "mine"


def test_files_stand_beside_the_study_or_in_the_working_directory(tmp_path, monkeypatch):
    (tmp_path / "studies").mkdir()
    content = yaml.safe_load(shipped_targets()["laptop"].read_text())
    (tmp_path / "studies" / "mine.yaml").write_text(yaml.safe_dump({**content, "nodes": 5}))
    assert resolve_target(study("mine.yaml"), tmp_path / "studies")[0].num_nodes == 5
    with pytest.raises(UserError, match=r"unknown target 'mine.yaml'; known are .*laptop.*, or a YAML file"):
        resolve_target(study("mine.yaml"), tmp_path)
    monkeypatch.chdir(tmp_path / "studies")
    assert resolve_target(study("mine.yaml"), tmp_path)[0].num_nodes == 5


def test_a_change_is_blamed_on_the_study_not_on_the_file():
    with pytest.raises(UserError, match=r"^target\.network\.latency: 5 has no unit"):
        resolve_target(study({"name": "laptop", "network": {"latency": 5}}))

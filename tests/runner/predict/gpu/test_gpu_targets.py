"""Shipped GPUs: what follows from their parameters, against figures that their sources print elsewhere."""

from __future__ import annotations

import pytest

from manyscale.runner.errors import UserError
from manyscale.runner.problems import load_yaml
from manyscale.runner.study.targets import build_machine, shipped_targets

GPUS = (
    "rtx3070", "rtx3080ti", "rtx4090", "v100", "t4", "l40", "a100", "a100-accelsim", "h100", "h100-pcie", "h200",
    "fermi-tbpoint", "gpumech-16",
)  # fmt: skip
LANES = 32


def gpu(name):
    path = shipped_targets()[name]
    return build_machine(load_yaml(path), str(path)).node.gpu


def tera_flops(name, unit, flops_per_instruction):
    found = gpu(name)
    each = found.schedulers / found.units[unit].interval_cycles * flops_per_instruction
    return found.sms * each * found.frequency_hz / 1e12


@pytest.mark.parametrize("name", GPUS)
def test_one_gpu_in_a_node_with_cores(name):
    machine = build_machine(load_yaml(shipped_targets()[name]), name)
    assert (machine.num_nodes, machine.node.num_gpus, machine.name) == (1, 1, name)
    assert machine.node.num_cores >= 1


def test_l2_of_an_a100_gives_what_its_whitepaper_says():
    """5,120 bytes a cycle, of 40 MB in slices of 512 KB."""
    found = gpu("a100")
    assert found.l2.slices * found.crossbar.sectors * found.l2.sector_bytes == 5120
    assert found.l2.size_bytes // found.l2.slices == 512 * 1024


def test_rtx3070_reproduces_the_latencies_that_accel_sim_shows():
    """Load to use in L1 43 and L2 239 cycles, dependent integer instructions 7, an empty kernel over 5,000."""
    found = gpu("rtx3070")
    assert (found.l1_hit_cycles, found.l2_hit_cycles) == (43, 239)
    assert found.units["int"].latency_cycles + found.pipeline_cycles == 7
    assert found.launch_latency_cycles == 5000
    assert 1e3 / found.dram.bandwidth_ps_per_byte == pytest.approx(16 * 2 * 16 / 4 * 3.5005, rel=1e-6)  # GB/s


@pytest.mark.parametrize(
    ("name", "unit", "flops", "expected"),
    [
        ("a100", "fp32", 2 * LANES, 19.5),  # NVIDIA's data sheets: peak Tflop/s
        ("a100", "fp64", 2 * LANES, 9.7),
        ("a100", "tensor", 2 * 16 * 8 * 16, 312),  # HMMA.16816
        ("h100", "fp32", 2 * LANES, 67),
        ("h100", "fp64", 2 * LANES, 34),
        ("h100-pcie", "fp32", 2 * LANES, 51),
        ("h100-pcie", "fp64", 2 * LANES, 26),
        ("h200", "fp32", 2 * LANES, 67),
        ("h200", "fp64", 2 * LANES, 34),
        ("v100", "fp32", 2 * LANES, 15.7),
        ("v100", "fp64", 2 * LANES, 7.8),
        ("t4", "fp32", 2 * LANES, 8.1),
        ("l40", "fp32", 2 * LANES, 90.5),
        ("rtx4090", "fp32", 2 * LANES, 82.6),
        ("rtx4090", "fp64", 2 * LANES, 82.6 / 64),
    ],
)
def test_peak_rates_are_those_of_the_data_sheets(name, unit, flops, expected):
    assert tera_flops(name, unit, flops) == pytest.approx(expected, rel=0.02)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("a100", 1555),
        ("a100-accelsim", 1935),
        ("h100", 3350),
        ("h100-pcie", 2039),
        ("h200", 4800),
        ("gpumech-16", 192),
        ("v100", 898),  # 4096 bits at 877 MHz
        ("t4", 320),
        ("l40", 864),
        ("rtx4090", 1008),
    ],
)
def test_bandwidths(name, expected):
    assert 1e3 / gpu(name).dram.bandwidth_ps_per_byte == pytest.approx(expected, rel=0.002)


@pytest.mark.parametrize(
    ("name", "l1", "l2", "memory", "dependent"),
    [
        ("a100", 37.9, 261.5, 466.3, 4),
        ("h100", 40.7, 263.0, 478.8, 4),
        ("h100-pcie", 40.7, 263.0, 478.8, 4),
        ("gpumech-16", 25, 120, 420, 25),
        ("v100", 30.0, 215.0, 425.0, 4),
        ("l40", 36.1, 276.5, 531.4, 4),
        ("rtx4090", 36.1, 284.8, 539.7, 4),
    ],
)
def test_latencies_from_load_to_use_are_those_measured(name, l1, l2, memory, dependent):
    found = gpu(name)
    assert found.l1_hit_cycles == pytest.approx(l1, abs=1)
    assert found.l2_hit_cycles == pytest.approx(l2, abs=1)
    assert found.l2_hit_cycles + found.dram_cycles == pytest.approx(memory, abs=1)
    assert found.units["fp32"].latency_cycles + found.pipeline_cycles == dependent


def test_a_node_says_how_many_gpus_it_has_and_what_they_are():
    content = load_yaml(shipped_targets()["rtx3070"])
    for key, words in (("gpus", "gpu: the node has none"), ("gpu", "no key 'gpu' says what they are")):
        node = {name: value for name, value in content["node"].items() if name != key}
        with pytest.raises(Exception, match=words):
            build_machine({**content, "node": node}, "machine")


def test_no_l1_is_kept_between_launches():
    """NVIDIA's are emptied when a kernel starts, and no model does otherwise: a target that says so is refused."""
    content = load_yaml(shipped_targets()["rtx3070"])
    content["node"]["gpu"]["l1"]["kept_between_launches"] = True
    with pytest.raises(Exception, match=r"l1\.kept_between_launches: no model keeps an L1"):
        build_machine(content, "machine")


def test_a_trace_without_control_bits_is_told(cli, tmp_path):
    outcome = cli("run", "bfs-16", "--launch", "9", "--target", "rtx3080ti", "-o", tmp_path / "out")
    assert outcome.status == 0
    assert "changes [no-control-bits]" in outcome.out + outcome.err
    assert "informs [control-bits]" not in outcome.out + outcome.err


@pytest.mark.parametrize(
    ("change", "told"),
    [({"memory_queue": 9}, "memory_queue: 9 is more than the 8"),
     ({"l0_instruction_cache": {"size": "1000 B", "ways": 4}}, "l0_instruction_cache: 1000 B are no whole number")],
)  # fmt: skip
def test_a_core_that_cannot_be_is_told_by_its_key(change, told):
    content = load_yaml(shipped_targets()["rtx3080ti"])
    content["node"]["gpu"]["core"] |= change
    with pytest.raises(UserError, match=told):
        build_machine(content, "rtx3080ti")


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"dram.timing": {"banks": 12}}, "banks: 12 is no power of two"),
        ({"dram.timing": {"bank_groups": 3}}, "bank_groups: 3 is no power of two"),
        ({"dram.timing": {"bank_groups": 32}}, "bank_groups: 32 of 16 banks"),
        ({"dram.timing": {"row": "3 KiB"}}, "row: 3072 is no power of two"),
        ({"dram.timing": {"row": "64 B"}}, r"dram\.timing\.row: 64 B are less than a line"),
        ({"l2": {"slices": 6144, "size": "12 MiB"}}, r"l2\.slices: 6144 are a multiple of 2048 and no power of two"),
        ({"dram.timing": {"refi": 200, "rfc": 160}}, "refi: 200 cycles leave no time between refreshes of 160"),
        ({"dram.timing": {"refi": 4739}}, "refi: 4739 and rfc: 0; refreshes need both"),
        ({"dram.timing": {"rfc": 160}}, "refi: 0 and rfc: 160; refreshes need both"),
        ({"l1": {"side_pool": 768}}, r"l1\.side_pool: only slices of L2 have one"),
        ({"dram": {"queue": 32768}}, r"dram\.queue: 32768 are more than 32767"),
        ({"dram": {"channels": 1}, "l2": {"slices": 1, "size": "512 MiB", "ways": 32}}, "a slice: 131072 are more"),
    ],
)
def test_memory_that_the_models_cannot_hold_is_told_by_its_key(change, told):
    content = load_yaml(shipped_targets()["rtx3070"])
    for name, keys in change.items():
        block = content["node"]["gpu"]
        for key in name.split("."):
            block = block[key]
        block |= keys
    with pytest.raises(UserError, match=told):
        build_machine(content, "rtx3070")

"""Shipped clusters of GPUs: their GPUs are those of the targets they name, and links carry what data sheets say."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import yaml

from manyscale.models.gpu.parameters import Gpu
from manyscale.models.network.nccl.fabric import Fabric
from manyscale.runner.errors import UserError
from manyscale.runner.predict.gpu.traced.scaling import utilised_flops
from manyscale.runner.problems import load_yaml
from manyscale.runner.study.targets import build_machine, shipped_targets, target_named

CLUSTERS = {"dgx1-v100": "v100", "dgx-a100": "a100", "dgx-h100": "h100", "p4de": "a100", "p5": "h100"}
OF_DRIVER = ("names", "start_latency", "stream_gap")


@pytest.mark.parametrize("name", CLUSTERS)
def test_gpus_are_those_of_the_target_that_the_sources_name(name: str) -> None:
    own = load_yaml(shipped_targets()[name])
    gpu = {key: value for key, value in own["node"]["gpu"].items() if key not in OF_DRIVER}
    like = load_yaml(shipped_targets()[CLUSTERS[name]])["node"]["gpu"]
    if name in ("p4de", "dgx1-v100"):  # the larger of two memories
        like["dram"]["size"] = gpu["dram"]["size"]
    if name == "p4de":
        like["dram"]["bandwidth"] = gpu["dram"]["bandwidth"]
        like["dram"]["timing"]["frequency"] = gpu["dram"]["timing"]["frequency"]
    assert gpu == {key: value for key, value in like.items() if key not in OF_DRIVER}
    assert own["sources"]["node.gpu"].startswith(f"as in {CLUSTERS[name]} ")


@pytest.mark.parametrize(
    ("name", "nvlink", "network"),
    [  # NVIDIA's data sheets: GB/s of a GPU's NVLinks in both directions; Gbit/s of a node
        ("dgx1-v100", 300, 400), ("dgx-a100", 600, 1600), ("dgx-h100", 900, 3200), ("p4de", 600, 400),
        ("p5", 900, 3200),
    ],
)  # fmt: skip
def test_links_carry_what_data_sheets_say(name: str, nvlink: float, network: float) -> None:
    path = shipped_targets()[name]
    fabric = Fabric.of(build_machine(load_yaml(path), str(path)))
    assert fabric is not None
    rate = 1e3 / fabric.link_ps_per_byte
    of_node = rate[: fabric.first_pci].sum() / fabric.num_nodes
    ends = 1 if fabric.pairs is None else 2  # a link between two GPUs is out of one and into the other
    assert ends * of_node == pytest.approx(8 * nvlink)
    nics = rate[fabric.first_nic : fabric.first_pod : 2]
    assert nics.sum() / fabric.num_nodes * 8 == pytest.approx(network)
    assert len(np.unique([fabric.link_name(link) for link in range(fabric.num_links)])) == fabric.num_links


@pytest.mark.parametrize(
    ("gpu_name", "gigabytes"),
    [
        ("Tesla V100-SXM2-32GB", 900), ("NVIDIA A100-SXM4-40GB", 1555), ("NVIDIA A100-SXM4-80GB", 2039),
        ("NVIDIA H100 80GB HBM3", 3350),
    ],
)  # fmt: skip
def test_each_gpu_reads_its_memory_as_fast_as_its_data_sheet_says(gpu_name: str, gigabytes: float) -> None:
    """GB/s. Times of kernels on another GPU follow from it: every target that names a GPU has the same."""
    gpus = [
        Gpu.model_validate(gpu)
        for path in shipped_targets().values()
        if gpu_name in (gpu := load_yaml(path)["node"].get("gpu") or {}).get("names", ())
    ]
    assert gpus
    for gpu in gpus:
        assert 1e3 / gpu.dram.bandwidth_ps_per_byte == pytest.approx(gigabytes, rel=3e-3)


@pytest.mark.theory
@pytest.mark.parametrize(
    ("names", "precision", "teraflops", "memory"),
    [  # dense, as NVIDIA's data sheets have them (half of what they give with sparsity), and GB; GDDR6 with check bits
        # in it (nvidia-smi: 15,360 MiB of a T4, 46,068 of an L40)
        (("v100",), "fp16", 125, 16), (("dgx1-v100",), "fp16", 125, 32), (("t4",), "fp16", 65, 15),
        (("a100", "dgx-a100"), "bf16", 312, 40), (("p4de",), "bf16", 312, 80), (("a100",), "tf32", 156, 40),
        (("a100",), "fp64", 19.5, 40), (("h100", "dgx-h100", "p5"), "bf16", 989.4, 80), (("h100",), "fp8", 1979, 80),
        (("h100",), "fp64", 67, 80), (("h200",), "fp16", 989.4, 141), (("h100-pcie",), "bf16", 756, 80),
        (("l40",), "bf16", 181.05, 45), (("rtx4090",), "fp16", 165.2, 24), (("rtx3080ti",), "fp16", 68.2, 12),
    ],
)  # fmt: skip
def test_peaks_and_memories_are_those_of_data_sheets(
    names: tuple[str, ...], precision: str, teraflops: float, memory: int
) -> None:
    """A model's utilisation of a GPU (MFU) is a share of the former; what the latter does not hold, it cannot train."""
    for name in names:
        gpu = Gpu.model_validate(load_yaml(shipped_targets()[name])["node"]["gpu"])
        assert utilised_flops(gpu, precision) == pytest.approx(teraflops * 1e12, rel=2e-3)
        assert gpu.dram.size_bytes == pytest.approx(memory * 2**30, rel=0.01)


def test_no_utilisation_of_tensor_cores_that_a_target_says_nothing_of() -> None:
    gpu = Gpu.model_validate(load_yaml(shipped_targets()["rtx3070"])["node"]["gpu"])
    assert utilised_flops(gpu, "fp16") is None
    assert utilised_flops(gpu, "fp32") == pytest.approx(46 * 128 * 2 * 1132e6)


def test_a_target_may_name_the_file_of_its_link_matrix(tmp_path: Path) -> None:
    content = load_yaml(shipped_targets()["dgx1-v100"])
    link = content["network"]["nccl"]["nvlink"]
    (tmp_path / "topo.txt").write_text(link.pop("topology"))
    link["topology_file"] = "topo.txt"
    (tmp_path / "ours.yaml").write_text(yaml.safe_dump(content))
    machine, resolved = target_named(str(tmp_path / "ours.yaml"))
    assert Fabric.of(machine).num_links == Fabric.of(target_named("dgx1-v100")[0]).num_links  # type: ignore[union-attr]
    assert resolved["network"]["nccl"]["nvlink"]["topology"].splitlines()[0].split()[0] == "GPU0"
    (tmp_path / "topo.txt").unlink()
    with pytest.raises(UserError, match=r"topology_file: .*topo\.txt"):
        target_named(str(tmp_path / "ours.yaml"))

"""ASTRA-sim's figures on targets that stand for its configurations (astra_sim.py says the mapping).

Figures: ASTRA-sim (518bd51) on its own examples, Ring of 4, 8 and 16 with 4 chunks, 1 MiB, the same on its
congestion-aware and -unaware networks; and on a transformer of STG (3a7f49c), data-parallel over 8 GPUs of an HGX H100.
"""

from __future__ import annotations

import lzma
import os
import tarfile
from pathlib import Path
from typing import Any

import chakra_files as chakra
import numpy as np
import pytest
import yaml
from astra_sim import step_ns, target

from manyscale.models.network.nccl.demand import demand
from manyscale.models.network.nccl.fabric import Fabric
from manyscale.models.network.nccl.parameters import Nccl
from manyscale.models.workload import OperationKind as K

MIB = 1 << 20
SYSTEM = {
    "endpoint-delay": 10, "active-chunks-per-dimension": 1, "preferred-dataset-splits": 4, "local-mem-bw": 1600,
    "peak-perf": 900, "all-reduce-implementation": ["ring"],
}  # fmt: skip
# system/h100roof.json and network/analytical/HGX-H100-validated.yml
H100 = SYSTEM | {"endpoint-delay": 1, "active-chunks-per-dimension": 2, "local-mem-bw": 3350, "peak-perf": 700}
HGX = {"topology": ["Switch"], "npus_count": [8], "bandwidth": [400.0], "latency": [936.25]}
STG = Path(os.environ.get("MANYSCALE_DATA", "/nowhere")) / "ai" / "stg" / "stg_dp8_8ranks.tar.xz"


def ring(gpus: int) -> dict[str, Any]:
    return {"topology": ["Ring"], "npus_count": [gpus], "bandwidth": [50.0], "latency": [500.0]}


@pytest.mark.parametrize(
    ("kind", "part", "figures"),
    [  # part: bytes of the operations table, of 1 MiB and so many GPUs
        (K.allreduce, lambda gpus: MIB, (43_000, 64_440, 99_640)),
        (K.allgather, lambda gpus: MIB, (64_744, 151_016, 323_560)),
        (K.reduce_scatter, lambda gpus: MIB // gpus, (22_240, 33_080, 50_740)),
        (K.alltoall, lambda gpus: MIB // gpus, (41_560, 125_480, 391_240)),
    ],
)
@pytest.mark.parametrize("is_aware", [False, True])
def test_collectives_on_rings(kind, part, figures, is_aware):
    for gpus, figure in zip((4, 8, 16), figures, strict=True):
        content = target(ring(gpus), SYSTEM, is_aware=is_aware)
        fabric = Fabric(Nccl.model_validate(content["network"]["nccl"]), gpus, 1)
        found = demand(kind, part(gpus), np.arange(gpus), fabric)
        assert found.is_measured
        assert found.time_ps / 1000 == pytest.approx(figure, rel=1e-4)


def test_what_is_not_mapped_is_refused():
    with pytest.raises(ValueError, match="only one dimension"):
        target(ring(4) | {"topology": ["Ring", "Ring"]}, SYSTEM)
    with pytest.raises(ValueError, match="not direct"):
        target(ring(4), SYSTEM | {"all-reduce-implementation": ["direct"]})


@pytest.mark.slow
def test_a_trace_of_one_all_reduce(tmp_path):
    rank = chakra.trace(chakra.node(0, chakra.COLLECTIVE, is_cpu_op=False, comm_type=0, comm_size=MIB))
    assert step_ns(chakra.write(tmp_path, *[rank] * 4), ring(4), SYSTEM) == pytest.approx(43_000, rel=1e-4)


@pytest.mark.slow
@pytest.mark.skipif(not STG.is_file(), reason="needs the traces in $MANYSCALE_DATA")
@pytest.mark.parametrize(("is_aware", "figure", "tolerance"), [(False, 2_958_866, 0.001), (True, 3_945_362, 0.01)])
def test_a_transformer_of_stg(is_aware, figure, tolerance, tmp_path):
    """Of chunks that wait for links that others hold nothing is mapped: 0.9 % of the congestion-aware figure."""
    with lzma.open(STG) as stream, tarfile.open(fileobj=stream) as archive:
        archive.extractall(tmp_path / "stg", filter="data")
    assert step_ns(tmp_path / "stg", HGX, H100, is_aware=is_aware) == pytest.approx(figure, rel=tolerance)


def test_the_example_s_own_files_say_the_same():
    """What YAML and JSON of ASTRA-sim hold, as the script reads them."""
    text = "topology: [ Ring ]\nnpus_count: [ 4 ]\nbandwidth: [ 50.0 ]  # GB/s\nlatency: [ 500.0 ]  # ns\n"
    assert yaml.safe_load(text) == ring(4)

"""ASTRA-sim's examples on a target that stands for its configuration.

``python tests/validation/ai/astra_sim.py TRACE NETWORK.yml SYSTEM.json [--unaware] [-o TARGET.yaml]`` makes the target,
runs the trace on it, and prints what the step takes in ns.

The mapping. ASTRA-sim (github.com/astra-sim/astra-sim at 518bd51, analytical networks) does a collective chunk by chunk
and each chunk step by step, so that what it takes is a sum (Ring.cc, PacketBundle.cc, Link.cc, BasicTopology.cc):

    splits / active x (steps x (T + e) + reductions x 3 floor(m / M) + e)
    m = S / splits / n, for an all-gather S / splits  bytes of a message; S: comm_size
    T = floor(hops x latency + m / B)                 congestion-unaware
      = hops x floor(latency + m / B)                 congestion-aware: store and forward
    steps of an all-reduce 2 (n - 1), an all-gather and a reduce-scatter n - 1, an all-to-all n (n - 1) / 2

with B in 2^30 bytes a second, hops 1 on a ring and between all, 2 through a switch, e the endpoint delay, and a
reduction that reads twice and writes once at M, local-mem-bw, in all steps of a reduce-scatter and half of those of an
all-reduce. These sums for sizes that double are the tables ``network.nccl.tables`` of the target. Its links are faster
than any of them, and its streams begin at once. peak-perf and local-mem-bw are the peak of bf16 and the bandwidth of
DRAM, by which kernels take their roofline. Not mapped: waits of chunks for links that others hold (congestion-aware),
several dimensions, other algorithms than rings, schedulers of several collectives at a time.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any, Final

import yaml

from manyscale.runner.shipped import shipped_targets

_HOPS: Final = {"Ring": 1, "FullyConnected": 1, "Switch": 2}
_KINDS: Final = ("allreduce", "allgather", "reduce_scatter", "alltoall")
_GPU: Final = "dgx-h100"  # whose GPU the target has, but for what the system file says
_SIZES: Final = tuple(2**power for power in range(12, 36))


def collective_ns(kind: str, size: int, gpus: int, network: dict[str, Any], system: dict[str, Any], *,
                  is_aware: bool) -> int:  # fmt: skip
    """What a collective takes; ``size`` as nccl-tests counts: of an all-gather what all GPUs have in the end."""
    splits, active = system["preferred-dataset-splits"], system["active-chunks-per-dimension"]
    message = size // splits // gpus
    hops, latency = _HOPS[network["topology"][0]], network["latency"][0]
    wire = message / (network["bandwidth"][0] * 2**30 / 1e9)
    took = hops * int(latency + wire) if is_aware else int(hops * latency + wire)
    steps = {"allreduce": 2 * (gpus - 1), "alltoall": gpus * (gpus - 1) // 2}.get(kind, gpus - 1)
    reductions = gpus - 1 if kind in ("allreduce", "reduce_scatter") else 0
    delay = system["endpoint-delay"]
    each = steps * (took + delay) + reductions * 3 * int(message / system["local-mem-bw"]) + delay
    return int(-(-splits // active) * each)


def target(network: dict[str, Any], system: dict[str, Any], *, is_aware: bool = True) -> dict[str, Any]:
    """The content of a target's file. Raises ValueError for what is not mapped."""
    if len(network["topology"]) > 1 or network["topology"][0] not in _HOPS:
        raise ValueError(f"topology {network['topology']}: only one dimension of {', '.join(_HOPS)} is mapped")
    others = {each for name, value in system.items() if name.endswith("-implementation") for each in value} - {"ring"}
    if others:
        raise ValueError(f"only rings are mapped, not {', '.join(sorted(others))}")
    gpus = network["npus_count"][0]
    content = yaml.safe_load(shipped_targets()[_GPU].read_text())
    gpu = content["node"]["gpu"]
    rate = system.get("peak-perf", 900) * 1e12 / (2 * gpu["sms"] * float(gpu["frequency"].split()[0]) * 1e6)
    gpu["matrix"]["rates"]["bf16"] = rate
    gpu["matrix"]["peaks"] = {}  # the base's data sheet says another one
    gpu["dram"]["bandwidth"] = f"{system['local-mem-bw']} GB/s"
    gpu |= {"names": [], "start_latency": "0 s", "stream_gap": "0 s", "host_call": "0 s"}
    tables = [
        {
            "collective": kind, "gpus": gpus, "sizes": [f"{size} B" for size in _SIZES],
            "times": [f"{collective_ns(kind, size, gpus, network, system, is_aware=is_aware)} ns" for size in _SIZES],
        }
        for kind in _KINDS
    ]  # fmt: skip
    nccl = {
        "generation": "hopper", "tables": tables,
        "nvlink": {"kind": "switch", "links": 1, "link_bandwidth": "1000000 GB/s"},
    }  # fmt: skip
    cores = content["node"]["sockets"] * content["node"]["cores_per_socket"]
    content["node"] |= {"gpus": gpus, "cores_per_socket": max(gpus, cores)}
    return {
        "schema": 1, "name": "astra-sim", "description": "what a configuration of ASTRA-sim says", "nodes": 1,
        "node": content["node"],
        "network": {**content["network"], "nccl": nccl},
        "sources": {**content["sources"], "network.nccl": "ASTRA-sim's sums (tests/validation/ai/astra_sim.py)"},
    }  # fmt: skip


def step_ns(trace: Path, network: dict[str, Any], system: dict[str, Any], **keys: Any) -> float:
    """What the step of a trace takes on the target."""
    import manyscale

    study = {"schema": 1, "workload": {"path": str(trace)}, "target": target(network, system, **keys)}
    result = manyscale.run(study, executor="local", report=False)
    return max(row["end_ps"] - row["start_ps"] for row in result.steps.to_pylist()) / 1000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("trace", type=Path)
    parser.add_argument("network", type=Path)
    parser.add_argument("system", type=Path)
    parser.add_argument("--unaware", action="store_true", help="the congestion-unaware network")
    parser.add_argument("-o", type=Path, help="write the target to this file")
    given = parser.parse_args()
    network, system = yaml.safe_load(given.network.read_text()), json.loads(given.system.read_text())
    if given.o:
        given.o.write_text(yaml.safe_dump(target(network, system, is_aware=not given.unaware), sort_keys=False))
    print(f"{step_ns(given.trace.resolve(), network, system, is_aware=not given.unaware):,.0f} ns")


if __name__ == "__main__":
    main()

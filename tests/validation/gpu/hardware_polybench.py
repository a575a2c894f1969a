"""PolyBench/GPU as Nsight Compute measured it on an H100 PCIe, by both issue models: prints the tables of
RESULTS-HARDWARE.md.

    python hardware_polybench.py FOLDER [PROGRAM...] [--most SIZE]

FOLDER holds a checkout of github.com/EnzeXu/GPU_Benchmarks (at a3b3243), which is cloned where it is not there.
``--most``: no larger problems. The needs are those of hardware.py. hardware_h100_pcie.csv has the measured cycles, from
scripts/simulation_data_nvidia/H100_raw.csv of github.com/sarchlab/mgpusim at c572e88, of all launches of a program
together; where a block size named there is none that the program takes, the mean of the three runs.
"""

from __future__ import annotations

import argparse
import csv
from collections import defaultdict
from functools import cache
from pathlib import Path

import numpy as np
from hardware_held_out import HERE, compiled
from tracing import checkout, traced

from manyscale.models.gpu import detailed
from manyscale.models.gpu.parameters import Gpu
from manyscale.runner.problems import load_yaml
from manyscale.runner.readers import workload_folder
from manyscale.runner.study.targets import build_machine, shipped_targets

TARGET = "h100-pcie"
POLYBENCH = "https://github.com/EnzeXu/GPU_Benchmarks"
PROFILED = {
    "frequency": "1095 MHz", "launch_latency": 3640,
    "dispatch": {"interval": "1.04 cycles", "turnaround": "300 cycles"},
}  # fmt: skip
"""The target as Nsight Compute runs it: at the base clock, and with what emptykernel and ffmakernel of the same
measurements show of launches and blocks there (as their times without it show what the target file says)."""


def gpu(*, has_core: bool) -> Gpu:
    """L2 is empty before each launch. Without control bits, the cold start is a part of the launch latency."""
    content = load_yaml(shipped_targets()[TARGET])
    described = content["node"]["gpu"]
    described |= PROFILED
    described["l2"]["kept_between_launches"] = False
    cold = 0 if has_core else float(described.pop("core")["cold_start"].split()[0])
    described["launch_latency"] = f"{PROFILED['launch_latency'] + cold} cycles"
    found = build_machine(content, TARGET).node.gpu
    assert found is not None
    return found


@cache
def program(folder: Path, name: str) -> Path:
    return compiled([checkout(folder, "GPU_Benchmarks", POLYBENCH) / "polybench" / f"{name}.cu"], "h100")


def trace(folder: Path, name: str, words: list[str]) -> Path:
    built = program(folder, name)
    found = built.with_name(f"{built.name}-trace{''.join(words)}")
    if not found.exists():
        traced(["--level", "gpu", "--as", TARGET, "-o", str(found), "--", str(built), *words], built.parent, 600)
    return found


def main(folder: Path, most: int, programs: list[str]) -> None:
    gpus = [gpu(has_core=True), gpu(has_core=False)]
    errors: dict[str, list[list[float]]] = defaultdict(list)
    print("| program | arguments | warp instructions | hardware | control bits | error | scoreboard | error |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- |")
    with (HERE / "hardware_h100_pcie.csv").open() as file:
        for row in csv.DictReader(file):
            words, name = row["arguments"].split(), Path(row["program"]).name
            if int(words[1]) > most or (programs and name not in programs):
                continue
            streams = workload_folder.read(trace(folder, row["program"], words)).gpu
            assert streams is not None
            cycles, instructions = [0, 0], 0
            for launch_id in streams.launch_ids:
                launch = streams.trace(launch_id)
                instructions += launch.num_instructions
                cycles = [
                    sum_ + detailed.simulate(launch, each)[0].cycles for sum_, each in zip(cycles, gpus, strict=True)
                ]
            measured = int(row["cycles"])
            off = [each / measured - 1 for each in cycles]
            errors[name].append(off)
            columns = [name, row["arguments"], f"{instructions:,}", f"{measured:,}"]
            columns += [
                text for each, error in zip(cycles, off, strict=True) for text in (f"{each:,}", f"{error:+.1%}")
            ]
            print("| " + " | ".join(columns) + " |", flush=True)
    print(
        "\n| program | rows | control bits: mean error | absolute | worst | scoreboard: mean error | absolute | worst |"
    )
    print("| --- | --- | --- | --- | --- | --- | --- | --- |")
    every = [each for rows in errors.values() for each in rows]
    for name, rows in [*errors.items(), ("all", every)]:
        found = np.array(rows)
        worst = found[np.abs(found).argmax(axis=0), [0, 1]]
        columns = [
            text for mean, size, far in zip(found.mean(axis=0), np.abs(found).mean(axis=0), worst, strict=True)
            for text in (f"{mean:+.1%}", f"{size:.1%}", f"{far:+.1%}")
        ]  # fmt: skip
        print(f"| {name} | {len(rows)} | " + " | ".join(columns) + " |")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--most", type=int, default=1 << 30)
    parser.add_argument("programs", nargs="*")
    given = parser.parse_args()
    main(given.folder.resolve(), given.most, given.programs)

"""Kernels that no number of a target or of a model was chosen by, beside hardware: prints the table of the held-out
part of RESULTS-HARDWARE.md.

    python hardware_held_out.py FOLDER

FOLDER holds a checkout of github.com/accel-sim/gpu-app-collection, which is cloned where it is not there. The needs are
those of hardware.py. hardware_polybench.py has the kernels that were measured on an H100.
"""

from __future__ import annotations

import csv
import subprocess
import sys
from functools import cache
from pathlib import Path

import numpy as np
from tracing import REMOVED, called, checkout, traced

from manyscale.models.gpu import detailed
from manyscale.models.gpu.parameters import Gpu
from manyscale.runner.problems import load_yaml
from manyscale.runner.readers import workload_folder
from manyscale.runner.study.targets import build_machine, shipped_targets
from manyscale.runner.tracers.cuda.compiler import toolkit

HERE = Path(__file__).parent
SUITE = "https://github.com/accel-sim/gpu-app-collection"
ARCHITECTURE = {"rtx3080ti": "sm_86", "h100": "sm_90"}


@cache
def models(target: str) -> list[Gpu]:
    """The target by control bits and by the scoreboard, with an empty L2 before each launch."""
    found = []
    for has_core in (True, False):
        content = load_yaml(shipped_targets()[target])
        described = content["node"]["gpu"]
        described["l2"]["kept_between_launches"] = False
        if not has_core:
            del described["core"]
        gpu = build_machine(content, target).node.gpu
        assert gpu is not None
        found.append(gpu)
    return found


def compiled(sources: list[Path], target: str, *flags: str) -> Path:
    """A program of CUDA and C sources, whose calls that CUDA 13 has no more are replaced in place."""
    folder, program = sources[0].parent, sources[0].with_suffix("")
    for source in sources:
        text = source.read_text()
        for old, new in REMOVED.items():
            text = text.replace(old, new)
        source.write_text(text)
    objects = []
    for source in sources[1:]:
        objects.append(str(source.with_suffix(".o")))
        called(["gcc", "-w", "-std=gnu89", "-O3", "-c", str(source), "-o", objects[-1]], folder)
    library = subprocess.run(
        [sys.executable, "-m", "manyscale", "trace", "--nvcc"], capture_output=True, text=True, check=True
    ).stdout.split()
    options = ["-w", f"-arch={ARCHITECTURE[target]}", "-O3", "-I.", *flags]
    status, _, told = called(
        [str(toolkit().tool("nvcc")), *options, str(sources[0]), *objects, "-o", str(program), *library], folder
    )
    if status:
        sys.exit(told)
    return program


@cache
def program(folder: Path, name: str, target: str) -> Path:
    place = checkout(folder, "gpu-app-collection", SUITE) / "src/cuda/rodinia/2.0-ft" / name
    names = ["backprop_cuda.cu", "backprop.c", "facetrain.c", "imagenet.c"]
    return compiled([place / each for each in names], target, "-DGPU", "-DCUDA")


def cycles(folder: Path, row: dict[str, str]) -> list[int]:
    """The cycles of a row's launches, together, by both models."""
    words, _, kernel = row["arguments"].partition(" (")
    built = program(folder, row["program"], row["gpu"])
    trace = built.with_name(f"{built.name}-trace{words.replace(' ', '')}")
    if not trace.exists():
        given = ["--level", "gpu", "--as", row["gpu"], "-o", str(trace), "--", str(built), *words.split()]
        traced(given, built.parent, 600)
    streams = workload_folder.read(trace).gpu
    assert streams is not None
    launches = [streams.trace(each) for each in streams.launch_ids]
    kept = [each for each in launches if kernel.rstrip(")") in each.kernel_name]
    return [sum(detailed.simulate(each, gpu)[0].cycles for each in kept) for gpu in models(row["gpu"])]


def main(folder: Path) -> None:
    errors: dict[str, list[list[float]]] = {}
    print("| GPU | program | hardware | control bits | error | scoreboard | error |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    with (HERE / "hardware_held_out.csv").open() as file:
        for row in csv.DictReader(file):
            measured = int(row["cycles"])
            found = cycles(folder, row)
            off = [each / measured - 1 for each in found]
            errors.setdefault(row["gpu"], []).append(off)
            columns = [row["gpu"], f"{row['program']} {row['arguments']}", f"{measured:,}"]
            columns += [text for each, error in zip(found, off, strict=True) for text in (f"{each:,}", f"{error:+.1%}")]
            print("| " + " | ".join(columns) + " |", flush=True)
    for target, each in errors.items():
        mean = np.abs(each).mean(axis=0)
        print(f"| {target} | mean absolute error |  |  | {mean[0]:.1%} |  | {mean[1]:.1%} |")


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve())

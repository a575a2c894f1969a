"""GPUMech against the cycle-level model over the design space: kernels times sampled configurations.

    python tests/validation/gpu/measure_design_space.py CSV [FOLDER ...] [--samples N] [--most N] [--minutes N]

Each FOLDER is a workload that ``manyscale trace --level gpu`` stored (tests/validation/cuda/rodinia.py and suites.py
make some, with ``--scratch``). Of each of its kernels the largest launch of at most ``--most`` warp instructions is
taken. Every kernel meets ``--samples`` configurations of the RTX 3070, a Latin hypercube over warps, entries for
misses, bandwidth of DRAM and scheduler, seeded by the kernel's name. L2 is empty when a launch begins; launch latency
is left out.

Rows are added to CSV as they come; those that stand there are not made again, so that a run can be stopped and taken
up. Without FOLDERs, only the summary of CSV is printed.
"""

from __future__ import annotations

import argparse
import csv
import random
import sys
import time
import zlib
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from scipy.stats import spearmanr

from manyscale.models.gpu import detailed
from manyscale.models.gpu.gpumech import model as gpumech
from manyscale.models.gpu.gpumech.outline import outline_of
from manyscale.models.gpu.occupancy import DoesNotFitError
from manyscale.models.gpu.parameters import Gpu
from manyscale.models.workload.launch_trace import LaunchTrace
from manyscale.runner.problems import load_yaml
from manyscale.runner.readers import workload_folder
from manyscale.runner.study.targets import shipped_targets

WARPS = (8, 16, 24, 32, 48)
MSHRS = (1, 4, 16, 64, 384)
BANDWIDTH = (0.25, 0.5, 1, 2, 4)  # of the RTX 3070's
SCHEDULERS = ("loose-round-robin", "greedy-then-oldest")
LEAST = 1_000  # warp instructions of a launch that is taken
KEY = ("program", "kernel", "warps", "mshrs", "bandwidth", "scheduler")
COLUMNS = (
    *KEY, "launch", "instructions", "detailed", "extended", "printed", "cpu_detailed", "cpu_first", "cpu_further",
)  # fmt: skip


def gpu_of(warps: int, mshrs: int, bandwidth: float, scheduler: str) -> Gpu:
    content = load_yaml(shipped_targets()["rtx3070"])["node"]["gpu"]
    content |= {"warps": warps, "threads": 32 * warps, "scheduler": scheduler}
    content["l1"]["mshrs"] = mshrs
    content["dram"]["bandwidth"] = f"{448.064 * bandwidth} GB/s"
    return Gpu.model_validate(content)


def configurations(kernel: str, samples: int) -> Iterator[tuple[int, int, float, str]]:
    """A Latin hypercube: of each five samples, each level of each parameter is in one."""
    draw = random.Random(zlib.crc32(kernel.encode()))
    while samples > 0:
        levels = [draw.sample(each, len(each)) for each in (WARPS, MSHRS, BANDWIDTH)]
        turn = draw.randrange(2)
        for i, found in enumerate(zip(*levels, strict=True)):
            if samples > 0:
                yield (*found, SCHEDULERS[(i + turn) % 2])
            samples -= 1


def kernels(folder: Path, most: int) -> Iterator[tuple[str, int, LaunchTrace]]:
    """Name, launch and trace of each kernel."""
    found = workload_folder.read(folder)
    table = found.tables["launches"]
    chosen: dict[str, tuple[int, int]] = {}
    names, ids, counts = (table.column(n).to_pylist() for n in ("kernel_name", "launch_id", "warp_instructions"))
    for name, number, count in zip(names, ids, counts, strict=True):
        if LEAST <= count <= most and count > chosen.get(name, (0, 0))[0]:
            chosen[name] = (count, number)
    assert found.gpu is not None
    for name, (_, number) in chosen.items():
        yield name, number, found.gpu.trace(number)


def measured(trace: LaunchTrace, gpu: Gpu) -> dict[str, float]:
    begin = time.process_time()
    exact, _ = detailed.simulate(trace, gpu)
    after = time.process_time()
    found = gpumech.predict(gpumech.collect(trace, gpu, representative=False), gpu)
    first = time.process_time()
    outline = outline_of(trace, gpu)
    profile = gpumech.profile_of(outline, gpu)
    again = time.process_time()
    gpumech.predict(profile, gpu)
    further = time.process_time()
    printed = gpumech.predict(profile, gpu, form="printed")
    return {
        "instructions": exact.warp_instructions,
        "detailed": exact.busy_cycles,
        "extended": round(found.cycles),
        "printed": round(printed.cycles),
        "cpu_detailed": round(after - begin, 4),
        "cpu_first": round(first - after, 4),
        "cpu_further": round(further - again, 4),
    }


def known(path: Path) -> list[dict[str, str]]:
    if not path.exists():
        return []
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def program_of(folder: Path) -> str:
    return next(
        name for name in (folder.name, folder.parent.name, folder.parents[1].name) if name not in ("traced", "run")
    )


def go_on(path: Path, folders: list[Path], samples: int, most: int, seconds: float) -> None:
    done = {tuple(row[name] for name in KEY) for row in known(path)}
    end = time.process_time() + seconds
    fresh = not path.exists()
    with path.open("a", newline="") as file:
        write = csv.DictWriter(file, COLUMNS)
        if fresh:
            write.writeheader()
        for folder in folders:
            program = program_of(folder)
            for kernel, launch, trace in kernels(folder, most):
                for warps, *others in configurations(f"{program} {kernel}", samples):
                    if time.process_time() > end:
                        return
                    settings = (max(warps, trace.warps_per_block), *others)
                    key = (program, kernel, *map(str, settings))
                    if key in done:
                        continue
                    done.add(key)
                    try:
                        found = measured(trace, gpu_of(*settings))
                    except DoesNotFitError as problem:
                        print(program, kernel, problem, file=sys.stderr)
                        continue
                    write.writerow(dict(zip(KEY, key, strict=True)) | {"launch": launch} | found)
                    file.flush()


def line(name: str, rows: list[dict[str, str]], form: str) -> str:
    exact = np.array([float(row["detailed"]) for row in rows])
    found = np.array([float(row[form]) for row in rows])
    errors = np.abs(found / exact - 1)
    instructions = np.array([float(row["instructions"]) for row in rows])
    per = spearmanr(found / instructions, exact / instructions).statistic
    return (
        f"| {name} | {len(rows)} | {errors.mean():.1%} | {(errors < 0.2).mean():.0%} | {errors.max():.0%} |"
        f" {(errors > 0.6).sum()} | {per:.3f} |"
    )


def summary(path: Path) -> None:
    rows = known(path)
    print("| cases | number | mean error | below 20 % | worst | above 60 % | rank correlation of CPI |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for form in ("extended", "printed"):
        print(line(f"all, {form}", rows, form))
    for name in ("scheduler", "warps", "mshrs", "bandwidth", "program"):
        parts = defaultdict(list)
        for row in rows:
            parts[row[name]].append(row)
        for value in sorted(parts, key=lambda each: (len(each), each)):
            print(line(f"{name} {value}", parts[value], "extended"))
    worst = sorted(rows, key=lambda row: -abs(float(row["extended"]) / float(row["detailed"]) - 1))[:12]
    for row in worst:
        print(f"{float(row['extended']) / float(row['detailed']) - 1:+.0%}", *(row[name] for name in COLUMNS[:11]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("csv", type=Path)
    parser.add_argument("folders", type=Path, nargs="*")
    parser.add_argument("--samples", type=int, default=5)
    parser.add_argument("--most", type=int, default=300_000)
    parser.add_argument("--minutes", type=float, default=1e9)
    given = parser.parse_args()
    go_on(given.csv, given.folders, given.samples, given.most, 60 * given.minutes)
    summary(given.csv)


if __name__ == "__main__":
    main()

"""GPUMech against the cycle-level model: kernels times twelve configurations, without launch latency.

Kernels: BFS (16 launches), b+tree (2), vectorAdd, ffmakernel (4,096 threads, and one warp with four counts of
iterations). Configurations of an RTX 3070: as it is; with 16 warps, 16 SMs, 4 SMs, 48 entries for misses, a quarter of
the bandwidth; each with round robin and greedy-then-oldest. Traces lie in $MANYSCALE_DATA; without it these tests are
skipped.

Goals: mean error of the extended form at most 13 %, three quarters of the cases below 20 %, none above 60 %.
``pytest -m slow -s`` prints errors of both forms and of the models that the source compares with.
"""

from __future__ import annotations

import os
from functools import lru_cache
from pathlib import Path

import numpy as np
import pytest

from manyscale.models.gpu import detailed
from manyscale.models.gpu.gpumech import model as gpumech
from manyscale.runner.problems import load_yaml
from manyscale.runner.readers import accelsim
from manyscale.runner.study.targets import build_machine, shipped_targets

DATA = Path(os.environ.get("MANYSCALE_DATA", "/nonexistent")) / "gpu"
pytestmark = [
    pytest.mark.skipif(not DATA.is_dir(), reason="MANYSCALE_DATA does not name the folder of the traces"),
    pytest.mark.slow,
    pytest.mark.peer,
]
KERNELS = {
    "bfs": "bfs",
    "b+tree": "misc/rodinia-b+tree-128-1000",
    "vectorAdd": "misc/simple-trace-example",
    "ffmakernel-4096": "misc/simtune-ffmakernel-4096-16",
    **{f"ffmakernel-{n}": f"misc/simtune-ffmakernel-1-32-{n}" for n in (10, 20, 30, 40)},
}
CHANGES = {
    "as it is": {},
    "16 warps": {"warps": 16, "threads": 512},
    "16 SMs": {"sms": 16},
    "4 SMs": {"sms": 4},
    "48 MSHRs": {"l1": {"mshrs": 48}},
    "112 GB/s": {"dram": {"bandwidth": "112 GB/s"}},
}
SCHEDULERS = ("loose-round-robin", "greedy-then-oldest")
PRINTED = {
    "printed": {},
    "printed, MAX": {"representative": "max"},
    "printed, MIN": {"representative": "min"},
    "naive": {"parts": ("naive",)},
    "Markov chain": {"parts": ("markov",)},
    "MT": {"parts": ("mt",)},
    "MT, MSHR": {"parts": ("mt", "mshr")},
    "printed, eq. 26 as it stands": {"delays_of_one_warp": True},
}


def gpu_of(scheduler, changes):
    content = load_yaml(shipped_targets()["rtx3070"])
    own = content["node"]["gpu"]
    for name, value in {"scheduler": scheduler, **changes}.items():
        own[name] = own[name] | value if isinstance(value, dict) else value
    return build_machine(content, "rtx3070").node.gpu


@lru_cache
def errors():
    """{form: {(kernel, launch, configuration, scheduler): relative error}}."""
    found = {name: {} for name in ("extended", *PRINTED)}
    traces = {name: accelsim.read(DATA / path).gpu for name, path in KERNELS.items()}
    for change, values in CHANGES.items():
        for scheduler in SCHEDULERS:
            gpu = gpu_of(scheduler, values)
            for kernel, launches in traces.items():
                memory, l2 = None, gpumech.l2_of(gpu)
                for launch_id in launches.launch_ids:
                    trace = launches.trace(launch_id)
                    result, memory = detailed.simulate(trace, gpu, memory)
                    profile = gpumech.collect(trace, gpu, l2)
                    case = (kernel, launch_id, change, scheduler)
                    for name, options in {"extended": None, **PRINTED}.items():
                        form = {} if options is None else {"form": "printed", **options}
                        cycles = gpumech.predict(profile, gpu, **form).cycles
                        found[name][case] = cycles / result.busy_cycles - 1
    return found


def of_kernel(name, kernel):
    return np.abs([error for case, error in errors()[name].items() if case[0].startswith(kernel)])


def test_extended_form():
    found = np.abs(list(errors()["extended"].values()))
    assert len(found) == 24 * 12
    assert found.mean() <= 0.13
    assert (found < 0.20).mean() >= 0.75
    assert found.max() <= 0.60


@pytest.mark.parametrize("kernel", ["bfs", "b+tree", "vectorAdd", "ffmakernel"])
def test_extended_form_of_each_kernel(kernel):
    assert of_kernel("extended", kernel).mean() <= 0.13


@pytest.mark.known_gap
def test_printed_form_misses_kernels_of_few_long_warps():
    """One warp stands for all (DEVIATIONS.md)."""
    assert of_kernel("printed", "bfs").mean() > 0.20


@pytest.mark.known_gap
def test_delays_of_one_warp_are_too_large():
    """Eq. 26 as it stands, where it matters most: all warps of vectorAdd wait for DRAM (DEVIATIONS.md)."""
    assert of_kernel("printed, eq. 26 as it stands", "vectorAdd").mean() > 2 * of_kernel("printed", "vectorAdd").mean()


def test_figures():
    for name, of_cases in errors().items():
        found = np.abs(list(of_cases.values()))
        kernels = [f"{each} {of_kernel(name, each).mean():.1%}" for each in ("bfs", "b+tree", "vectorAdd", "ffma")]
        print(
            f"{name}: mean {found.mean():.1%}, below 20 %: {(found < 0.2).mean():.0%}, most {found.max():.0%};",
            *kernels,
        )
    worst = sorted(errors()["extended"].items(), key=lambda item: -abs(item[1]))[:5]
    print(*worst, sep="\n")

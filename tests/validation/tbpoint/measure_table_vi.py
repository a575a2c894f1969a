"""TBPoint and its rivals on the programs of table VI, traced without a GPU.

``python -m tbpoint.measure_table_vi SOURCES [--scratch FOLDER] [--only NAME,...] [--full] [--target NAME]
[--configurations] [--seconds N]`` in tests/validation, with manyscale importable and nvcc installed. SOURCES holds
checkouts by the names of table_vi.REPOSITORIES (cloned where missing). What is measured is kept in
SCRATCH/results.json, program by program: a run that is repeated goes on behind it, and begins nothing after
``--seconds``.
RESULTS-TABLE-VI.md is written from all of it.

Truth: the cycle-level model, all launches of the program's kernel one after the other, L2 kept, launch latency left
out.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1] / "cuda"))

from tracing import MANYSCALE, REMOVED, called, checkout, first_error, nvcc

from manyscale.models.gpu import detailed
from manyscale.models.gpu.l2 import warm as warm_l2
from manyscale.models.gpu.parameters import Gpu
from manyscale.models.workload import Workload
from manyscale.runner.predict.gpu.launch_counts import counts_of, shapes_of
from manyscale.runner.problems import load_yaml
from manyscale.runner.readers import workload_folder
from manyscale.runner.study.samplers import chosen_sampler
from manyscale.runner.study.targets import build_machine, shipped_targets
from manyscale.sampling.interval_samplers import SizeRules, SystematicRules
from manyscale.sampling.population import Choice
from manyscale.sampling.tbpoint import launch_samplers
from manyscale.sampling.tbpoint.estimate import estimate
from manyscale.sampling.tbpoint.launch_samplers import LaunchPopulation
from manyscale.sampling.tbpoint.launches import LaunchSampling, choose
from manyscale.sampling.tbpoint.regions import RegionRules
from manyscale.sampling.tbpoint.rules import RegionSamplingRules

from .baselines import RANDOM_SHARE, projected, random_units, simpoint_units, systematic_units
from .measure_blocks import fits, sampled, units_of
from .table_vi import PROGRAMS, REPOSITORIES, Program, edited

HERE: Final = Path(__file__).parent
UNITS: Final = 400  # of a program, at most a million instructions each
SEEDS: Final = 20
SHOWN: Final = "rtx3070"  # the program's GPU, while it is traced
CONFIGURATIONS: Final[tuple[dict[str, Any], ...]] = (
    {}, {"warps": 32, "threads": 1024}, {"warps": 16, "threads": 512}, {"sms": 7}, {"sms": 28},
)  # fmt: skip
FLOOR: Final = 1e-4
_LEVELS: Final = ("l1", "l2")


@dataclass(frozen=True)
class Outcome:
    """A method on a program: relative ``error`` of cycles in the mean over seeds, share of instructions ``simulated``,
    ``half_width`` (None: no interval; the median over seeds) and how often that ``held`` the truth; of TBPoint the
    shares that are skipped ``between`` and ``inside`` launches, and the errors of miss ratios."""

    method: str
    error: float
    simulated: float
    half_width: float | None = None
    held: float | None = None
    between: float | None = None
    inside: float | None = None
    l1: float | None = None
    l2: float | None = None


def target(name: str, **changes: Any) -> Gpu:
    content = load_yaml(shipped_targets()[name])
    content["node"]["gpu"] |= changes
    gpu = build_machine(content, name).node.gpu
    assert gpu is not None
    return gpu


def traced(program: Program, sources: Path, scratch: Path, is_full: bool) -> Path:
    """The trace, made where it is not there. Raises RuntimeError with what the tools say."""
    folder = scratch / f"{program.name}-{'full' if is_full else 'small'}"
    if (folder / "done").exists():
        return folder / "traced"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    url, commit = REPOSITORIES[program.repository]
    root = checkout(sources, program.repository, url)
    if commit and (root / ".git").exists():
        called(["git", "checkout", "-q", commit], root)
    for each in program.folders:
        shutil.copytree(root / each, folder / "source" / each)
    size = program.full if is_full else program.small
    for file, old, new in (*program.edits, *size.edits):
        path = folder / "source" / file
        path.write_text(edited(path.read_text(errors="replace"), old, new))
    compiler, link = nvcc()
    removed = {} if program.repository == "cuda-samples" else REMOVED  # those have fields of the old names
    named = [f"-D{old}={new}" for old, new in removed.items()]
    words = program.words.format(validation=HERE.parent).split()
    made = ["-w", "-O2", "-arch=sm_86", *named, *words, *program.files.split(), "-o", str(folder / "program"), *link]
    status, out, told = called([compiler, *made], folder / "source")
    if status:
        raise RuntimeError(first_error(told + out))
    program.inputs(folder, is_full)
    command = [*MANYSCALE, "trace", "--level", "gpu", "--as", SHOWN, "-o", str(folder / "traced"), "--", "./program"]
    status, out, told = called([*command, *size.arguments.split()], folder, time_limit=3600)
    if status or not (folder / "traced").exists():
        raise RuntimeError((told + out).strip().splitlines()[-1])
    (folder / "done").touch()
    return folder / "traced"


class Truth:
    """The launches of the program's kernel, simulated in full."""

    def __init__(self, workload: Workload, pattern: str, gpu: Gpu) -> None:
        names = workload.tables["launches"].column("kernel_name").to_pylist()
        self.rows = np.array([row for row, name in enumerate(names) if re.search(pattern, name)], np.int64)
        if not len(self.rows):
            raise RuntimeError(f"no kernel of {sorted(set(names))} is like {pattern}")
        assert workload.gpu is not None
        self.streams, self.gpu = workload.gpu, gpu
        self.ids = workload.column("launches", "launch_id")[self.rows]
        self.counts = counts_of(workload, self.rows, False)
        self.blocks, self.threads = shapes_of(workload, self.rows)
        self.instructions = np.asarray(self.counts.warp_instructions, np.float64)
        self.cycles = np.zeros(len(self.rows))
        self.stopped = np.zeros((2, len(self.rows)))  # cycles by PKA's stop inside, share of instructions until then
        self.hits = np.zeros(4)  # L1 and L2: misses, accesses
        self._units(detailed.l2_of(gpu))

    def _units(self, memory: Any) -> None:
        units: list[tuple[np.ndarray, np.ndarray, dict[int, np.ndarray]]] = []
        share = UNITS / self.instructions.sum()
        for at, number in enumerate(self.ids.tolist()):
            trace = self.streams.trace(number)
            full, memory = detailed.simulate(trace, self.gpu, memory)
            self.cycles[at] = full.busy_cycles
            self.stopped[:, at] = projected(
                full.ipc, full.ipc_cycles, full.busy_cycles, full.block_end, fits(trace, self.gpu) * self.gpu.sms
            )
            self.hits += counts(full)
            wanted = max(1, round(trace.num_instructions * max(share, 1e-6)))
            instructions, cycles, vectors = units_of(trace, full, wanted)
            kept = {int(pc): vectors[:, i] for i, pc in enumerate(np.unique(trace.static.pc).tolist())}
            units.append((instructions, cycles, kept))
        self.unit_instructions = np.concatenate([one[0] for one in units])
        self.unit_cycles = np.concatenate([one[1] for one in units])
        addresses = sorted({pc for one in units for pc in one[2]})
        self.unit_vectors = np.concatenate(
            [np.stack([v.get(pc, np.zeros(len(i))) for pc in addresses], axis=1) for i, _, v in units]
        )


def counts(result: Any) -> np.ndarray:
    return np.array([result.l1_misses, result.l1_accesses, result.l2_misses, result.l2_accesses], np.float64)


def ratios(hits: np.ndarray) -> np.ndarray:
    """(miss ratio of L1, of L2)"""
    return np.divide(hits[::2], hits[1::2], out=np.zeros(2), where=hits[1::2] > 0)


def over_seeds(found: Sequence[Outcome]) -> Outcome:
    """Of a method whose launches are drawn."""
    mean = {key: float(np.mean([getattr(one, key) for one in found])) for key in ("simulated", "between")}
    known = [one for one in found if one.half_width is not None]
    half = float(np.median([one.half_width for one in known])) if known else None
    held = float(np.mean([one.held for one in known])) if known else None
    error = float(np.mean(np.abs([one.error for one in found])))
    return Outcome(found[0].method, error, mean["simulated"], half, held, mean["between"], 0.0)


def tbpoint(truth: Truth, representatives: int | str, rules: RegionSamplingRules | None, seed: int = 0) -> Outcome:
    """Between launches, and with ``rules`` inside those that are chosen."""
    sample = choose(truth.counts, LaunchSampling.model_validate({"representatives": representatives, "seed": seed}))
    found, variance, hits, executed = [], [], np.zeros(4), 0.0
    chosen = set(sample.chosen.tolist())
    if rules is None:
        found, executed = truth.cycles[sample.chosen].tolist(), float(truth.instructions[sample.chosen].sum())
        variance = [0.0] * len(found)
    else:
        memory = detailed.l2_of(truth.gpu)
        cluster_instructions = np.bincount(sample.cluster, truth.instructions)
        own = np.bincount(sample.cluster[sample.chosen], truth.instructions[sample.chosen])
        for at, number in enumerate(truth.ids.tolist()):
            trace = truth.streams.trace(number)
            if at not in chosen:
                warm_l2.touch(trace, truth.gpu, memory)
                continue
            launch, result, memory = sampled(trace, truth.gpu, rules, RegionRules(), memory)
            found.append(launch.cycles)
            variance.append(launch.variance)
            executed += launch.instruction_share * trace.num_instructions
            hits += counts(result) * (cluster_instructions / own)[sample.cluster[at]]
    whole = estimate(sample, truth.instructions, np.array(found), np.array(variance))
    total, in_chosen = float(truth.instructions.sum()), float(truth.instructions[sample.chosen].sum())
    miss = np.abs(ratios(hits) - ratios(truth.hits)) if rules is not None else (None, None)
    half, error = whole.relative_half_width, whole.total_cycles / float(truth.cycles.sum()) - 1
    held = float(abs(error) <= half * (1 + error)) if np.isfinite(half) else None
    name = "tbpoint" if representatives == 1 else "tbpoint:auto"
    return Outcome(
        name if rules is None else f"{name}, blocks" if rules.rules == "spread" else f"{name}, source's blocks",
        error, executed / total, half if np.isfinite(half) else None, held,
        1 - in_chosen / total, (in_chosen - executed) / total,
        *(None if one is None else float(one) for one in miss),
    )  # fmt: skip


def launches_by(truth: Truth, name: str, as_many: int, text: str = "", stops: bool = False) -> Outcome:
    """A sampler of launches of the registry, mean over seeds; ``stops``: inside them as PKA does."""
    cycles, share = truth.stopped if stops else (truth.cycles, np.ones(len(truth.rows)))
    population = LaunchPopulation(
        np.arange(len(truth.rows)), truth.counts, cycles, truth.blocks, truth.threads, truth.cycles
    )
    sampler = chosen_sampler("launch", name)
    rules: Any = sampler.rules()
    if name == "random":
        rules = SizeRules(intervals=as_many)
    elif name == "systematic":
        rules = SystematicRules(period=max(1, len(truth.rows) // as_many))
    errors, shares = [], []
    for seed in range(SEEDS):
        choice: Choice = sampler.choose(population, rules, seed)
        value = launch_samplers.estimate(choice, population).value * float(truth.instructions.sum())
        errors.append(abs(value / float(truth.cycles.sum()) - 1))
        shares.append(float((truth.instructions * share)[choice.element].sum() / truth.instructions.sum()))
    return Outcome(f"launches: {name}{text}", float(np.mean(errors)), float(np.mean(shares)))


def units_by(truth: Truth, name: str, take: Callable[[int], Any], seeds: int) -> Outcome:
    found = [take(seed) for seed in range(seeds)]
    errors = [abs(one.total_cycles / float(truth.unit_cycles.sum()) - 1) for one in found]
    return Outcome(f"units: {name}", float(np.mean(errors)), float(np.mean([one.instruction_share for one in found])))


def outcomes(truth: Truth) -> Iterator[Outcome]:
    for representatives, seeds in ((1, 1), ("auto", SEEDS)):
        drawn = [tbpoint(truth, representatives, None, seed) for seed in range(seeds)]
        yield over_seeds(drawn) if seeds > 1 else drawn[0]
        both = tbpoint(truth, representatives, RegionSamplingRules())
        yield both
    yield tbpoint(truth, 1, RegionSamplingRules(rules="source"))
    number, several = (
        len(choose(truth.counts, LaunchSampling.model_validate({"representatives": each})).chosen)
        for each in (1, "auto")
    )
    for name in ("random", "systematic", "pka", "sieve", "stem"):
        yield launches_by(truth, name, number)
    for name in ("random", "systematic"):
        yield launches_by(truth, name, several, ", as auto")
    yield launches_by(truth, "pka", number, ", stop inside", True)
    instructions, cycles, vectors = truth.unit_instructions, truth.unit_cycles, truth.unit_vectors
    for share, text in ((RANDOM_SHARE, "10 %"), (max(both.simulated, 1e-9), "as TBPoint")):
        count = min(len(cycles), max(1, round(share * len(cycles))))
        yield units_by(truth, f"random, {text}", lambda s, n=count: random_units(instructions, cycles, n, s), SEEDS)
        yield units_by(
            truth, f"systematic, {text}", lambda s, n=count: systematic_units(instructions, cycles, n, s), SEEDS
        )
    yield units_by(truth, "simpoint", lambda seed: simpoint_units(instructions, cycles, vectors), 1)


def measure(program: Program, place: Path, name: str, changes: dict[str, Any]) -> dict[str, Any]:
    before = time.process_time()
    truth = Truth(workload_folder.read(place), program.kernel, target(name, **changes))
    of_truth = time.process_time() - before
    found = [asdict(one) for one in outcomes(truth)]
    return {
        "launches": len(truth.rows), "blocks": int(truth.blocks.sum()), "instructions": int(truth.instructions.sum()),
        "cycles": float(truth.cycles.sum()), "seconds": of_truth, "outcomes": found,
    }  # fmt: skip


def page(results: dict[str, dict[str, Any]]) -> str:
    """RESULTS-TABLE-VI.md."""
    lines = (HERE / "table_vi_head.md").read_text().rstrip().splitlines()
    for place in dict.fromkeys((one["target"], json.dumps(one["changes"]), one["size"]) for one in results.values()):
        own = [one for one in results.values() if (one["target"], json.dumps(one["changes"]), one["size"]) == place]
        changes = ", ".join(f"{key} {value}" for key, value in own[0]["changes"].items())
        lines += ["", f"## {place[0]}{f' with {changes}' if changes else ''}, {place[2]} sizes", ""]
        lines += [
            "| program | launches (table) | blocks (table) | warp instructions | CPU s of the truth |",
            "| --- " * 5 + "|",
        ]
        for one in own:
            p = next(each for each in PROGRAMS if each.name == one["program"])
            lines.append(
                f"| {p.name} | {one['launches']} ({p.launches}) | {one['blocks']} ({p.blocks}) | "
                f"{one['instructions']:,} | {one['seconds']:.0f} |"
            )
        lines += ["", *_summary(own), "", *_details(own)]
    return "\n".join(lines) + "\n"


def _summary(own: Sequence[dict[str, Any]]) -> Iterator[str]:
    yield "| method | programs | mean error, % | worst | geometric | held, % | simulated, % | L1 | L2 |"
    yield "| --- " * 9 + "|"
    for method in dict.fromkeys(each["method"] for one in own for each in one["outcomes"]):
        found = [each for one in own for each in one["outcomes"] if each["method"] == method]
        error = np.abs([each["error"] for each in found])
        misses = [[each[level] for each in found if each[level] is not None] for level in _LEVELS]
        of_caches = " | ".join(f"{np.mean(one):.4f}" if one else "" for one in misses)
        held = [each["held"] for each in found if each["held"] is not None]
        yield (
            f"| {method} | {len(found)} | {100 * error.mean():.2f} | {100 * error.max():.2f} | "
            f"{100 * np.exp(np.log(np.maximum(error, FLOOR)).mean()):.2f} | "
            f"{f'{100 * np.mean(held):.0f}' if held else ''} | "
            f"{100 * np.mean([each['simulated'] for each in found]):.1f} | {of_caches} |"
        )


def _details(own: Sequence[dict[str, Any]]) -> Iterator[str]:
    """Of TBPoint, program by program: errors with their signs, and what is skipped where."""
    methods = ("tbpoint, blocks", "tbpoint:auto, blocks")
    yield "| program | method | error, % | half-width | simulated, % | skipped between | inside |"
    yield "| --- " * 7 + "|"
    for one in own:
        for each in one["outcomes"]:
            if each["method"] not in methods:
                continue
            half = "" if each["half_width"] is None else f"{100 * each['half_width']:.2f}"
            yield (
                f"| {one['program']} | {each['method']} | {100 * each['error']:+.2f} | {half} | "
                f"{100 * each['simulated']:.1f} | {100 * each['between']:.1f} | {100 * each['inside']:.1f} |"
            )


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="TBPoint on the programs of table VI.")
    parser.add_argument("sources", type=Path)
    parser.add_argument("--scratch", type=Path, default=Path("table-vi"))
    parser.add_argument("--only", help="programs, with commas between them")
    parser.add_argument("--trace", action="store_true", help="only trace")
    parser.add_argument("--full", action="store_true", help="the table's sizes")
    parser.add_argument("--target", default="fermi-tbpoint")
    parser.add_argument("--configurations", action="store_true", help="changed occupancies and numbers of SMs, too")
    parser.add_argument("--seconds", type=float, default=np.inf, help="nothing is begun after these")
    asked = parser.parse_args(arguments)
    sources, scratch = asked.sources.resolve(), asked.scratch.resolve()
    scratch.mkdir(parents=True, exist_ok=True)
    kept = scratch / "results.json"
    results: dict[str, dict[str, Any]] = json.loads(kept.read_text()) if kept.exists() else {}
    names = asked.only.split(",") if asked.only else [program.name for program in PROGRAMS]
    begin, size = time.monotonic(), "full" if asked.full else "small"
    if asked.trace:
        for program in (one for one in PROGRAMS if one.name in names):
            try:
                traced(program, sources, scratch, asked.full)
                print(f"{program.name}: {time.monotonic() - begin:.0f} s", file=sys.stderr, flush=True)
            except (RuntimeError, ValueError) as error:
                print(f"{program.name}: {error}", file=sys.stderr, flush=True)
        return 0
    for program in (one for one in PROGRAMS if one.name in names):
        for changes in CONFIGURATIONS if asked.configurations else ({},):
            key = f"{program.name} {size} {asked.target} {json.dumps(changes)}"
            if key in results or time.monotonic() - begin > asked.seconds:
                continue
            try:
                found = measure(program, traced(program, sources, scratch, asked.full), asked.target, changes)
            except (RuntimeError, ValueError) as error:
                print(f"{program.name}: {error}", file=sys.stderr, flush=True)
                break
            results[key] = {"program": program.name, "size": size, "target": asked.target, "changes": changes, **found}
            kept.write_text(json.dumps(results))
            print(f"{key}: {time.monotonic() - begin:.0f} s", file=sys.stderr, flush=True)
    if results:
        (HERE / "RESULTS-TABLE-VI.md").write_text(page(results))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

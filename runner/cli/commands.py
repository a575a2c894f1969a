"""The commands behind the command line: from parsed options to calls of the API, and what is printed."""

from __future__ import annotations

import argparse
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa

from manyscale.runner.cache import default_cache
from manyscale.runner.errors import UserError
from manyscale.runner.predict.statistic import Statistic
from manyscale.runner.registry import lookup, names
from manyscale.runner.run import api, pipeline
from manyscale.runner.run import directory as rundir
from manyscale.runner.run.outputs import Summary
from manyscale.runner.run.store import Store
from manyscale.runner.study import (
    assign,
    load_study_content,
    parse_assignment,
    parse_study,
    shipped,
    sweep_points,
    what_if,
)
from manyscale.runner.study.targets import shipped_targets
from manyscale.runner.study.traces import counted
from manyscale.sampling.plan import Plan

MOST_POINTS_SHOWN = 20  # on the terminal


def run(options: argparse.Namespace) -> int:
    """``manyscale run``."""
    content, place, beside = study_content(options)
    check_executor(options)
    if options.dry_run:
        return _dry_run(content, place, beside, options)
    _announce_compilation()
    with progress_bar() as progress:
        chosen = api.Options(
            output=options.output,
            executor=options.executor,
            address=options.address,
            num_workers=options.workers,
            host=options.host,
            cache=options.cache,
            resume=options.resume,
            report=not options.no_report,
            progress=progress,
        )
        finished = api.run_study(content, place, beside, chosen)
    _print_results(finished)
    return 0


def check_executor(options: argparse.Namespace) -> None:
    if options.executor not in ("auto", *names("executor")):
        raise UserError(f"unknown executor {options.executor!r}; known are auto, {', '.join(names('executor'))}")
    if options.workers is not None and options.workers < 1:
        raise UserError(f"--workers {options.workers}: at least one is needed")
    if options.seed is not None and options.seed < 0:
        raise UserError(f"--seed {options.seed}: a seed is not negative")


def study_content(options: argparse.Namespace) -> tuple[dict[str, Any], str, Path | None]:
    """The study of a file, an example, a resumed run or the options, with what the options replace."""
    content: dict[str, Any]
    beside: Path | None = None
    resumed = getattr(options, "resume", False) and options.output is not None
    if options.study is not None:
        path = shipped.find(options.study)
        content, place, beside = load_study_content(path), str(path), path.parent
    elif options.workload is not None:
        content, place = {"schema": 1, "workload": {"path": options.workload}, "target": options.target}, "command line"
        if options.target is None:
            raise UserError(f"--workload needs --target: a YAML file, or one of {', '.join(shipped_targets())}")
    elif resumed:
        rundir.read_manifest(options.output)
        path = options.output / "resolved.yaml"
        content, place = load_study_content(path), str(path)
    else:
        raise UserError(f"name a study, or --workload PATH --target NAME; examples are {', '.join(shipped.studies())}")
    if not isinstance(content, dict):
        raise UserError(f"{place}: a study is a mapping of keys (schema, workload, target, ...)")
    if options.study is not None and options.workload is not None:
        content = assign(content, "workload.path", options.workload)
    if options.target is not None:
        content = assign(content, "target", options.target)
    if options.format is not None:
        content = assign(content, "workload.format", options.format)
    if options.launch is not None:
        content = assign(content, "workload.launches", launch_numbers(options.launch))
    for level, given in (("model", options.model), ("sampling", options.sampling)):
        for text in given:
            key, value = parse_assignment(text, f"--{level}")
            content = assign(content, f"{level}.{key}", value)
    for text in options.assignments:
        content = assign(content, *parse_assignment(text))
    if options.seed is not None:
        content = assign(content, "seed", options.seed)
    if options.what_if:
        content = assign(content, what_if.AXIS, options.what_if)
    return content, place, beside


def launch_numbers(text: str) -> list[int]:
    """Numbers and ranges of --launch, such as 9,11 or 3-8. Raises UserError."""
    found: list[int] = []
    for part in text.split(","):
        first, dash, last = part.strip().partition("-")
        if not (first.isdecimal() and (last.isdecimal() or not dash)) or int(last or first) < int(first):
            raise UserError(f"--launch {text!r}: write numbers of launches, counted from 1, such as 9,11 or 3-8")
        found += range(int(first), int(last or first) + 1)
    return found


def _announce_compilation() -> None:
    """Say why the first run takes longer, when somebody watches."""
    if not sys.stderr.isatty():
        return
    from numba.core import event

    class Once(event.Listener):
        told = False

        def on_start(self, event: Any) -> None:
            if not self.told:
                print("compiling kernels, once on this machine (about 10 s) ...", file=sys.stderr)
                self.told = True

        def on_end(self, event: Any) -> None:
            return

    event.register("numba:compile", Once())


@contextmanager
def progress_bar() -> Iterator[Callable[[int, int], None]]:
    """Progress with rate and time left on standard error, for work of over a second; every 30 s where it is a log."""
    bar = None
    interval = 0.2 if sys.stderr.isatty() else 30.0
    begin = time.monotonic()

    def progress(done: int, total: int) -> None:
        nonlocal bar
        if bar is None and time.monotonic() - begin > max(1.0, interval):
            from tqdm import tqdm

            bar = tqdm(total=total, unit=" units", mininterval=interval)
        if bar is not None:
            bar.total = total
            bar.update(done - bar.n)

    try:
        yield progress
    finally:
        if bar is not None:
            bar.close()


def _print_results(finished: api.Run) -> None:
    shown = finished.points if len(finished.points) <= MOST_POINTS_SHOWN else finished.points[:1]
    for point in shown:
        print(_summary(point))
    if len(finished.points) > len(shown):
        print(f"... {len(finished.points)} points: see sweep.parquet")
    counts = finished.counts
    print(
        f"{counts.total} work units: {counts.simulated} simulated, {counts.reused} reused; "
        f"{finished.host['wall_seconds']:.2f} s wall, {finished.host['cpu_seconds']:.2f} s CPU"
    )
    print(f"results: {finished.directory}")


def _summary(point: Summary) -> str:
    figures = point.statistics
    at = "".join(f" {key}={value}" for key, value in point.axes.items())
    parts = (
        f"parallel efficiency {100 * figures['application.parallel_efficiency'].value:.1f} % "
        f"(load balance {100 * figures['application.load_balance'].value:.1f} %, "
        f"serialisation {100 * figures['application.serialisation_efficiency'].value:.1f} %, "
        f"transfer {100 * figures['application.transfer_efficiency'].value:.1f} %)"
    )
    makespan = figures["application.makespan"].value
    if "gpu.launches" in figures:
        launches, cycles, ipc = (figures[f"gpu.{name}"].value for name in ("launches", "cycles", "ipc"))
        taken = f"{launches:,} launches take" if launches > 1 else "1 launch takes"
        of_launches = f"{taken} {cycles:,} cycles, IPC {ipc:.4g}"
        if point.num_ranks == 1:
            return f"{point.name} on {point.target}{at}: {makespan:.9f} s; {of_launches}"
        parts = f"{parts}; {of_launches}"
    if "intervals.cpi" in figures:
        parts = _intervals(figures)
    return f"{point.name}, {point.num_ranks} ranks on {point.target}{at}: {makespan:.6f} s; {parts}"


def _intervals(figures: Mapping[str, Statistic]) -> str:
    """What sampled intervals of a program say of it."""
    cpi = figures["intervals.cpi"]
    between = "" if cpi.ci_low is None else f" ({cpi.ci_low:.4g} to {cpi.ci_high:.4g})"
    of = f"{figures['intervals.simulated'].value:,} of {figures['intervals.total'].value:,} intervals"
    return f"CPI {cpi.value:.4g}{between} from {of}, {figures['intervals.share'].value:.1%} of the instructions"


def _dry_run(content: dict[str, Any], place: str, beside: Path | None, options: argparse.Namespace) -> int:
    study = parse_study(content, place)
    points = list(sweep_points(content, place))
    cache = options.cache or default_cache()
    store = Store(cache / "units")
    workload = api.read_workload(study.workload, cache)
    keys: dict[str, str] = {}
    prepared = list(api.prepare_points(points, place, beside, workload))
    for point in prepared:
        digests = pipeline.phase_digests(point, point.first_units)
        bursts = pipeline.compute_units(point, digests, "")
        replay = pipeline.replay_unit(point, [unit.key for unit in bursts], {})
        keys |= {unit.key: unit.kind for unit in (*point.first_units, *bursts, replay)}
    reused = sum(store.has(key) for key in keys)
    chosen = pipeline.choose_executor(options.executor, prepared, options.address, options.host)
    print(f"{workload.name}: {workload.num_ranks} ranks, {workload.num_operations} operations; {len(points)} points")
    print(f"{len(keys)} work units, {reused} of them stored already; executor {chosen}; nothing was run or written")
    return 0


def plan(options: argparse.Namespace) -> int:
    """``manyscale plan``."""
    if options.method is not None:
        from manyscale.runner.cli import plan as plan_command

        return plan_command.plan(options)
    if options.export or options.projection or options.warmup:
        raise UserError("--export, --projection, --warmup: are for intervals; choose them with --method")
    if options.sensitivity or options.measured:
        raise UserError("--sensitivity, --measured: are of --method simprof")
    if options.cycles:
        raise UserError("--cycles: is of kernel launches; choose some with --method tbpoint")
    from manyscale.runner.run.parquet import write_table

    content, place, beside = study_content(options)
    cache = options.cache or default_cache()
    points = list(sweep_points(content, place))
    workload = api.read_workload(parse_study(content, place).workload, cache)
    point = next(api.prepare_points(points, place, beside, workload))
    directory = rundir.new_directory(options.output, workload.name, resume=False)
    write_table(pa.concat_tables([each.table() for each in point.plans]), directory / "plan.parquet")
    counts = [f"{_counted(each)} {_plural(each.element_kind)}" for each in point.plans]
    print(f"{' and '.join(counts)} would be simulated: {directory}/plan.parquet")
    return 0


def _counted(plan: Plan) -> str:
    """How many elements of how many; of intervals, whose weights are shares, how many."""
    number = len(plan.element_id)
    return str(number) if plan.element_kind == "interval" else f"{number} of {plan.population}"


def _plural(word: str) -> str:
    return f"{word}es" if word.endswith("ch") else f"{word}s"


def evaluate(options: argparse.Namespace) -> int:
    """``manyscale evaluate``: of task instances, or of profiles."""
    from manyscale.runner.cli import evaluate_profiles as evaluation
    from manyscale.runner.cli import evaluate_tasks as evaluate_command

    profiles = [path for path in options.traces if evaluation.is_profile(path)]
    if len(profiles) == len(options.traces):
        return evaluation.evaluate(options)
    if profiles:
        raise UserError(f"{profiles[0]}: is a profile, others are traces with tasks; evaluate the two kinds one by one")
    if options.on or options.cycles is not None:
        raise UserError("--on and --cycles: judge profiles of intervals and launches; these are traces with tasks")
    return evaluate_command.evaluate(options)


def convert(options: argparse.Namespace) -> int:
    """``manyscale convert``."""
    choice = parse_study(
        {
            "workload": {
                "path": options.trace,
                "format": options.format,
                "flop_rate": options.flop_rate,
                "time_unit": options.time_unit,
                "application": options.application,
            },
            "target": "laptop",
        },
        "command line",
    ).workload
    write_trace = lookup("trace-writer", options.to)
    workload = api.read_workload(choice)
    directory = rundir.new_directory(options.output, workload.name, resume=False)
    try:
        write_trace(workload, directory)
    except BaseException:
        shutil.rmtree(directory, ignore_errors=True)
        raise
    for note in workload.notes:
        print(f"note: {note}")
    print(f"{counted(workload)}: {directory}")
    return 0


def status(options: argparse.Namespace) -> int:
    """``manyscale status``."""
    manifest = rundir.read_manifest(options.directory)
    lines = rundir.read_journal(options.directory)
    latest = {line["key"]: line["status"] for line in lines}
    counted = ", ".join(
        f"{sum(value == name for value in latest.values())} {name}" for name in ("simulated", "reused", "failed")
    )
    print(f"{options.directory}: {manifest['status']}; {len(latest)} units finished ({counted})")
    points = sorted((options.directory / "points").glob("*/manifest.json"))
    if points:
        print(f"{len(points)} sweep points written")
    return 0


def report(options: argparse.Namespace) -> int:
    """``manyscale report``: the study again, with every output; what is stored is not simulated again."""
    manifest = rundir.read_manifest(options.directory)
    if manifest["status"] != "complete":
        raise UserError(f"{options.directory}: the run is {manifest['status']}; finish it with run --resume -o DIR")
    path = options.directory / "resolved.yaml"
    chosen = api.Options(output=options.directory, executor="local", resume=True)
    finished = api.run_study(load_study_content(path), str(path), None, chosen)
    print(f"report: {finished.directory}/report.html")
    return 0


def accuracy(options: argparse.Namespace) -> int:
    """``manyscale accuracy``."""
    from manyscale.runner.run.accuracy import evaluate_cases

    rows = evaluate_cases(options.cases, options.cache)
    width = max(len(row.name) for row in rows)
    print(f"{'case':<{width}} {'predicted s':>14} {'reference s':>14} {'error':>10} {'tolerance':>10}")
    for row in rows:
        verdict = "" if row.holds else "  OUT OF TOLERANCE"
        print(
            f"{row.name:<{width}} {row.predicted:>14.9f} {row.reference:>14.9f} {row.error:>10.1e} "
            f"{row.tolerance:>10.1e}{verdict}"
        )
    failed = sum(not row.holds for row in rows)
    errors = [abs(row.error) for row in rows]
    print(
        f"{len(rows)} cases, {failed} out of tolerance; "
        f"absolute error mean {sum(errors) / len(rows):.1e} s, max {max(errors):.1e} s"
    )
    return 1 if failed else 0


def examples(options: argparse.Namespace) -> int:
    """``manyscale examples``."""
    print("examples (manyscale run NAME):")
    for name, text in shipped.described().items():
        print(f"  {name:<16} {text}")
    print("memory traces (manyscale predict NAME --sizes LIST):")
    for name, traces in shipped.memory_traces().items():
        print(f"  {name:<16} inputs {', '.join(map(str, traces))}")
    print("targets (--target NAME):")
    for name, path in shipped_targets().items():
        print(f"  {name:<16} {load_study_content(path).get('description', '')}")
    for seam in ("reader", "cpu", "network", "sampling", "executor"):
        print(f"{seam}: {', '.join(names(seam))}")
    return 0

"""``manyscale profile``: stack distances of a memory trace, and what a machine's caches make of them."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any, Final

import numpy as np

from manyscale.models.machine import Machine
from manyscale.models.machine.processor import Cache
from manyscale.models.memory.access_stream import Sites
from manyscale.models.memory.amm.block_probabilities import count_transitions
from manyscale.models.workload import Workload
from manyscale.models.workload.quantities import parse_bytes
from manyscale.runner.cache import default_cache
from manyscale.runner.cli import commands
from manyscale.runner.cli.execution import execution_of
from manyscale.runner.errors import UserError
from manyscale.runner.predict.memory import profile_result, profile_units, sampled, simulated, together
from manyscale.runner.predict.memory.hit_rates import caches_of, line_bytes
from manyscale.runner.predict.memory.profile_result import ProfileResult
from manyscale.runner.predict.memory.streams import Stream, streams_of
from manyscale.runner.report import statistics
from manyscale.runner.report.text import binary_size, percent
from manyscale.runner.run import directory as rundir
from manyscale.runner.run.parquet import write_table
from manyscale.runner.study import WorkloadChoice, parse_study, traces
from manyscale.runner.study.targets import resolve_target

GRANULARITIES: Final = {"byte": 1, "word": 8}
MOST_ROWS: Final = 12


def profile(options: argparse.Namespace) -> int:
    """Measure, print and write the profile of a trace."""
    if options.interval is not None:
        from manyscale.runner.cli import profile_intervals as profile_command

        return profile_command.profile(options)
    if options.cores is not None:
        raise UserError("--cores: are those that --interval simulates; name its instructions, too")
    commands.check_executor(options)
    cache = options.cache or default_cache()
    workload = traces.read_workload(WorkloadChoice(path=options.trace, format=options.format), cache)
    machine = target_machine(options.target)
    result = profile_of(workload, machine, options, cache)
    directory = rundir.new_directory(options.output, f"{workload.name}-profile", resume=False)
    write(result, directory, options)
    print("\n".join(summary(result)))
    print(f"results: {directory}")
    return 0


def target_machine(name: str) -> Machine:
    """A target by name or file, as studies know them. Raises UserError."""
    return target_and_content(name)[0]


def target_and_content(name: str) -> tuple[Machine, dict[str, Any]]:
    """The same, with the content of its file."""
    return resolve_target(parse_study({"workload": {"path": "-"}, "target": name}, "--target"))


def profile_of(workload: Workload, machine: Machine, options: argparse.Namespace, cache: Path) -> ProfileResult:
    """The profile as the options ask for it. Raises UserError."""
    streams, sites = streams_of(workload, options.trace)
    streams = chosen_streams(streams, options)
    granularity = granularity_bytes(options.granularity, machine)
    caches = caches_of(machine) if granularity > max(GRANULARITIES.values()) else {}
    if caches and line_bytes(machine) != granularity:
        raise UserError(
            f"--granularity {granularity} B: {machine.name} has lines of {line_bytes(machine)} B; leave the option out"
        )
    if (options.simulate or options.together) and not caches:
        raise UserError("--simulate and --together need the caches' lines; leave --granularity out")
    notes: list[str] = []
    if options.sampling == "exact":
        with execution_of(options, cache, sum(stream.num_accesses for stream in streams)) as execution:
            found = profile_units.profiles(streams, sites, granularity, execution, steady=options.steady)
        method = "exact"
    else:
        rate = sampled.parse_rate(options.rate)
        found, notes = sampled.profiles(streams, sites, granularity, options.sampling, rate, options.seed or 0)
        method = f"{options.sampling}, {options.rate}"
    concurrent = {}
    if options.together and caches:
        for name, level in caches.items():
            if level.shared_by_cores > 1:
                concurrent[name] = together.concurrent_profile(
                    streams, sites, granularity, level.shared_by_cores, steady=options.steady
                )
    transitions = count_transitions(workload, np.any([stream.is_mine for stream in streams], axis=0))
    return ProfileResult(
        workload, machine, streams, sites, found, granularity, method, options.steady, transitions, caches, concurrent,
        simulated_hits(streams, sites, caches, options) if options.simulate else None, notes,
    )  # fmt: skip


def simulated_hits(
    streams: list[Stream], sites: Sites, caches: dict[str, Cache], options: argparse.Namespace
) -> simulated.Simulated:
    """As ``--simulate`` asks."""
    return simulated.of_streams(
        streams,
        sites,
        caches,
        share=sampled.parse_rate(options.simulate, "--simulate"),
        together=options.together,
        steady=options.steady,
        frames=options.frames,
        prefetches=options.prefetch,
        seed=options.seed or 0,
    )


def chosen_streams(streams: list[Stream], options: argparse.Namespace) -> list[Stream]:
    """Those of ``--rank`` and ``--thread``. Raises UserError where there is none."""
    kept = [
        stream for stream in streams if options.rank in (None, stream.rank) and options.thread in (None, stream.thread)
    ]
    if not kept:
        known = ", ".join(stream.name for stream in streams[:8]) + (", ..." if len(streams) > 8 else "")
        raise UserError(f"{options.trace}: --rank and --thread leave nothing; it holds {known}")
    return kept


def granularity_bytes(text: str, machine: Machine) -> int:
    """Bytes of ``byte``, ``word``, ``line`` (the machine's) or a size. Raises UserError."""
    if text in GRANULARITIES:
        return GRANULARITIES[text]
    if text == "line":
        return line_bytes(machine)
    try:
        size = parse_bytes(text)
    except ValueError as error:
        raise UserError(f"--granularity: {error}; or write byte, word or line") from None
    if size < 1 or size & (size - 1) or size > 1 << 30:
        raise UserError(f"--granularity {text}: is not a power of two up to 1 GiB")
    return size


def write(result: ProfileResult, directory: Path, options: argparse.Namespace) -> None:
    """All files of a profile."""
    inputs = {str(options.trace): result.workload.digest}
    rundir.write_manifest(directory, "running", options.seed or 0, inputs)
    write_table(profile_result.profile_table(result), directory / "profile.parquet")
    write_table(profile_result.blocks_table(result), directory / "blocks.parquet")
    write_table(profile_result.curve_table(result), directory / "miss_ratio_curve.parquet")
    write_table(profile_result.hit_rates_table(result), directory / "hit_rates.parquet")
    write_table(profile_result.transitions_table(result), directory / "transitions.parquet")
    if result.simulated is not None and result.simulated.counters is not None:
        write_table(profile_result.counters_table(result.simulated.counters, result), directory / "counters.parquet")
    statistics.write_figures(
        profile_result.statistics(result), f"{result.workload.name} on {result.machine.name}", directory
    )
    if not options.no_report:
        from manyscale.runner.report import profile_page as report_memory

        report_memory.write_profile(result, directory)
    rundir.write_manifest(directory, "complete", options.seed or 0, inputs)


def summary(result: ProfileResult) -> list[str]:
    """Lines to read."""
    figures = profile_result.statistics(result)
    streams = "" if len(result.streams) == 1 else f", {len(result.streams)} threads"
    lines = [
        f"{result.workload.name}{streams}: {figures['memory.accesses'].value:,.0f} accesses, "
        f"{figures['memory.first_uses'].value:,.0f} first uses; units of {result.granularity_bytes} B; {result.method}"
        + ("; steady state" if result.steady else "")
    ]
    rates = profile_result.models(result)
    if rates:
        lines.append(f"{'level':<6} {'size':>8} {'ways':>5}  " + "  ".join(f"{name + ' hits':>15}" for name in rates))
        for row, (name, cache) in enumerate(result.caches.items()):
            ratios = (percent(rates[m].whole[row], profile_result.half_width(result, m, row)) for m in rates)
            shown = "  ".join(f"{text:>15}" for text in ratios)
            lines.append(f"{name:<6} {binary_size(cache.size_bytes):>8} {cache.ways:>5}  {shown}")
    table = profile_result.blocks_table(result)
    head = "  ".join(f"{name + ' hits':>9}" for name in result.caches)
    lines.append(f"{'block':>6} {'executions':>12} {'accesses':>14} {'share':>7}  {head}  where")
    for block in table.slice(0, MOST_ROWS).to_pylist():
        hits = "  ".join(f"{percent(block[f'{name}_hit_ratio']):>9}" for name in result.caches)
        lines.append(
            f"{block['block_id']:>6} {block['executions']:>12,} {block['accesses']:>14,.0f} "
            f"{percent(block['share']):>7}  {hits}  {profile_result.place(block)}"
        )
    lines += [f"note: {note}" for note in result.notes]
    if table.num_rows > MOST_ROWS:
        lines.append(f"{table.num_rows - MOST_ROWS} more blocks: blocks.parquet")
    return lines

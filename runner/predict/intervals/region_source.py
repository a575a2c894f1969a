"""Times of a parallel program of one rank from regions that are simulated in detail (regions.py).

A method behind ``manyscale plan --method`` chooses regions by what they execute, each is a work unit on all cores
(region_units.py), and a region that was not simulated takes the time per instruction of those that stand for it, times
its instructions. Phases take the sum of their regions. What cores do inside phases is shown as model burst does: traced
times by the ratios of task types that regions show, stretched to the phases' times.

Source: Carlson et al., "BarrierPoint" (ISPASS 2014), whose multipliers are ratios of instructions, too.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from manyscale.models.node.program.windows import SHORT
from manyscale.models.node.scheduler.runtime_system import RuntimeSystem
from manyscale.models.workload import PhaseKind
from manyscale.models.workload.notes import Errs, Note, changes, informs
from manyscale.runner.errors import UserError
from manyscale.runner.predict.intervals import region_units, sampled_tables
from manyscale.runner.predict.intervals.methods import choose
from manyscale.runner.predict.intervals.options import IntervalsChoice
from manyscale.runner.predict.intervals.regions import Regions, cut, with_distances
from manyscale.runner.predict.intervals.sampled_tables import SampledProgram
from manyscale.runner.predict.node import schedule_units, statistics
from manyscale.runner.predict.node.cells.cell_units import check_machine
from manyscale.runner.predict.node.cells.plan import WHOLE, Cell, CellPlan
from manyscale.runner.predict.node.cells.profile_units import line_bytes_of
from manyscale.runner.predict.node.cells.streams import StreamPart, stream_part
from manyscale.runner.predict.node.node_source import NodeSource, spread
from manyscale.runner.predict.node.options import DetailedChoice
from manyscale.runner.predict.node.page_faults import PageFaults, page_faults_of
from manyscale.runner.predict.node.rank_part import RankPart, rank_part
from manyscale.runner.predict.node.task_type_names import factors_of_types
from manyscale.runner.predict.phase_source import Case, CoreUse, Done, Replayed, Stage
from manyscale.runner.predict.statistic import Statistic, with_half_width
from manyscale.runner.predict.stored_arrays import notes_of, restored
from manyscale.runner.predict.units import Arrays, array_digest
from manyscale.sampling.phases.parallel_phases import parts_of
from manyscale.sampling.plan import Plan
from manyscale.sampling.population import Choice, IntervalPopulation
from manyscale.sampling.ranks import full

_OF_INSTANCES = (
    "instance", "id", "creator", "type", "instructions", "issued", "first_misses", "second_misses", "last_misses",
    "model",
)  # fmt: skip
_SHARE_THAT_PAYS = 0.5  # of the instructions; chosen regions have to be found and begun, too


class RegionSource(NodeSource):
    """Stages of lines, where caches are filled by them, of regions, and of the rank's schedule."""

    def __init__(self, case: Case) -> None:
        super().__init__(case)
        choice, workload, asked = case.study.workload, case.traced, case.study.options(IntervalsChoice)
        self._place = choice.path
        if choice.detail is not None:
            raise UserError(
                f"{choice.path}: sampling.intervals samples a trace that holds its own detailed level; name "
                f"{choice.detail} as the workload, and leave workload.detail out"
            )
        if workload.num_ranks > 1:
            raise UserError(
                f"{choice.path}: has {workload.num_ranks} ranks; sampling.intervals samples a program of one, "
                "sampling.ranks and sampling.iterations those of several"
            )
        if workload.detail is None:
            raise UserError(
                f"{choice.path}: has no detailed level, from which regions are simulated; trace it with `manyscale "
                "trace --level detailed`"
            )
        if choice.repeat is not None:
            raise UserError(f"{choice.path}: regions of a program cannot be repeated; leave workload.repeat out")
        if asked.caches == "warm":
            raise UserError(
                f"{choice.path}: intervals.caches: warm is for programs of one thread; regions of a parallel one begin "
                "behind last-uses (with intervals.warm_up), stitched or cold"
            )

    def plans(self) -> list[Plan]:
        """Of the regions."""
        choice = self._choice
        return [Plan("interval", choice.element, choice.stratum, choice.weight, self._case.study.model.cpu, 1)]

    def unit_keys(self, plan: Plan, done: Done) -> list[str]:
        units = done[region_units.KIND].units
        return [unit.key for unit in units for _ in unit.parameters["regions"]]

    def stages(self, done: Done) -> list[Stage]:
        case, study = self._case, self._case.study
        inputs = (self._regions, self._rank, self._stream)
        if region_units.KIND not in done:
            if study.options(IntervalsChoice).caches != "last-uses":
                return [region_units.stage(*inputs, self._choice.element, case, self._fault_ps, None)]
            if self._needs_counters and study.options(IntervalsChoice).counters == "traced":
                lines = self._lines  # it was chosen by them
            elif region_units.LINES not in done:
                return [region_units.lines_stage(*inputs, case)]
            else:
                lines = done[region_units.LINES].results[0]
            return [region_units.stage(*inputs, self._choice.element, case, self._fault_ps, lines)]
        if schedule_units.KIND not in done:
            ratios = (self._ratios(self._cells_in(done)), self._cells.strata)
            return [schedule_units.stage(case, self._part, factors_of_types(case.traced, study), ratios, {})]
        return []

    def content(self) -> list[str]:
        choice = self._choice
        return [array_digest(choice.element, choice.stratum, choice.weight, choice.label, self._regions.begin)]

    def phase_times(self, done: Done) -> np.ndarray:
        workload, found = self._case.workload, self._sampled(done)
        duration = workload.column("phases", "duration_ps").copy()
        computing = workload.column("phases", "kind") == PhaseKind.compute
        regions, last = self._regions, workload.num_operations
        operation = schedule_units.operation_of_phases(regions.program.phase_operation, last)
        of_operation = np.rint(np.bincount(operation, self._phase_ps(found), last + 1)).astype(np.int64)
        own = workload.column("phases", "operation_id")[computing]
        duration[computing] = spread(of_operation, own, duration[computing])
        return duration

    def figures(self, of_run: dict[str, Statistic], done: Done) -> dict[str, Statistic]:
        """Figures of the program, of its cores, and of what was simulated of it."""
        found = self._sampled(done)
        schedules = [{**done[schedule_units.KIND].results[0], "core_use_ps": self._core_use(done)}]
        figures = of_run | statistics.of_schedules(self._case.study, schedules)
        return with_half_width(found.relative_half_width, figures | sampled_tables.statistics(found))

    def core_use(self, done: Done, replayed: Replayed) -> CoreUse:
        """As the simulated regions show it."""
        return CoreUse(*self._core_use(done)[:, None])

    def notes(self, done: Done) -> list[Note]:
        kinds = (region_units.KIND, schedule_units.KIND)
        return [
            *self._worth,
            *self._of_windows,
            *self._choice.notes,
            *self._faults.notes,
            *self._without_data,
            *(note for kind in kinds for note in notes_of(done[kind].results)),
        ]

    def tables(self, done: Done, replayed: Replayed) -> dict[str, Any]:
        """Regions, and as for other programs cores, task instances of simulated regions, CPI stacks of the whole."""
        return {**super().tables(done, replayed), "intervals": sampled_tables.intervals(self._sampled(done))}

    @property
    def _rank(self) -> RankPart:
        traced = self._case.traced
        return self._case.shared.once("part of regions", lambda: rank_part(traced, 0, instructions=True))

    @property
    def _stream(self) -> StreamPart:
        traced = self._case.traced
        make = lambda: stream_part(traced, 0, traced.tables["segments"].num_rows)  # noqa: E731
        return self._case.shared.once("stream of regions", make)

    @property
    def _regions(self) -> Regions:
        """Cut once for all points that cut alike."""
        study = self._case.study
        every, runtime = study.options(IntervalsChoice).instructions, study.options(RuntimeSystem)
        cores = study.mapping.cores_per_rank
        in_windows = study.sampling.intervals != "full" and study.options(IntervalsChoice).vectors == "blocks"
        key = ("regions", every, cores, in_windows, runtime.model_dump_json(by_alias=True))
        return self._case.shared.once(
            key, lambda: cut(self._rank, self._stream, cores, runtime, every, self._place, in_windows=in_windows)
        )

    @property
    def _faults(self) -> PageFaults:
        study, memory = self._case.study, self._case.machine.node.main_memory
        cost_ps = (memory.page_fault_ps if memory is not None else None) or 0
        regions, runtime, cores = self._regions, study.options(RuntimeSystem), study.mapping.cores_per_rank
        whole = regions.whole
        key = ("page faults", cost_ps, self._regions.content)
        return self._case.shared.once(
            key,
            lambda: page_faults_of(whole, self._rank.workload, 0, cores, runtime, cost_ps, (0, whole.num_phases)),
        )

    @property
    def _fault_ps(self) -> np.ndarray:
        """int64[pieces of the regions]: of page faults."""
        return self._regions.windows.shares(self._faults.piece_ps)

    @property
    def _of_windows(self) -> list[Note]:
        windows = self._regions.windows
        if not windows.num_windows:
            return []
        text = (
            f"{windows.num_cut} loops and serial parts that are larger than regions are cut into {windows.num_windows} "
            "windows"
        )
        ways = []
        if windows.row_is_part.any():
            text += "; of loops cut into like parts, what cores wait for each other at the ends takes no time"
            ways.append(Errs.short)
        if np.any((windows.of_loop > 1) & ~windows.row_is_part):
            text += "; at the end of each window of consecutive chunks cores wait for each other"
            ways.append(Errs.long)
        errs = ways[0] if len(ways) == 1 else Errs.unknown
        found = [changes("regions-in-windows", text, self._place, windows.num_windows, errs)]
        if windows.num_short:
            every = SHORT * self._case.study.mapping.cores_per_rank
            text = (
                f"{windows.num_short} windows have fewer than {SHORT:,} instructions for each core, and may take "
                f"longer than inside their loop; set intervals.instructions to {every:,} or more"
            )
            found.append(changes("short-windows", text, self._place, windows.num_short, Errs.long))
        return found

    @property
    def _worth(self) -> list[Note]:
        """Whether choosing regions saves little."""
        regions, chosen, asked = self._regions, self._choice.element, self._case.study.options(IntervalsChoice)
        if self._case.study.sampling.intervals == "full":
            return []
        own, total = regions.population.instructions, float(regions.begin[-1])
        share = float(own[chosen].sum()) / total
        warming = 0.0
        if asked.caches == "last-uses" and asked.warm_up_of_regions:
            ends = [regions.begin[each] - regions.executed_before(each, asked.warm_up_of_regions) for each in chosen]
            warming = float(np.sum(ends)) / total
        if share + warming < _SHARE_THAT_PAYS:
            return []
        largest = f"the largest of {len(own)} regions has {float(own.max()) / total:.0%}"
        behind = f", and {warming:.0%} are executed to warm up" if warming else ""
        text = (
            f"the chosen regions have {share:.0%} of the instructions{behind}: the whole program in detail, without "
            f"sampling.intervals, takes about as long ({largest})"
        )
        return [informs("sampling-saves-little", text, self._place)]

    @property
    def _choice(self) -> Choice:
        study, asked = self._case.study, self._case.study.options(IntervalsChoice)
        vectors = f"{asked.vectors} {asked.line_bytes} {asked.distance_power} {asked.counters}"
        if self._needs_counters:  # caches of the target, and how its runtime system shares out
            vectors += f" {self._case.machine_content['node']} {study.options(DetailedChoice).creation}"
        key = ("choice", study.sampling.intervals, study.seed, vectors, str(asked.rules), self._regions.content)
        return self._case.shared.once(key, self._choose)

    def _choose(self) -> Choice:
        regions, asked = self._regions, self._case.study.options(IntervalsChoice)
        try:
            population = regions.population
            if asked.vectors == "signature":
                population = with_distances(regions, self._case.traced, asked, self._place)
            if not self._needs_counters:
                return choose(population, self._case.study, asked.rules)
            counted, notes = self._counted()
            found = choose(replace(counted, vectors=population.vectors), self._case.study, asked.rules)
            return replace(found, notes=(*found.notes, *notes))
        except ValueError as error:
            raise UserError(f"{self._place}: {error}") from None

    @property
    def _needs_counters(self) -> bool:
        return bool(set(parts_of(self._case.study.sampling.intervals or "") or ()) - {"sbbv"})

    @property
    def _lines(self) -> Arrays:
        """What the unit that finds them does, here: regions are chosen by them before there are units."""
        regions, line_bytes = self._regions, line_bytes_of(self._case.machine)
        inputs = {"part": self._rank, "stream": self._stream, "regions": regions}
        return self._case.shared.once(
            ("lines", line_bytes, regions.content),
            lambda: region_units.find_lines({"line_bytes": line_bytes}, inputs),
        )

    def _counted(self) -> tuple[IntervalPopulation, list[Note]]:
        """With the counters of cores that the method needs; notes on these."""
        from manyscale.models.node.instance_lines import lines_from  # Numba
        from manyscale.runner.predict.intervals.open_regions import order_before
        from manyscale.runner.predict.intervals.region_counters import native_counters, traced_counters

        case, study, regions = self._case, self._case.study, self._regions
        if study.options(IntervalsChoice).counters != "traced":
            population, note = native_counters(regions, Path(study.options(IntervalsChoice).counters), self._place)
            return population, [note]
        check_machine(case.machine)
        node, cores = case.machine.node, study.mapping.cores_per_rank
        is_free = study.options(DetailedChoice).creation == "free"
        creation_ps = np.where(regions.creates & (not is_free), regions.program.piece_ps, 0)
        counted = np.where(regions.creates, 0, regions.pieces.num_instructions)
        before = order_before(
            regions.program, counted, creation_ps, node, cores, study.options(RuntimeSystem), study.seed
        )
        parts = parts_of(study.sampling.intervals or "") or ()
        return traced_counters(regions, lines_from(restored(self._lines)), before, node, cores, parts), []

    @property
    def _cells(self) -> CellPlan:
        """The whole rank, as one."""
        traced = self._case.traced
        ranks = full.plan(traced, self._case.study.model.cpu)
        cell = Cell(0, WHOLE, 0, 0, traced.tables["segments"].num_rows)
        return CellPlan(traced, traced, ranks, (cell,), ranks.representative)

    def _sampled(self, done: Done) -> SampledProgram:
        found = [restored(each) for each in done[region_units.KIND].results]
        return SampledProgram(self._regions, self._choice, found)

    def _cells_in(self, done: Done) -> list[Arrays]:
        """The whole rank, as far as the regions tell: instances of simulated ones, and sums that stand for all."""
        found = self._sampled(done)
        whole = found.estimated
        type_instructions = np.rint(whole("type_instructions")).astype(np.int64)
        cell: Arrays = {name: found.joined(name) for name in _OF_INSTANCES}
        nowhere = np.zeros(len(cell["instance"]), np.int64)
        first = found.results[0]
        cell |= {
            "cycles": found.joined("instance_cycles"),
            "core": nowhere.astype(np.int32), "start_ps": nowhere, "end_ps": nowhere, "phase": nowhere,
            "makespan_ps": np.rint(whole("makespan_ps")[None]).astype(np.int64),
            "num_ids": first["num_ids"], "part": first["type_part"], "core_part": first["part"],
            "type_stack": whole("type_stack"), "core_stack": whole("core_stack"),
            "type_instructions": type_instructions,
            "predicted_ps": whole("predicted_ps"), "traced_ps": whole("traced_ps"),
            "half_width": np.array([found.relative_half_width]),
            "num_instructions": np.array([found.num_instructions]),
        }  # fmt: skip
        return [cell]

    def _phase_ps(self, found: SampledProgram) -> np.ndarray:
        """float64[phases]: their shares of what their regions take: of simulated ones as simulated, else by
        instructions."""
        regions = self._regions
        share = regions.phase_instructions.astype(np.float64)
        size = np.diff(regions.phase)
        region = np.repeat(np.arange(len(size)), size)
        share[np.isin(region, self._choice.element)] = found.joined("phase_ps")
        region_ps = found.region_cycles / found.frequency_hz * 1e12
        return np.asarray(region_ps[region] * share / np.bincount(region, share)[region])

    def _core_use(self, done: Done) -> np.ndarray:
        """int64[4]: as schedule_units' ``core_use_ps``."""
        found, cores = self._sampled(done), self._case.study.mapping.cores_per_rank
        busy, overhead, serial = found.estimated("core_ps").tolist()
        total = round(float(found.region_cycles.sum()) / found.frequency_hz * 1e12) * cores
        return schedule_units.core_use(round(busy), round(overhead), serial, total, cores)

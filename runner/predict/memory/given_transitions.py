"""Transition probabilities of basic blocks that a user gives (AMM, section 3.2: "an application developer can identify
them manually"), and what a program executes by them at an input that never ran."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import numpy as np
from scipy.sparse import csr_array

from manyscale.models.memory.amm.block_probabilities import count_transitions, executions
from manyscale.models.memory.amm.profile_extrapolation import Extrapolation
from manyscale.models.memory.reuse_profile import ReuseProfile
from manyscale.models.workload.notes import informs
from manyscale.runner.errors import UserError
from manyscale.runner.plain_files import refuse_special
from manyscale.runner.predict.memory.training import TrainingSet

END: Final = -1  # instead of a block: the run ends
_SUMS_TO: Final = 1e-6  # how far a row may be from 1
_COLUMNS: Final = "size (or none), source, target, probability"


@dataclass(frozen=True)
class GivenTransitions:
    """``rows``: by size (None: any that has no row of its own) and block, the probability of each that follows, or
    END; each adds up to 1. ``place``: the file. Blocks that have no row follow as in the largest trace."""

    place: str
    rows: Mapping[int | None, Mapping[int, Mapping[int, float]]]

    def at(self, size: int) -> Mapping[int, Mapping[int, float]]:
        """By block; empty where nothing is given."""
        return {**self.rows.get(None, {}), **self.rows.get(size, {})}

    def check(self, num_blocks: int) -> None:
        """Raises UserError for a block that the traces have not."""
        for rows in self.rows.values():
            for source, targets in rows.items():
                for block in (source, *targets):
                    if block >= num_blocks:
                        raise UserError(
                            f"{self.place}: block {block} is none of the traces' {num_blocks}, which are the block_id "
                            "of blocks.parquet, a file of predict"
                        )

    def applied(self, grown: Extrapolation, training: TrainingSet, size: int, *, by_site: bool) -> Extrapolation:
        """The extrapolation with as many executions as follow, and accesses in proportion. Raises UserError where runs
        do not end, or the traces do not tell the distances of what is executed."""
        given = self.at(size)
        if not given:
            return grown
        found = self._executions(given, training)
        sites = training.sites
        unknown = np.flatnonzero((found >= 0.5) & (grown.executions == 0) & (np.diff(sites.offsets) > 0))
        if len(unknown):
            raise UserError(
                f"{self.place}: by these probabilities size {size} executes block {unknown[0]}, whose distances no "
                "trace tells; add traces that execute it"
            )
        factor = np.divide(found, grown.executions, out=np.zeros(len(found)), where=grown.executions > 0)
        by_label = factor[sites.block] if by_site else factor
        counts = np.rint(found).astype(np.int64)
        text = (
            f"executions at size {size} follow from the probabilities in {self.place} for {len(given)} of the blocks, "
            "and from those of the largest trace for the others; distances are as the traces grow"
        )
        return replace(
            grown, executions=counts, fewest_executions=counts, most_executions=counts,
            profile=_scaled(grown.profile, by_label), shortest=_scaled(grown.shortest, by_label),
            longest=_scaled(grown.longest, by_label), notes=(*grown.notes, informs("given-transitions", text)),
        )  # fmt: skip

    def _executions(self, given: Mapping[int, Mapping[int, float]], training: TrainingSet) -> np.ndarray:
        """float64[blocks]."""
        run, size = training.runs[-1], training.sites.num_blocks
        counted = count_transitions(run.workload, run.stream.is_mine)
        number = run.block_number
        entries, ends = np.zeros((2, size))
        np.add.at(entries, number, counted.entries)
        np.add.at(ends, number, counted.probabilities()[1])
        kept = ~np.isin(number[counted.source], list(given))
        own = [(a, b, p) for a, targets in given.items() for b, p in targets.items() if b != END and p > 0]
        source = np.concatenate((number[counted.source[kept]], np.array([a for a, _, _ in own], np.int64)))
        target = np.concatenate((number[counted.target[kept]], np.array([b for _, b, _ in own], np.int64)))
        probability = np.concatenate((counted.probability[kept], [p for _, _, p in own]))
        for block, targets in given.items():
            ends[block] = targets.get(END, 0.0)
        pi = csr_array((probability, (source, target)), shape=(size, size))
        try:
            return executions(pi, ends, entries)
        except ValueError as error:
            raise UserError(f"{self.place}: {error} by these probabilities; give it a row to end") from None


def read_transitions(path: Path) -> GivenTransitions:
    """Of a CSV file with the columns size (or none), source, target (a block, or "end") and probability. Raises
    UserError."""
    found: dict[int | None, dict[int, dict[int, float]]] = {}
    try:
        with refuse_special(path).open(newline="") as file:
            rows = csv.DictReader(file)
            for row in rows:
                place = f"{path}, line {rows.line_num}"
                size, source, target, probability = _row(row, place)
                targets = found.setdefault(size, {}).setdefault(source, {})
                if target in targets:
                    raise UserError(f"{place}: a second row of block {source} and this target; give each pair once")
                targets[target] = probability
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise UserError(f"{path}: cannot be read ({error})") from None
    if not found:
        raise UserError(f"{path}: holds no row; write the columns {_COLUMNS}")
    for size, blocks in found.items():
        for source, targets in blocks.items():
            total = sum(targets.values())
            if abs(total - 1) > _SUMS_TO:
                at = "" if size is None else f" at size {size}"
                raise UserError(
                    f"{path}: probabilities of block {source}{at} add up to {total:.6g}, not to 1; give all that "
                    "follow it, and end where runs end"
                )
    return GivenTransitions(str(path), found)


def _row(row: Mapping[str, str | None], place: str) -> tuple[int | None, int, int, float]:
    try:
        size = int(row["size"]) if row.get("size") else None  # type: ignore[arg-type]
        source, word, probability = (
            int(row["source"] or ""),
            (row["target"] or "").strip(),
            float(row["probability"] or ""),
        )
        target = END if word == "end" else int(word)
    except (KeyError, ValueError):
        raise UserError(f"{place}: needs the columns {_COLUMNS}, with numbers (a target may be the word end)") from None
    if (size is not None and size < 1) or source < 0 or (target < 0 and word != "end") or not 0 <= probability <= 1:
        raise UserError(f"{place}: give sizes above zero, blocks from 0 on and probabilities from 0 to 1")
    return size, source, target, probability


def _scaled(profile: ReuseProfile, factor: np.ndarray) -> ReuseProfile:
    count = profile.count * factor[profile.site]
    return ReuseProfile.of(profile.granularity_bytes, profile.site, profile.distance, count)

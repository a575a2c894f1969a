"""Micro-profiles of a program's task instances (see the package), as arrays that know no machine."""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np

NEVER: float = np.inf  # a line that nothing used before


@dataclass(frozen=True)
class MicroProfiles:
    """Rows [first_x[k], first_x[k + 1]) of a column belong to k.

    Of instances: ``instructions`` int64[], ``sample_of`` int32[]: which sample stands for each, -1 where it executes
    nothing. Of samples: ``instance`` int32[]; windows from ``first_window`` int64[samples + 1] on.

    Of windows: executions ``block_ids`` int32[] and ``is_mispredicted`` bool[] from ``first_execution``
    int64[windows + 1] on, of which those from ``first_measured`` int64[windows] on count. What runs before brings core
    and memory to their state; ``begins_piece`` bool[windows]: what counts begins with an empty reorder buffer.
    ``addresses`` uint64[] from ``first_access`` int64[windows + 1] on; ``weight`` float64[windows]: instructions of the
    sample that it stands for; ``instructions_measured`` int64[windows].

    Of each line that a window uses, in the order of first uses: ``line`` int64[] (address // ``line_bytes``) from
    ``first_line`` int64[windows + 1] on; ``cold`` and ``warm`` float32[]: distinct other lines since its last use
    before the window, if the program begins with them or if the same instances ran before (NEVER: there is no use);
    ``ahead`` float32[]: lines since a stream of lines one after the other came near it, which a prefetcher follows;
    ``is_own`` bool[]: the same instance used it last; ``is_stored`` bool[]: the window stores to it.

    ``history`` int64[] from ``first_history`` int64[windows + 1] on: lines used before the window, in their order; they
    are among its lines, and distances are those when the history begins.
    ``history_instructions`` float64[windows]: how many it took, about. ``num_lines``: distinct lines of all
    instances, about.
    """

    line_bytes: int
    instructions: np.ndarray
    sample_of: np.ndarray
    instance: np.ndarray
    first_window: np.ndarray
    first_execution: np.ndarray
    first_measured: np.ndarray
    block_ids: np.ndarray
    is_mispredicted: np.ndarray
    first_access: np.ndarray
    addresses: np.ndarray
    begins_piece: np.ndarray
    weight: np.ndarray
    instructions_measured: np.ndarray
    first_line: np.ndarray
    line: np.ndarray
    cold: np.ndarray
    warm: np.ndarray
    ahead: np.ndarray
    is_own: np.ndarray
    is_stored: np.ndarray
    first_history: np.ndarray
    history: np.ndarray
    history_instructions: np.ndarray
    num_lines: int

    @property
    def num_samples(self) -> int:
        return len(self.instance)

    @property
    def num_windows(self) -> int:
        return len(self.weight)

    def arrays(self) -> dict[str, np.ndarray]:
        """All as plain arrays, for ``numpy.savez``; ``profiles_from`` reads them back."""
        return {field.name: np.asarray(getattr(self, field.name)) for field in fields(self)}


def profiles_from(arrays: dict[str, np.ndarray]) -> MicroProfiles:
    """The profiles that ``MicroProfiles.arrays`` gave."""
    values = {field.name: arrays[field.name] for field in fields(MicroProfiles)}
    return MicroProfiles(**(values | {name: int(arrays[name]) for name in ("line_bytes", "num_lines")}))  # type: ignore[arg-type]

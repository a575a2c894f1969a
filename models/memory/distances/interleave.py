"""Several threads' streams as one: what a cache that they share sees.

The access k (from 0) of a thread that makes ``rate`` accesses per unit of time in quanta of q happens at time
q floor(k / q) / rate; equal times go by thread, so equal rates take turns of q accesses each. A thread whose stream has
ended leaves the others the cache. The distance between two uses by one thread, or by two that share data, in the merged
stream is the *concurrent* reuse distance.

Source: Schuff, Kulkarni, Pai, "Accelerating multicore reuse distance analysis with sampling and parallelization",
PACT 2010; Jiang, Zhang, Tian, Shen, "Is reuse distance applicable to data locality analysis on chip multiprocessors?",
CC 2010. Assumption: threads keep their rates, and do not wait for each other inside the streams (streams between two
synchronisations are merged one after the other by the caller).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from manyscale.models.kernels import njit
from manyscale.models.memory.access_stream import Accesses

_SPACE_BITS: Final = 56  # units lie below: addresses of 56 bits, by the byte


@dataclass(frozen=True)
class SharedAccesses(Accesses):
    """Consecutive accesses of the merged stream. ``thread`` int32[n]: whose each is."""

    thread: np.ndarray


def interleaved(
    streams: Sequence[Iterable[Accesses]],
    rates: Sequence[float] | None = None,
    quantum: int = 1,
    address_spaces: Sequence[int] | None = None,
) -> Iterator[SharedAccesses]:
    """Batches of the merged stream; its order depends on neither the batches of the streams nor on each other's.

    ``rates``: accesses per unit of time of each thread (of equal instruction rates: accesses per instruction), equal if
    not given. ``quantum``: accesses that a thread makes at once. ``address_spaces``: of each thread (a process has its
    own), below 128; units of different spaces are different; all the same if not given. Raises ValueError for rates
    that are not positive, for lists of different lengths, and for units from 2^56 on where there are spaces.
    O(accesses + turns x threads).
    """
    num_threads = len(streams)
    rate = np.ones(num_threads) if rates is None else np.array(rates, np.float64)
    space = np.zeros(num_threads, np.int64) if address_spaces is None else np.array(address_spaces, np.int64)
    if len(rate) != num_threads or len(space) != num_threads:
        raise ValueError(f"{num_threads} streams have {len(rate)} rates and {len(space)} address spaces")
    if not (np.isfinite(rate).all() and (rate > 0).all()):
        raise ValueError(f"rates of {rate.min():g} to {rate.max():g} accesses per unit of time are not all positive")
    if quantum < 1 or ((space < 0) | (space >= 128)).any():
        raise ValueError(
            f"a quantum of {quantum} accesses, address spaces {space.tolist()}: not 1 or more, and 0 to 127"
        )
    return _merged([iter(stream) for stream in streams], rate, quantum, space)


def _merged(
    streams: list[Iterator[Accesses]], rate: np.ndarray, quantum: int, space: np.ndarray
) -> Iterator[SharedAccesses]:
    num_threads = len(streams)
    empty = Accesses(np.empty(0, np.int64), np.empty(0, np.int32))
    held = [empty] * num_threads  # of each thread: what has not been merged yet
    has_ended = np.zeros(num_threads, bool)
    made = np.zeros(num_threads, np.int64)
    while True:
        for thread, stream in enumerate(streams):
            while not len(held[thread].unit) and not has_ended[thread]:
                following = next(stream, None)
                has_ended[thread] = following is None
                held[thread] = following or empty
        length = np.array([len(part.unit) for part in held], np.int64)
        if not length.any():
            return
        end = np.cumsum(length)
        place = np.empty(int(end[-1]), np.int64)
        thread_of = np.empty(len(place), np.int32)
        at = end - length
        num_merged = _merge(at, end, has_ended, made, rate, quantum, place, thread_of)
        place, thread_of = place[:num_merged], thread_of[:num_merged]
        unit, site = (np.concatenate([getattr(part, name) for part in held]) for name in ("unit", "site"))
        if space.any() and not 0 <= int(unit.min()) <= int(unit.max()) < 1 << _SPACE_BITS:
            raise ValueError(
                f"units of {unit.min()} to {unit.max()} in several address spaces; 2^{_SPACE_BITS} are told apart"
            )
        yield SharedAccesses(unit[place] | (space << _SPACE_BITS)[thread_of], site[place], thread_of)
        taken = at - (end - length)
        held = [Accesses(part.unit[n:], part.site[n:]) for part, n in zip(held, taken.tolist(), strict=True)]


@njit(cache=True, nogil=True)
def _merge(at, end, has_ended, made, rate, quantum, place, thread_of):  # type: ignore[no-untyped-def]
    """Number of merged accesses, until a thread that may go on has none left. ``at``: each thread's next access, of
    those before ``end``; ``made``: accesses of each so far. O(accesses + turns x threads)."""
    merged = 0
    while True:
        first = -1
        first_time = 0.0
        for thread in range(at.shape[0]):
            if at[thread] == end[thread]:
                if not has_ended[thread]:
                    return merged
                continue
            time = (made[thread] // quantum) * quantum / rate[thread]
            if first < 0 or time < first_time:
                first, first_time = thread, time
        if first < 0:
            return merged
        stop = min(at[first] + quantum - made[first] % quantum, end[first])
        made[first] += stop - at[first]
        while at[first] < stop:
            place[merged] = at[first]
            thread_of[merged] = first
            merged += 1
            at[first] += 1

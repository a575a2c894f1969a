"""When workers run dry: what they take from others, and what runs twice. Decisions on a RunState, without I/O.

A unit that a worker holds and has not begun is *moved*: the worker is told to leave it. One that is at hand is
*doubled*, on another node, where it is expected to be done sooner: where its worker is known to be slow, or has become
so. It counts as having become so if the unit takes, or by the share that is done will take, more than twice as long as
the slowest of its kind did so far, and what loading compiled functions may take. That is a guess, which costs the CPU
time of a worker that had nothing to do (LATE: Zaharia et al., OSDI 2008, has the like for MapReduce).
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from manyscale.runner.run.execute.pace import WARM_SECONDS
from manyscale.runner.run.execute.state import CALL_SECONDS, RunState

_SLOWED: Final = 2.0  # times the longest so far
_LEAST_SHARE: Final = 0.02  # that says how long the whole takes
_ROUND_TRIP_SECONDS: Final = 0.05  # what a copy must gain


@dataclass(frozen=True)
class Move:
    """One call: the units that a worker gets, and which workers are told to leave some of them."""

    worker: int
    keys: list[str]
    leaves: dict[int, list[str]]


@dataclass
class _Due:
    """A unit in flight: when its worker will be done with it, in seconds from now (None: nobody knows), and how long it
    takes as a whole at speed 1, if that is known better than by its weight."""

    key: str
    seconds: float | None
    is_begun: bool = False
    whole: float | None = None


@dataclass(order=True)
class _Holder:
    """A worker with units; who is done last comes first."""

    rank: float
    worker: int
    dues: list[_Due] = field(compare=False)


def moves(state: RunState, idle: Sequence[int], nodes: Mapping[int, str], now: float) -> list[Move]:
    """Calls for ``idle`` workers, which are in flight then. ``nodes``, of all workers: what is at hand is doubled on
    another one only."""
    holders = [_holder(worker, _dues(state, worker, now)) for worker in state.held if worker not in idle]
    holders = [holder for holder in holders if holder.dues]
    heapq.heapify(holders)
    found = []
    for worker in sorted(idle, key=lambda each: (-state.pace.speed(each), each)):
        passed = []
        while holders:
            holder = heapq.heappop(holders)
            keys, left = _taken(state, worker, holder, nodes)
            if keys:
                for key in left:
                    state.taken_back(holder.worker, key)
                state.give(worker, keys, now)
                found.append(Move(worker, keys, {holder.worker: left} if left else {}))
                if holder.dues:
                    heapq.heappush(holders, _holder(holder.worker, holder.dues))
                break
            passed.append(holder)  # perhaps there is a unit for another one, on another node
        for holder in passed:
            heapq.heappush(holders, holder)
    return found


def _holder(worker: int, dues: list[_Due]) -> _Holder:
    last = dues[-1].seconds if dues else 0.0
    return _Holder(float("-inf") if last is None else -last, worker, dues)


def _taken(state: RunState, worker: int, holder: _Holder, nodes: Mapping[int, str]) -> tuple[list[str], list[str]]:
    """From the end of what a holder has: units for a worker, and those of them that the holder is to leave."""
    keys: list[str] = []
    left: list[str] = []
    here = 0.0
    while holder.dues and len(keys) < state.units_per_call:
        due = holder.dues[-1]
        if len(state.copies.get(due.key, ())) != 1:  # runs twice already
            holder.dues.pop()
            continue
        takes = _seconds_here(state, worker, due)
        if due.is_begun:
            elsewhere = nodes.get(worker) != nodes.get(holder.worker)
            pays = takes is not None and due.seconds is not None and due.seconds > takes + _ROUND_TRIP_SECONDS
            if not keys and elsewhere and pays:
                keys.append(due.key)
                holder.dues.pop()
            break
        if keys and (takes is None or here + takes > CALL_SECONDS):
            break
        if due.seconds is not None and takes is not None and due.seconds <= here + takes:
            break
        here += takes or 0.0
        keys.append(due.key)
        left.append(due.key)
        holder.dues.pop()
    return keys[::-1], left[::-1]


def _seconds_here(state: RunState, worker: int, due: _Due) -> float | None:
    if due.whole is not None:
        return due.whole / state.pace.speed(worker)
    return state.pace.seconds(worker, state.units[due.key])


def _dues(state: RunState, worker: int, now: float) -> list[_Due]:
    """What a worker holds, in turn, as far as it is not done by what the worker said last."""
    held, at = state.held[worker], state.at.get(worker)
    keys = list(held)
    begin = state.begun.get(worker, now)
    ahead: float | None = 0.0
    factor = 1.0
    first: _Due | None = None
    if at is not None and at.key in held:
        keys = keys[keys.index(at.key) :]
        first, factor = _at_hand(state, worker, at.key, at.begin, now if _ends_call(held, at.key) else at.heard, now)
    elif at is not None and at.key in state.units:  # still at one that is done elsewhere, or was taken back
        due, factor = _at_hand(state, worker, at.key, at.begin, at.heard, now)
        ahead = due.seconds
    elif at is not None:  # of an earlier stage, which nobody waits for
        ahead = None
    else:
        first, factor = _at_hand(state, worker, keys[0], begin, now if _ends_call(held, keys[0]) else begin, now)
    dues = []
    if first is not None:
        dues.append(first)
        keys = keys[1:]
        ahead = first.seconds
    for key in keys:
        seconds = state.pace.seconds(worker, state.units[key])
        ahead = None if ahead is None or seconds is None else ahead + factor * seconds
        dues.append(_Due(key, ahead))
    return dues


def _ends_call(held: Mapping[str, int], key: str) -> bool:
    """Whether a unit is the last of its call, so that its end would be known."""
    following = list(held.values())
    place = list(held).index(key)
    return place + 1 == len(following) or following[place + 1] != following[place]


def _at_hand(state: RunState, worker: int, key: str, begin: float, certain: float, now: float) -> tuple[_Due, float]:
    """The unit that a worker is at since ``begin``, until ``certain`` at least; and how many times as slow as measured
    the worker seems to be."""
    unit, at = state.units[key], state.at.get(worker)
    expected = state.pace.seconds(worker, unit)
    gone = certain - begin
    whole = None
    if at is not None and at.key == key and at.share >= _LEAST_SHARE:
        whole = (at.heard - at.begin) / at.share
    if expected is None:
        left = None if whole is None else max(0.0, whole - (now - begin))
        return _Due(key, left, is_begun=True, whole=None if whole is None else whole * state.pace.speed(worker)), 1.0
    most = WARM_SECONDS + _SLOWED * state.pace.worst.get(unit.kind, 1.0) * expected
    if max(gone, whole or 0.0) > most:  # has become slow
        whole = max(whole or 0.0, 2 * gone)
        return _Due(key, max(whole - (now - begin), gone), is_begun=True), whole / expected
    if whole is not None:
        return _Due(key, max(0.0, whole - (now - begin)), True, whole * state.pace.speed(worker)), 1.0
    return _Due(key, max(0.0, expected - (now - begin)), is_begun=True), 1.0

"""Which request a channel of DRAM serves, and when: against first ready, first come first served over a plain list, for
random requests, timings and numbers of banks, with and without refreshes. (Times are halves of cycles at most, so that
both compute exactly.)"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from math import floor, inf

import numpy as np
import pytest
from gpu_small import gpu

from manyscale.models.gpu import memory_state
from manyscale.models.gpu.dram.kernel import refresh, serve_dram, to_dram, wait_for_dram
from manyscale.models.kernels import allocation_free, by_reference

REQUESTS = 400
ON_THE_WAY = 154  # cycles: the latency of DRAM, and its queues


@allocation_free
def drive(mem, limits, time, request, is_write, served, column):  # type: ignore[no-untyped-def]
    """Fill in which request is served as which one, and when its column command is given."""
    held, known = by_reference(mem), by_reference(limits)
    for i in range(len(time)):
        to_dram(held, known, 0, time[i], request[i], -is_write[i])
    channel = held.channel[0]
    done = 0
    while done < len(time):
        if channel.way_head >= 0 and channel.queued < known.queue:
            arrival = held.dram[channel.way_head].time
            if channel.queued == 0 or arrival <= max(held.waiting[0, channel.oldest].time, np.int64(channel.bus_free)):
                wait_for_dram(held, 0)
                continue
        serve_dram(held, known, 0)
        served[done] = held.waiting[0, channel.free_place].node
        column[done] = channel.bus_free - known.burst
        done += 1


@dataclass
class Bank:
    row: int | None = None
    activated: float = -inf
    column_from: float = -inf
    precharge_from: float = -inf


@dataclass
class Channel:
    """``cycles``: of the DRAM's timing, in those of the SM."""

    cycles: dict[str, float]
    burst: float
    groups: int
    banks: list[Bank]
    group_from: list[float] = field(default_factory=list)
    bus: float = -inf
    write_end: float = -inf
    read: float = -inf
    activations: list[float] = field(default_factory=list)
    refreshes: int = 0

    def refresh(self, now):
        """Bank by bank in turn, one each so many cycles, when it has been closed."""
        cycles = self.cycles
        while cycles["refi"] and self.refreshes * cycles["refi"] / len(self.banks) <= now:
            bank = self.banks[self.refreshes % len(self.banks)]
            begin = self.refreshes * cycles["refi"] / len(self.banks)
            if bank.row is not None:
                begin = max(begin, bank.precharge_from) + cycles["rp"]
            bank.row, bank.activated = None, begin + cycles["rfc"] - cycles["rc"]
            self.refreshes += 1

    def activation(self, one):
        bank = self.banks[one["bank"]]
        earliest = max(one["arrival"], bank.activated + self.cycles["rc"])
        if self.activations:
            earliest = max(earliest, self.activations[-1] + self.cycles["rrd"])
        if len(self.activations) > 3:
            earliest = max(earliest, self.activations[-4] + self.cycles["faw"])
        if bank.row is None:
            return earliest
        return max(earliest, max(bank.precharge_from, one["arrival"]) + self.cycles["rp"])

    def column(self, one, now):
        bank = self.banks[one["bank"]]
        earliest = max(now, self.group_from[one["bank"] % self.groups])
        earliest = max(
            earliest, self.read + self.cycles["rtw"] if one["write"] else self.write_end + self.cycles["cdlr"]
        )
        if bank.row == one["row"]:
            return max(earliest, bank.column_from)
        return max(earliest, self.activation(one) + self.cycles["rcd"])

    def serve(self, one, at):
        bank, cycles = self.banks[one["bank"]], self.cycles
        if bank.row != one["row"]:
            bank.activated = self.activation(one)
            self.activations.append(bank.activated)
            bank.column_from = bank.activated + cycles["rcd"]
            bank.precharge_from = bank.activated + cycles["ras"]
            bank.row = one["row"]
        self.group_from[one["bank"] % self.groups] = at + cycles["ccdl"]
        self.bus = at + self.burst
        end = self.bus + (cycles["wl"] + cycles["wr"] if one["write"] else 0)
        bank.precharge_from = max(bank.precharge_from, end)
        if one["write"]:
            self.write_end = self.bus + cycles["wl"]
        else:
            self.read = at


def in_order_of_readiness(requests, channel, queue):
    """(number, column command) of each request, as they are served."""
    coming, waiting, found = list(requests), [], []
    while coming or waiting:
        now = max(waiting[0]["arrival"], channel.bus) if waiting else inf
        if coming and len(waiting) < queue and (not waiting or coming[0]["arrival"] <= floor(now)):
            waiting.append(coming.pop(0))
            continue
        channel.refresh(now)
        at, number = min((channel.column(one, now), one["number"]) for one in waiting)
        one = next(each for each in waiting if each["number"] == number)
        waiting.remove(one)
        channel.serve(one, at)
        found.append((number, at))
    return found


def place(sector, banks, row_bytes):
    """Bank and row: the lowest bit of the bank above a line of 128 B, the others above the columns."""
    line = sector // 4
    high, row = (line // 2 // (row_bytes // 128)) % max(1, banks // 2), line // 2 // (row_bytes // 128)
    return (2 * high + line % 2) % banks, row // max(1, banks // 2)


@pytest.mark.theory
@pytest.mark.parametrize(("banks", "groups", "queue"), [
    (16, 4, 64), (16, 1, 5), (32, 8, 64), (64, 16, 33), (8, 4, 2), (4, 4, 64), (2, 1, 64), (1, 1, 8), (16, 16, 1),
])  # fmt: skip
@pytest.mark.parametrize("is_whole", [False, True], ids=["", "with_windows_turns_and_refreshes"])
def test_first_ready_first_come_first_served(banks, groups, queue, is_whole):
    draw = random.Random(banks * 1000 + queue)
    for row_bytes, ratio, gap in ((2048, 1, 1), (1024, 2, 6), (4096, 1, 30)):
        names = ("rcd", "cl", "wl", "rp", "ras", "rc", "rrd", "ccd", "ccdl", "cdlr", "wr")
        timing = {name: draw.randrange(1, 50) for name in names} | dict.fromkeys(("faw", "rtw", "refi", "rfc"), 0)
        if is_whole:
            timing |= {"faw": draw.randrange(200), "rtw": draw.randrange(50), "rfc": draw.randrange(1, 100)}
            timing["refi"] = banks * draw.choice((8, 40, 300)) + 256
            refresh.want()
        burst = draw.choice((0.5, 1, 4, 12.5))
        target = gpu(dram={
            "bandwidth": f"{32 / burst} GB/s", "queue": queue, "latency": f"{ON_THE_WAY - 4} cycles",
            "timing": {"frequency": f"{1000 // ratio} MHz", "banks": banks, "bank_groups": groups,
                       "row": f"{row_bytes} B", **timing},
        })  # fmt: skip
        rows = draw.choice((2, 5, 40)) * banks * row_bytes // 32
        time = np.cumsum([draw.randrange(2 * gap) * (draw.random() < 0.3) for _ in range(REQUESTS)])
        request = np.array([draw.randrange(rows) for _ in range(REQUESTS)])
        is_write = np.array([int(draw.random() < 0.3) for _ in range(REQUESTS)])
        served, column = np.zeros(REQUESTS, np.int64), np.zeros(REQUESTS)
        memory = memory_state.memory_state(target, 1, REQUESTS)
        drive(memory, memory_state.memory_limits(target), time, request, is_write, served, column)
        requests = [
            {"number": i, "arrival": int(at) + ON_THE_WAY, "write": bool(write),
             **dict(zip(("bank", "row"), place(int(sector), banks, row_bytes), strict=True))}
            for i, (at, sector, write) in enumerate(zip(time, request, is_write, strict=True))
        ]  # fmt: skip
        cycles = {name: value * ratio for name, value in timing.items()}
        channel = Channel(cycles, burst, groups, [Bank() for _ in range(banks)], [-inf] * groups)
        assert list(zip(served.tolist(), column.tolist(), strict=True)) == in_order_of_readiness(
            requests, channel, queue
        )

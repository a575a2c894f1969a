"""Random MPI programs as time-independent actions that cannot deadlock and that SimGrid's replay understands.

A program is a random *global* sequence of events; each event appends lines to the ranks that take part. An operation
that blocks is only emitted once everything it needs stands earlier in the sequence or in the same event. So the ranks
can always run in the order of the sequence, and no other order can get stuck. Messages of one (source, destination,
tag) match first in, first out, and so do the requests of one key.

Left out, because SimGrid's replay deals with them by chance (tests/validation/DEVIATIONS.md): a test while several
requests of its key are open, and, with eager start, open receives of one key on both sides of the eager threshold.
So is what the reader takes as the tracer's peculiarity: a reducescatter of nothing, and one datatype where two belong.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise

EAGER_BYTES = 65536
DOUBLE, BYTE = 0, 6
# datatype id of the trace to bytes (C types of smpi_datatype.cpp)
TYPE_BYTES = {0: 8, 1: 4, 2: 1, 3: 2, 4: 8, 5: 4, 6: 1, 14: 16, 19: 4, 26: 16, 27: 32, 33: 8, 36: 16, 42: 8, 45: 4}
SIZES = (0, 1, 8, 40, 1000, 4096, 65519, 65520, 65535, 65536, 65537, 100_000, 1_000_000, 5_000_000)
SMALL_TAGS = range(4)  # with eager start: receives of these are below the threshold, those of LARGE_TAGS are not
LARGE_TAGS = range(4, 7)
Key = tuple[int, int, int]  # source, destination, tag


@dataclass(frozen=True)
class RandomProgram:
    """``actions``: the lines of each rank, without the leading rank."""

    seed: int
    eager: bool
    actions: tuple[tuple[str, ...], ...]

    @property
    def polls(self) -> bool:
        return any(line.startswith("test ") or " -1" in line for lines in self.actions for line in lines)


@dataclass
class _Message:
    bytes: int  # of the send; of the receive's buffer as long as that is posted alone
    type: int
    sent: bool = False
    received: bool = False


@dataclass
class _Request:
    message: _Message
    is_send: bool
    is_tested: bool = False

    @property
    def can_complete(self) -> bool:
        return (self.message.sent and self.message.received) or (self.is_send and self.message.bytes < EAGER_BYTES)


def generate(seed: int) -> RandomProgram:
    """The program of a seed: 2 to 12 ranks, 5 to 60 events."""
    return _Generator(seed).generate()


@dataclass
class _Generator:
    seed: int
    lines: list[list[str]] = field(default_factory=list)
    unsent: dict[Key, deque[_Message]] = field(default_factory=dict)  # receives without a send yet
    unreceived: dict[Key, deque[_Message]] = field(default_factory=dict)  # sends without a receive yet

    def generate(self) -> RandomProgram:
        self.random = random.Random(self.seed)
        self.num_ranks = self.random.randint(2, 12)
        self.eager = self.random.random() < 0.4
        self.default_type = self.random.choice((DOUBLE, BYTE))
        self.lines = [["init 1" if self.default_type == DOUBLE else "init"] for _ in range(self.num_ranks)]
        self.requests: list[dict[Key, deque[_Request]]] = [{} for _ in range(self.num_ranks)]
        events: list[tuple[float, Callable[[], None]]] = [
            *((8, self.compute), (2, self.sleep), (1, self.ignored), (4, self.send_with_receive), (6, self.post_send)),
            *((6, self.post_receive), (3, self.blocking_send), (3, self.blocking_receive), (3, self.exchange)),
            *((2, self.chain), (8, self.wait), (2, self.wait_for_all), (2, self.test), (2, self.probe_after_barrier)),
            *((5, self.collective), (2, self.to_oneself)),
        ]
        weights, actions = zip(*events, strict=True)
        for _ in range(self.random.randint(5, 60)):
            self.random.choices(actions, weights)[0]()
        self.settle()
        for lines in self.lines:
            lines.append("finalize")
        return RandomProgram(self.seed, self.eager, tuple(map(tuple, self.lines)))

    # values

    def rank(self) -> int:
        return self.random.randrange(self.num_ranks)

    def pair(self) -> tuple[int, int]:
        source, destination = self.random.sample(range(self.num_ranks), 2)
        return source, destination

    def tag(self) -> int:
        return self.random.choice((*SMALL_TAGS, *LARGE_TAGS))

    def amount(self) -> str:
        """A number as the tracer prints it: six digits, or an integer written by hand."""
        value = 10 ** self.random.uniform(0, 6)
        return self.random.choice((f"{value:g}", str(int(value)), f"{value:.6g}", f"{value:.5e}", "0"))

    def type(self) -> int:
        return self.random.choice((self.default_type, BYTE, self.random.choice(list(TYPE_BYTES))))

    def size(self, limit: int | None = None) -> int:
        size = self.random.choice((self.random.choice(SIZES), int(10 ** self.random.uniform(0, 6.5))))
        return size if limit is None else min(size, limit)

    def sized(self, count: int, type_id: int) -> str:
        """``count [type]``: the default type may be left out."""
        omitted = type_id == self.default_type and self.random.random() < 0.5
        return str(count) if omitted else f"{count} {type_id}"

    # events

    def compute(self) -> None:
        chance = self.random.random()
        for lines in self.lines:
            if self.random.random() < chance:
                lines.append(f"compute {self.amount()}")

    def sleep(self) -> None:
        self.lines[self.rank()].append(f"sleep {10 ** self.random.uniform(-7, -3.5):g}")

    def ignored(self) -> None:
        line = self.random.choice(("location app.c 12", "comm_size 4", "comm_dup", "comm_split 3"))
        self.lines[self.rank()].append(line)

    def send_with_receive(self) -> None:
        source, destination = self.pair()
        key = (source, destination, self.tag())
        if self.unsent.get(key) or self.unreceived.get(key):
            return
        self.emit_send("send", key)
        self.emit_receive("recv", key)

    def post_send(self) -> None:
        self.emit_send("isend", (*self.pair(), self.tag()))

    def post_receive(self) -> None:
        self.emit_receive("irecv", (*self.pair(), self.tag()))

    def to_oneself(self) -> None:
        rank = self.rank()
        posts = [("isend", self.emit_send), ("irecv", self.emit_receive)]
        self.random.shuffle(posts)
        key = (rank, rank, self.tag())
        for verb, emit in posts[: self.random.randint(1, 2)]:
            emit(verb, key)

    def blocking_send(self) -> None:
        """To a receive that is posted, or below the threshold to nobody yet."""
        posted = [key for key, queue in self.unsent.items() if queue]
        if posted and self.random.random() < 0.6:
            self.emit_send("send", self.random.choice(posted))
        else:
            key = (*self.pair(), self.random.choice(SMALL_TAGS))
            if not self.unsent.get(key):
                self.emit_send("send", key, EAGER_BYTES - 1)

    def blocking_receive(self) -> None:
        posted = [key for key, queue in self.unreceived.items() if queue]
        if posted:
            self.emit_receive("recv", self.random.choice(posted))

    def probe_after_barrier(self) -> None:
        """A receive of unknown size probes, which must find its message: a barrier stands between."""
        posted = [key for key, queue in self.unreceived.items() if queue]
        if not posted:
            return
        key = self.random.choice(posted)
        self.everywhere("barrier")
        message = self.unreceived[key].popleft()
        message.received = True
        verb = self.random.choice(("recv", "irecv"))
        self.lines[key[1]].append(f"{verb} {key[0]} {key[2]} -1 {BYTE}")
        if verb == "irecv":
            self.requests[key[1]].setdefault(key, deque()).append(_Request(message, False))

    def exchange(self) -> None:
        """A ring of sendRecv; the ring of one rank is a copy."""
        ring = self.random.sample(range(self.num_ranks), self.random.randint(1, self.num_ranks))
        self.send_receive_along([*ring, ring[0]])

    def chain(self) -> None:
        """send, any number of sendRecv, recv."""
        if self.num_ranks > 2:
            path = self.random.sample(range(self.num_ranks), self.random.randint(3, self.num_ranks))
            self.send_receive_along(path)

    def send_receive_along(self, path: list[int]) -> None:
        hops = list(pairwise(path))
        if any(self.unsent.get((a, b, 0)) or self.unreceived.get((a, b, 0)) for a, b in hops):
            return
        is_ring = path[0] == path[-1]
        messages = {}
        for hop in hops:
            type_id = self.type()
            size = self.size(EAGER_BYTES - 1 if self.eager else None)  # of tag 0, one of SMALL_TAGS
            messages[hop] = (size // TYPE_BYTES[type_id], type_id)
        if not is_ring:
            count, type_id = messages[hops[0]]
            self.lines[path[0]].append(f"send {path[1]} 0 {count} {type_id}")
        around = [*hops, hops[0]] if is_ring else hops
        for before, after in pairwise(around):
            rank = after[0]
            (received, receive_type), (sent, send_type) = messages[before], messages[after]
            self.lines[rank].append(f"sendRecv {sent} {after[1]} {received} {before[0]} {send_type} {receive_type}")
        if not is_ring:
            count, type_id = messages[hops[-1]]
            self.lines[path[-1]].append(f"recv {path[-2]} 0 {count} {type_id}")

    def wait(self) -> None:
        rank = self.rank()
        ready = [key for key, queue in self.requests[rank].items() if queue and queue[0].can_complete]
        for key in self.random.sample(ready, min(len(ready), self.random.randint(1, 4))):
            self.emit_wait(rank, key)

    def wait_for_all(self) -> None:
        rank = self.rank()
        requests = [request for queue in self.requests[rank].values() for request in queue]
        if all(request.can_complete for request in requests):
            self.lines[rank].append(f"waitall {len(requests)}")
            self.requests[rank].clear()

    def test(self) -> None:
        """One test per request: SimGrid forgets a request in the test after the one that succeeded."""
        rank = self.rank()
        alone = [key for key, queue in self.requests[rank].items() if len(queue) == 1 and not queue[0].is_tested]
        if alone:
            key = self.random.choice(alone)
            self.requests[rank][key][0].is_tested = True
            self.lines[rank].append("test {} {} {}".format(*key))

    def settle(self) -> None:
        """Post what is missing, then wait for everything, each rank in an order of its own."""
        missing = [(self.emit_receive, "irecv", key, len(queue)) for key, queue in self.unreceived.items()]
        missing += [(self.emit_send, "isend", key, len(queue)) for key, queue in self.unsent.items()]
        self.random.shuffle(missing)
        for emit, verb, key, count in missing:
            for _ in range(count):
                emit(verb, key)
        for rank, requests in enumerate(self.requests):
            keys = [key for key, queue in requests.items() for _ in queue]
            self.random.shuffle(keys)
            for place, key in enumerate(keys):
                if self.random.random() < 0.1:
                    self.lines[rank].append(f"waitall {len(keys) - place}")
                    break
                self.emit_wait(rank, key)
            if self.random.random() < 0.3:
                self.lines[rank].append(f"compute {self.amount()}")

    # lines of point-to-point operations

    def emit_send(self, verb: str, key: Key, limit: int | None = None) -> None:
        posted = self.unsent.get(key)
        if posted:
            message = posted.popleft()
            type_id = message.type if message.type != BYTE else self.type()
            size = self.size(message.bytes)
        else:
            message = _Message(0, self.type())
            type_id = message.type
            small = self.eager and key[2] in SMALL_TAGS
            size = self.size(EAGER_BYTES - 1 if small else limit)
            self.unreceived.setdefault(key, deque()).append(message)
        count = size // TYPE_BYTES[type_id]
        message.bytes = count * TYPE_BYTES[type_id]
        message.sent = True
        self.lines[key[0]].append(f"{verb} {key[1]} {key[2]} {self.sized(count, type_id)}")
        if verb == "isend":
            self.requests[key[0]].setdefault(key, deque()).append(_Request(message, True))

    def emit_receive(self, verb: str, key: Key) -> None:
        posted = self.unreceived.get(key)
        is_large = self.eager and key[2] in LARGE_TAGS
        if posted:
            message = posted.popleft()
            type_id = self.random.choice((message.type, BYTE))
            smallest = max(message.bytes, EAGER_BYTES if is_large else 0)
            count = -(-smallest // TYPE_BYTES[type_id])
            if count * TYPE_BYTES[type_id] + 64 < EAGER_BYTES:  # a buffer may be longer than its message
                count += self.random.choice((0, 0, 1, 2))
        else:
            message = _Message(0, self.type())
            type_id = message.type
            size = self.size(EAGER_BYTES - 1 if self.eager and not is_large else None)
            count = -(-max(size, EAGER_BYTES) // TYPE_BYTES[type_id]) if is_large else size // TYPE_BYTES[type_id]
            message.bytes = count * TYPE_BYTES[type_id]
            self.unsent.setdefault(key, deque()).append(message)
        message.received = True
        self.lines[key[1]].append(f"{verb} {key[0]} {key[2]} {self.sized(count, type_id)}")
        if verb == "irecv":
            self.requests[key[1]].setdefault(key, deque()).append(_Request(message, False))

    def emit_wait(self, rank: int, key: Key) -> None:
        self.requests[rank][key].popleft()
        self.lines[rank].append("wait {} {} {}".format(*key))

    # collectives

    def everywhere(self, line: str) -> None:
        for lines in self.lines:
            lines.append(line)

    def collective(self) -> None:
        self.random.choice(
            (
                *(self.barrier, self.bcast, self.reduce, self.allreduce, self.scan, self.gather, self.scatter),
                *(self.allgather, self.alltoall, self.gatherv, self.scatterv, self.allgatherv, self.alltoallv),
                self.reducescatter,
            )
        )()

    def work(self) -> str:
        return self.random.choice(("0", "0", self.amount()))

    def counted(self, largest: int = 2_000_000) -> tuple[int, int]:
        """Elements and datatype of a block."""
        type_id = self.type()
        return min(self.size(), largest) // TYPE_BYTES[type_id], type_id

    def counts(self, type_id: int, largest: int = 200_000) -> list[int]:
        """One count per rank, some of them zero; now and then all the same."""
        if self.random.random() < 0.2:
            return [min(self.size(), largest) // TYPE_BYTES[type_id]] * self.num_ranks
        zeros = self.random.random() * 0.7
        return [
            0 if self.random.random() < zeros else min(self.size(), largest) // TYPE_BYTES[type_id]
            for _ in range(self.num_ranks)
        ]

    def types(self, type_id: int, count: int = 2) -> str:
        """The datatype ``count`` times, or nothing, which may stand for the default type."""
        return "" if type_id == self.default_type and self.random.random() < 0.5 else f" {type_id}" * count

    def rooted(self, root: int, type_id: int, count: int) -> str:
        """Root and datatypes; a root of 0 may be left out with the types."""
        types = self.types(type_id, count)
        if not types and root == 0 and self.random.random() < 0.5:
            return ""
        return f" {root}{types}"

    def barrier(self) -> None:
        self.everywhere("barrier")

    def bcast(self) -> None:
        count, type_id = self.counted()
        self.everywhere(f"bcast {count}{self.rooted(self.rank(), type_id, 1)}")

    def reduce(self) -> None:
        count, type_id = self.counted()
        root = self.rank()
        for lines in self.lines:  # the work may differ
            lines.append(f"reduce {count} {self.work()}{self.rooted(root, type_id, 1)}")

    def allreduce(self) -> None:
        count, type_id = self.counted()
        for lines in self.lines:
            lines.append(f"allreduce {count} {self.work()}{self.types(type_id, 1)}")

    def scan(self) -> None:
        verb = self.random.choice(("scan", "exscan"))
        count, type_id = self.counted()
        for lines in self.lines:
            lines.append(f"{verb} {count} {self.work()}{self.types(type_id, 1)}")

    def gather(self) -> None:
        self.everywhere("gather" + self._equal_blocks_with_root())

    def scatter(self) -> None:
        self.everywhere("scatter" + self._equal_blocks_with_root())

    def _equal_blocks_with_root(self) -> str:
        count, type_id = self.counted()
        return f" {count} {count}{self.rooted(self.rank(), type_id, 2)}"

    def allgather(self) -> None:
        count, type_id = self.counted(300_000)
        self.everywhere(f"allgather {count} {count}{self.types(type_id)}")

    def alltoall(self) -> None:
        """Blocks around the limits of Open MPI's table; one pairwise algorithm needs a power of two ranks."""
        count, type_id = self.counted(1_200_000 if self.num_ranks <= 4 and self.num_ranks != 3 else 500_000)
        if self.num_ranks == 2 and self.random.random() < 0.5:
            count, type_id = self.random.choice((1, 2, 3, 4, 15, 16, 63, 64, 255, 256, 4095, 4096, 32767, 32768)), BYTE
        self.everywhere(f"alltoall {count} {count}{self.types(type_id)}")

    def gatherv(self) -> None:
        type_id, root = self.type(), self.rank()
        counts = self.counts(type_id)
        tail = self.rooted(root, type_id, 2)
        for rank, lines in enumerate(self.lines):
            known = counts if rank == root else [0] * self.num_ranks  # as the tracer writes it
            lines.append(f"gatherv {counts[rank]} {_joined(known)}{tail}")

    def scatterv(self) -> None:
        type_id, root = self.type(), self.rank()
        counts = self.counts(type_id)
        tail = self.rooted(root, type_id, 2)
        for rank, lines in enumerate(self.lines):
            known = counts if rank == root else [0] * self.num_ranks
            lines.append(f"scatterv {_joined(known)} {counts[rank]}{tail}")

    def allgatherv(self) -> None:
        """Three layouts: counts and perhaps types, counts and displacements, counts, types and displacements.

        SimGrid tells them apart by length, so that two displacements count as types.
        """
        layout = self.random.choice((0, 1, 2) if self.num_ranks > 2 else (0, 2))
        type_id = self.default_type if layout == 1 else self.type()
        counts = self.counts(type_id)
        places = [sum(counts[:rank]) for rank in range(self.num_ranks)]
        tail = self.types(type_id) if layout == 0 else f" {_joined(places)}"
        if layout == 2:
            tail = f" {type_id} {type_id}{tail}"
        for rank, lines in enumerate(self.lines):
            lines.append(f"allgatherv {counts[rank]} {_joined(counts)}{tail}")

    def alltoallv(self) -> None:
        type_id = self.type()
        table = [self.counts(type_id, 100_000) for _ in range(self.num_ranks)]
        tail = self.types(type_id)
        for rank, lines in enumerate(self.lines):
            received = [row[rank] for row in table]
            lines.append(
                f"alltoallv {sum(table[rank])} {_joined(table[rank])} {sum(received)} {_joined(received)}{tail}"
            )

    def reducescatter(self) -> None:
        type_id = self.type()
        counts = self.counts(type_id, 600_000)
        if not any(counts):  # written so, it would be an MPI_Reduce_scatter_block
            counts[self.rank()] = 1
        for lines in self.lines:
            lines.append(f"reducescatter {_joined(counts)} {self.work()}{self.types(type_id, 1)}")


def _joined(values: list[int]) -> str:
    return " ".join(map(str, values))

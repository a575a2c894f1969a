"""Cores by reorder-buffer occupancy, and what they do with one access after the other.

Method: Lee et al., "Reorder-buffer occupancy analysis", as Grass describes it (UPC 2017, sections 2.4 and 3.3).
Instructions enter the reorder buffer, ``width`` per cycle, until it is full; they leave it in order, ``commit`` per
cycle, once they are done. An access asks the memory when it has entered and what it depends on is there (``request``
insertion), or only when all before it have left (``tail``: nothing overlaps, as section 3.3 says). Stores hold up
nothing but the store buffer: they leave, are written in order, and keep their place until their line is there. A load
of what a store has written not long before waits for the store's data.

The code of a block is fetched window by window, up to ``FETCHED_AHEAD`` cycles ahead, and loads that lie in two lines
take their unit twice (node/core/block_limits.py).

What does not access memory is part of the tables (node/core/code.py), so a step goes from access to access: instruction
p enters at ``base`` + its offset, or when instruction p - reorder_buffer has left. Times of leaving are kept where
they jump; between two jumps instructions leave at the rate at which others can enter.

Frames of task instances on the traced thread's stack are each core's own: private_stacks.py.

Branches (only where the core's ``misprediction`` is not 0) are predicted by the blocks executed before, with histories
of geometrically growing length (cpu/branch_predictor.py, with the method's source). Each core has a predictor, which
keeps what it learned from piece to piece.

The CPI stack of a piece gives each cycle between two accesses' leaving to what the later one waited for: ``PARTS`` and
one part per level of the memory system that served it. ``base`` is the rest, so the parts sum to the cycles.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal, NamedTuple, TypeAlias

import numpy as np

from manyscale.models.cpu.branch_predictor import Predictor, mispredicts, new_predictors
from manyscale.models.kernels import allocation_free, inner_inlined, read_only, separate
from manyscale.models.machine import Node
from manyscale.models.machine.processor import data_caches, needed
from manyscale.models.node.core.code import LOAD, NUM_REGISTERS, RESULT, CoreCode
from manyscale.models.node.core.kinds import code_of_kinds, limits_of
from manyscale.models.node.memory.kernel import access, is_own, read_sets_soon
from manyscale.models.node.memory.system import clock_of
from manyscale.models.node.private_stacks import CORE_SHIFT

Request: TypeAlias = Literal["insertion", "tail"]

# parts of the CPI stack; those of the memory system's levels follow
PARTS: Final = ("base", "dependency", "branch", "queue")
DEPENDENCY: Final = 1
BRANCH: Final = 2
QUEUE: Final = 3
FIRST_LEVEL: Final = 4

_FORWARDS: Final = 256  # recent stores that a core knows, by address
_GRANULE_SHIFT: Final = 3

# ``base``: when the current block's first instruction entered, or would have if nothing had delayed the latest access;
# ``position``: instructions before the block. ``commit``: when instruction ``commit_position`` left. ``floor_time``:
# when ``floor_position`` left, the last jump that no instruction to come can be held up by any more. ``is_ready``: the
# next access enters at ``cycle``. ``late_branch``, ``late_queue``: what entering has lost, and leaving not yet felt.
# ``split_cycles``, ``num_splits``: for which the block's loads took their unit once more. ``fetched``: until when the
# front end has fetched. ``stack``, ``stack_bytes``: addresses of the piece of which the core has its own.
_CORE: Final = np.dtype(
    [
        ("cycle", "f8"), ("base", "f8"), ("commit", "f8"), ("floor_time", "f8"), ("begin", "f8"), ("written", "f8"),
        ("late_branch", "f8"), ("late_queue", "f8"), ("split_cycles", "f8"), ("num_splits", "f8"), ("fetched", "f8"),
        ("execution", "i8"), ("end_execution", "i8"), ("access", "i8"), ("node", "i8"), ("end_node", "i8"),
        ("block", "i8"), ("position", "i8"), ("commit_position", "i8"), ("floor_position", "i8"), ("first_mark", "i8"),
        ("end_mark", "i8"), ("num_stores", "i8"), ("instructions", "i8"),
        ("stack", "u8"), ("stack_bytes", "u8"), ("is_ready", "i8"), ("mispredicted", "i8"), ("first_block", "i8"),
    ]
)  # fmt: skip
_MARK: Final = np.dtype([("position", "i8"), ("time", "f8")])


class Stream(NamedTuple):
    """What cores execute: ``block_ids`` int32[executions], ``addresses`` uint64[accesses]."""

    block_ids: np.ndarray
    addresses: np.ndarray


class Cores(NamedTuple):
    """``core`` records [cores]: ``cycle`` is when the next access enters, or, at a piece's end, when its last
    instruction has left; ``begin`` when the piece began, ``instructions`` of it so far. ``stack`` float64[cores, parts]
    of the piece so far, in cycles; part 0 only counts at its end. Rings by core: ``mark`` (jumps of leaving)
    and ``store`` (when each place of the store buffer is free again). ``value`` float64[cores, places], see core_code.
    """

    core: np.ndarray
    limits: np.ndarray  # [cores]
    value: np.ndarray
    mark: np.ndarray
    store: np.ndarray
    forward: np.ndarray
    stack: np.ndarray
    predictor: Predictor
    code: CoreCode
    stream: Stream


def part_names(node: Node) -> tuple[str, ...]:
    """Names of the CPI stack's parts."""
    return (*PARTS, *data_caches(node.caches), "memory", "remote")


def stream_of(block_ids: np.ndarray, addresses: np.ndarray) -> Stream:
    """Of arrays that may be read-only."""
    return Stream(read_only(block_ids, np.int32), read_only(addresses, np.uint64))


def new_cores(
    node: Node, num_cores: int, code: CoreCode | Sequence[CoreCode], stream: Stream, request: Request = "insertion",
    first_core: int = 0,
) -> Cores:  # fmt: skip
    """Idle cores [first_core, first_core + num_cores) of a node. ``code``: of each of its kinds of cores, if these are
    several. Raises ValueError where the node lacks a parameter."""
    codes = [code] if isinstance(code, CoreCode) else list(code)
    kinds = node.of_kinds
    kind = np.array(node.kind_of_cores or [0] * (first_core + num_cores), np.int64)[first_core : first_core + num_cores]
    caches = data_caches(node.caches)
    if not caches:
        raise ValueError("node.caches is empty; the core model needs at least one cache of data")
    line_bytes = needed(next(iter(caches.values())).line_bytes, "line", f"node.caches.{next(iter(caches))}.")
    every = [needed(each.core, "node.core") for each in kinds]
    marks = 1 << (max(core.reorder_buffer for core in every) + 2).bit_length()
    clocks = [clock_of(node, each) for each in kinds]
    limits = np.concatenate([limits_of(core, clock, marks) for core, clock in zip(every, clocks, strict=True)])
    limits["line_shift"], limits["tail"] = line_bytes.bit_length() - 1, request == "tail"
    predicts = any(core.misprediction_cycles > 0 for core in every)
    forward = np.zeros((num_cores, _FORWARDS), _MARK)
    forward["position"] = -1
    joined = codes[0] if clocks == [1.0] else code_of_kinds(codes, clocks)
    cores = np.zeros(num_cores, _CORE)
    cores["first_block"] = kind * len(codes[0].block)
    return Cores(
        cores,
        limits[kind],
        np.zeros((num_cores, int(joined.num_places[0]))),
        np.zeros((num_cores, marks), _MARK),
        np.zeros((num_cores, max(1, *(core.store_buffer for core in every)))),
        forward,
        np.zeros((num_cores, len(part_names(node)))),
        new_predictors(num_cores if predicts else 0, len(joined.block)),
        joined,
        stream,
    )


@allocation_free
def begin_piece(  # type: ignore[no-untyped-def]
    cores, core, first_execution, end_execution, first_access, stack, end_stack, cycle
):
    """The core begins to execute a piece of the stream at ``cycle``, with an empty reorder buffer. O(1)."""
    c = cores.core[core]
    c.stack, c.stack_bytes = np.uint64(stack), np.uint64(end_stack - stack)
    c.begin = c.cycle = c.base = c.commit = c.floor_time = c.fetched = cycle
    c.execution, c.end_execution, c.access = first_execution, end_execution, first_access
    c.node, c.end_node, c.block = 0, 0, -1
    c.commit_position = c.floor_position = c.position - 1
    c.first_mark = c.end_mark
    c.late_branch = c.late_queue = c.split_cycles = c.num_splits = 0.0
    c.instructions, c.is_ready, c.mispredicted = 0, 0, 0
    for part in range(cores.stack.shape[1]):
        cores.stack[core, part] = 0.0


@inner_inlined
def _left(cores, core, position):  # type: ignore[no-untyped-def]
    """When the instruction at ``position`` leaves. Positions must not fall from call to call. Amortised O(1)."""
    c, limits = cores.core[core], cores.limits[core]
    while c.first_mark < c.end_mark:
        mark = cores.mark[core, c.first_mark & (limits.marks - 1)]
        if mark.position > position:
            break
        c.floor_position, c.floor_time = mark.position, mark.time
        c.first_mark += 1
    if position < c.floor_position:
        return 0.0
    return c.floor_time + (position - c.floor_position) * limits.drain


@inner_inlined
def _leave(cores, core, position, time):  # type: ignore[no-untyped-def]
    """The instruction at ``position`` leaves at ``time``, later than those before it alone would say. O(1)."""
    c, limits = cores.core[core], cores.limits[core]
    c.commit, c.commit_position = time, position
    if c.first_mark == c.end_mark or cores.mark[core, (c.end_mark - 1) & (limits.marks - 1)].position != position:
        c.end_mark += 1
    mark = cores.mark[core, (c.end_mark - 1) & (limits.marks - 1)]
    mark.position, mark.time = position, time


@inner_inlined
def latest_of(cores, core, first, end, time):  # type: ignore[no-untyped-def]
    """The latest of ``time`` and terms [first, end). O(end - first)."""
    for k in range(first, end):
        time = max(time, cores.value[core, cores.code.term[k].place] + cores.code.term[k].cycles)
    return time


@inner_inlined
def enters_at(cores, core, node, block):  # type: ignore[no-untyped-def]
    """When the access of ``node`` enters the reorder buffer. O(1)."""
    c, limits = cores.core[core], cores.limits[core]
    enters = c.base + node.offset * block.slot
    room = _left(cores, core, c.position + node.offset - limits.reorder)
    enters = max(enters, room)
    if node.kind != LOAD and limits.stores > 0:
        free = cores.store[core, c.num_stores % limits.stores]
        if free > enters:
            c.late_queue += free - enters
            enters = free
    return enters


@inner_inlined
def _wait(cores, core, position, done, entered):  # type: ignore[no-untyped-def]
    """How long the instruction at ``position``, done at ``done``, holds up leaving beyond what ``entered`` explains;
    waiting for branches and queues is counted."""
    c, limits = cores.core[core], cores.limits[core]
    plain = c.commit + (position - c.commit_position) * limits.spacing
    if c.late_branch > 0 or c.late_queue > 0:
        late = max(entered, done) - plain
        by_branch = max(min(late, c.late_branch), 0.0)
        by_queue = max(min(late - by_branch, c.late_queue), 0.0)
        cores.stack[core, BRANCH] += by_branch
        cores.stack[core, QUEUE] += by_queue
        c.late_branch = c.late_queue = 0.0
        plain += by_branch + by_queue
    plain = max(plain, entered)
    return max(done - plain, 0.0)


@inner_inlined
def _address_of(cores, core, node):  # type: ignore[no-untyped-def]
    """What the access of ``node`` asks for. O(1)."""
    c = cores.core[core]
    address = cores.stream.addresses[c.access + node.row]
    own = address - c.stack < c.stack_bytes
    return address + (np.uint64(core) << np.uint64(CORE_SHIFT)) if own else address


@inner_inlined
def _nobody_notices(cores, mem, core, node):  # type: ignore[no-untyped-def]
    """Whether the access of ``node`` is the core's own matter: see ``is_own``. O(ways) for each line."""
    shift, address = np.uint64(cores.limits[core].line_shift), _address_of(cores, core, node)
    last = np.int64((address + np.uint64(max(node.bytes, 1) - 1)) >> shift)
    own = True
    for line in range(np.int64(address >> shift), last + 1):
        own &= is_own(mem, core, line, node.kind != LOAD)
    return own


@inner_inlined
def do_access(cores, mem, core, node, entered):  # type: ignore[no-untyped-def]
    """The access of ``node``, which entered the reorder buffer at ``entered``. O(terms) and the memory's cost."""
    c, limits = cores.core[core], cores.limits[core]
    position = c.position + node.offset
    plain = c.commit + (position - c.commit_position) * limits.spacing
    request = latest_of(cores, core, node.first_term, node.end_term, max(c.base + node.entry, entered))
    if limits.tail:
        request = max(request, plain)
    addresses = cores.stream.addresses
    address = _address_of(cores, core, node)
    is_store = node.kind != LOAD
    line = np.int64(address >> np.uint64(limits.line_shift))
    last = np.int64((address + np.uint64(max(node.bytes, 1) - 1)) >> np.uint64(limits.line_shift))
    arrival = request
    served = np.int64(0)
    while True:
        arrival = max(arrival, access(mem, core, line, is_store, request))
        served = max(served, mem.served[core])
        if line >= last:
            break
        line += 1
        if not is_store:
            c.split_cycles += node.unit
            c.num_splits += 1.0
    if served > 0:  # where one access misses, the next one is likely to; the others have their turns until then
        following = c.access + node.row + 1
        if following < addresses.shape[0]:
            read_sets_soon(mem, core, np.int64(addresses[following] >> np.uint64(limits.line_shift)))
    granule = np.int64(address >> np.uint64(_GRANULE_SHIFT))
    forward = cores.forward[core, granule & (_FORWARDS - 1)]
    done = request
    if is_store:
        forward.position, forward.time = granule, request
    else:
        if forward.position == granule:
            forwarded = forward.time + node.forward
            if forwarded > arrival:
                arrival = forwarded
            served = np.int64(-1)
        cores.value[core, node.place] = arrival + node.delay
        done = arrival + node.delay + node.tail
    leaves = max(plain, entered, done)
    if leaves > plain:
        wait = _wait(cores, core, position, done, entered)
        if wait > 0:
            if is_store or served < 0:
                cores.stack[core, DEPENDENCY] += wait
            else:
                by_memory = min(wait, arrival - request)
                cores.stack[core, FIRST_LEVEL + served] += by_memory
                cores.stack[core, DEPENDENCY] += wait - by_memory
        _leave(cores, core, position, leaves)
    if is_store and limits.stores > 0:
        c.written = max(c.written + limits.store, leaves, arrival)
        cores.store[core, c.num_stores % limits.stores] = c.written
        c.num_stores += 1


@inner_inlined
def end_block(cores, core, block):  # type: ignore[no-untyped-def]
    """Registers, leaving and the branch at the end of an execution. O(terms)."""
    c, limits = cores.core[core], cores.limits[core]
    scratch = NUM_REGISTERS + block.end_node - block.first_node - block.first_out
    for k in range(block.first_out, block.end_out):
        out = cores.code.out[k]
        cores.value[core, scratch + k] = latest_of(cores, core, out.first_term, out.end_term, c.base + out.entry)
    for k in range(block.first_out, block.end_out):
        cores.value[core, cores.code.out[k].register] = cores.value[core, scratch + k]
    last = c.position + block.instructions - 1
    base = c.base + block.instructions * block.slot
    if c.num_splits > 0:
        base += max(c.split_cycles - block.load_slack, c.num_splits * limits.access - block.access_slack, 0.0)
        c.split_cycles = c.num_splits = 0.0
    if limits.fetch > 0:
        base = max(base, c.fetched - limits.fetch)
    if block.end_commit > block.first_commit or block.commit_entry > 0:
        time = latest_of(cores, core, block.first_commit, block.end_commit, c.base + block.commit_entry)
        if time > c.commit + (last - c.commit_position) * limits.spacing:
            base = max(base, _left(cores, core, last + 1 - limits.reorder))
            cores.stack[core, DEPENDENCY] += _wait(cores, core, last, time, c.base)
            _leave(cores, core, last, time)
    if c.mispredicted:
        done = latest_of(cores, core, block.first_branch, block.end_branch, c.base + block.branch_entry)
        late = done + limits.misprediction - base
        if late > 0:
            c.late_branch += late
            base += late
            c.fetched = max(c.fetched, base)
    c.base = base
    c.access += block.accesses
    c.position += block.instructions
    c.instructions += cores.code.instructions[c.block]


@inner_inlined
def begin_block(cores, core):  # type: ignore[no-untyped-def]
    c, limits = cores.core[core], cores.limits[core]
    block_ids = cores.stream.block_ids
    before = c.block
    c.block = c.first_block + block_ids[c.execution]
    c.execution += 1
    block = cores.code.block[c.block]
    if limits.fetch > 0:
        windows = block.windows - 1 if block.before == before else block.windows
        c.fetched = max(c.fetched, c.base - limits.ahead) + windows * limits.fetch
    c.node, c.end_node = block.first_node, block.end_node
    if limits.misprediction > 0:
        follower = c.first_block + block_ids[c.execution] if c.execution < c.end_execution else np.int64(-1)
        is_wrong = mispredicts(cores.predictor, core, c.block, follower, cores.code.ends_in_branch[c.block])
        c.mispredicted = 1 if is_wrong else 0


@separate
def step(cores, mem, core, until_cycle, ahead_cycle):  # type: ignore[no-untyped-def]
    """The core goes on until its next access would enter at ``until_cycle`` or later: False; or until its piece ends:
    True. ``core[core].cycle`` is when. Up to ``ahead_cycle`` it goes on with accesses that no other core notices, if
    that is later. O(accesses and executions on the way)."""
    c = cores.core[core]
    while True:
        while c.node == c.end_node:
            if c.block >= 0:
                end_block(cores, core, cores.code.block[c.block])
            if c.execution == c.end_execution:
                last = c.commit + (c.position - 1 - c.commit_position) * cores.limits[core].spacing
                c.cycle = max(last, c.base)
                if c.late_branch > 0:
                    cores.stack[core, BRANCH] += min(c.late_branch, c.cycle - last)
                return True
            begin_block(cores, core)
        node = cores.code.node[c.node]
        if node.kind == RESULT:
            cores.value[core, node.place] = latest_of(cores, core, node.first_term, node.end_term, c.base + node.entry)
            c.node += 1
            continue
        if not c.is_ready:
            block = cores.code.block[c.block]
            enters = enters_at(cores, core, node, block)
            c.base = max(c.base, enters - node.offset * block.slot)
            c.cycle = enters
            if enters >= until_cycle and (enters >= ahead_cycle or not _nobody_notices(cores, mem, core, node)):
                c.is_ready = 1
                return False
        c.is_ready = 0
        do_access(cores, mem, core, node, c.cycle)
        c.node += 1

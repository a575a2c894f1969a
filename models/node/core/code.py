"""Static tables of the core model: what one execution of each basic block asks of a core, without its instructions.

A block is executed symbolically once: every register's time at its end, and the time at which each access may ask the
memory, is a maximum of sums, of times at which registers were ready before the block, of times at which earlier
accesses of the block had their data, and of the time at which the block entered. So an execution costs its accesses,
and the sums that depend on what they take, not its instructions. What a register waits for goes through at most
``_MOST_TERMS`` sums; where it would be more, an intermediate result (a node without an access) stands for them.

Which registers an address waits for, and what data wait for, is the dataflow model's knowledge (dataflow_code.py), as
is which instructions are fused or take no time. Units of execution, loads and stores per cycle are a lower bound of
cycles per execution, the largest over all units, which slows down how instructions enter (node/core/block_limits.py).
String instructions move ``string_bytes_per_cycle``, where the core says so.

Blocks that show no instructions have counts only: their accesses lie evenly between their instructions, and wait for
nothing but each other's places in the reorder buffer. So do single accesses that belong to no instruction shown
(node/core/owned_accesses.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np

from manyscale.models.cpu import dataflow_tables as dataflow
from manyscale.models.cpu.dataflow_code import code_of
from manyscale.models.machine.processor import Core
from manyscale.models.memory.access_stream import Sites, sites_of
from manyscale.models.node.core.block_limits import NOBODY, access_cycles, block_limits, load_cycles, unseen_accesses
from manyscale.models.node.core.owned_accesses import OwnedAccesses, owned_accesses
from manyscale.models.workload import Workload, table_digest
from manyscale.models.workload.notes import Errs, Note, changes

NUM_REGISTERS: Final = dataflow.NUM_REGISTERS
_MOST_TERMS: Final = 6
_NEVER: Final = -np.inf
LOAD: Final = 0  # kinds of nodes
STORE: Final = 1
RESULT: Final = 2  # no access: an intermediate result

# ``instructions``: places in the reorder buffer (a fused pair takes one); ``slot``: cycles between two that enter;
# terms of ``commit``: when its last instruction may leave, beside what its loads say; of ``branch``: when the branch at
# its end is done. ``commit_entry``, ``branch_entry``: the same, counted from the block's entry. The last four: see
# node/core/block_limits.py.
_BLOCK: Final = np.dtype(
    [
        ("first_node", "i4"), ("end_node", "i4"), ("first_out", "i4"), ("end_out", "i4"),
        ("first_commit", "i4"), ("end_commit", "i4"), ("first_branch", "i4"), ("end_branch", "i4"),
        ("slot", "f8"), ("commit_entry", "f8"), ("branch_entry", "f8"), ("instructions", "i4"), ("accesses", "i4"),
        ("load_slack", "f8"), ("access_slack", "f8"), ("windows", "f8"), ("before", "i8"),
    ]
)  # fmt: skip
# ``offset``: instructions of the block before it; ``entry``: cycles after the block's entry at which it can ask at the
# earliest; ``tail``: by how much longer what waits for it alone holds up leaving; ``delay``: of a load beyond what the
# memory takes; ``forward``: cycles from a store of the same bytes; ``unit``: for which a load takes its unit; ``row``:
# which of the block's addresses is its own
_NODE: Final = np.dtype(
    [
        ("entry", "f8"), ("tail", "f8"), ("delay", "f8"), ("forward", "f8"), ("unit", "f8"),
        ("first_term", "i4"), ("end_term", "i4"), ("offset", "i4"), ("place", "i4"), ("bytes", "i4"), ("kind", "i4"),
        ("row", "i4"), ("pad", "i4"),
    ]
)  # fmt: skip
_MOST_CODES: Final = 16
_NO_LIMITS: Final = (np.inf, np.inf, 0.0, NOBODY)
_TAIL, _OFFSET, _KIND = 1, 7, 10
_TERM: Final = np.dtype([("place", "i8"), ("cycles", "f8")])
_OUT: Final = np.dtype([("entry", "f8"), ("register", "i4"), ("first_term", "i4"), ("end_term", "i4"), ("pad", "i4")])


class CoreCode(NamedTuple):
    """Tables of records: ``block`` [blocks], ``node``, ``term``, ``out`` (registers that a block changes).

    ``place`` of a term: a register, or from NUM_REGISTERS on a node of the block. ``instructions`` int64[blocks] as
    the trace counts them; ``ends_in_branch`` bool[blocks]; ``num_places`` [1]: the largest place, and the outs of any
    block, fit below it.
    """

    block: np.ndarray
    node: np.ndarray
    term: np.ndarray
    out: np.ndarray
    instructions: np.ndarray
    ends_in_branch: np.ndarray
    num_places: np.ndarray


_codes: dict[tuple[str, ...], tuple[CoreCode, tuple[Note, ...]]] = {}  # the latest, by what they were made of
Terms = dict[int, float]  # cycles after the time of each place


@dataclass
class _Value:
    """The latest of the block's entry + ``entry`` and of ``terms``."""

    entry: float
    terms: Terms

    def plus(self, cycles: float) -> _Value:
        return self if cycles == 0 else _Value(self.entry + cycles, {k: v + cycles for k, v in self.terms.items()})


class _Tables:
    """What is filled block by block."""

    def __init__(self) -> None:
        self.blocks: list[tuple[float, ...]] = []
        self.nodes: list[list[float]] = []
        self.terms: list[tuple[int, float]] = []
        self.outs: list[tuple[float, int, int, int, int]] = []
        self.most_places = 0

    def add_terms(self, terms: Terms) -> tuple[int, int]:
        first = len(self.terms)
        self.terms.extend(terms.items())
        return first, len(self.terms)


def core_code(workload: Workload, core: Core, wanted: np.ndarray | None = None) -> tuple[CoreCode, tuple[Note, ...]]:
    """The tables, and notes on what the trace does not show. ``wanted`` bool[blocks]: blocks that are executed (all by
    default); others ask for nothing. O(n log n) in the static instructions."""
    num_instructions = workload.column("blocks", "num_instructions").astype(np.int64)
    if not workload.tables["instructions"].num_rows:
        sites = sites_of(workload)
        counts = np.maximum(num_instructions, np.maximum(np.diff(sites.offsets), 1))
        text = "the trace shows no instructions of its blocks: no access waits for another one's data"
        return _without_instructions(sites, counts, core), (changes("instructions-unknown", text, errs=Errs.short),)
    owned = owned_accesses(workload)
    code, ends_in_branch = code_of(owned.workload, owned.sites, core)
    tables = _Tables()
    compiler = _Compiler(code, core, tables, ends_in_branch, owned)
    shown = np.diff(code.blocks[:, dataflow.FIRST_INSTRUCTION])
    for block in range(len(num_instructions)):
        if wanted is not None and not wanted[block]:
            compiler.add_nothing()
        elif shown[block]:
            compiler.add_block(block)
        else:
            compiler.add_hidden(block, int(num_instructions[block]))
    counts = np.where(num_instructions >= 0, num_instructions, shown)
    return _finish(tables, counts, ends_in_branch), _notes(owned)


def kept_core_code(
    workload: Workload, core: Core, wanted: np.ndarray | None = None
) -> tuple[CoreCode, tuple[Note, ...]]:
    """As ``core_code``; work units of a study share what it compiles. Raises ValueError for a core with several
    threads."""
    if core.hardware_threads > 1:
        raise ValueError("node.core.hardware_threads: this model simulates one thread of a core; leave it out")
    tables = ("blocks", "instructions", "block_accesses", "unseen_accesses")
    key = (core.model_dump_json(), *(table_digest(workload.tables[name]) for name in tables))
    if wanted is not None and key not in _codes:
        key = (*key, np.packbits(wanted).tobytes().hex())
    if key not in _codes:
        while len(_codes) >= _MOST_CODES:
            _codes.pop(next(iter(_codes)))
        _codes[key] = core_code(workload, core, wanted)
    return _codes[key]


def _notes(owned: OwnedAccesses) -> tuple[Note, ...]:
    notes = []
    if owned.num_loose:
        text = (
            f"{owned.num_loose} of the code's {len(owned.all_sites)} accesses belong to no instruction that the trace "
            "shows: they wait for no data, and nothing waits for theirs"
        )
        notes.append(changes("accesses-without-instruction", text, count=int(owned.num_loose), errs=Errs.short))
    if owned.hidden:
        text = (
            f"the trace shows no instructions of {len(owned.hidden)} blocks that access memory: none of their accesses "
            "waits for another one's data"
        )
        notes.append(changes("instructions-unknown", text, count=len(owned.hidden), errs=Errs.short))
    return tuple(notes)


def _finish(tables: _Tables, num_instructions: np.ndarray, ends_in_branch: np.ndarray) -> CoreCode:
    block, outs = np.array(tables.blocks, _BLOCK), np.array(tables.outs, _OUT)
    code = CoreCode(
        block,
        np.array([tuple(node) for node in tables.nodes], _NODE),
        np.array(tables.terms, _TERM),
        outs,
        np.ascontiguousarray(num_instructions, np.int64),
        np.ascontiguousarray(ends_in_branch, bool),
        np.array([tables.most_places]),
    )
    return _without_dead_outs(code)


def _without_dead_outs(code: CoreCode) -> CoreCode:
    """Leave out registers whose times nothing can wait for. O(outs x length of the longest chain of copies)."""
    outs, blocks = code.out, code.block
    in_out = np.zeros(len(code.term), bool)
    owner = np.full(len(code.term), -1)
    for row, (first, end) in enumerate(zip(outs["first_term"].tolist(), outs["end_term"].tolist(), strict=True)):
        in_out[first:end] = True
        owner[first:end] = row
    places = code.term["place"]
    is_read = np.zeros(NUM_REGISTERS, bool)
    is_read[places[~in_out & (places < NUM_REGISTERS)]] = True
    from_register = in_out & (places < NUM_REGISTERS)
    while True:
        alive = is_read[outs["register"]]
        more = is_read.copy()
        more[places[from_register][alive[owner[from_register]]]] = True
        if (more == is_read).all():
            break
        is_read = more
    before = np.concatenate(([0], np.cumsum(alive)))
    kept = blocks.copy()
    kept["first_out"], kept["end_out"] = before[blocks["first_out"]], before[blocks["end_out"]]
    return code._replace(block=kept, out=outs[alive])


class _Compiler:
    """Executes blocks symbolically."""

    def __init__(
        self, code: dataflow.Code, core: Core, tables: _Tables, ends_in_branch: np.ndarray, owned: OwnedAccesses
    ) -> None:
        self._tables = tables
        self._core, self._owned = core, owned
        self._row = owned.row.tolist()
        self._first = code.blocks[:, dataflow.FIRST_INSTRUCTION].tolist()
        self._instruction = code.instructions.tolist()
        self._registers = code.registers.tolist()
        self._access = code.accesses.tolist()
        self._latency = code.costs[:, 0].tolist() if len(code.costs) else []
        self._ends_in_branch = ends_in_branch.tolist()
        general = core.general_store_to_load_cycles
        self._general = 0.0, core.store_to_load_cycles if general is None else general
        self._vector = core.vector_load_cycles, core.store_to_load_cycles
        self._string = 1 / core.string_bytes_per_cycle if core.string_bytes_per_cycle else 0.0
        self._is_string = (self._string * code.blocks[:-1, dataflow.REPEATS] > 0).tolist()
        self._predicts = core.misprediction_cycles > 0
        self._commit = 1 / (core.commit or core.width)
        limits = block_limits(code, core, unseen_accesses(owned.workload, code))
        self._slots, self._counts = limits.slot.tolist(), limits.count.tolist()
        columns = limits.load_slack, limits.access_slack, limits.windows, limits.before
        self._limits = list(zip(*(column.tolist() for column in columns), strict=True))
        self._units = dict(zip((True, False), load_cycles(core), strict=True))
        self._num_accesses = np.diff(owned.all_sites.offsets).tolist()

    def add_block(self, block: int) -> None:
        tables, slot, count = self._tables, self._slots[block], self._counts[block]
        self._first_node, first_out = len(tables.nodes), len(tables.outs)
        if self._is_string[block]:
            self._add_string(block)
            return
        self._state: dict[int, _Value] = {}
        self._commit_value = _Value(_NEVER, {})
        value = _Value(_NEVER, {})
        offset = 0
        for i in range(self._first[block], self._first[block + 1]):
            value = self._instruct(i, offset, slot, count)
            offset += 0 if self._instruction[i][dataflow.TRAITS] & dataflow.FUSED else 1
        for register, out in self._state.items():
            # what was there when the block had entered is there for all that follows
            entry = out.entry if out.entry > count * slot else _NEVER
            if entry == _NEVER and out.terms == {register: 0.0}:
                continue
            tables.outs.append((entry, register, *tables.add_terms(out.terms), 0))
        commit = self._commit_value
        commit_entry = commit.entry if commit.entry > count * slot + 1e-9 else _NEVER
        branch = value if self._predicts and self._ends_in_branch[block] else _Value(_NEVER, {})
        nodes, outs = len(tables.nodes), len(tables.outs)
        tables.blocks.append(
            (
                self._first_node, nodes, first_out, outs, *tables.add_terms(commit.terms),
                *tables.add_terms(branch.terms), slot, commit_entry, branch.entry, count,
                self._num_accesses[block], *self._limits[block],
            )
        )  # fmt: skip
        tables.most_places = max(tables.most_places, NUM_REGISTERS + nodes - self._first_node + outs - first_out + 1)

    def add_nothing(self) -> None:
        """A block that is not executed."""
        nodes, outs, terms = len(self._tables.nodes), len(self._tables.outs), len(self._tables.terms)
        places = nodes, nodes, outs, outs, terms, terms, terms, terms
        self._tables.blocks.append((*places, 0.0, _NEVER, _NEVER, 0, 0, *_NO_LIMITS))

    def add_hidden(self, block: int, count: int) -> None:
        """A block of ``count`` instructions that are not shown (-1 unknown)."""
        sites = self._owned.all_sites
        mine = slice(int(sites.offsets[block]), int(sites.offsets[block + 1]))
        alone = Sites(np.zeros_like(sites.block[mine]), sites.is_store[mine], sites.bytes[mine], np.array([0, 0]))
        alone.offsets[1] = len(alone)
        code = _without_instructions(alone, np.array([max(count, len(alone), 1)]), self._core)
        first, terms, outs = len(self._tables.nodes), len(self._tables.terms), len(self._tables.outs)
        self._tables.nodes.extend(list(node) for node in code.node.tolist())
        row = code.block[0]
        places = first, len(self._tables.nodes), outs, outs, terms, terms, terms, terms
        self._tables.blocks.append(
            (*places, row["slot"], _NEVER, _NEVER, row["instructions"], self._num_accesses[block], *_NO_LIMITS)
        )
        self._tables.most_places = max(self._tables.most_places, int(code.num_places[0]))

    def _add_string(self, block: int) -> None:
        """A turn of a string instruction: so many bytes per cycle, and it waits for nothing but its data."""
        i = self._first[block]
        accesses = range(self._instruction[i][dataflow.FIRST_ACCESS], self._instruction[i + 1][dataflow.FIRST_ACCESS])
        for access in accesses:
            kind = STORE if self._access[access][dataflow.IS_STORE] else LOAD
            self._node(kind, _Value(0.0, {}), 0, self._access[access][dataflow.BYTES], row=self._row[access])
        self._add_loose(i, 0, 0.0)
        num_bytes = max(self._access[access][dataflow.BYTES] for access in accesses)
        nodes, outs, terms = len(self._tables.nodes), len(self._tables.outs), len(self._tables.terms)
        places = self._first_node, nodes, outs, outs, terms, terms, terms, terms
        self._tables.blocks.append(
            (*places, num_bytes * self._string, _NEVER, _NEVER, 1, self._num_accesses[block], *_NO_LIMITS)
        )
        self._tables.most_places = max(self._tables.most_places, NUM_REGISTERS + nodes - self._first_node + 1)

    def _add_loose(self, i: int, offset: int, slot: float) -> None:
        """Accesses that belong to no instruction, behind instruction ``i``."""
        for site in self._owned.loose.get(i, ()):
            kind = STORE if self._owned.all_sites.is_store[site] else LOAD
            num_bytes, row = int(self._owned.all_sites.bytes[site]), self._owned.row_of(site)
            self._node(kind, _Value(offset * slot, {}), offset, num_bytes, forward=self._general[1], row=row)

    def _instruct(self, i: int, offset: int, slot: float, count: int) -> _Value:
        """One instruction: its accesses and what it writes; the time at which it is done."""
        row, end = self._instruction[i], self._instruction[i + 1]
        traits = row[dataflow.TRAITS]
        middle, last = row[dataflow.FIRST_DATA], row[dataflow.FIRST_DESTINATION]
        entered = _Value(offset * slot, {})
        address = self._latest([entered, *self._of(self._registers[row[dataflow.FIRST_REGISTER] : middle])])
        done = self._of(self._registers[middle:last])
        accesses = range(row[dataflow.FIRST_ACCESS], end[dataflow.FIRST_ACCESS])
        num_loads = 0
        delay, forward = self._vector if traits & dataflow.VECTOR else self._general
        unit = self._units[bool(traits & dataflow.VECTOR)]
        for access in accesses:
            if not self._access[access][dataflow.IS_STORE]:
                num_bytes = self._access[access][dataflow.BYTES]
                num_loads += 1
                row_of = self._row[access]
                place = self._node(LOAD, address, offset, num_bytes, delay, forward, row_of, unit)
                done.append(_Value(_NEVER, {place: 0.0}))
        if num_loads == 0:  # else no earlier than their addresses, which their data are later than
            done.append(address)
        value = self._latest(done)
        if not traits & (dataflow.RENAMED | dataflow.ADDRESSES):
            value = value.plus(self._latency[i])
        self._holds_up(value, offset, count)
        value = self._shortened(value, offset)
        for access in accesses:
            if self._access[access][dataflow.IS_STORE]:
                self._node(STORE, value, offset, self._access[access][dataflow.BYTES], row=self._row[access])
        self._add_loose(i, offset, slot)
        for register in self._registers[last : end[dataflow.FIRST_REGISTER]]:
            self._state[register] = value
        return value

    def _of(self, registers: Sequence[int]) -> list[_Value]:
        return [self._state.get(each) or _Value(_NEVER, {each: 0.0}) for each in registers]

    def _latest(self, values: Sequence[_Value]) -> _Value:
        terms: Terms = {}
        for value in values:
            for place, cycles in value.terms.items():
                terms[place] = max(terms.get(place, 0.0), cycles)
        return _Value(max(value.entry for value in values), terms)

    def _shortened(self, value: _Value, offset: int) -> _Value:
        if len(value.terms) <= _MOST_TERMS:
            return value
        return _Value(_NEVER, {self._node(RESULT, value, offset): 0.0})

    def _node(
        self, kind: int, value: _Value, offset: int, num_bytes: int = 0, delay: float = 0.0, forward: float = 0.0,
        row: int = 0, unit: float = 0.0,
    ) -> int:  # fmt: skip
        """Add a node: its place."""
        place = NUM_REGISTERS + len(self._tables.nodes) - self._first_node
        first, end = self._tables.add_terms(value.terms)
        self._tables.nodes.append(
            [value.entry, 0.0, delay, forward, unit, first, end, offset, place, num_bytes, kind, row, 0]
        )
        return place

    def _holds_up(self, value: _Value, offset: int, count: int) -> None:
        """An instruction leaves when it is done: what that adds to its sources' leaving before it."""
        commit, rest = self._commit, self._commit_value
        to_end = (count - 1 - offset) * commit
        for place, cycles in value.terms.items():
            node = self._tables.nodes[self._first_node + place - NUM_REGISTERS] if place >= NUM_REGISTERS else None
            if node is not None and node[_KIND] == LOAD:
                node[_TAIL] = max(node[_TAIL], cycles - (offset - node[_OFFSET]) * commit)
            else:
                # a register was ready no later than the last instruction before the block left
                since = offset + 1 if node is None else offset - node[_OFFSET]
                if cycles > since * commit + 1e-9:
                    rest.terms[place] = max(rest.terms.get(place, 0.0), cycles + to_end)
        rest.entry = max(rest.entry, value.entry + to_end)


def _without_instructions(sites: Sites, counts: np.ndarray, core: Core) -> CoreCode:
    """Blocks of ``counts`` instructions, accesses in equal distances."""
    num_blocks, num_accesses = len(counts), np.diff(sites.offsets)
    node, block = np.zeros(len(sites), _NODE), np.zeros(num_blocks, _BLOCK)
    place = np.arange(len(sites)) - sites.offsets[sites.block]
    offset = (2 * place + 1) * counts[sites.block] // (2 * num_accesses[sites.block])
    cycles = access_cycles(sites.block, sites.is_store, np.zeros(len(sites), bool), num_blocks, core)
    slot = np.maximum.reduce([counts / core.width, *cycles]) / counts
    node["entry"], node["offset"], node["place"] = offset * slot[sites.block], offset, NUM_REGISTERS + place
    node["forward"] = core.store_to_load_cycles
    node["kind"], node["bytes"], node["row"] = np.where(sites.is_store, STORE, LOAD), sites.bytes, place
    block["first_node"], block["end_node"] = sites.offsets[:-1], sites.offsets[1:]
    block["slot"], block["commit_entry"], block["branch_entry"] = slot, _NEVER, _NEVER
    block["instructions"], block["accesses"] = counts, num_accesses
    block["load_slack"], block["access_slack"], _, block["before"] = _NO_LIMITS
    places = NUM_REGISTERS + int(num_accesses.max(initial=0)) + 1
    empty = np.zeros(num_blocks, bool)
    return CoreCode(
        block, node, np.zeros(0, _TERM), np.zeros(0, _OUT), counts.astype(np.int64), empty, np.array([places])
    )

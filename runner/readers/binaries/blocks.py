"""The static tables of the detailed level: what each basic block of an instrumented program consists of.

Functions are disassembled when the trace first shows one of their blocks. Instructions come from a second build of the
same source, the *counting* build, whose only addition is one increment a block, left out here: the calls of the
instrumented build make the compiler keep more in memory (measured: up to 140 % more instructions). Its blocks are the
same in the same order. Where it is not given, or does not fit, the instrumented build's instructions are taken.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import pyarrow as pa

from manyscale.models.workload.detail_tables import (
    BLOCK_ACCESSES_SCHEMA,
    BLOCKS_SCHEMA,
    INSTRUCTIONS_SCHEMA,
)
from manyscale.models.workload.notes import Errs, Note, changes, informs
from manyscale.runner.errors import UserError
from manyscale.runner.readers.binaries.elf import Elf
from manyscale.runner.readers.binaries.instructions import Instruction
from manyscale.runner.readers.binaries.regions import Ends, Part, function_parts
from manyscale.runner.readers.binaries.symbols import resolve

SHARED = -2  # in place of the part: the compiler merged the code of several blocks
MOST_PLACES = 8
WIDEST_SEEN = 16  # bytes: the coverage reports no wider accesses


@dataclass
class Module:
    """A program or library with coverage. ``first_part`` int32[blocks]: -1 where not yet disassembled. ``sites``: by
    address behind a callback, (site, part)."""

    elf: Elf
    counting: Elf | None
    first_function: int
    first_block: int
    first_part: np.ndarray
    sites: dict[int, tuple[int, int]] = field(default_factory=dict)


@dataclass(frozen=True)
class _Row:
    """A block of the tables. ``accesses``: (instruction, is_store, bytes). ``places``: addresses of its first
    instructions, of which the compiler may have left some without a line."""

    module: int
    address: int
    is_entry: bool
    places: tuple[int, ...]
    instructions: Sequence[Instruction]
    accesses: Sequence[tuple[int, bool, int]]


class Blocks:
    """Blocks as the trace shows them. ``counting``: the counting build of the program, or a folder with those of it and
    of its libraries under their names. ``parts`` lists (block in all modules, function in all modules, part)."""

    def __init__(self, counting: Path | None) -> None:
        self._counting = counting
        self._counting_used = False
        self.modules: list[Module] = []
        self.parts: list[tuple[int, int, Part]] = []
        self.part_sites: list[list[int]] = []
        self.part_row: list[int] = []
        self._rows: list[_Row] = []
        self._site_kinds: list[tuple[bool, int]] = []
        self._variants: dict[tuple[int, tuple[int, ...]], int] = {}
        self._num_functions = self._num_blocks = 0
        self._unlike = self._wide = 0
        self._exported: dict[str, int] = {}

    def add_module(self, path: Path) -> int:
        """Index of the module in a file; all modules are added before blocks are asked for."""
        for index, module in enumerate(self.modules):
            if module.elf.path == path:
                return index
        elf = Elf(path)
        counting = self._counting_build(elf)
        self._counting_used = self._counting_used or counting is not None
        first_part = np.full(len(elf.blocks), -1, np.int32)
        self.modules.append(Module(elf, counting, self._num_functions, self._num_blocks, first_part))
        for name, address in elf.exported.items():
            function = elf.function_addresses.get(address)
            if function is not None:
                self._exported.setdefault(name, self._num_functions + function)
        self._num_functions += len(elf.entries)
        self._num_blocks += len(elf.blocks)
        return len(self.modules) - 1

    def require(self, module_index: int, blocks: np.ndarray) -> None:
        """Disassemble the functions of these blocks (indices in the module's table)."""
        module = self.modules[module_index]
        missing = blocks[module.first_part[blocks] < 0]
        functions = np.unique(np.searchsorted(module.elf.entries, missing, "right") - 1)
        for function in functions.tolist():
            self._add_function(module_index, module, function)

    def require_address(self, module_index: int, address: int) -> None:
        """Disassemble the function that holds an address."""
        elf = self.modules[module_index].elf
        entries = elf.blocks[elf.entries].astype(np.int64)
        below = np.flatnonzero(entries <= address)
        if len(below):
            self.require(module_index, elf.entries[below[np.argmax(entries[below])]][None])

    def site(self, module_index: int, address: int, is_store: bool, num_bytes: int) -> tuple[int, int]:
        """(site, part) of the callback that returns to ``address``. One that lies on no block's own path belongs to the
        block that begins last before it."""
        module = self.modules[module_index]
        found = module.sites.get(address)
        if found is None:
            labels = module.elf.blocks.astype(np.int64)
            known = np.flatnonzero((module.first_part >= 0) & (labels < address))
            if not len(known):
                raise UserError(
                    f"{module.elf.path}: an access at {address:#x} stands in no block; trace the program again"
                )
            part = int(module.first_part[known[np.argmax(labels[known])]])
            found = module.sites[address] = (len(self._site_kinds), part)
            self._site_kinds.append((is_store, num_bytes))
        return found

    def variant(self, part: int, sites: tuple[int, ...]) -> int:
        """The block of a part that was executed with other accesses than its own: only partly (where a window opens or
        the trace ends), or along a path that the disassembly does not show."""
        row = self._variants.get((part, sites))
        if row is None:
            like = self._rows[self.part_row[part]]
            place = {site: access[0] for site, access in zip(self.part_sites[part], like.accesses, strict=True)}
            accesses = [(place.get(site, -1), *self._site_kinds[site]) for site in sites]
            row = self._variants[part, sites] = len(self._rows)
            self._rows.append(replace(like, accesses=accesses))
        return row

    @property
    def num_instructions(self) -> np.ndarray:
        """int64[]: of each row of the table."""
        return np.array([len(row.instructions) for row in self._rows], np.int64)

    def tables(self) -> tuple[dict[str, pa.Table], list[Note]]:
        """The tables ``blocks``, ``instructions``, ``block_accesses`` and ``unseen_accesses``, and notes on what they
        lack."""
        places, notes = self._places()
        sizes = self.num_instructions
        blocks = pa.table(
            [
                [place[0] for place in places],
                [place[1] for place in places],
                [place[2] for place in places],
                [self.modules[row.module].elf.path.name for row in self._rows],
                [row.address for row in self._rows],
                [row.is_entry for row in self._rows],
                sizes,
            ],
            schema=BLOCKS_SCHEMA,
        ) if self._rows else BLOCKS_SCHEMA.empty_table()  # fmt: skip
        every = [each for row in self._rows for each in row.instructions]
        instructions = _table(
            INSTRUCTIONS_SCHEMA,
            np.repeat(np.arange(len(sizes)), sizes),
            [int(each.kind) for each in every],
            [each.lanes for each in every],
            [each.sources for each in every],
            [each.destinations for each in every],
        )
        return {
            "blocks": blocks,
            "instructions": instructions,
            "block_accesses": _accesses_table([row.accesses for row in self._rows]),
            "unseen_accesses": _accesses_table([unseen_accesses(row.instructions, row.accesses) for row in self._rows]),
        }, [*notes, *self._notes()]

    def _notes(self) -> list[Note]:
        notes = []
        uncounted = [module.elf.path.name for module in self.modules if module.counting is None]
        if uncounted:
            text = (
                f"instructions of {', '.join(uncounted)} are those of the instrumented build, which has up to 140 % "
                "more than the plain one; build it also with what --flags counting prints and name it with --counting"
            )
            notes.append(changes("instructions-of-instrumented-build", text, count=len(uncounted), errs=Errs.long))
        if self._unlike:
            text = (
                f"{self._unlike} blocks have other calls in the counting build: their instructions are those of the "
                "instrumented build"
            )
            notes.append(changes("instructions-of-instrumented-build", text, count=self._unlike, errs=Errs.long))
        if self._wide:
            text = (
                f"{self._wide} instructions access {2 * WIDEST_SEEN} bytes or more at once, which clang's coverage "
                "does not report: these accesses are missing; compile both builds with -mprefer-vector-width=128"
            )
            notes.append(changes("accesses-missing", text, count=self._wide, errs=Errs.short))
        if self._variants:
            text = (
                f"{len(self._variants)} blocks were executed with other accesses than their code shows (cut by the "
                "window, by a jump out of the function or by the end); they stand in blocks of their own"
            )
            notes.append(informs("blocks-cut", text, count=len(self._variants)))
        return notes

    def check_counting(self) -> None:
        """Raises UserError if the counting build is not that of any module."""
        if self._counting is not None and not self._counting_used:
            traced = ", ".join(f"{module.elf.path.name} with {len(module.elf.blocks)}" for module in self.modules)
            raise UserError(
                f"{self._counting}: its basic blocks are not those of the traced program ({traced}); build both from "
                "the same source with the same options"
            )

    def _counting_build(self, elf: Elf) -> Elf | None:
        """The counting build of a module, if it has the same blocks; of a folder, the file of the same name."""
        path = self._counting
        if path is not None and path.is_dir():
            path = path / elf.path.name
            path = path if path.exists() else None
        counting = None if path is None else Elf(path)
        return counting if counting is not None and np.array_equal(counting.flags, elf.flags) else None

    def _add_function(self, module_index: int, module: Module, function: int) -> None:
        parts = function_parts(module.elf, function)
        counted = function_parts(module.counting, function) if module.counting is not None else {}
        for block, own in parts.items():
            like = counted.get(block)
            if like is not None and len(like) != len(own):
                self._unlike += 1
                like = None
            module.first_part[block] = len(self.parts)
            for number, part in enumerate(own):
                self._callee(module, part)
                instructions = (like[number] if like is not None else part).instructions
                self._wide += sum(size > WIDEST_SEEN for each in instructions for _, size in each.memory)
                kinds = [(is_store, num_bytes) for _, is_store, num_bytes in part.accesses]
                places = _match(instructions, kinds)
                accesses = [(place, *kind) for place, kind in zip(places, kinds, strict=True)]
                is_entry = number == 0 and block == module.elf.entries[function]
                sites = self._add_sites(module, len(self.parts), part)
                self.part_sites.append(sites)
                self.part_row.append(len(self._rows))
                self.parts.append((module.first_block + block, module.first_function + function, part))
                address = int(module.elf.blocks[block]) if number == 0 else self._begin(own, number)
                lines = (address, *(each.address for each in part.instructions[:MOST_PLACES]))
                self._rows.append(_Row(module_index, address, is_entry, lines, instructions, accesses))

    def _add_sites(self, module: Module, part_index: int, part: Part) -> list[int]:
        sites = []
        for address, is_store, num_bytes in part.accesses:
            if address not in module.sites:
                module.sites[address] = (len(self._site_kinds), part_index)
                self._site_kinds.append((is_store, num_bytes))
            elif module.sites[address][1] != part_index:
                module.sites[address] = (module.sites[address][0], SHARED)
            sites.append(module.sites[address][0])
        return sites

    def _begin(self, own: Sequence[Part], number: int) -> int:
        """Address behind the call that ends the part before."""
        call = own[number - 1].instructions[-1]
        return call.address + call.size

    def _callee(self, module: Module, part: Part) -> None:
        """Replace what a part calls by the function's number among all modules' instrumented ones, or None."""
        callee = part.callee
        if isinstance(callee, int):
            function = module.elf.function_addresses.get(callee)
            number = None if function is None else module.first_function + function
        else:
            number = None if callee is None else self._exported.get(callee)
        part.callee = number
        if number is not None and part.ends == Ends.calls_foreign:
            part.ends = Ends.calls_known

    def _places(self) -> tuple[list[tuple[str, str, int]], list[Note]]:
        """(function, file, line) of each row."""
        found: list[tuple[str, str, int]] = [("", "", 0)] * len(self._rows)
        notes: list[Note] = []
        for index, module in enumerate(self.modules):
            rows = [(number, row) for number, row in enumerate(self._rows) if row.module == index]
            mine = [(number, place) for number, row in rows for place in row.places]
            places, missing = resolve(str(module.elf.path), [place for _, place in mine])
            notes += () if any(place.line for place in places) else missing
            for (number, _), place in zip(reversed(mine), reversed(places), strict=True):  # the first one counts
                if place.line or not found[number][2]:
                    found[number] = (place.function, place.file, place.line)
        return found, notes


def _match(instructions: Sequence[Instruction], kinds: Sequence[tuple[bool, int]]) -> list[int]:
    """The instruction that makes each access: the next one of the same direction and size, else any of the kind that is
    still free, else -1."""
    free = [(index, kind) for index, each in enumerate(instructions) for kind in each.memory]
    found = []
    at = 0
    for kind in kinds:
        place = next((each for each in range(at, len(free)) if free[each][1] == kind), None)
        if place is None:
            place = next((each for each in range(at) if each < len(free) and free[each][1] == kind), None)
        if place is None:
            found.append(-1)
            continue
        found.append(free[place][0])
        free[place] = (-1, (False, 0))
        at = max(at, place + 1)
    return found


def unseen_accesses(
    instructions: Sequence[Instruction], accesses: Sequence[tuple[int, bool, int]]
) -> list[tuple[int, bool, int]]:
    """(instruction, is_store, bytes) of what instructions access beside ``accesses``: coverage reports what the source
    asks for, not what code generation adds. O(instructions + accesses)."""
    seen = Counter((instruction, is_store) for instruction, is_store, _ in accesses)
    found = []
    for instruction, each in enumerate(instructions):
        for is_store, size in each.memory:
            seen[instruction, is_store] -= 1
            if seen[instruction, is_store] < 0:
                found.append((instruction, is_store, size))
    return found


def _accesses_table(of_blocks: Sequence[Sequence[tuple[int, bool, int]]]) -> pa.Table:
    rows = [(block, *each) for block, accesses in enumerate(of_blocks) for each in accesses]
    return _table(BLOCK_ACCESSES_SCHEMA, *([row[at] for row in rows] for at in range(4)))


def _table(schema: pa.Schema, *columns: Iterable[object]) -> pa.Table:
    return pa.table([pa.array(column, each.type) for column, each in zip(columns, schema, strict=True)], schema=schema)

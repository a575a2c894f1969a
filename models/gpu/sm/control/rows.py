"""Static instructions as an SM with control bits runs them, from ``InstructionDetails``.

Latencies of memory instructions are those of table 2 of Huerta et al. (see parameters.py), measured on Ampere: from
issue until an instruction may write their sources (``leaves`` + ``after``), and until one may read their result.
"""

from __future__ import annotations

import re
from typing import Final

import numpy as np

from manyscale.models.gpu.parameters import FRONTS
from manyscale.models.gpu.sm.control.parameters import CODE_LINE, CONSTANT_BLOCK, CONSTANT_LINE
from manyscale.models.workload.instruction_details import InstructionDetails
from manyscale.models.workload.launch_trace import Access, LaunchTrace, Space, StaticInstructions, UnitClass

COUNTERS: Final = 6  # dependence counters of a warp
PENDING: Final = COUNTERS  # columns of Sm.register: what is on its way; before them, when a counter is zero
KNOWN: Final = 2 * COUNTERS  # the latest known time at which a counter goes down
COLUMNS: Final = 3 * COUNTERS
FREED: Final = 11  # cycles from the issue of the first of many memory instructions to the place that it leaves

VARIABLE: Final = 0  # on a unit
FIXED: Final = 1
OWN: Final = 2  # after_leaving and result, from issue

_LINE_SHIFT: Final = (CODE_LINE // 16).bit_length() - 1
_INSTRUCTION: Final = 16  # bytes
_STALLED: Final = 46  # stall 0 with yield: the 45 cycles of ERRBAR, and then the next one
_UNIFORM, _REGULAR, _SHARED = 9, 11, 9
_WIDTHS: Final = {"64": 1, "128": 2}
_STORED: Final = (3, 5, 9)  # beyond the address, of stores of 32, 64 and 128 bits with a regular address
_STORED_UNIFORM: Final = (1, 3, 7)
_LOADED: Final = (0, 1, 3)  # the banks of L1 take 1 and 3 more cycles of the 2 and 6
_FROM_SHARED: Final = (0, 0, 2)
_COPIED: Final = (2, 8)  # LDGSTS: 13 and 39
_LDC: Final = (10, 26)
_LDC_REGULAR: Final = (29, 29)
_READ: Final = 9  # of others: the least of the table

_GUARD: Final = re.compile(r"^@!?U?P[\dT]\s+")
_BRACKET: Final = re.compile(r"\[([^\]]*)\]")
_SOURCE: Final = re.compile(r"^[-|~!]*(U?R\d+|U?RZ)\b(.*)")
_PREDICATE: Final = re.compile(r"^!?U?P[\dT]$")
_LIMIT: Final = re.compile(r"DEPBAR\.LE\s+SB(\d),\s*(0x[0-9a-f]+|\d+)(?:,\s*\{([\d,\s]*)\})?")


def is_controlled(trace: LaunchTrace, has_core: bool) -> bool:
    """Whether control bits time a launch: the target declares such a core, and the trace has the bits."""
    details = trace.static.details
    return has_core and details is not None and bool(details.stall.any())


def code_lines(static: StaticInstructions) -> int:
    """Lines of 128 bytes up to the last instruction that the trace knows."""
    return int(static.pc.max(initial=0)) // CODE_LINE + 1


def constant_lines(static: StaticInstructions, line: int = CONSTANT_LINE) -> tuple[np.ndarray, int]:
    """int32[rows] of the first constant operand's line of so many bytes, numbered from 0 on (-1: none), and how many
    there are."""
    details = static.details
    assert details is not None
    bank, offset = details.constant_bank[:, 0].astype(np.int64), details.constant_offset[:, 0].astype(np.int64)
    key = np.where(bank >= 0, (bank << 32) + offset // line, -1)
    known, number = np.unique(key, return_inverse=True)
    none = int(known.size > 0 and known[0] < 0)
    return (number.reshape(-1) - none).astype(np.int32), len(known) - none


def fill_controlled(rows: np.ndarray, operand: np.ndarray, static: StaticInstructions, other_latency: int) -> int:
    """Members of STATIC that control bits say, and as operands the counters that an instruction waits for: how many.
    O(static instructions)."""
    details = static.details
    assert details is not None
    waits = details.waits.copy()
    constants, _ = constant_lines(static)
    rows["constant_block"], _ = constant_lines(static, CONSTANT_BLOCK)
    rows["place"] = static.pc // _INSTRUCTION
    rows["stall"] = _stalls(details)
    rows["sets"], rows["reads"] = details.write_barrier, details.read_barrier
    grouped = {int(each) for each in details.write_barrier[static.unit == UnitClass.copy_group]}
    has_counter = (rows["sets"] >= 0) | (rows["reads"] >= 0)
    in_order = [unit for unit in _IN_ORDER if np.any(has_counter & (rows["kind"] == unit))]
    for row, text in enumerate(details.text):
        own = rows[row]
        text = _GUARD.sub("", text)
        if static.unit[row] == UnitClass.copy_wait:
            waits[row] |= _limit(own, text, grouped)
        own["fixed"] = VARIABLE if has_counter[row] or own["kind"] in in_order else FIXED
        if static.unit[row] == UnitClass.load_store and static.space[row] in _TIMED:
            _fill_memory(own, text, Space(static.space[row]), Access(static.access[row]))
        elif static.space[row] == Space.constant and static.unit[row] == UnitClass.load_store:
            known = constants[row] >= 0 and not re.search(r"\bR\d", "".join(_BRACKET.findall(text)))
            own["fixed"], (own["after"], own["result"]) = OWN, _LDC if known else _LDC_REGULAR
            own["constant"] = constants[row] if known else -1
        else:
            own["constant"] = constants[row]
            if own["fixed"] == FIXED:
                _fill_slots(own, text, bool((static.destinations[row] >= 0).any()))
            elif own["kind"] not in _HAVE_UNITS:
                own["fixed"], own["after"], own["result"] = OWN, _READ, other_latency
    at, counter = np.nonzero((waits[:, None] >> np.arange(COUNTERS)) & 1)
    operand[: len(counter)] = counter
    rows["first"] = rows["written"] = np.searchsorted(at, np.arange(len(rows)))
    rows["end"] = np.searchsorted(at, np.arange(len(rows)), side="right")
    return len(counter)


_TIMED: Final = (Space.global_, Space.local, Space.shared)
# of variable latency where any of a kernel is: what has no counter of its own ends before one behind it that has
_IN_ORDER: Final = tuple(map(FRONTS.index, ("fp64", "sfu", "texture", "exchange")))
_HAVE_UNITS: Final = tuple(map(FRONTS.index, ("fp64", "sfu", "tensor", "texture", "exchange")))


def _stalls(details: InstructionDetails) -> np.ndarray:
    """Cycles to the warp's next instruction, at least."""
    yields = details.yields.astype(bool)
    stall = np.maximum(details.stall, np.where(yields, 2, 1))
    return np.where(yields & (details.stall == 0), _STALLED, stall)


def _limit(own: np.ndarray, text: str, grouped: set[int]) -> int:
    """DEPBAR that waits for a counter, not for groups of copies: the mask of those that must be zero."""
    match = _LIMIT.match(text)
    if match is None:
        return 0
    counter, most = int(match[1]), int(match[2], 0)
    mask = sum(1 << int(each) for each in (match[3] or "").split(",") if each.strip())
    if counter in grouped:
        return mask
    own["kind"] = own["front"] = int(UnitClass.branch)
    own["limited"], own["immediate"] = counter, most
    return mask


def _fill_memory(own: np.ndarray, text: str, space: Space, access: Access) -> None:
    opcode, _, rest = text.partition(" ")
    parts = opcode.split(".")
    width = max((_WIDTHS.get(part, 0) for part in parts), default=0)
    brackets = [each for each in _BRACKET.findall(rest) if each]
    regular = any(re.search(r"(?<!U)R\d", each) for each in brackets)
    shared = space == Space.shared
    own["leaves"] = _SHARED if shared or not regular else _REGULAR
    if access == Access.store:
        own["after"] = (_STORED if regular else _STORED_UNIFORM)[width]
    elif access == Access.copy:
        own["after"], own["result"] = _COPIED
    else:
        own["result"] = (_FROM_SHARED if shared else _LOADED)[width] + regular


def _fill_slots(own: np.ndarray, text: str, writes: bool) -> None:
    """Registers by the place of their operand, with those that stay in the operand cache."""
    opcode, _, rest = text.partition(" ")
    operands = [each.strip() for each in rest.rstrip("; ").split(",")]
    while operands and _PREDICATE.match(operands[0]):
        operands.pop(0)
    if writes and operands:
        operands.pop(0)
    place = 0
    for each in operands:
        if _PREDICATE.match(each):
            continue
        if place == 3:
            break
        match = _SOURCE.match(each)
        if match and match[1][0] == "R" and match[1] != "RZ":
            own[("slot_a", "slot_b", "slot_c")[place]] = int(match[1][1:])
            own["reuse"] |= (".reuse" in match[2]) << place
        place += 1
    own["wide"] = "WIDE" in opcode.split(".")

"""Barriers in shared memory (mbarrier): phases, arrivals and transactions as the PTX ISA states them."""

from __future__ import annotations

import numpy as np
import pytest
import sass_programs

from manyscale.runner.tracers.cuda.sass import decode

pytestmark = pytest.mark.theory

_LANES = np.arange(32, dtype=np.uint32)
_PLACE = "[UR8]"


def _begun(arrivals: int) -> list[str]:
    """As nvcc compiles mbarrier.init for sm_90, by one thread; P6: thread 0."""
    pending = 0x100000 - arrivals
    return [
        "UMOV UR8, 0x0", f"UMOV UR4, {hex(pending << 1)}", f"UMOV UR5, {hex(pending << 11)}",
        "ISETP.EQ.U32.AND P6, PT, R0, RZ, PT", f"@P6 SYNCS.EXCH.64 URZ, {_PLACE}, UR4", "BAR.SYNC 0x0",
    ]  # fmt: skip


def _asked(register: int, parity: int) -> list[str]:
    """Whether the phase of a parity has ended, into a register."""
    return [
        f"MOV R20, {hex(parity << 31)}",
        f"SYNCS.PHASECHK.TRANS64 P0, {_PLACE}, R20",
        f"SEL R{register}, RZ, 0x1, !P0",
    ]


def _run(sass, lines: list[str], threads: int = 32, **more) -> list[np.ndarray]:
    return sass_programs.run(
        sass, lines, [np.arange(threads, dtype=np.uint32)], shared_bytes=64, architecture=90, **more
    )


def test_a_phase_ends_with_its_last_arrival(sass):
    found = _run(sass, [
        *_begun(3), *_asked(24, 0), *_asked(25, 1),
        *["@P6 SYNCS.ARRIVE.TRANS64.A1T0 RZ, [UR8], RZ"] * 2, *_asked(26, 0),
        "@P6 SYNCS.ARRIVE.TRANS64.A1T0 RZ, [UR8], RZ", *_asked(27, 0),
    ])  # fmt: skip
    assert [int(each[0]) for each in found] == [0, 1, 0, 1]


def test_the_next_phase_has_the_same_arrivals_and_the_other_parity(sass):
    arrive = "@P6 SYNCS.ARRIVE.TRANS64.A1T0 RZ, [UR8], RZ"
    found = _run(sass, [*_begun(2), arrive, arrive, *_asked(24, 1), arrive, *_asked(25, 1), arrive, *_asked(26, 1),
                        *_asked(27, 0)])  # fmt: skip
    assert [int(each[0]) for each in found] == [0, 0, 1, 0]


def test_each_lane_arrives(sass):
    lines = [*_begun(32), "@P6 SYNCS.ARRIVE.TRANS64.A1T0 RZ, [UR8], RZ", *_asked(24, 0),
             "@!P6 SYNCS.ARRIVE.TRANS64.A1T0 RZ, [UR8], RZ", *_asked(25, 0)]  # fmt: skip
    assert [int(each[5]) for each in _run(sass, lines)[:2]] == [0, 1]


def test_arrivals_by_number_and_states_before(sass):
    """R2 and R3 of each lane: its own state before; 2^20 less its bits 11 to 30 are the arrivals that were pending."""
    lines = [*_begun(64), "MOV R10, 0x2", "SYNCS.ARRIVE.TRANS64.ART0 R24, [UR8], R10", *_asked(26, 0),
             "SYNCS.PHASECHK.TRANS64 P0, [UR8], R25", "SEL R27, RZ, 0x1, !P0"]  # fmt: skip
    _, state, ended, own = _run(sass, lines)
    assert np.array_equal((1 << 20) - (state >> 11 & 0xFFFFF), 64 - 2 * _LANES)
    assert set(ended) == {1}
    assert set(own) == {1}


def test_who_drops_out_is_not_waited_for_in_the_next_phase(sass):
    lines = [*_begun(2), "@P6 SYNCS.ARRIVE.TRANS64.OPTOUT.A1T0 RZ, [UR8], RZ", *_asked(24, 0),
             "@P6 SYNCS.ARRIVE.TRANS64.A1T0 RZ, [UR8], RZ", *_asked(25, 0),
             "@P6 SYNCS.ARRIVE.TRANS64.A1T0 RZ, [UR8], RZ", *_asked(26, 1)]  # fmt: skip
    assert [int(each[0]) for each in _run(sass, lines)[:3]] == [0, 1, 1]


def test_a_phase_waits_for_the_bytes_that_it_expects(sass):
    brings = "@P6 SYNCS.ARRIVE.TRANS64.RED.A0TX RZ, [UR8], R10"
    lines = [*_begun(1), "MOV R9, 0x60", "MOV R10, 0x20", "@P6 SYNCS.ARRIVE.TRANS64 RZ, [UR8], R9", *_asked(24, 0),
             brings, *_asked(25, 0), "@P6 SYNCS.ARRIVE.TRANS64.RED.A0TR RZ, [UR8], R10", brings, brings,
             *_asked(26, 0), brings, *_asked(27, 0)]  # fmt: skip
    assert [int(each[0]) for each in _run(sass, lines)] == [0, 0, 0, 1]


def test_bytes_may_come_before_they_are_expected(sass):
    lines = [*_begun(1), "MOV R9, 0x60", "@P6 SYNCS.ARRIVE.TRANS64.RED.A0TX RZ, [UR8], R9", *_asked(24, 0),
             "@P6 SYNCS.ARRIVE.TRANS64 RZ, [UR8], R9", *_asked(25, 0)]  # fmt: skip
    assert [int(each[0]) for each in _run(sass, lines)[:2]] == [0, 1]


def test_copies_of_a_lane_arrive(sass):
    """cp.async.mbarrier.arrive: a transaction that is expected and made, or with noinc an arrival."""
    lines = [*_begun(32), "SYNCS.ARRIVE.TRANS64.RED.A0T1 RZ, [UR8], RZ", "ARRIVES.LDGSTSBAR.64.TRANSCNT [UR8]",
             *_asked(24, 0), "ARRIVES.LDGSTSBAR.64.ARVCNT [UR8]", *_asked(25, 0)]  # fmt: skip
    assert [int(each[0]) for each in _run(sass, lines)[:2]] == [0, 1]


def test_warps_wait_for_what_others_bring(sass):
    """Warp 1 arrives after a barrier of the block that warp 0 only reaches behind its wait for the first phase."""
    first = 3 + len(_begun(32)) + 5
    lines = [*_begun(32), "ISETP.LT.U32.AND P1, PT, R0, 0x20, PT", "MOV R20, 0x0", "MOV R24, 0x7",
             "@!P1 STS [0x20], R24", "@!P1 SYNCS.ARRIVE.TRANS64.A1T0 RZ, [UR8], RZ",
             "SYNCS.PHASECHK.TRANS64.TRYWAIT P0, [UR8], R20", f"@!P0 BRA {hex(16 * first)}",
             "LDS R25, [0x20]"]  # fmt: skip
    found = _run(sass, lines, 64)
    assert set(found[1]) == {7}


def test_waiting_for_ever_is_told(sass):
    first = 3 + len(_begun(1)) + 1
    lines = [*_begun(1), "MOV R20, 0x0", "SYNCS.PHASECHK.TRANS64.TRYWAIT P0, [UR8], R20", f"@!P0 BRA {hex(16 * first)}"]
    with pytest.raises(sass_programs.StoppedError, match="waits for ever at the barrier at shared address 0x0"):
        _run(sass, lines, 1)


def test_more_arrivals_than_are_expected_are_told(sass):
    with pytest.raises(sass_programs.StoppedError, match="expects 1 arrivals and 0 bytes more; 2 arrive"):
        _run(sass, [*_begun(1), "MOV R9, 0x2", "@P6 SYNCS.ARRIVE.TRANS64.ART0 RZ, [UR8], R9"])


def test_barriers_of_compute_capability_8(sass):
    """Words as nvcc writes them for sm_80: 2^30 and 2^31 less the arrivals; the state's bit 31 is the parity."""
    words = [f"MOV R8, {hex(0x40000000 - 48)}", f"MOV R9, {hex(0x80000000 - 48)}"]
    lines = ["ISETP.EQ.U32.AND P6, PT, R0, RZ, PT", *words,
             "@P6 STS.64 [RZ], R8", "BAR.SYNC 0x0", "ATOMS.ARRIVE.64 R24, [URZ]", "LDS R26, [0x4]",
             "ISETP.LT.U32.AND P1, PT, R0, 0x10, PT", "@P1 ARRIVES.LDGSTSBAR.64 [URZ]", "LDS R27, [0x4]"]  # fmt: skip
    _, before, between, after = _run(sass, lines)
    assert np.array_equal(before & 0x7FFFFFFF, 0x80000000 - 48 + _LANES)
    assert set(between >> 31) == {0}
    assert set(after >> 31) == {1}
    assert set(after & 0x7FFFFFFF) == {0x80000000 - 48}


def test_one_lane_is_elected_and_lanes_with_other_values_have_their_turn(sass):
    lines = ["ISETP.GT.U32.AND P1, PT, R0, 0x4, PT", "@P1 ELECT P0, UR4, PT", "SEL R24, RZ, 0x1, !P0", "MOV R25, UR4",
             "LOP3.LUT R8, R0, 0x3, RZ, 0xc0, !PT", "@P1 R2UR P2, UR5, R8", "SEL R26, RZ, 0x1, !P2",
             "MOV R27, UR5"]  # fmt: skip
    elected, who, others, value = _run(sass, lines)
    assert np.flatnonzero(elected).tolist() == [5]
    assert set(who) == {5}
    assert set(value) == {1}
    assert np.array_equal(others[5:], (_LANES[5:] % 4 != 1).astype(np.uint32))


def test_a_branch_is_taken_by_all_where_one_lane_asks(sass):
    lines = ["ISETP.EQ.U32.AND P0, PT, R0, 0x9, PT", "MOV R24, 0x1", f"@P0 BRA.U.ANY {hex(16 * 7)}", "MOV R24, 0x2"]
    assert set(_run(sass, lines)[0]) == {1}
    lines[0] = "ISETP.EQ.U32.AND P0, PT, R0, 0x90, PT"
    assert set(_run(sass, lines)[0]) == {2}


@pytest.mark.parametrize("text", [
    "SYNCS.ARRIVE.TRANS64.TMASK.ART0 R8, [R17+URZ+0x8], R14", "SYNCS.EXCH.64 R4, [UR8], UR4", "SYNCS.CAS.64 [UR8], R4",
])  # fmt: skip
def test_no_other_form_is_guessed(text):
    assert decode.decode([text], [0], [0], 90).unknown == {0: text}

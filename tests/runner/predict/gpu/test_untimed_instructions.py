"""Instructions without a timing change the number up to 1 % of those executed, and forbid it above."""

from __future__ import annotations

import numpy as np
import pytest
from gpu_launches import Launch, gpu_workload

from manyscale.models.workload.notes import Severity
from manyscale.runner.predict.gpu.untimed import untimed_notes
from manyscale.runner.predict.phase_source import Case, SweepShared
from manyscale.runner.study import parse_study
from manyscale.runner.study.targets import resolve_target


def notes(*launches, target="h100", shared=None):
    study = parse_study({"workload": {"path": "none"}, "target": target}, "study")
    workload = gpu_workload(*launches)
    return untimed_notes(Case(workload, study, *resolve_target(study), shared or SweepShared()), workload)


@pytest.mark.parametrize(
    ("opcode", "target"),
    [
        ("LDTM.x32", "h100"),
        ("QMMA.16832.F32.E4M3.E4M3", "a100"),
    ],
)
@pytest.mark.parametrize(("others", "severity"), [(98, Severity.forbids), (99, Severity.changes)])
def test_the_share_decides(opcode, target, others, severity):
    (note,) = notes(Launch("k", (others,)), Launch("k", (1,), opcode=opcode), target=target)
    code = "too-many-untimed-instructions" if severity is Severity.forbids else "untimed-instructions"
    assert (note.code, note.severity, note.count) == (code, severity, 1)
    assert note.text.startswith("1 % of the warp instructions have no timing on this target")
    assert f"{opcode if 'MMA.' in opcode else opcode.split('.')[0]} 1" in note.text


@pytest.mark.parametrize(
    ("opcode", "target"),
    [
        ("UTCHMMA", "h100"),  # of sm_100: its shape is in a descriptor
        ("UTCHMMA", "rtx3070"),
        ("UTCQMMA.2CTA", "h200"),
        ("UTCOMMA.4X", "h100"),
        ("BGMMA.64x8x256.AND.POPC", "h100"),  # no rate of bits is published there
        ("HGMMA.64x64x16.F32.BF16", "a100"),
    ],
)
@pytest.mark.parametrize("others", [9, 99_999])
def test_products_of_groups_and_blocks_are_never_few(opcode, target, others):
    """A block's product of 128 x 256 x 16 is one thread's instruction, and takes a Hopper SM 256 cycles."""
    (note,) = notes(Launch("k", (others,)), Launch("k", (1,), opcode=opcode), target=target)
    assert (note.code, note.severity, note.count) == ("too-many-untimed-instructions", Severity.forbids, 1)
    assert ("less than 0.01 %" in note.text) == (others == 99_999)
    assert ("each as much work as thousands" in note.text) == (others == 99_999)


@pytest.mark.parametrize(
    ("opcode", "target"),
    [
        ("HGMMA.64x64x16.F32.BF16", "h100"),
        ("HMMA.16816.F32", "a100"),
        ("HMMA.16816.F32", "rtx3070"),  # all shapes take what the unit takes: another note
        ("UTMALDG.2D", "h100"),
        ("LDG.E", "h100"),
    ],
)
def test_what_is_timed_is_not_told(opcode, target):
    assert not notes(Launch("k", (5,), opcode=opcode), target=target)


def test_many_opcodes():
    """The most frequent are named; small shares are not rounded to nothing."""
    launches = [Launch("k", (count,), opcode=f"NEW{count}") for count in (1, 2, 3, 4, 5)]
    (note,) = notes(Launch("k", (200_000,)), *launches)
    assert note.text.startswith("less than 0.01 %")
    assert note.text.endswith("NEW5 5, NEW4 4, NEW3 3, NEW2 2 and 1 more")
    assert note.count == 15


def test_points_of_a_sweep_share_the_counts():
    shared = SweepShared()
    assert notes(Launch("k", (5,), opcode="QMMA.16832.F32.E4M3.E4M3"), shared=shared, target="a100")
    assert notes(Launch("k", (5,), opcode="QMMA.16832.F32.E4M3.E4M3"), shared=shared, target="rtx3070") == []


TRACE = """-kernel name = k
-kernel id = 1
-grid dim = (1,1,1)
-block dim = (32,1,1)
-shmem = 0
-nregs = 16
-binary version = 80
-cuda stream id = 0
-shmem base_addr = 0x00007fc867000000
-local mem base_addr = 0x00007fc865000000
-nvbit version = 1.5.3
-accelsim tracer version = 3

#traces format = PC mask dest_num [reg_dests] opcode src_num [reg_srcs] mem_width [adrrescompress?] [mem_addresses]

#BEGIN_TB

thread block = 0,0,0

warp = 0
insts = {count}
{lines}
#END_TB
"""


@pytest.fixture
def traced(tmp_path):
    """A folder with one launch of one warp that executes these opcodes."""

    def write(*opcodes):
        lines = [f"{16 * place:04x} ffffffff 0 {opcode} 0 0 " for place, opcode in enumerate([*opcodes, "EXIT"])]
        (tmp_path / "t").mkdir()
        (tmp_path / "t" / "kernelslist.g").write_text("kernel-1.traceg\n")
        (tmp_path / "t" / "kernel-1.traceg").write_text(TRACE.format(count=len(lines), lines="\n".join(lines) + "\n"))
        return tmp_path / "t"

    return write


def test_a_run_above_the_limit_is_refused(cli, traced, refused, tmp_path):
    folder = traced("OMMA.SF.16864.F32.E2M1", *["IADD3"] * 9)
    options = ("run", "--workload", folder, "--target", "h100", "-o", tmp_path / "out")
    outcome = cli(*options)
    refused(outcome, "too-many-untimed-instructions")
    assert "9.1 % of the warp instructions" in outcome.err
    accepted = cli(*options, "--accept", "too-many-untimed-instructions")
    assert accepted.status == 0


def test_a_run_below_the_limit_is_noted(cli, traced, tmp_path):
    folder = traced("DMMA.16x8x16", *["IADD3"] * 200)
    outcome = cli("run", "--workload", folder, "--target", "a100", "-o", tmp_path / "out")
    assert outcome.status == 0
    assert "changes [untimed-instructions] target.node.gpu: 0.5 % of the warp" in outcome.out + outcome.err


def test_counts_are_of_opcodes_in_full():
    """Of one root, shapes with and without a timing."""
    workload = gpu_workload(Launch("k", (3,), opcode="DMMA.884"), Launch("k", (4,), opcode="DMMA.16x8x16"))
    static, counts = workload.gpu.instruction_counts(1)
    assert np.array_equal(counts.executed, [3])
    assert static.opcodes == ("DMMA.884",)
    (note,) = notes(Launch("k", (3,), opcode="DMMA.884"), Launch("k", (4,), opcode="DMMA.16x8x16"), target="a100")
    assert note.count == 4

"""What record_bzip2.py writes of a profile under Callgrind is read again as the same units."""

from __future__ import annotations

from pathlib import Path

import pytest

from manyscale.runner.readers.stacks import callgrind
from manyscale.runner.readers.stacks import unit_counts as unit_stacks
from manyscale.sampling.simprof.stack_population import stack_units_of
from simprof import record_bzip2

EVENTS = "Ir I1mr D1mr D1mw ILmr DLmr DLmw Bcm Bim"


def test_units_are_kept(tmp_path: Path) -> None:
    """Three units of 100,000 instructions; 80, 50 and 20 % are in f, called by main, and as many of 20 snapshots."""
    parts = "".join(
        f"part: {k}\npositions: line\nevents: {EVENTS}\n"
        f"fn=(1) f'main\n0 {share}000 0 {k}\nfn=(2) main\n0 {100 - share}000\n"
        for k, share in enumerate((80, 50, 20), 1)
    )
    (tmp_path / "a.out").write_text(f"# callgrind format\nversion: 1\n{parts}")
    workload = callgrind.read(tmp_path / "a.out")
    (tmp_path / "b.stk").write_text(record_bzip2.stacks(workload))
    (tmp_path / "b.cpi.csv").write_text(record_bzip2.counters(workload))
    one, other = stack_units_of(workload), stack_units_of(unit_stacks.read(tmp_path / "b.stk"))
    assert one.cpi is not None
    assert other.cpi == pytest.approx(one.cpi, rel=1e-6)
    assert other.instructions.tolist() == one.instructions.tolist() == [100_000] * 3
    assert one.vectors[:, one.methods.index("f")] == pytest.approx([0.8, 0.5, 0.2])
    assert other.vectors[:, other.methods.index("f")] == pytest.approx([0.8, 0.5, 0.2])


def test_inputs_are_of_a_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record_bzip2, "SIZE", 3000)
    made = {name: make() for name, make in record_bzip2.INPUTS.items()}
    assert {len(content) for content in made.values()} == {3000}
    assert made == {name: make() for name, make in record_bzip2.INPUTS.items()}
    assert len(set(made.values())) == len(made)

"""The reader of speedscope's files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from stack_counts import leaves, stacks

from manyscale.models.workload import Workload
from manyscale.runner.errors import UserError
from manyscale.runner.readers.stacks import speedscope
from manyscale.runner.readers.stacks.units import UnitRules

CASES = Path(__file__).parents[2] / "data" / "stacks"


def content(*profiles: dict[str, Any]) -> dict[str, Any]:
    frames = [{"name": "main", "file": "/a/b.py", "line": 1}, {"name": "f", "file": "/a/b.py"}, {"name": "f"}]
    schema = "https://www.speedscope.app/file-format-schema.json"
    return {"$schema": schema, "profiles": list(profiles), "shared": {"frames": frames}}


def thread(
    samples: list[list[int]], weights: list[float], name: str = "t", unit: str = "seconds", kind: str = "sampled"
) -> dict[str, Any]:
    return {"type": kind, "name": name, "unit": unit, "samples": samples, "weights": weights}


def read(folder: Path, value: Any, **rules: int) -> Workload:
    path = folder / "a.json"
    path.write_text(value if isinstance(value, str) else json.dumps(value))
    return speedscope.read(path, rules=UnitRules(**rules))


def test_threads_stacks_and_times(tmp_path):
    first = thread([[0, 1], [0, 1], [0]], [0.01, 0.01, 0.02], 'Thread 77 ""')
    second = thread([[0, 2]], [0.01], 'Process 5 Thread 78 "my thread"')
    workload = read(tmp_path, content(first, second), snapshots=2)
    assert stacks(workload) == [("main (b.py)", "f (b.py)")] * 2 + [("main (b.py)",), ("main (b.py)", "f")]
    units = [tuple(unit.values()) for unit in workload.tables["stack_units"].to_pylist()]
    ms = 10**9
    assert units == [
        (0, 0, 0, "thread 77", 0, 10 * ms, 20 * ms, -1),
        (0, 0, 1, "thread 77", 30 * ms, 30 * ms, 20 * ms, -1),
        (0, 1, 0, "my thread", 0, 0, 10 * ms, -1),
    ]
    assert workload.column("phases", "duration_ps").tolist() == [50 * ms]


def test_weights_without_a_unit_are_numbers_of_samples(tmp_path):
    workload = read(tmp_path, content(thread([[0], [1]], [5, 7], unit="none")))
    assert workload.column("stack_samples", "weight").tolist() == [5, 7]


def test_weights_that_are_no_time_are_snapshots(tmp_path):
    workload = read(tmp_path, content(thread([[0], [1]], [5, 7], unit="bytes")))
    assert workload.column("stack_units", "cpu_ps").tolist() == [-1]
    assert workload.column("stack_samples", "weight").tolist() == [1, 1]


@pytest.mark.peer
def test_what_py_spy_writes():
    """37, 36 and 57 samples of three threads, as the file lists them; names of processes are no frames."""
    path = CASES / "subprocess.speedscope.json"
    assert speedscope.can_read(path)
    workload = speedscope.read(path)
    count = [workload.column("stack_samples", "thread").tolist().count(number) for number in range(3)]
    assert count == [37, 36, 57]
    assert leaves(workload)["work (sub.py)"] == 73
    assert not any(name.startswith("process") for name in workload.tables["frames"].column("name").to_pylist())


@pytest.mark.contract
@pytest.mark.parametrize(
    ("value", "said"),
    [
        (json.dumps(content(thread([[0]], [1.0])))[:-9], "is no file of speedscope, or a damaged one"),
        (content(thread([[9]], [1.0])), "damaged one"),
        (content(thread([[0]], [])), "damaged one"),
        (content(thread([], [], kind="evented")), "profile 0 is 'evented'"),
        (content(thread([], [])), "has no samples"),
    ],
)
def test_errors(tmp_path, value, said):
    with pytest.raises(UserError, match=said) as caught:
        read(tmp_path, value)
    assert "\n" not in str(caught.value)


def test_other_files_are_not_taken(tmp_path):
    path = tmp_path / "a.json"
    for text in ("", "{}", '{"recording": {"events": []}}', "speedscope.app/file-format-schema.json"):
        path.write_text(text)
        assert not speedscope.can_read(path)

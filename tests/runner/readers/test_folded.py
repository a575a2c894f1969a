"""The reader of folded stacks."""

from __future__ import annotations

import gzip
import lzma
from pathlib import Path

import pytest
import zstandard
from stack_counts import stacks
from told import told

from manyscale.models.workload import Workload
from manyscale.runner.errors import UserError
from manyscale.runner.readers.stacks import folded
from manyscale.runner.readers.stacks.units import UnitRules

CASES = Path(__file__).parents[2] / "data" / "stacks"


def read(folder: Path, text: str | bytes, **rules: int) -> Workload:
    path = folder / "a.folded"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    assert folded.can_read(path)
    return folded.read(path, rules=UnitRules(**rules))


def rows(workload: Workload) -> list[tuple[tuple[str, ...], int]]:
    return list(zip(stacks(workload), workload.column("stack_samples", "weight").tolist(), strict=True))


@pytest.mark.parametrize(
    "text",
    [
        "main;f;g 3\nmain 2\n",
        "# produced by something\n\nmain;f;g 3\n\nmain 2",
        "main;f;g 3\r\nmain 2\r\n",
        "main;f;g\t3\nmain  2\n",
        "\ufeffmain;f;g 3\nmain 2\n".encode(),
        "main;f;g 3\nmain 2\n".encode("utf-16"),
        gzip.compress(b"main;f;g 3\nmain 2\n", mtime=0),
        lzma.compress(b"main;f;g 3\nmain 2\n"),
        zstandard.compress(b"main;f;g 3\nmain 2\n"),
    ],
)
def test_layouts(tmp_path, text):
    assert rows(read(tmp_path, text)) == [(("main", "f", "g"), 3), (("main",), 2)]


def test_names_with_blanks_and_numbers(tmp_path):
    text = "java 12;std::map<int, char>::operator[] (int const&);f 2 7\njava 12 9\nmain 4\n"
    assert rows(read(tmp_path, text)) == [
        (("java 12", "std::map<int, char>::operator[] (int const&)", "f 2"), 7),
        (("java 12",), 9),
        (("main",), 4),
    ]


@pytest.mark.parametrize(
    ("text", "scale", "counts"),
    [
        ("main;a;b 1.5\nmain;a 2.25\nmain;c 3\n", 100, [150, 225, 300]),
        ("main;a 1.0\nmain 2.\n", 1, [1, 2]),
        ("main;a .5\nmain 1e3\nmain;b 2.5E-1\n", 100, [50, 100_000, 25]),
        ("main;a 0.333333333333\nmain 1\n", 10**6, [333_333, 10**6]),
        (f"main;a 0.25\nmain {2**49}\n", 10, [2, 10 * 2**49]),  # more digits are more than float64 has
    ],
)
def test_fractions(tmp_path, text, scale, counts):
    """What flamegraph.pl and others take; 1.5 + 2.25 + 3 are 6.75 counts."""
    workload = read(tmp_path, text, period_ps=1000)
    assert workload.column("stack_samples", "weight").tolist() == counts
    assert workload.column("stack_units", "cpu_ps").tolist() == [sum(counts) // scale * 1000]
    assert any("have fractions" in note for note in told(workload.notes)) is (scale > 1)


def test_a_period_is_of_a_whole_count(tmp_path):
    workload = read(tmp_path, "main;a;b 1.5\nmain;a 2.25\nmain;c 3\n", period_ps=10**10)
    assert workload.column("stack_units", "cpu_ps").tolist() == [6.75 * 10**10]
    with pytest.raises(UserError, match="lasts longer than"):
        read(tmp_path, f"main;a {2**52}\n", period_ps=10**10)


@pytest.mark.parametrize("text", ["main;a;b 10 12\nmain;a;c 3 1\n", "a;b 1.5 0\n# two\nc 0 2\n", "main;a;b 10 12\n"])
def test_a_comparison_of_two_profiles_is_refused_by_name(tmp_path, text):
    with pytest.raises(UserError, match=r"two numbers end every line.*difffolded"):
        read(tmp_path, text)


def test_equal_stacks_share_frames_and_stack(tmp_path):
    workload = read(tmp_path, "a;b 1\na;b 2\na;b;a 4\n")
    assert workload.tables["frames"].num_rows == 2
    assert workload.column("stack_samples", "stack_id").tolist() == [0, 0, 1]
    assert workload.column("stack_samples", "weight").tolist() == [1, 2, 4]


def test_all_is_one_unit_and_its_time_is_known_only_with_a_period(tmp_path):
    text = "a;b 50\na;c 70\n"
    workload = read(tmp_path, text)
    assert workload.column("stack_units", "cpu_ps").tolist() == [-1]
    assert workload.tables["phases"].num_rows == 0
    workload = read(tmp_path, text, period_ps=10**10)
    assert workload.column("stack_units", "cpu_ps").tolist() == [120 * 10**10]
    assert workload.column("phases", "duration_ps").tolist() == [120 * 10**10]


def test_a_stack_never_seen_counts_nothing(tmp_path):
    assert rows(read(tmp_path, "a;b 0\na;c 1\n")) == [(("a", "c"), 1)]


@pytest.mark.peer
def test_what_py_spy_writes():
    workload = folded.read(CASES / "py-spy.folded")
    assert [(stack[-1], weight) for stack, weight in rows(workload)] == [
        ("a (w.py:4)", 106),
        ("b (w.py:8)", 79),
        ("addsitedir (<frozen site>:221)", 1),
    ]


@pytest.mark.contract
@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a;b 1\nc;d\n", r":2: a line is frames .* got 'c;d'"),
        ("a;b 1\nc;d 1.5.2\n", r":2: a line is frames"),
        ("main;a 3\n 4\nmain;b 2\n", r":2: a line is frames .* got '4'"),
        ("a;b 1\nc;d -1\n", r":2: a line is frames"),
        ("a;b 1\nc;d inf\n", r":2: a line is frames"),
        ("a;b 1\nc;d 1,000\n", r":2: a line is frames"),
        ("a;b 1e60\n", "add up to 1.00e.60"),
        ("a;b 1\n7\n", r":2: a line is frames"),
        ("a;b 0\n", "has no stacks"),
    ],
)
def test_errors(tmp_path, text, said):
    path = tmp_path / "a.folded"
    path.write_text(text)
    with pytest.raises(UserError, match=said) as caught:
        folded.read(path)
    assert "\n" not in str(caught.value)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize(
    "text",
    ["", "hello world\n", "a b c 1\n", "0 compute 5\n0 send 1 0 8\n", "a;b;c\n", "a;b 1\nno count\n", "a;b\0 1\n"],
)
def test_other_files_are_not_taken(tmp_path, text):
    path = tmp_path / "a.txt"
    path.write_text(text)
    assert not folded.can_read(path)
    assert not folded.can_read(tmp_path)

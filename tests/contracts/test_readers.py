"""Every reader keeps its contract on a trace of its format; those that do not are found out."""

from __future__ import annotations

from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pytest
from reader_samples import SAMPLES

from manyscale.models.workload import OPERATIONS_SCHEMA, OperationKind, Workload, WorkloadError
from manyscale.runner.errors import UserError
from manyscale.runner.registry import lookup, names
from manyscale.testing import ContractError, check_reader
from manyscale.testing.workloads import known

pytestmark = pytest.mark.contract


@pytest.mark.parametrize("name", names("reader"))
def test_built_in(name, tmp_path):
    if name == "otf2" and find_spec("otf2") is None:
        pytest.skip("the package otf2 is not installed")
    assert name in SAMPLES, "a reader of the registry has no trace here"
    check_reader(lookup("reader", name), SAMPLES[name](tmp_path))


def read_words(path: Path) -> Workload:
    """A format of nothing but a number: a run of one rank that computes for as many ps."""
    word = path.read_text(errors="replace").strip()
    if not word.isdecimal():
        raise UserError(f"{path}: line 1: {word[:10]!r} is no number; write the trace again")
    return known()[0].workload


def knows_words(path: Path) -> bool:
    return path.is_file() and path.read_bytes()[:1].isdigit()


def reader(**functions) -> SimpleNamespace:
    return SimpleNamespace(**{"NAME": "words", "can_read": knows_words, "read": read_words} | functions)


def swallows(path: Path) -> Workload:
    return known()[0].workload


def crashes(path: Path) -> Workload:
    int(path.read_text())
    return known()[0].workload


def rambles(path: Path) -> Workload:
    try:
        return read_words(path)
    except UserError as error:
        raise WorkloadError(f"{error}\nand so on") from None


def does_not_say_where(path: Path) -> Workload:
    try:
        return read_words(path)
    except UserError:
        raise UserError("the trace is damaged") from None


def changes(path: Path) -> Workload:
    path.write_text(path.read_text() + "1")
    return read_words(path)


def forgets_a_receive(path: Path) -> Workload:
    read_words(path)
    right = known()[0].workload
    operations = right.tables["operations"]
    kept = np.flatnonzero(right.column("operations", "kind") != OperationKind.recv)
    tables = {
        **right.tables,
        "operations": operations.take(pa.array(kept)),
        "phases": right.tables["phases"].slice(0, 0),
    }
    return Workload("words", 2, tables)


def out_of_order(path: Path) -> Workload:
    """A workload that was never checked."""
    read_words(path)
    right = known()[0].workload
    turned = right.tables["operations"].take(pa.array(np.arange(right.num_operations)[::-1]))
    return replace(right, tables={**right.tables, "operations": turned}, is_checked=True)


def kinds_of_its_own(path: Path) -> Workload:
    read_words(path)
    rows = known()[0].workload.tables["operations"].to_pylist()
    rows[0]["kind"] = "hello"
    tables = {**known()[0].workload.tables, "operations": pa.Table.from_pylist(rows, OPERATIONS_SCHEMA)}
    return Workload("words", 2, tables)


def names_itself_anew(path: Path) -> Workload:
    return replace(read_words(path), name=" ")


def test_a_reader_of_somebody_else(tmp_path):
    (tmp_path / "a.words").write_text("12345678")
    check_reader(reader(), tmp_path / "a.words")


@pytest.mark.parametrize(
    ("broken", "reason"),
    [
        (SimpleNamespace(NAME="words", can_read=knows_words), "words: has no function read"),
        (reader(can_read=lambda path: False), "can_read does not know a.words"),
        (reader(can_read=lambda path: path.read_bytes()[:1].isdigit()), "can_read raises .* return False"),
        (reader(can_read=lambda path: path.name == "a.words" or None), "can_read returns NoneType, not bool"),
        (reader(can_read=lambda path: True), "can_read knows a path that does not exist"),
        (
            reader(read=swallows, can_read=lambda path: path.name == "a.words"),
            "none of 10 damages of a.words is noticed",
        ),
        (
            reader(read=crashes),
            "a damaged a.words ends in (Value|UnicodeDecode)Error .* raise UserError, with the file",
        ),
        (reader(read=rambles), "the message has several lines"),
        (reader(read=does_not_say_where), "does not name the file: the trace is damaged"),
        (reader(read=changes), "reading a.words changes it"),
        (reader(read=forgets_a_receive), "no receive|does not match|sends"),
        (reader(read=out_of_order), r"\(rank\) is below that of the row before"),
        (reader(read=kinds_of_its_own), "kind 'hello' is unknown"),
        (reader(read=names_itself_anew), "the workload has no name"),
        (reader(read=lambda path: None), "read returns NoneType, not a Workload"),
    ],
)
def test_broken(broken, reason, tmp_path):
    (tmp_path / "a.words").write_text("12345678")
    with pytest.raises(ContractError, match=reason):
        check_reader(broken, tmp_path / "a.words")

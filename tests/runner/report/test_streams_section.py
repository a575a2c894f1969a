"""The timeline of streams and copy engines in a report."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from manyscale.runner.predict.gpu.streams.table import KINDS, STREAMS_SCHEMA, WHERE
from manyscale.runner.report.page import Page
from manyscale.runner.report.sections import gpu_streams
from manyscale.runner.report.sections.gpu_streams import add_streams

US = 1_000_000  # ps


def streams(*rows: tuple[int, int, int, str, str, int, int, int, int]) -> pa.Table:
    """(gpu, rank, stream, engine, operation, start and end in us, bytes, launch)."""
    names = ("gpu", "rank", "stream", "engine", "operation", "start_ps", "end_ps", "bytes", "launch_id")
    columns = dict(zip(names, (list(each) for each in zip(*rows, strict=True)), strict=True))
    columns["start_ps"], columns["end_ps"] = ([each * US for each in columns[name]] for name in ("start_ps", "end_ps"))
    columns["given_ps"] = [0] * len(rows)
    for name, known in (("engine", WHERE), ("operation", KINDS)):
        codes = pa.array([known.index(each) for each in columns[name]], pa.int8())
        columns[name] = pa.DictionaryArray.from_arrays(codes, pa.array(known))
    no_name = pa.DictionaryArray.from_arrays(pa.array([0] * len(rows), pa.int32()), pa.array([""]))
    columns["kernel_name"] = no_name
    return pa.table({field.name: columns[field.name] for field in STREAMS_SCHEMA}, STREAMS_SCHEMA)


@pytest.fixture
def page() -> Page:
    return Page("a run", "")


def bars(page: Page) -> dict[str, Any]:
    return {each["name"]: each for each in page.charts["gpu-streams"]["data"]}


def test_streams_and_engines_have_a_row_each(page: Page) -> None:
    table = streams(
        (0, 0, 0, "copies to the GPU", "copy_to_device", 10, 20, 1000, 0),
        (0, 0, 0, "SMs", "launch", 20, 50, 0, 1),
        (0, 0, 7, "SMs", "launch", 30, 60, 0, 2),
    )
    add_streams(page, table, 100e-6)
    found = bars(page)
    assert found["launch"]["y"] == ["GPU 0, default stream", "GPU 0, stream 7"]
    assert (found["launch"]["base"], found["launch"]["x"]) == ([20, 30], [30, 30])
    assert found["launch"]["customdata"] == ["launch 1", "launch 2"]
    assert found["copy to device"]["y"] == ["GPU 0, default stream", "GPU 0, copies to the GPU"]
    (html,) = page.sections
    cells = ["<td>GPU 0, default stream</td><td class=number>2</td><td class=number>40.00 us</td>"
             "<td class=number>40.0 %</td><td class=number>1 kB</td>",
             "<td>GPU 0, copies to the GPU</td><td class=number>1</td><td class=number>10.00 us</td>"]  # fmt: skip
    assert all(each in html for each in cells)


def test_ranks_that_share_a_gpu_are_told_apart(page: Page) -> None:
    add_streams(page, streams((0, 0, 0, "SMs", "launch", 0, 5, 0, 1), (0, 3, 0, "SMs", "launch", 5, 9, 0, 1)), 1e-5)
    assert bars(page)["launch"]["y"] == ["GPU 0, rank 0, default stream", "GPU 0, rank 3, default stream"]


def test_of_many_operations_the_longest_are_drawn(page: Page, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu_streams, "MAX_BARS", 2)
    monkeypatch.setattr(gpu_streams, "MAX_ROWS", 1)
    rows = [(0, 0, stream, "SMs", "launch", 10 * stream, 10 * stream + length, 0, stream) for stream, length in
            ((1, 3), (2, 9), (3, 5))]  # fmt: skip
    add_streams(page, streams(*rows), 1e-4)
    assert bars(page)["launch"]["y"] == ["GPU 0, stream 2"]
    assert "3 operations the 2 longest" in page.sections[0]


def test_nothing_is_said_where_nothing_was_given(page: Page) -> None:
    add_streams(page, streams((0, 0, 0, "SMs", "launch", 0, 5, 0, 1)).slice(0, 0), 1.0)
    assert not page.sections

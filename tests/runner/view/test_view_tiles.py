"""Tiles of a timeline: what takes most of each cell, whatever the level, the size of pieces and the order of rows."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from timeline_runs import SEGMENT_PS, made_run

from manyscale.runner.errors import UserError
from manyscale.runner.view import segments, tables, tiles
from manyscale.runner.view.segments import Segments
from manyscale.runner.view.tables import TABLES, Batch, SegmentTable


def opened(run: Path, name: str = "ranks") -> Segments:
    table = SegmentTable(run / "timeline" / f"{name}.parquet", TABLES[name])
    return Segments(table, run / f"{name}.arrow")


def write_cores(run: Path, rows: list[tuple[int, int, int, int, str, int]]) -> None:
    """``rows``: rank, core, begin and end in ps, task type, task instance."""
    rank, core, start, end, kind, instance = zip(*rows, strict=True) if rows else ((),) * 6
    columns = {
        "rank": pa.array(rank, pa.int32()), "core": pa.array(core, pa.int32()), "start_ps": pa.array(start, pa.int64()),
        "end_ps": pa.array(end, pa.int64()), "task_type": pa.array(kind, pa.string()).dictionary_encode(),
        "task_instance_id": pa.array(instance, pa.int32()),
    }  # fmt: skip
    (run / "timeline").mkdir(exist_ok=True)
    pq.write_table(pa.table(columns), run / "timeline" / "cores.parquet")


def slow_tile(
    rows: list[tuple[int, int, int, int]], names: int, e: int, i: int, r: int, j: int, height: int
) -> np.ndarray:
    """A tile by its definition, from (row, start, end, category), a picosecond range at a time."""
    grid = np.full((height, tiles.COLUMNS), tiles.NOTHING, np.uint8)
    for line in range(height):
        for column in range(tiles.COLUMNS):
            begin = (i * tiles.COLUMNS + column) << e
            spent = [0] * names
            for row, start, end, category in rows:
                if row >> r == j * tiles.ROWS + line:
                    spent[category] += max(0, min(end, begin + (1 << e)) - max(start, begin))
            if max(spent) > 0:
                grid[line, column] = spent.index(max(spent))
    return grid


@pytest.mark.property
@settings(max_examples=25, deadline=None)
@given(
    gaps=st.lists(
        st.tuples(st.integers(0, 3), st.integers(0, 300), st.integers(1, 900), st.integers(0, 3)), max_size=25
    ),
    e=st.integers(0, 4), i=st.integers(0, 2), r=st.integers(0, 2),
)  # fmt: skip
def test_a_tile_is_what_its_definition_says(
    tmp_path_factory: pytest.TempPathFactory, gaps: list[tuple[int, int, int, int]], e: int, i: int, r: int
) -> None:
    now = [0] * 4
    rows = []
    for row, gap, length, category in gaps:
        start = now[row] + gap
        now[row] = start + length
        rows.append((row, start, start + length, category))
    rows.sort()
    names = list(dict.fromkeys(category for *_, category in rows))  # codes are given in the order of the file
    run = tmp_path_factory.mktemp("run")
    write_cores(run, [(row, 0, start, end, f"type {category}", 7) for row, start, end, category in rows])
    found = opened(run, "cores")
    known = sorted({row for row, *_ in rows})  # cores without a segment have no row
    coded = [(known.index(row), start, end, names.index(category)) for row, start, end, category in rows]
    height = len(range(0, len(known), 1 << r))
    expected = slow_tile(coded, max(1, len(names)), e, i, r, 0, height)
    np.testing.assert_array_equal(tiles.tile(found, e, i, r, 0), expected)


def test_every_level_shows_the_states_of_the_formula(tmp_path: Path) -> None:
    found = opened(made_run(tmp_path / "run", ranks=300, segments_each=400))
    assert (found.table.num_rows, found.table.span_ps) == (300, 400 * SEGMENT_PS)
    e, r = 15, 0  # columns of 32,768 ps: within a segment, or across one border
    tile = tiles.tile(found, e, 3, r, 1)
    begin = (3 * tiles.COLUMNS + np.arange(tiles.COLUMNS)) << e
    middle = (begin + (1 << e) // 2) // SEGMENT_PS  # the segment that has more than half of the column
    expected = (np.arange(256, 300)[:, None] + middle[None, :]) % 5
    expected[:, begin >= found.table.span_ps] = tiles.NOTHING
    np.testing.assert_array_equal(tile, expected)


def test_pieces_of_any_size_give_the_same_tiles(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = made_run(tmp_path / "run", ranks=40, segments_each=500)
    places = [(tiles.top_level(500 * SEGMENT_PS), 0, 0, 0), (15, 2, 1, 0), (10, 300, 0, 0)]
    whole = [tiles.tile(opened(run), *place) for place in places]
    for module in (tables, segments):
        monkeypatch.setattr(module, "BATCH_ROWS", 700)
    monkeypatch.setattr(segments, "_PIECE_ROWS", 50)
    monkeypatch.setattr(segments, "_MOST_PIECES", 14)
    small = opened(run)
    assert small.count(0, 500 * SEGMENT_PS) == 20_000
    assert small.count(0, 10) < 20_000 / 7  # most pieces are not looked at for a short time
    for place, expected in zip(places, whole, strict=True):
        np.testing.assert_array_equal(tiles.tile(small, *place), expected)


def test_segments_at_a_place_are_those_of_the_formula(tmp_path: Path) -> None:
    found = opened(made_run(tmp_path / "run", ranks=4, segments_each=30))
    (batch,) = [each for each in found.read(17 * SEGMENT_PS + 5, 17 * SEGMENT_PS + 6, 2, 2) if len(each.row)]
    assert isinstance(batch, Batch)
    assert (batch.start[0], batch.end[0], batch.item[0]) == (17 * SEGMENT_PS, 18 * SEGMENT_PS, 17)
    assert found.table.categories[batch.category[0]] == ("compute", "send", "receive", "wait", "collective")[19 % 5]


def test_levels_end_where_one_tile_holds_all() -> None:
    assert [tiles.top_level(span) for span in (0, 1, 512, 513, 1024, 1025)] == [0, 0, 0, 1, 1, 2]
    assert [tiles.top_row_level(rows) for rows in (0, 256, 257, 513)] == [0, 0, 1, 2]


def test_cores_are_rows_in_order_of_rank_and_core(tmp_path: Path) -> None:
    write_cores(tmp_path, [(5, 1, 0, 9, "b", 1), (0, 3, 0, 9, "a", 2), (5, 0, 4, 9, "b", 3)])
    found = opened(tmp_path, "cores")
    assert [found.table.row_label(row) for row in range(found.table.num_rows)] == ["0.3", "5.0", "5.1"]
    assert found.table.categories == ["b", "a"]


def test_more_types_than_colours_share_the_last(tmp_path: Path) -> None:
    most = tiles.MOST_CATEGORIES
    write_cores(tmp_path, [(0, 0, at, at + 1, f"type {at}", at) for at in range(most + 10)])
    tile = tiles.tile(opened(tmp_path, "cores"), 0, 0, 0, 0)
    assert tile[0, : most + 11].tolist() == [*range(most), *[most - 1] * 10, tiles.NOTHING]


@pytest.mark.parametrize("content", [b"no Parquet", b""])
def test_a_file_that_is_no_timeline_is_named(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "ranks.parquet"
    path.write_bytes(content)
    with pytest.raises(UserError, match=r"ranks\.parquet: cannot be read"):
        Segments(SegmentTable(path, TABLES["ranks"]), tmp_path / "pieces")


def test_a_table_without_a_column_is_named(tmp_path: Path) -> None:
    pq.write_table(pa.table({"rank": pa.array([1], pa.int32())}), tmp_path / "ranks.parquet")
    with pytest.raises(UserError, match=r"ranks\.parquet: cannot be read .it has no column start_ps"):
        Segments(SegmentTable(tmp_path / "ranks.parquet", TABLES["ranks"]), tmp_path / "pieces")


@pytest.mark.contract
def test_instances_are_known_by_their_id_in_the_run(tmp_path: Path) -> None:
    """Of a run of an earlier version by that in the trace, which is all it has."""
    write_cores(tmp_path, [(0, 0, 0, 10, "f", 7)])
    path = tmp_path / "timeline" / "cores.parquet"
    table = SegmentTable(path, TABLES["cores"])
    assert (table.columns.item_label, [batch.item.tolist() for batch in table.batches()]) == ("task instance", [[7]])
    whole = pq.read_table(path)
    pq.write_table(whole.append_column("instance_id", pa.array([5], pa.int64())), path)
    table = SegmentTable(path, TABLES["cores"])
    assert (table.columns.item_label, [batch.item.tolist() for batch in table.batches()]) == ("instance", [[5]])

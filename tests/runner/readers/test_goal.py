"""The GOAL reader: grammar, what becomes of dependencies, and errors with file and line."""

from __future__ import annotations

import gzip
import re
import time
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from manyscale.models.network.operation_graph import is_ordered
from manyscale.models.workload import NO_REQUEST, OperationKind, Workload
from manyscale.runner.errors import UserError
from manyscale.runner.readers import goal
from manyscale.runner.readers.goal import tokens as goal_tokens
from manyscale.runner.readers.goal.reader import GRAPH_NOTE
from manyscale.runner.readers.options import ReadOptions

CASES = Path(__file__).parents[2] / "data" / "goal"


def read(folder: Path, text: str | bytes, options: ReadOptions | None = None) -> Workload:
    path = folder / "s.goal"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return goal.read(path, options or ReadOptions())


def rank(body: str) -> str:
    """A schedule whose rank 0 has ``body``, beside an empty rank 1."""
    return f"num_ranks 2\nrank 0 {{\n{body}\n}}\nrank 1 {{\n}}\n"


def rows(workload: Workload, number: int = 0) -> list[tuple[str, int, int, int]]:
    """(kind, peer, tag, bytes) of the operations of a rank."""
    table = workload.tables["operations"].to_pylist()
    return [
        (row["kind"], row["peer"], row["tag"], max(row["bytes"], row["receive_bytes"]))
        for row in table
        if row["rank"] == number
    ]


def dependencies(workload: Workload) -> list[tuple[int, int, bool]]:
    table = workload.tables["dependencies"].to_pylist()
    return [(row["operation_id"], row["requires"], row["on_start"]) for row in table]


class TestGrammar:
    def test_operations_and_dependencies(self, tmp_path):
        workload = read(
            tmp_path,
            rank("a: calc 5\nsend 8b to 1 tag 3\nr: recv 70b from -1 tag -1\nr requires a\nb: calc 7\nb irequires r"),
        )
        assert rows(workload) == [("other", -2, 0, 0), ("isend", 1, 3, 8), ("irecv", -1, -1, 70), ("other", -2, 0, 0)]
        assert dependencies(workload) == [(2, 0, False), (3, 2, True)]
        assert workload.column("phases", "duration_ps").tolist() == [5000, 7000]
        assert workload.column("phases", "operation_id").tolist() == [0, 3]

    @pytest.mark.parametrize(
        "text",
        [
            "// head\nnum_ranks 1\nrank 0{\ncalc 5\n}",
            "/* a\nlong */ num_ranks 1\r\nrank 0 {\r\n\tcalc 5\r\n}\r\n",
            "num_ranks 1 rank 0 { calc 5 // tail\n}\n",
            "num_ranks 1\nrank 0 {\n/* calc 7 */ calc /* units */ 5 cpu 0\n}\n\n\n",
            "num_ranks 1\nrank 0 {\na_long_label_of_a_calculation: calc 5\n}\n",
        ],
    )
    def test_layouts(self, tmp_path, text):
        workload = read(tmp_path, text)
        assert rows(workload) == [("other", -2, 0, 0)]
        assert workload.column("phases", "duration_ps").tolist() == [5000]

    def test_keywords_are_labels_where_one_is_expected(self, tmp_path):
        assert dependencies(read(tmp_path, rank("tag: calc 1\nto: calc 2\nto requires tag"))) == [(1, 0, False)]

    def test_labels_belong_to_their_rank(self, tmp_path):
        first, second = ("{}: calc 1\n{}: calc 1\n{} requires {}".format(*names) for names in ("xyyx", "yxxy"))
        text = f"num_ranks 2\nrank 0 {{\n{first}\n}}\nrank 1 {{\n{second}\n}}\n"
        workload = read(tmp_path, text)
        assert workload.column("dependencies", "rank").tolist() == [0, 1]
        assert dependencies(workload) == [(1, 0, False), (1, 0, False)]

    def test_ranks_in_any_order(self, tmp_path):
        text = "num_ranks 2\nrank 1 {\na: calc 9\nb: calc 8\nb requires a\n}\nrank 0 {\ncalc 4\n}\n"
        workload = read(tmp_path, text)
        assert workload.column("phases", "duration_ps").tolist() == [4000, 9000, 8000]
        assert workload.column("dependencies", "rank").tolist() == [1]

    def test_time_units(self, tmp_path):
        text = rank("calc 5")
        assert read(tmp_path, text, ReadOptions(time_unit_ps=7)).column("phases", "duration_ps").tolist() == [35]
        named = read(tmp_path, "// time unit: 2 us\n" + text, ReadOptions(time_unit_ps=7))
        assert named.column("phases", "duration_ps").tolist() == [10_000_000]

    def test_compressed_and_in_a_folder(self, tmp_path):
        text = (CASES / "ping_pong.goal").read_bytes()
        (tmp_path / "x.goal.gz").write_bytes(gzip.compress(text))
        assert goal.can_read(tmp_path)
        assert goal.read(tmp_path).digest == goal.read(CASES / "ping_pong.goal").digest

    def test_chunks_fall_anywhere(self, tmp_path, monkeypatch):
        whole = goal.read(CASES / "incast.goal")
        for size in (1, 7, 64):
            monkeypatch.setattr("manyscale.runner.readers.goal.reader.CHUNK_BYTES", size)
            assert goal.read(CASES / "incast.goal").digest == whole.digest

    def test_can_read(self, tmp_path):
        assert all(goal.can_read(path) for path in CASES.glob("*.goal"))
        for content in (b"", b"0 init\n", b"num_ranks\n", b"rank 0 {\n}\n"):
            (tmp_path / "x").write_bytes(content)
            assert not goal.can_read(tmp_path / "x")

    @settings(max_examples=200, deadline=None)
    @given(st.lists(st.from_regex(r"[a-zA-Z][a-zA-Z0-9_]{0,12}", fullmatch=True), unique=True, min_size=2, max_size=20))
    def test_different_labels_stay_different(self, tmp_path_factory, labels):
        verbs = ("calc", "send", "recv", "rank", "num_ranks")
        labels = [label for label in labels if label not in verbs]
        if len(labels) < 2:
            return
        body = "\n".join(f"{label}: calc 1" for label in labels) + f"\n{labels[-1]} requires {labels[0]}"
        assert dependencies(read(tmp_path_factory.mktemp("labels"), rank(body)))[0] == (len(labels) - 1, 0, False)


class TestOrder:
    """Where the order of the file serves, waits are put in; where not, the dependencies stand alone."""

    def waits(self, workload: Workload) -> list[list[int]]:
        return [row["completes"] for row in workload.tables["operations"].to_pylist() if row["kind"] == "waitall"]

    def test_calculation_after_sends_and_receives(self, tmp_path):
        body = "a: calc 1\ns: send 8b to 1\ns requires a\nr: recv 8b from 1\nr requires a\n"
        body += "b: calc 1\nb requires s\nb requires r"
        workload = read(tmp_path, rank(body))
        assert [row[0] for row in rows(workload)] == ["other", "isend", "irecv", "waitall", "other"]
        assert self.waits(workload) == [[1, 2]]  # requests are numbered as the operations of the file
        assert is_ordered(workload)
        assert not workload.notes
        assert dependencies(workload) == [(1, 0, False), (2, 0, False), (4, 1, False), (4, 2, False)]

    def test_receive_then_sends_that_require_it(self, tmp_path):
        body = "r: recv 8b from 1\na: send 8b to 1\na requires r\nb: send 8b to 1\nb requires r"
        workload = read(tmp_path, rank(body))
        assert [row[0] for row in rows(workload)] == ["irecv", "waitall", "isend", "isend", "waitall"]
        assert self.waits(workload) == [[0], [1, 2]]

    def test_what_is_required_earlier_is_not_waited_for_again(self, tmp_path):
        body = "r: recv 8b from 1\na: calc 1\na requires r\nb: calc 1\nb requires r\nb requires a"
        assert self.waits(read(tmp_path, rank(body))) == [[0]]

    @pytest.mark.parametrize(
        "body",
        [
            "a: calc 1\nsend 8b to 1",  # the send need not wait for the calculation
            "a: calc 1\nb: send 8b to 1\nb irequires a",
            "a: send 8b to 1\nb: calc 1\nb requires a\nc: recv 8b from 1\nc irequires a",
            "r: recv 8b from 1\na: calc 1\na requires r\nb: send 8b to 1\nb requires r",  # beside a
            "r: recv 8b from 1\nq: recv 8b from 1\na: send 8b to 1\na requires r\na requires q\n"
            "b: send 8b to 1\nb requires r",
            "a: calc 1\nr: recv 8b from 1\nr requires a\nb: calc 1\nb requires a\nc: send 8b to 1\nc requires b\n"
            "c requires r\nd: send 8b to 1\nd requires r",  # d need not wait for b, as c does
            "b: send 8b to 1\na: calc 1\nb requires a",  # named in another order
        ],
    )
    def test_no_order_serves(self, tmp_path, body):
        workload = read(tmp_path, rank(body))
        assert not is_ordered(workload)
        assert workload.notes == (GRAPH_NOTE,)
        assert np.all(workload.column("operations", "request") == NO_REQUEST)

    def test_without_any_dependency_it_is_a_graph_too(self, tmp_path):
        workload = read(tmp_path, rank("calc 5\nsend 8b to 1"))
        assert not is_ordered(workload)
        assert dependencies(workload) == [(2, 1, False)]  # of a wait that was added for it
        assert [row[0] for row in rows(workload)] == ["other", "isend", "waitall"]

    def test_every_rank_has_an_operation(self, tmp_path):
        assert np.all(np.diff(read(tmp_path, "num_ranks 3\nrank 0{\n}\nrank 1{\n}\nrank 2{\n}\n").rank_offsets) == 1)

    def test_wait_at_the_end_of_a_rank_before_an_empty_one(self, tmp_path):
        workload = read(tmp_path, "num_ranks 3\nrank 0{\nsend 1b to 2\n}\nrank 1{\n}\nrank 2{\nrecv 1b from 0\n}\n")
        kinds = [OperationKind(kind).name for kind in workload.column("operations", "kind")]
        assert kinds == ["isend", "waitall", "other", "irecv", "waitall"]
        assert workload.column("operations", "rank").tolist() == [0, 0, 1, 2, 2]


class TestErrors:
    @pytest.mark.parametrize(
        ("body", "line", "message"),
        [
            ("calc", 3, "expected a number"),
            ("calc 5b", 3, "expected 'tag', 'cpu', 'nic' or the end"),
            ("calc 5 tag 3", 3, "expected 'tag', 'cpu', 'nic' or the end"),
            ("calc 99999999999999999999", 3, "too large"),
            ("calc 4611686018427387910", 3, "too large"),
            ("send 8 to 1", 3, "expected 'b'"),
            ("send 8b from 1", 3, "expected 'to'"),
            ("send 8b to -1", 3, "expected a number"),
            ("recv 8b to 1", 3, "expected 'from'"),
            ("send 8b to 2", 3, "not one of num_ranks"),
            ("recv 8b from 1 tag 4294967295", 3, "too large"),
            ("\n\nx calc 5", 5, "expected ':', 'requires' or 'irequires'"),
            ("x: requires y", 3, "expected calc, send or recv"),
            ("x: calc 1\nx requires", 4, "expected a label"),
            ("x: calc 1\nx requires x y", 4, "expected the end of the line"),
            ("x: calc 1\nx requires y", 4, "a label is not defined in rank 0"),
            ("x: calc 1\nx requires x", 3, "a cycle in rank 0: line 3, which requires line 3;"),
            (
                "w: calc 1\nx: calc 1\ny: calc 1\nz: calc 1\nx requires w\nx requires z\nz irequires y\ny requires x",
                4,
                "a cycle in rank 0: line 4, which requires line 6, which requires line 5, which requires line 4;",
            ),
            ("x: calc 1\nx: calc 2", 4, "the label is given twice"),
            ("calc 1 cpu 1", 3, "only cpu 0 and nic 0"),
            ("send 8b to 1 nic 2", 3, "only cpu 0 and nic 0"),
            ("p: put 8b to 1 tag 2", 3, "'put' is GOAL of version 2 (Portals)"),
            ("tput 8b to 1", 3, "'tput' is GOAL of version 2 (Portals)"),
            ("rank 1 {", 3, "not closed"),
            ("?", 3, "expected a statement"),
        ],
    )
    def test_statements(self, tmp_path, body, line, message):
        with pytest.raises(UserError, match=rf"s\.goal:{line}: .*{re.escape(message)}"):
            read(tmp_path, rank(body))

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            ("", "s.goal:1: a GOAL schedule starts with 'num_ranks'"),
            ("num_ranks 0\n", "num_ranks 0; between 1 and"),
            ("num_ranks 1\nrank 0 {\ncalc 1\n", "the file ends within rank 0"),
            ("num_ranks 1\nrank 0 {\n/* calc 1\n}\n", "the file ends within a comment"),
            ("num_ranks 3\nrank 0 {\n}\nrank 2 {\n}\n", "1 of 3 ranks are missing, the first is rank 1"),
            ("num_ranks 1\nrank 0 {\n}\nrank 0 {\n}\n", "s.goal:4: the rank is given twice"),
            ("num_ranks 1\nrank 1 {\n}\n", "s.goal:2: the rank is not one of num_ranks"),
            ("num_ranks 1\ncalc 1\n", "s.goal:2: stands outside"),
            ("num_ranks 1\n}\n", "s.goal:2: stands outside"),
            ("num_ranks 1\nrank 0\n{\n}\n", "s.goal:2: expected '{'"),
            ("num_ranks 1\nnum_ranks 2\n", "s.goal:2: num_ranks does not say"),
            ("num_ranks 1\nrank 0 {\ncalc 4611686018427\n}\n", None),
            ("num_ranks 1\nrank 0 {\ncalc 4611686018427388\n}\n", "takes more than 53 days"),
        ],
    )
    def test_files(self, tmp_path, text, message):
        if message is None:
            read(tmp_path, text)
            return
        with pytest.raises(UserError, match=re.escape(message)):
            read(tmp_path, text)

    def test_binary_form(self, tmp_path):
        path = tmp_path / "s.goal"
        path.write_bytes((4223).to_bytes(8, "little") + bytes(100))
        assert goal.can_read(path)
        with pytest.raises(UserError, match="binary form of a schedule; give the text"):
            goal.read(path)

    def test_cut_gzip(self, tmp_path):
        path = tmp_path / "s.goal.gz"
        path.write_bytes(gzip.compress((CASES / "incast.goal").read_bytes())[:-20])
        with pytest.raises(UserError, match=r"s\.goal\.gz"):
            goal.read(path)

    @settings(max_examples=300, deadline=None)
    @given(st.integers(0, 450), st.binary(min_size=0, max_size=3))
    def test_damage_is_an_error_with_the_file_or_read(self, tmp_path_factory, place, damage):
        text = (CASES / "incast.goal").read_bytes()
        path = tmp_path_factory.mktemp("damage") / "s.goal"
        path.write_bytes(text[:place] + damage + text[place + 1 :])
        message = str(path)
        try:
            goal.read(path)
        except UserError as error:
            message = str(error)
        assert str(path) in message
        assert "\n" not in message


def test_packed_words_are_their_letters():
    assert goal_tokens.pack(b"a") != goal_tokens.pack(b"A") != goal_tokens.pack(b"_")
    assert len({goal_tokens.pack(bytes([a, b])) for a in b"abcXYZ" for b in b"abc019_Z"}) == 48


@pytest.mark.bench
def test_two_million_lines_a_second(tmp_path):
    """Beside Python's own splitting of the lines into words, which reads far less out of them."""
    body = "".join(f"l{i}: calc {i}\nl{i} requires l{i - 1}\n" for i in range(1, 200_000))
    path = tmp_path / "s.goal"
    path.write_text(f"num_ranks 1\nrank 0 {{\nl0: calc 1\n{body}}}\n")
    goal.read(CASES / "incast.goal")
    begin = time.process_time()
    goal.read(path)
    ours = time.process_time() - begin
    begin = time.process_time()
    words = [line.split() for line in path.read_text().splitlines()]
    assert len(words) > 300_000
    assert ours < 3 * (time.process_time() - begin)

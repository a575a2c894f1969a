"""Answers of the viewer's server: to whom, to what, and with which data."""

from __future__ import annotations

import http.client
import json
import os
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import numpy as np
import pytest
from timeline_runs import SEGMENT_PS, made_run

from manyscale.runner.view import tiles
from manyscale.runner.view.calls import CallNames
from manyscale.runner.view.runs import Runs
from manyscale.runner.view.server import LOOPBACK, ViewServer
from manyscale.runner.view.timelines import Timelines


@dataclass
class Viewer:
    """A server that answers in the background, and requests of it."""

    server: ViewServer
    timelines: Timelines
    folder: Path

    def get(
        self, path: str, host: str | None = None, method: str = "GET"
    ) -> tuple[int, bytes, http.client.HTTPMessage]:
        """Status, content and headers of a request of exactly this path."""
        connection = http.client.HTTPConnection(LOOPBACK, self.server.port, timeout=60)
        connection.putrequest(method, path, skip_host=True)
        connection.putheader("Host", host or f"{LOOPBACK}:{self.server.port}")
        connection.endheaders()
        answer = connection.getresponse()
        found = answer.status, answer.read(), answer.headers
        connection.close()
        return found

    def ours(self, rest: str, **query: Any) -> tuple[int, bytes]:
        """Status and content of a request with the token."""
        status, content, _ = self.get(f"/{self.server.token}/{rest}" + (f"?{urlencode(query)}" if query else ""))
        return status, content

    def data(self, what: str, **query: Any) -> Any:
        status, content = self.ours(f"data/{what}", **query)
        assert status == 200, content
        return json.loads(content)


@pytest.fixture
def viewer(tmp_path: Path) -> Iterator[Viewer]:
    folder, scratch = tmp_path / "runs", tmp_path / "scratch"
    folder.mkdir()
    scratch.mkdir()
    timelines = Timelines(scratch, tmp_path / "cache")
    with ViewServer(Runs(folder), timelines) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        yield Viewer(server, timelines, folder)
        server.shutdown()
        thread.join()


def test_it_listens_on_the_loopback_interface_alone(viewer: Viewer) -> None:
    assert viewer.server.server_address[0] == "127.0.0.1"


@pytest.mark.parametrize("path", ["/", "/data/runs", "/wrong/", "/wrong/data/runs", "/../", "//", "/%00/", "/%C3%A9/"])
def test_without_the_token_nothing_is_answered(viewer: Viewer, path: str) -> None:
    assert viewer.get(path)[0] == 403


def test_a_token_of_another_case_or_length_is_refused(viewer: Viewer) -> None:
    token = viewer.server.token
    assert len(token) >= 32
    for wrong in (token[:-1], token + "A", token.swapcase(), ""):
        assert viewer.get(f"/{wrong}/data/runs")[0] == 403


@pytest.mark.parametrize("host", ["example.org", "example.org:80", "127.0.0.1", "127.0.0.1:1", "0.0.0.0", "[::1]"])
def test_another_host_is_refused_with_the_token(viewer: Viewer, host: str) -> None:
    assert viewer.get(f"/{viewer.server.token}/", host=host)[0] == 403


def test_its_own_names_are_answered(viewer: Viewer) -> None:
    for host in ("127.0.0.1", "localhost"):
        assert viewer.get(f"/{viewer.server.token}/", host=f"{host}:{viewer.server.port}")[0] == 200


def test_methods_that_write_are_not_known(viewer: Viewer) -> None:
    assert viewer.get(f"/{viewer.server.token}/", method="POST")[0] == 501
    status, content, headers = viewer.get(f"/{viewer.server.token}/", method="HEAD")
    assert (status, content) == (200, b"")
    assert int(headers["Content-Length"]) > 100


def test_files_of_runs_are_served_in_a_sandbox(viewer: Viewer) -> None:
    run = viewer.folder / "one"
    run.mkdir()
    (run / "report.html").write_text("<p>report")
    status, content, headers = viewer.get(f"/{viewer.server.token}/files/one/report.html")
    assert (status, content) == (200, b"<p>report")
    assert headers["Content-Type"] == "text/html; charset=utf-8"
    policy = headers["Content-Security-Policy"]
    assert "sandbox allow-scripts" in policy
    assert "allow-same-origin" not in policy
    assert "default-src 'none'" in policy
    assert headers["X-Content-Type-Options"] == "nosniff"


@pytest.mark.parametrize(
    "path",
    [
        "../secret", "one/../../secret", "%2e%2e/secret", "..%2fsecret", "one/%2e%2e/%2e%2e/secret", "/etc/passwd",
        "%2fetc%2fpasswd", "link", "folder-link/secret", "one", "one/", "", ".hidden/file", "one/.units", "none", "%00",
    ],
)  # fmt: skip
def test_nothing_outside_the_folder_is_served(viewer: Viewer, path: str) -> None:
    (viewer.folder.parent / "secret").write_text("secret")
    (viewer.folder / "one").mkdir()
    (viewer.folder / "one" / ".units").write_text("secret")
    (viewer.folder / ".hidden").mkdir()
    (viewer.folder / ".hidden" / "file").write_text("secret")
    os.symlink(viewer.folder.parent / "secret", viewer.folder / "link")
    os.symlink(viewer.folder.parent, viewer.folder / "folder-link")
    status, content = viewer.ours(f"files/{path}")
    assert status == 404
    assert b"secret" not in content


@pytest.mark.parametrize("run", ["..", "../..", "/", "/etc", "%2e%2e", "none", "link"])
def test_runs_outside_the_folder_are_not_read(viewer: Viewer, run: str) -> None:
    made_run(viewer.folder.parent / "outside", 2, 3)
    os.symlink(viewer.folder.parent / "outside", viewer.folder / "link")
    for what in ("table", "points", "messages"):
        assert (
            viewer.ours(f"data/{what}", run=run, table="ranks", **dict.fromkeys(("from", "to", "first", "last"), 0))[0]
            == 404
        )


@pytest.mark.parametrize(
    ("what", "query"),
    [
        ("tile", {"e": "-1", "i": "0", "r": "0", "j": "0"}), ("tile", {"e": "63", "i": "0", "r": "0", "j": "0"}),
        ("tile", {"e": "1", "i": "x", "r": "0", "j": "0"}), ("tile", {"e": "1", "i": "9" * 30, "r": "0", "j": "0"}),
        ("tile", {"e": "1", "i": "0", "r": "0"}), ("at", {"row": "1.5", "ps": "0"}),
    ],
)  # fmt: skip
def test_places_that_are_no_numbers_are_refused(viewer: Viewer, what: str, query: dict[str, str]) -> None:
    made_run(viewer.folder / "one", 2, 3)
    status, content = viewer.ours(f"data/{what}", run="one", table="ranks", version="1", **query)
    assert status == 400
    assert b"number" in content or b"lacks" in content


def table(viewer: Viewer, run: str, name: str = "ranks") -> dict[str, Any]:
    """What is told of a table once it is readable."""
    viewer.timelines.wait(viewer.folder / run, name)
    found: dict[str, Any] = viewer.data("table", run=run, table=name)
    return found


def test_a_tile_has_a_byte_for_each_cell(viewer: Viewer) -> None:
    made_run(viewer.folder / "one", ranks=10, segments_each=50)
    info = table(viewer, "one")
    assert (info["state"], info["rows"], info["segments"], info["span"]) == ("ready", 10, 500, 50 * SEGMENT_PS)
    status, content = viewer.ours(
        "data/tile", run="one", table="ranks", version=info["version"], e=info["top"], i=0, r=0, j=0
    )
    assert status == 200
    cells = np.frombuffer(content, np.uint8).reshape(10, tiles.COLUMNS)
    ps = ((np.arange(tiles.COLUMNS) + 0.5) * 2 ** info["top"]).astype(int)
    assert (
        cells[3, ps < 10 * SEGMENT_PS][::20].tolist()
        == ((3 + ps[ps < 10 * SEGMENT_PS] // SEGMENT_PS) % 5)[::20].tolist()
    )


def test_a_segment_is_told_with_its_times(viewer: Viewer) -> None:
    made_run(viewer.folder / "one", ranks=4, segments_each=30)
    info = table(viewer, "one")
    found = viewer.data("at", run="one", table="ranks", version=info["version"], row=2, ps=17 * SEGMENT_PS + 1)
    (segment,) = found["segments"]
    assert (segment["start"], segment["end"], segment["item"]) == (17 * SEGMENT_PS, 18 * SEGMENT_PS, 17)
    assert info["categories"][segment["category"]] == "collective"
    assert segment["call"] is None  # the run names no trace


def test_messages_are_those_on_their_way(viewer: Viewer) -> None:
    made_run(viewer.folder / "one", ranks=5, segments_each=300)
    viewer.timelines.wait(viewer.folder / "one", "messages")
    window = {"from": 100 * SEGMENT_PS, "to": 101 * SEGMENT_PS, "first": 1, "last": 3}
    found = viewer.data("messages", run="one", **window)
    assert found["state"] == "ready"
    assert sorted(zip(found["source"], found["destination"], strict=True)) == [(1, 2), (2, 3)]
    assert set(found["send"]) == {100 * SEGMENT_PS}
    assert set(found["receive"]) == {102 * SEGMENT_PS}
    nothing = viewer.data("messages", run="one", **(window | {"from": 103 * SEGMENT_PS, "to": 104 * SEGMENT_PS}))
    assert nothing["source"] == []


def test_a_timeline_that_is_written_again_is_read_again(viewer: Viewer) -> None:
    made_run(viewer.folder / "one", ranks=4, segments_each=30)
    before = table(viewer, "one")
    path = viewer.folder / "one" / "timeline" / "ranks.parquet"
    other = made_run(viewer.folder.parent / "other", ranks=6, segments_each=30)
    os.replace(other / "timeline" / "ranks.parquet", path)
    place = {"run": "one", "table": "ranks", "e": 15, "i": 0, "r": 0, "j": 0}
    assert viewer.ours("data/tile", version=before["version"], **place)[0] == 410
    after = table(viewer, "one")
    assert (before["rows"], after["rows"]) == (4, 6)
    assert viewer.ours("data/tile", version=after["version"], **place)[0] == 200


def test_files_of_timelines_that_are_closed_are_removed(viewer: Viewer) -> None:
    for number in range(12):
        made_run(viewer.folder / f"run-{number}", ranks=2, segments_each=3)
        table(viewer, f"run-{number}")
    assert len(list((viewer.folder.parent / "scratch").iterdir())) == 8
    assert table(viewer, "run-0")["rows"] == 2  # opened again


def test_a_damaged_timeline_is_told(viewer: Viewer) -> None:
    folder = viewer.folder / "one" / "timeline"
    folder.mkdir(parents=True)
    (folder / "ranks.parquet").write_bytes(b"PAR1 cut short")
    found = table(viewer, "one")
    assert found["state"] == "failed"
    assert "ranks.parquet: cannot be read" in found["problem"]


def test_the_list_follows_runs_that_change(viewer: Viewer) -> None:
    made_run(viewer.folder / "one", ranks=2, segments_each=3)
    (row,) = viewer.data("runs")["runs"]
    assert (row["name"], row["status"], row["target"], row["tables"]) == ("one", "complete", "nowhere", ["ranks"])
    assert row["seconds"] == pytest.approx(3e-6)
    assert time.time() - row["date"] < 600
    (viewer.folder / "one" / "manifest.json").write_text('{"status": "running"}')
    made_run(viewer.folder / "group" / "two", ranks=2, segments_each=3)
    (viewer.folder / "three").mkdir()
    (viewer.folder / "three" / "index.html").write_text("a page alone")
    rows = {row["name"]: row for row in viewer.data("runs")["runs"]}
    assert set(rows) == {"one", "group/two", "three"}
    assert rows["one"]["status"] == "running"
    assert rows["three"]["pages"] == ["index.html"]


def test_names_that_are_no_plain_text_lead_to_their_run(viewer: Viewer) -> None:
    name = "a b%2e é#?&'"
    made_run(viewer.folder / name, ranks=3, segments_each=2)
    (viewer.folder / name / "report.html").write_text("its report")
    (row,) = viewer.data("runs")["runs"]
    viewer.timelines.wait((viewer.folder / name).resolve(), "ranks")
    assert viewer.data("table", run=row["id"], table="ranks")["rows"] == 3
    assert viewer.ours(f"files/{row['id']}/{row['pages'][0]}") == (200, b"its report")


def test_a_damaged_run_is_told_in_its_row(viewer: Viewer) -> None:
    made_run(viewer.folder / "one", ranks=2, segments_each=3)
    made_run(viewer.folder / "two", ranks=2, segments_each=3)
    (viewer.folder / "one" / "stats.json").write_text("{")
    (viewer.folder / "two" / "manifest.json").write_text("nothing")
    rows = {row["name"]: row for row in viewer.data("runs")["runs"]}
    assert "stats.json: is damaged" in rows["one"]["problem"]
    assert "manifest.json: is damaged" in rows["two"]["problem"]


def test_operations_are_named_as_their_calls(
    viewer: Viewer, cli: Callable[..., Any], write_trace: Callable[..., Path], private_cache: Path
) -> None:
    trace = write_trace(
        {0: ["init", "compute 1e6", "send 1 0 8 6", "finalize"], 1: ["init", "recv 0 0 8 6", "finalize"]}
    )
    assert (
        cli("run", "--workload", trace, "--target", "crossbar256", "-o", viewer.folder / "real", "--no-report").status
        == 0
    )
    info = table(viewer, "real")
    names = CallNames(viewer.folder / "real", private_cache)
    names.wait()
    assert names.problem == ""
    asked = {"run": "real", "table": "ranks", "version": info["version"], "row": 1, "ps": info["span"] - 1}
    operation = viewer.data("at", **asked)["segments"][0]["item"]
    assert names.name(1, operation) == "MPI_Recv"
    trace_file = trace / "rank-1.txt"
    trace_file.write_text(trace_file.read_text().replace("recv 0 0 8 6", "recv 0 0 8 6\n1 compute 5"))
    changed = CallNames(viewer.folder / "real", private_cache)
    changed.wait()
    assert "the trace was changed since the run" in changed.problem
    assert changed.name(1, operation) is None


def test_a_sweep_shows_its_points(viewer: Viewer, cli: Callable[..., Any], write_trace: Callable[..., Path]) -> None:
    trace = write_trace({0: ["init", "compute 1e6", "finalize"], 1: ["init", "compute 3e6", "finalize"]})
    study = viewer.folder.parent / "study.yaml"
    study.write_text(f"schema: 1\nworkload: {{path: {trace}}}\ntarget: crossbar256\nsweep: {{cpu_ratio: [1.0, 0.5]}}\n")
    assert cli("run", study, "-o", viewer.folder / "sweep").status == 0
    (row,) = viewer.data("runs")["runs"]
    assert (row["points"], row["target"], row["pages"]) == (2, "crossbar256", ["report.html"])
    assert (row["seconds"], row["most_seconds"]) == (
        pytest.approx(1.5e-3),
        pytest.approx(3e-3),
    )  # 3e6 flop at 1 Gflop/s
    points = viewer.data("points", run=row["id"])["runs"]
    assert [(point["name"], point["seconds"]) for point in points] == [
        ("cpu_ratio: 1.0", pytest.approx(3e-3)), ("cpu_ratio: 0.5", pytest.approx(1.5e-3))
    ]  # fmt: skip
    assert all(point["tables"] == ["ranks"] for point in points)
    viewer.timelines.wait((viewer.folder / "sweep" / "points" / "0001").resolve(), "ranks")
    assert viewer.data("table", run=points[1]["id"], table="ranks")["rows"] == 2

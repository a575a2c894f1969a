"""A timeline of a million segments pans and zooms at 20 frames a second, and to read it takes bounded memory."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

import pytest
from browser import visit
from timeline_runs import made_run

from manyscale.runner.view.runs import Runs
from manyscale.runner.view.server import ViewServer
from manyscale.runner.view.timelines import Timelines

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

FRAME_MS: Final = 50  # 20 frames a second
READING_MB: Final = (
    300  # beyond what is loaded already; ten million segments take 330 MB as arrays, and were 10 times that
)
FRAMES: Final = 150

# Zooms in and out under a moving pointer, and pans, one step a frame; returns the time between frames in ms.
MOVES: Final = """(frames) => new Promise((resolve) => {
  const canvas = document.querySelector(".panel canvas"), box = canvas.getBoundingClientRect(), times = [];
  const wheel = (part, deltaY) => canvas.dispatchEvent(new WheelEvent("wheel", { deltaY, cancelable: true,
    clientX: box.left + 80 + part * (box.width - 90), clientY: box.top + box.height / 2 }));
  function step(now) {
    times.push(now);
    const done = times.length - 1;
    if (done >= frames) return resolve(times.slice(1).map((time, index) => time - times[index]));
    const key = done % 2 ? "ArrowRight" : "ArrowLeft";
    if (done % 3 === 2) canvas.dispatchEvent(new KeyboardEvent("keydown", { key }));
    else wheel(0.3 + 0.4 * done / frames, done < frames / 2 ? -90 : 90);
    requestAnimationFrame(step);
  }
  requestAnimationFrame(step);
})"""

READING: Final = """
import sys, tempfile
from pathlib import Path
from manyscale.runner.view import tiles
from manyscale.runner.view.segments import Segments
from manyscale.runner.view.tables import TABLES, SegmentTable

def peak_mb():
    return int(next(line for line in open("/proc/self/status") if line.startswith("VmHWM")).split()[1]) / 1024

tiles.warm()
before = peak_mb()
with tempfile.TemporaryDirectory() as folder:
    found = Segments(SegmentTable(Path(sys.argv[1]), TABLES["ranks"]), Path(folder) / "pieces")
    top = tiles.top_level(found.table.span_ps)
    for e in range(top, max(0, top - 12), -1):
        for j in range(4):
            tiles.tile(found, e, (1 << top - e) // 2, 0, j)
    print(found.table.num_segments, peak_mb() - before)
"""


def ready(page: Page) -> None:
    """Wait until all that is in view is drawn from tiles of its own level."""
    page.wait_for_function(
        "() => [...document.querySelectorAll('.panel canvas')].every((c) => c.ariaBusy === 'false')", timeout=120_000
    )


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ViewServer]:
    """A run of 1,000 ranks with 1,000 segments each, and one with 10,000 each."""
    folder = tmp_path_factory.mktemp("view")
    (folder / "scratch").mkdir()
    for name, each in (("million", 1_000), ("ten-million", 10_000)):
        made_run(folder / "runs" / name, ranks=1_000, segments_each=each)
    with ViewServer(Runs(folder / "runs"), Timelines(folder / "scratch", folder / "cache")) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


@pytest.mark.bench
@pytest.mark.parametrize("name", ["million", "ten-million"])
def test_a_million_segments_pan_and_zoom_at_20_frames_a_second(browser: Browser, served: ViewServer, name: str) -> None:
    with visit(browser, f"{served.address}timeline#run={name}", width=1600, height=1000) as visited:
        page = visited.page
        ready(page)
        devtools = page.context.new_cdp_session(page)
        devtools.send("Performance.enable", {"timeDomain": "threadTicks"})

        def cpu_seconds() -> float:
            metrics: list[dict[str, Any]] = devtools.send("Performance.getMetrics")["metrics"]
            return float(next(each["value"] for each in metrics if each["name"] == "TaskDuration"))

        before = cpu_seconds()
        between = sorted(page.evaluate(MOVES, FRAMES))
        cpu_ms = 1e3 * (cpu_seconds() - before) / FRAMES
        median, slow = between[len(between) // 2], between[len(between) * 95 // 100]
        print(f"\n{name}: {1e3 / median:.0f} frames a second, 95 % within {slow:.0f} ms; {cpu_ms:.1f} CPU ms each")
        assert visited.errors == []
    assert cpu_ms <= FRAME_MS
    assert median <= FRAME_MS


@pytest.mark.bench
def test_ten_million_segments_are_never_in_memory_at_once(served: ViewServer) -> None:
    path = served.runs.root / "ten-million" / "timeline" / "ranks.parquet"
    done = subprocess.run([sys.executable, "-c", READING, str(path)], check=True, capture_output=True, text=True)
    count, grown_mb = done.stdout.split()
    print(f"\n{int(count):,} segments: {float(grown_mb):.0f} MB beyond what was loaded")
    assert int(count) == 10_000_000
    assert float(grown_mb) < READING_MB

"""The viewer's pages in a browser: what they show, and how they are moved."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import parse_qs, urlsplit

import pytest
from browser import page_problems, visit
from timeline_runs import SEGMENT_PS, made_run

from manyscale.runner.report.palette import COLOURS
from manyscale.runner.view.runs import Runs
from manyscale.runner.view.server import ViewServer
from manyscale.runner.view.timelines import Timelines

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

RANKS, EACH = 8, 300
STATES = ("compute", "send", "receive", "wait", "collective")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("view")


@pytest.fixture(scope="module")
def address(folder: Path) -> Iterator[str]:
    """Of a viewer of two runs, one of them in a folder, and a report."""
    (folder / "scratch").mkdir()
    made_run(folder / "runs" / "first", RANKS, EACH)
    made_run(folder / "runs" / "more" / "second", RANKS, 2 * EACH, shift=1)
    page = '<!DOCTYPE html><title>A report</title><script src="../shared.js"></script><script>share()</script>'
    (folder / "runs" / "first" / "report.html").write_text(page)
    (folder / "runs" / "shared.js").write_text("const share = () => { document.title += '!'; };")
    with ViewServer(Runs(folder / "runs"), Timelines(folder / "scratch", folder / "cache")) as server:
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        yield server.address
        server.shutdown()


def settled(page: Page) -> None:
    """Wait until a timeline is drawn from tiles of its own level, and its address says what it shows."""
    canvases = "[...document.querySelectorAll('.panel canvas')]"
    page.wait_for_function(f"() => {canvases}.length && {canvases}.every((each) => each.ariaBusy === 'false')")


@contextmanager
def timeline(browser: Browser, address: str, **words: object) -> Iterator[Page]:
    """A timeline's page, whose console must have stayed silent."""
    query = "&".join(f"{key}={value}" for key, value in words.items())
    with visit(browser, f"{address}timeline#{query}") as visited:
        settled(visited.page)
        yield visited.page
        assert visited.errors == []
        assert visited.outside() == []


def colour_at(page: Page, ps: float, row: float, panel: int = 0) -> str:
    """The colour of the picture at a time and in a row, of a page that shows the times in its address."""
    found: str = page.evaluate(
        """([ps, row, panel]) => {
          const canvas = document.querySelectorAll(".panel canvas")[panel];
          const words = new URLSearchParams(location.hash.slice(1));
          const info = document.querySelectorAll(".panel .head .soft")[panel].textContent;
          const from = Number(words.get("from")), to = Number(words.get("to"));
          const shown = (words.get("rows") || "").split("-").map(Number), all = Number(/(\\d+) rows/.exec(info)[1]);
          const [first, last] = shown.length === 2 ? shown : [0, all];
          const x = 74 + (ps - from) / (to - from) * (canvas.clientWidth - 74);
          const y = 24 + (row + 0.5 - first) / (last - first) * (canvas.clientHeight - 24);
          const one = Object.assign(document.createElement("canvas"), { width: 1, height: 1 }).getContext("2d");
          one.drawImage(canvas, Math.floor(x), Math.floor(y), 1, 1, 0, 0, 1, 1);
          const [red, green, blue] = one.getImageData(0, 0, 1, 1).data;
          return "#" + [red, green, blue].map((part) => part.toString(16).padStart(2, "0")).join("");
        }""",
        [ps, row, panel],
    )
    return found


def state_at(segment: int, rank: int, shift: int = 0) -> str:
    return COLOURS[STATES[(rank + segment + shift) % 5]]


def window(page: Page) -> tuple[float, float]:
    """From and to of the address, once it has followed the view."""
    page.wait_for_timeout(300)  # the address follows when the view rests
    words = parse_qs(urlsplit(page.url).fragment)
    return float(words["from"][0]), float(words["to"][0])


def test_the_list_opens_reports_and_timelines(browser: Browser, address: str) -> None:
    with visit(browser, address) as visited:
        page = visited.page
        page.wait_for_selector("#rows tr")
        assert page.locator("#rows tr").count() == 2
        page.fill("#find", "second")
        assert page.locator("#rows tr").count() == 1
        assert "600 us" in page.inner_text("#rows")
        page.fill("#find", "nowhere")  # the target of both
        assert page.locator("#rows tr").count() == 2
        page.click("#by-seconds")
        assert page.locator("#rows tr").first.inner_text().startswith("first")
        page.click("#by-seconds")
        assert page.locator("#rows tr").first.inner_text().startswith("more/second")
        with page.context.expect_page() as opened:
            page.click("text=report")
        opened.value.wait_for_load_state()
        assert opened.value.title() == "A report!"  # its script runs
        assert opened.value.evaluate("() => window.origin") == "null"  # and reaches nothing of the viewer
        for box in page.locator("input[type=checkbox]").all():
            box.check()
        page.click("#compare")
        settled(page)
        assert page.locator(".panel canvas").count() == 2
        assert visited.errors == []


def test_a_timeline_shows_each_state_where_it_is(browser: Browser, address: str) -> None:
    with timeline(browser, address, run="first", **{"from": 100 * SEGMENT_PS, "to": 110 * SEGMENT_PS}) as page:
        for segment in range(100, 110):
            for rank in range(RANKS):
                assert colour_at(page, (segment + 0.25) * SEGMENT_PS, rank) == state_at(segment, rank)
        assert page.inner_text(".legend").split() == [*STATES, "idle"]


@pytest.mark.slow
def test_two_runs_share_the_scale_of_time(browser: Browser, address: str) -> None:
    words = {"from": 295 * SEGMENT_PS, "to": 305 * SEGMENT_PS, "with": "more%2Fsecond"}
    with timeline(browser, address, run="first", **words) as page:
        assert colour_at(page, 298.25 * SEGMENT_PS, 3, 0) == state_at(298, 3)
        assert colour_at(page, 298.25 * SEGMENT_PS, 3, 1) == state_at(298, 3, shift=1)
        assert colour_at(page, 302.25 * SEGMENT_PS, 3, 0) == "#ffffff"  # the first run has ended
        assert colour_at(page, 302.25 * SEGMENT_PS, 3, 1) == state_at(302, 3, shift=1)


@pytest.mark.slow
def test_wheel_drag_and_keys_move_the_view(browser: Browser, address: str) -> None:
    with timeline(browser, address, run="first", **{"from": 100 * SEGMENT_PS, "to": 200 * SEGMENT_PS}) as page:
        box = page.locator(".panel canvas").bounding_box()
        assert box is not None
        middle = box["x"] + 74 + (box["width"] - 74) / 2, box["y"] + box["height"] / 2
        page.mouse.move(*middle)
        page.mouse.wheel(0, -200)
        low, high = window(page)
        assert (low + high) / 2 == pytest.approx(150 * SEGMENT_PS, rel=0.01)  # what is under the pointer stays there
        assert high - low < 80 * SEGMENT_PS
        page.mouse.down()
        page.mouse.move(middle[0] + (box["width"] - 74) / 4, middle[1], steps=4)
        page.mouse.up()
        after = window(page)
        assert after[0] == pytest.approx(low - (high - low) / 4, rel=0.02)  # the picture follows the hand
        page.focus(".panel canvas")
        page.keyboard.press("ArrowRight")
        assert window(page)[0] > after[0]
        page.keyboard.press("+")
        assert window(page)[1] - window(page)[0] == pytest.approx(0.6 * (after[1] - after[0]), rel=0.02)
        page.keyboard.press("Home")
        page.wait_for_timeout(300)
        assert "from" not in parse_qs(urlsplit(page.url).fragment)  # the whole run


@pytest.mark.slow
def test_a_segment_is_told_to_pointer_and_keyboard(browser: Browser, address: str) -> None:
    with timeline(browser, address, run="first", **{"from": 100 * SEGMENT_PS, "to": 110 * SEGMENT_PS}) as page:
        box = page.locator(".panel canvas").bounding_box()
        assert box is not None
        page.mouse.move(box["x"] + 74 + 0.225 * (box["width"] - 74), box["y"] + 24 + 3.5 / RANKS * (box["height"] - 24))
        tip = page.wait_for_selector(".tip:not([hidden])")
        assert tip.inner_text() == f"rank 3: {STATES[(3 + 102) % 5]}, from 102.000000 us, for 1 us, operation 102"
        page.focus(".panel canvas")
        page.keyboard.press(".")
        page.wait_for_function("() => document.getElementById('said').textContent.includes('operation 103')")
        page.keyboard.press(",")
        page.wait_for_function("() => document.getElementById('said').textContent.includes('operation 102')")


@pytest.mark.slow
def test_messages_in_view_are_lines(browser: Browser, address: str) -> None:
    with timeline(browser, address, run="first", **{"from": 99 * SEGMENT_PS, "to": 103 * SEGMENT_PS}) as page:
        page.wait_for_function(f"() => document.querySelector('.panel canvas').dataset.messages === '{RANKS}'")
        # half-way between rank 2 and rank 3 the line of their message passes, which takes two segments
        seen = {colour_at(page, (101 + step / 400) * SEGMENT_PS, 2.48) for step in range(-20, 20)}
        assert any(colour not in COLOURS.values() for colour in seen - {"#ffffff"})


@pytest.mark.slow
def test_places_are_reached_by_name(browser: Browser, address: str) -> None:
    with timeline(browser, address, run="first") as page:
        page.fill("#from", "10 us")
        page.fill("#to", "0.02 ms")
        page.press("#to", "Enter")
        assert window(page) == (10 * SEGMENT_PS, 20 * SEGMENT_PS)
        page.fill("#rank", "8")
        page.press("#rank", "Enter")
        assert page.inner_text("#said") == "There is no rank 8; the last is 7."
        page.fill("#rank", "")
        page.fill("#to", "5 parsecs")
        page.press("#to", "Enter")
        assert "are times such as" in page.inner_text("#said")


@pytest.mark.slow
def test_a_run_that_is_gone_is_told(browser: Browser, address: str) -> None:
    with visit(browser, f"{address}timeline#run=gone") as visited:
        visited.page.wait_for_selector(".panel")
        visited.page.wait_for_function(
            "() => document.querySelector('.panel').textContent.includes('there is no such run')"
        )


@pytest.mark.slow
def test_a_timeline_appears_once_its_run_has_written_it(browser: Browser, address: str, folder: Path) -> None:
    (folder / "runs" / "late" / "timeline").mkdir(parents=True)
    (folder / "runs" / "late" / "timeline" / "ranks.parquet").write_bytes(b"PAR1, and not yet more")
    with visit(browser, f"{address}timeline#run=late") as visited:
        visited.page.wait_for_selector(".panel >> text=cannot be read")
        shutil.rmtree(folder / "runs" / "late")
        made_run(folder / "runs" / "late", RANKS, EACH)
        visited.page.wait_for_selector(".panel >> text=2,400 segments, 8 rows")
        settled(visited.page)
    shutil.rmtree(folder / "runs" / "late")


@pytest.mark.slow
@pytest.mark.parametrize("place", ["", "timeline#run=first", "timeline#run=first&with=more%2Fsecond"])
def test_pages_of_the_viewer_are_as_pages_must_be(browser: Browser, address: str, place: str) -> None:
    def ready(page: Page) -> None:
        if place:
            settled(page)
        else:
            page.wait_for_selector("#rows tr")

    assert page_problems(browser, address + place, ready) == []

"""Headless Chromium for tests of pages, and what must hold of every page in it.

The browser is Debian's ``chromium``, driven by Playwright; where one of them is missing, tests are skipped by name.
Rules of accessibility are those of axe-core (WCAG 2.1, levels A and AA), which ``axe-playwright-python`` ships.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser, ConsoleMessage, Page

PROGRAMS: Final = ("chromium", "chromium-browser", "google-chrome")
NARROW: Final = 360  # pixels: the width of a small telephone
WIDE: Final = 1280

# An element's look as far as focus can change it: visible where the ring has a contrast of 3 to what is behind it (WCAG
# 1.4.11), and no element around it is transparent; a ring that is the browser's own ("auto") has two colours for this.
_FOCUSED: Final = """() => {
  let element = document.activeElement;
  while (element && element.shadowRoot && element.shadowRoot.activeElement) element = element.shadowRoot.activeElement;
  if (!element || element === document.body || element === document.documentElement) return null;
  const look = (node) => {
    const s = getComputedStyle(node);
    return [s.outlineStyle === "none" ? "" : s.outlineWidth + s.outlineStyle + s.outlineColor, s.boxShadow,
      s.backgroundColor, s.borderColor, s.textDecorationLine].join("|");
  };
  const focused = look(element);
  element.blur();
  const blurred = look(element);
  element.focus({ preventScroll: true, focusVisible: true });
  const light = (colour) => {
    const parts = colour.match(/[\\d.]+/g).slice(0, 3).map((part) => part / 255);
    const [r, g, b] = parts.map((part) => part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  let opacity = 1, behind = "rgb(255, 255, 255)";
  for (let node = element; node instanceof Element; node = node.parentElement) {
    opacity *= Number(getComputedStyle(node).opacity);
  }
  for (let node = element.parentElement; node instanceof Element; node = node.parentElement) {
    const colour = getComputedStyle(node).backgroundColor;
    if (!/, 0\\)$|transparent/.test(colour)) { behind = colour; break; }
  }
  const ring = getComputedStyle(element), two = [light(ring.outlineColor), light(behind)].sort((a, b) => b - a);
  const isClear = ["none", "auto"].includes(ring.outlineStyle) || (two[0] + 0.05) / (two[1] + 0.05) >= 3;
  const rest = (element.textContent || "").trim().slice(0, 40);
  if (!element.dataset.testStop) element.dataset.testStop = String(window.testStops = (window.testStops || 0) + 1);
  return { stop: element.dataset.testStop, visible: focused !== blurred && isClear && opacity > 0.5,
    name: element.tagName.toLowerCase() + (element.id ? "#" + element.id : "") + " " + rest };
}"""

_CONTROLS: Final = """() => [...document.querySelectorAll(
    "a[href], button, input, select, textarea, summary, [tabindex='0']")]
  .filter((e) => !e.disabled && e.tabIndex >= 0 && e.type !== "hidden")
  .filter((e) => e.checkVisibility({ visibilityProperty: true })
    && !(e.type === "radio" && !e.checked && e.name))
  .filter((e) => !e.dataset.testStop)
  .map((e) => e.tagName.toLowerCase() + (e.id ? "#" + e.id : "") + " " + (e.textContent || "").trim().slice(0, 40))"""


@dataclass
class Visit:
    """A page that is open: what its console said amiss, and every address that it asked for."""

    page: Page
    errors: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)

    def outside(self) -> list[str]:
        """Requests that left this computer."""
        inside = ("file:", "data:", "blob:", "about:", "http://127.0.0.1:", "http://localhost:")
        return [address for address in self.requests if not address.startswith(inside)]


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Headless Chromium. A page of it: ``browser.new_page()``, or ``visit``, which listens to what the page does.

    One for each module of tests: while Playwright is open its event loop counts as running, so that ``asyncio.run`` of
    other tests in this process would be refused.
    """
    program = next((found for name in PROGRAMS if (found := shutil.which(name))), None)
    if program is None:
        pytest.skip("chromium is not installed")
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    with playwright.sync_playwright() as driver:
        # a container has no user namespaces for the sandbox; the pages are this project's own
        running = driver.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield running
        running.close()


@contextmanager
def visit(
    browser: Browser, address: str, *, width: int = WIDE, height: int = 900, dark: bool = False
) -> Iterator[Visit]:
    """Open an address, wait until it is loaded, and listen to its console and its requests."""
    context = browser.new_context(
        viewport={"width": width, "height": height}, color_scheme="dark" if dark else "light", reduced_motion="reduce"
    )
    try:
        visited = Visit(context.new_page())
        page = visited.page
        page.on("pageerror", lambda error: visited.errors.append(str(error)))
        page.on("request", lambda request: visited.requests.append(request.url))
        page.on("console", lambda said: visited.errors.append(said.text) if _is_amiss(said) else None)
        page.goto(address)
        page.wait_for_load_state("networkidle")
        yield visited
    finally:
        context.close()


def _is_amiss(said: ConsoleMessage) -> bool:
    """Whether a line of the console is an error or a warning of the page, and not of the graphics driver."""
    return said.type in ("error", "warning") and "GL Driver Message" not in said.text


def accessibility(page: Page) -> list[str]:
    """What axe-core finds against WCAG 2.1 A and AA, contrast included: a line per element."""
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="axe-playwright-python is not installed")
    levels = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa"]
    found = axe.Axe().run(page, options={"runOnly": {"type": "tag", "values": levels}}).response["violations"]
    return [
        f"{rule['id']}: {node['target']} {node.get('failureSummary', '')}" for rule in found for node in rule["nodes"]
    ]


def overflow(page: Page) -> list[str]:
    """Elements that reach beyond the right edge of the window, if the page can be scrolled sideways."""
    found: list[str] = page.evaluate("""() => {
      const width = document.documentElement.clientWidth;
      if (Math.max(document.documentElement.scrollWidth, document.body.scrollWidth) <= width) return [];
      return [...document.querySelectorAll("body *")].filter((e) => e.getBoundingClientRect().right > width + 1)
        .map((e) => e.tagName.toLowerCase() + "." + e.className + " " + Math.round(e.getBoundingClientRect().right))
        .slice(0, 8).concat(["page " + document.documentElement.scrollWidth + " > " + width]);
    }""")
    return found


def keyboard(page: Page, most: int = 400) -> list[str]:
    """Controls that Tab does not reach, and stops of Tab that do not show that they have the focus."""
    problems: list[str] = []
    seen: set[str] = set()
    page.evaluate("() => { document.activeElement.blur(); window.scrollTo(0, 0); }")
    for _ in range(most):
        page.keyboard.press("Tab")
        page.evaluate("() => Promise.all(document.getAnimations().map((each) => each.finished.catch(() => 0)))")
        stop: dict[str, Any] | None = page.evaluate(_FOCUSED)
        if stop is None or stop["stop"] in seen:
            break
        seen.add(stop["stop"])
        if not stop["visible"]:
            problems.append(f"focus is not visible: {stop['name']}")
    return problems + [f"not reached by Tab: {name}" for name in page.evaluate(_CONTROLS)]


def page_problems(browser: Browser, address: str, ready: Callable[[Page], None] = lambda page: None) -> list[str]:
    """All that is wrong with a page, wide and narrow, light and dark; [] where all holds. ``ready`` waits until the
    page shows what it has to show."""
    problems: list[str] = []
    for width, is_dark in ((WIDE, False), (NARROW, True)):
        with visit(browser, address, width=width, dark=is_dark) as visited:
            page = visited.page
            ready(page)
            found = {is_dark: [*accessibility(page), *overflow(page), *keyboard(page)]}
            page.emulate_media(color_scheme="light" if is_dark else "dark")  # as a user's clock does in the evening
            page.wait_for_load_state("networkidle")
            ready(page)
            found[not is_dark] = accessibility(page)
            found[is_dark] += [f"console: {line}" for line in visited.errors]
            found[is_dark] += [f"asks for {request}" for request in visited.outside()]
        for dark, lines in found.items():
            problems += [f"{width} px, {'dark' if dark else 'light'}: {line}" for line in lines]
    return problems

"""The thirty questions of docs/howto/questions.md: each says where it was asked, and leads to a page that exists."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from page_blocks import ROOT

pytestmark = pytest.mark.contract

PAGE = ROOT / "docs" / "howto" / "questions.md"
ASKED = re.compile(r"^<!-- asked: https://github\.com/[\w.-]+/[\w.-]+/(?:issues|pull)/\d+ -->$", re.MULTILINE)
PLACE = "<!-- asked: https://github.com/a/b/issues/1 -->"
LINK = re.compile(r"\]\(([^)#:\s]+\.md)(?:#([\w-]+))?\)")


def questions(text: str) -> dict[str, str]:
    """Question to answer."""
    parts = re.split(r"^### (.+)\n", re.split(r"^## .*$", text, maxsplit=1, flags=re.MULTILINE)[1], flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as the site makes them."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[\s-]+", "-", re.sub(r"[^\w\s-]", "", heading).strip().lower()) for heading in headings}


def faults(question: str, answer: str, folder: Path) -> list[str]:
    """What is wrong with one question."""
    found = []
    if len(ASKED.findall(answer)) != 1:
        found.append("has no line that says where it was asked")
    if not question.endswith("?"):
        found.append("is no question")
    links = LINK.findall(answer)
    if not links:
        found.append("leads to no page")
    for link, anchor in links:
        page = (folder / link).resolve()
        if not page.is_file():
            found.append(f"leads to {link}, which does not exist")
        elif anchor and anchor not in anchors(page):
            found.append(f"leads to {link}#{anchor}, which has no such heading")
    return [f"{question}: {fault}" for fault in found]


def test_thirty_questions_are_asked_once_and_answered_by_a_page() -> None:
    asked = questions(PAGE.read_text())
    assert len(asked) == 30
    assert [fault for question, answer in asked.items() for fault in faults(question, answer, PAGE.parent)] == []
    places = [place for answer in asked.values() for place in ASKED.findall(answer)]
    assert len(set(places)) == 30


def test_every_tool_whose_users_were_listened_to_has_questions() -> None:
    text = PAGE.read_text()
    for owner in ("simgrid/simgrid", "bsc-performance-tools", "accel-sim/", "PPT-GPU", "gem5/gem5", "Simpoint"):
        assert f"{owner}" in "\n".join(ASKED.findall(text)), owner


def test_the_page_is_two_clicks_from_the_first_one() -> None:
    start = (ROOT / "docs" / "index.md").read_text()
    pages = [ROOT / "docs" / "index.md", *((ROOT / "docs" / link).resolve() for link, _ in LINK.findall(start))]
    assert any((page.parent / link).resolve() == PAGE for page in pages for link, _ in LINK.findall(page.read_text()))


@pytest.mark.parametrize(
    ("answer", "fault"),
    [
        ("Yes. [More](a.md)", "has no line that says where it was asked"),
        (f"{PLACE}\nYes.", "leads to no page"),
        (f"{PLACE}\n[More](b.md)", "leads to b.md, which does not exist"),
        (f"{PLACE}\n[More](a.md#c)", "leads to a.md#c, which has no such heading"),
    ],
)
def test_faults_are_seen(answer: str, fault: str, tmp_path: Path) -> None:
    (tmp_path / "a.md").write_text("# A page\n\n## Its part: one\n")
    assert faults("Why?", answer, tmp_path) == [f"Why?: {fault}"]
    good = f"{PLACE}\n[More](a.md#its-part-one)"
    assert faults("Why?", good, tmp_path) == []

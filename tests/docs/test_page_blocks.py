"""The runner of pages refuses what a page must not do."""

from __future__ import annotations

from pathlib import Path

import pytest
from page_blocks import Block, PageError, PageRun, blocks_of, commands_of, matches, page_environment, page_info

pytestmark = pytest.mark.contract


@pytest.fixture
def run(tmp_path: Path) -> PageRun:
    return PageRun(tmp_path, page_environment(tmp_path / "cache"))


@pytest.mark.parametrize(
    ("language", "text"),
    [
        ("sh", "true\n"),
        ("sh", "false | true || true\n"),
        ("console", "$ echo one   two\none two\n$ printf 'a\\nb\\nc\\n'\na\n...\nc\n"),
        ("console", "$ echo a \\\n  b\na b\n"),
        ("console", "$ echo 'manyscale: simulating 3/22 (16 %), 1.34/s, 14 s left'; echo 1\n1\n"),
        ("console", "$ echo 'manyscale: no'; exit 2\nmanyscale: no\n"),
        ("python", "assert 1 + 1 == 2\n"),
        ("pycon", ">>> 1 + 1\n2\n"),
        ("yaml", "a: [1, 2]\n"),
        ("toml", "a = 1\n"),
        ("text", "anything"),
    ],
)
def test_what_holds_passes(run: PageRun, language: str, text: str) -> None:
    run.run(Block(language, text, 1))


@pytest.mark.parametrize(
    ("language", "text"),
    [
        ("sh", "false\ntrue\n"),
        ("sh", "false | true\n"),
        ("console", "$ echo 1.5\n1.6\n"),
        ("console", "$ echo 1.5; echo 2\n1.5\n"),
        ("console", "$ true\nsomething\n"),
        ("console", "$ echo told; exit 1\ntold\n"),
        ("console", "no command\n"),
        ("pycon", ">>> 1 + 1\n3\n"),
        ("pycon", "1 + 1\n"),
        ("yaml", "a: [1\n"),
        ("toml", "a\n"),
        ("bash", "true\n"),
        ("", "true\n"),
    ],
)
def test_what_does_not_hold_is_refused_with_its_line(run: PageRun, language: str, text: str) -> None:
    with pytest.raises(PageError, match=r"^line 7: "):
        run.run(Block(language, text, 7))


def test_errors_of_python_are_not_swallowed(run: PageRun) -> None:
    with pytest.raises(ZeroDivisionError):
        run.run(Block("python", "1 / 0\n", 1))


def test_blocks_share_a_folder_and_a_namespace(run: PageRun, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(run.folder)
    run.run(Block("yaml", "seed: 3\n", 1, title="some/study.yaml"))
    run.run(Block("console", "$ cat some/study.yaml\nseed: 3\n", 1))
    run.run(Block("python", "text = open('some/study.yaml').read()\n", 1))
    run.run(Block("pycon", ">>> text\n'seed: 3\\n'\n>>> more = text * 2\n", 1))
    run.run(Block("python", "assert more == text + text\n", 1))


def test_a_placeholder_is_not_run_and_says_why(run: PageRun) -> None:
    run.run(Block("sh", "false\n", 1, placeholder="needs a cluster"))
    with pytest.raises(PageError, match="reason"):
        run.run(Block("sh", "true\n", 1, placeholder=""))


def test_blocks_are_found_with_their_comments(tmp_path: Path) -> None:
    page = (
        "<!-- slow -->\n<!-- needs: mpicc, gcc -->\n# T\n\n```sh\na\n```\n\n"
        '<!-- not run: no cluster here -->\n```yaml title="x.yaml"\nb: 1\n```\n'
        "\n- item\n\n    ```python\n    c = 1\n    ```\n"
    )
    assert list(blocks_of(page)) == [
        Block("sh", "a\n", 5),
        Block("yaml", "b: 1\n", 10, "x.yaml", "no cluster here"),
        Block("python", "c = 1\n", 16),
    ]
    with pytest.raises(PageError, match=r"line 1: .*not closed"):
        list(blocks_of("```sh\na\n"))
    path = tmp_path / "page.md"
    path.write_text(page)
    info = page_info(path)
    assert (info.slow, info.needs, info.tested_by) == (True, ("mpicc", "gcc"), None)


def test_dots_stand_for_anything_but_not_for_what_is_written() -> None:
    assert matches("took ... s\n", "took 3.2 s")
    assert matches("", "\n")
    assert not matches("took ... s", "it took 3.2 s")
    assert not matches("a b", "ab")
    assert list(commands_of("$ a\nb\n$ c\n")) == [("a", "b"), ("c", "")]

"""What MkDocs calls while it builds the site: pages made from the code, and links to files outside docs/.

Pages that repeat what the code says are made here at each build, so that there is no second copy to keep up to date:
the reference of commands, keys, statistics, tables and the Python interface, and the reports of measurements
(tests/validation/*/RESULTS*.md) with the deviations they refer to. A link from a page to a file of the repository works
on a code-hosting site as it stands; here it leads to the page made of that file, or to a copy.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Final

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

sys.path.insert(0, str(Path(__file__).parent))

import commands_page
import cuda_calls_page
import instructions_page
import keys_page
import methods_page
import python_page
import statistics_page
import tables_page

from manyscale.runner import schemas

ROOT: Final = Path(__file__).resolve().parents[2]
VALIDATION: Final = ROOT / "tests" / "validation"
GENERATED: Final[dict[str, Callable[[], str]]] = {
    "models/methods.md": methods_page.page,
    "reference/commands.md": commands_page.page,
    "reference/study-keys.md": partial(keys_page.page, "study"),
    "reference/target-keys.md": partial(keys_page.page, "target"),
    "reference/host-keys.md": partial(keys_page.page, "host"),
    "reference/statistics.md": statistics_page.page,
    "reference/run-tables.md": tables_page.run_page,
    "reference/workload-tables.md": tables_page.workload_page,
    "reference/python.md": python_page.page,
    "reference/sass-instructions.md": instructions_page.page,
    "reference/cuda-calls.md": cuda_calls_page.page,
}
COPIED: Final = (".yaml", ".h", ".sh", ".md", ".csv")  # files of the repository that pages link to and the site carries
_LINK = re.compile(r"(?<!!)\[([^\]]*)\]\(([^)#\s]+)(#[^)]*)?\)")


def repository_pages() -> dict[str, str]:
    """Files of the repository that are pages of the site: path in the repository to path in docs/."""
    results = VALIDATION.glob("*/RESULTS*.md")
    names = {path: f"{path.parent.name}{path.stem.removeprefix('RESULTS').lower()}.md" for path in results}
    pages = {str(path.relative_to(ROOT)): f"models/validation/{name}" for path, name in names.items()}
    return {**pages, "tests/validation/DEVIATIONS.md": "models/validation/deviations.md"}


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds the pages that have no file in docs/."""
    for source, target in repository_pages().items():
        files.append(File.generated(config, target, content=(ROOT / source).read_text()))
    for target, made in GENERATED.items():
        files.append(File.generated(config, target, content=made()))
    for kind in schemas.KINDS:
        files.append(File.generated(config, f"schemas/{kind}.schema.json", abs_src_path=str(schemas.path(kind))))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """The page with links to files outside docs/ replaced by links within the site."""
    origin = {target: source for source, target in repository_pages().items()}
    place = page.file.src_uri
    source = PurePosixPath(origin.get(place, f"docs/{place}"))

    def replaced(match: re.Match[str]) -> str:
        text, link, anchor = match[1], match[2], match[3] or ""
        if re.match(r"[a-z]+:", link):
            return match[0]
        path = os.path.normpath(source.parent / link)
        target = path.removeprefix("docs/") if path.startswith("docs/") else _in_site(path, config, files)
        if target is None:
            return text
        return f"[{text}]({os.path.relpath(target, os.path.dirname(place) or '.')}{anchor})"

    return _LINK.sub(replaced, markdown)


def _in_site(path: str, config: MkDocsConfig, files: Files) -> str | None:
    """Where the site has a file of the repository; None for a folder. A file that is missing stays a broken link."""
    if (page := repository_pages().get(path)) is not None:
        return page
    file = ROOT / path
    if file.is_dir():
        return None
    if not file.is_file() or file.suffix not in COPIED:
        return path
    target = f"files/{path}"
    if files.get_file_from_path(target) is None:
        files.append(File.generated(config, target, abs_src_path=str(file)))
    return target

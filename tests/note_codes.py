"""docs/reference/notes.md, made from the notes that the sources raise.

``python tests/note_codes.py > docs/reference/notes.md`` writes it.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[1]
MAKERS: Final = ("forbids", "changes", "informs")
_HEAD: Final = """# Notes

No prediction takes everything into account. Whatever was left out, guessed or assumed on the way to a number is told
with the number, as a *note*. A note has a code, a severity, a place, a count, and, where it is known, which way the
time errs. Readers, tracers, models, samplers and settings all make notes; settings that play no part in a run are
told, too.

Notes are the last lines of every command that shows a number: the most severe first, the rest counted. They also
stand in `stats.json` (figure `notes`, its `list`), in `stats.txt`, in the column `notes` of `sweep.parquet`, on top
of the report, and in `notes` of a result in Python.

| severity | effect |
| --- | --- |
| `informs` | nothing that takes time is missing |
| `changes` | something that takes time was left out or guessed; `--strict` refuses the number |
| `forbids` | the number would mean nothing: it is refused (exit status 2), unless `--accept CODE` is given |

A code that was accepted stands on the line of the number. Notes on what a model leaves out of a run bear the codes of
[Domains](../models/domains.md). All other codes, and the parts of the source that raise them:

| code | severity | raised in |
| --- | --- | --- |
"""


def raised() -> Iterator[tuple[str, ast.expr, Path, int]]:
    """(maker, first argument, file, line) of every note that the sources make."""
    for part in ("models", "runner", "sampling"):
        for path in sorted((ROOT / part).rglob("*.py")):
            text = path.read_text()
            if "workload.notes import" not in text:
                continue
            for call in ast.walk(ast.parse(text)):
                if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id in MAKERS:
                    yield call.func.id, call.args[0], path.relative_to(ROOT), call.lineno


def page() -> str:
    """The page. Codes that are no literals are left out."""
    places: dict[tuple[str, str], set[str]] = defaultdict(set)
    for maker, code, path, _ in raised():
        if isinstance(code, ast.Constant):
            folder = path.parent if path.parts[:2] != ("runner", "readers") else Path(*path.parts[:3])
            places[str(code.value), maker].add(str(folder.with_suffix("")))
    ordered = sorted(places.items(), key=lambda item: (MAKERS.index(item[0][1]), item[0][0]))
    return _HEAD + "".join(
        f"| `{code}` | {maker} | {', '.join(f'`{place}`' for place in sorted(found))} |\n"
        for (code, maker), found in ordered
    )


if __name__ == "__main__":
    print(page(), end="")

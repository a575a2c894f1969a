"""Texts of JSON that do not parse: cut, or none at all. Files that break off before they tell what they are would be
taken for no files of a format."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

from manyscale.runner.errors import UserError
from manyscale.runner.readers.archive import guarded, open_stream

_ENDINGS: Final = (".json", ".json.gz", ".json.zst", ".json.xz")
LOOKED_AT: Final = 1 << 16  # bytes: what is cut behind them has told what it is


def no_json(content: bytes, place: object) -> UserError | None:
    """The one line for what does not parse, with where it ends if it was cut; None for what does."""
    text = content.decode(errors="replace")
    try:
        json.loads(text)
    except json.JSONDecodeError as error:
        why = f"is no JSON ({error.msg}); export it again"
        if error.pos >= len(text.rstrip()) - 1 or error.msg.startswith("Unterminated"):
            why = "the JSON ends in the middle; the trace was cut: export or copy it again"
        return UserError(f"{place}: line {error.lineno}: {why}")
    except (ValueError, RecursionError) as error:
        return UserError(f"{place}: is no JSON that can be read ({error}); export it again")
    return None


def refuse_cut(path: Path) -> None:
    """Raises UserError for a file that is JSON by its name and is empty, damaged, or cut near its begin."""
    if not path.name.endswith(_ENDINGS):
        return
    with guarded(path), open_stream(path) as stream:
        refuse_cut_head(stream.read(LOOKED_AT), path)


def refuse_cut_head(head: bytes, place: object) -> None:
    """The same of a file's first bytes. What is no JSON in another way is left to others."""
    if not head.strip():
        raise UserError(f"{place}: is empty; did the program that writes it run to its end?")
    if len(head) < LOOKED_AT and head.lstrip()[:1] in (b"{", b"["):
        error = no_json(head, place)
        if error is not None and "ends in the middle" in str(error):
            raise error

"""What is said of a name that is not known: the one that is spelt alike, and all that are known."""

from __future__ import annotations

from collections.abc import Iterable

_MOST_SHOWN = 40  # of the known names
_MOST_BESIDE = 12  # of them beside one that is likely meant


def closest(name: object, known: Iterable[str]) -> str | None:
    """The name among ``known`` that ``name`` is most likely a slip of; None if none is spelt alike. O(names)."""
    from difflib import get_close_matches  # needed only where something is wrong

    by_form: dict[str, str] = {}
    for each in known:
        by_form.setdefault(_form(each), each)
    found = get_close_matches(_form(str(name)), list(by_form), n=1, cutoff=0.6)
    return by_form[found[0]] if found else None


def _form(name: str) -> str:
    """What counts of a name: not its dashes, nor whether letters are capital."""
    return name.lower().replace("_", "-").lstrip("-")


def hint(name: object, known: Iterable[str], rest: str = "") -> str:
    """ "did you mean 'simpoint'? known are simpoint, code, ...", as the second half of a message. ``rest`` is what else
    may be written, behind the names."""
    names = list(dict.fromkeys(known))
    near = closest(name, names)
    if near is not None and len(names) > _MOST_BESIDE:
        return f"did you mean {near!r}?"
    shown = [*names[:_MOST_SHOWN], *(["..."] if len(names) > _MOST_SHOWN else [])]
    listed = f"known are {', '.join(shown)}{rest}" if shown else "none is known here"
    return listed if near is None else f"did you mean {near!r}? {listed}"


def unknown(what: str, name: object, known: Iterable[str], rest: str = "") -> str:
    """ "unknown method 'simpiont'; did you mean 'simpoint'? known are simpoint, code, ..."."""
    return f"unknown {what} {name!r}; {hint(name, known, rest)}"

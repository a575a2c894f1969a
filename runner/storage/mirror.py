"""Files that are kept here and at an address: fetched when they are missing here, put there when they were made.

Paths of this machine alone are left as they are, and nothing of object storage is loaded for them.
"""

from __future__ import annotations

import json
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from manyscale.runner.storage.address import Place, origin

if TYPE_CHECKING:
    from manyscale.runner.storage.remote import Remote


def fetch(path: Path) -> bool:
    """Copy what a path is the copy of; False of a path of this machine alone, and where there is nothing. Raises
    UserError."""
    place = origin(path)
    if place is None:
        return False
    return _checked(place).get(place.name, path)


def fetch_folder(folder: Path, sums: str, made: Path) -> bool:
    """The same of a folder whose file ``sums`` names all others, into ``made``; False also where one of them is not
    there. Raises UserError."""
    place = origin(folder)
    if place is None:
        return False
    from manyscale.runner.storage.remote import side_by_side

    source = _checked(place)
    if not source.get(f"{place.name}/{sums}", made / sums):
        return False
    names = _named_in((made / sums).read_bytes())
    return all(side_by_side(lambda name: source.get(f"{place.name}/{name}", made / name), names))


def _named_in(sums: bytes) -> list[str]:
    """The names in a file of checksums that lie in its folder; none of a file that is damaged."""
    try:
        names = list(json.loads(sums[: sums.rindex(b"}") + 1]))
    except (ValueError, TypeError):
        return []
    plain = [PurePosixPath(name) for name in names]
    return [str(name) for name in plain if not name.is_absolute() and ".." not in name.parts]


def publish(path: Path) -> None:
    """Put a file to where its path is copied from, if it is. Raises UserError."""
    place = origin(path)
    if place is None:
        return
    from manyscale.runner.storage.remote import remote

    remote(place.url).put(place.name, path)


def publish_folder(folder: Path, sums: str) -> None:
    """The same of all files of a folder, ``sums`` last. Raises UserError."""
    place = origin(folder)
    if place is None:
        return
    from manyscale.runner.storage.remote import remote, side_by_side

    target = remote(place.url)
    names = [file.relative_to(folder).as_posix() for file in sorted(folder.rglob("*")) if file.is_file()]
    names.remove(sums)
    for _ in side_by_side(lambda name: target.put(f"{place.name}/{name}", folder / name), names):
        pass
    target.put(f"{place.name}/{sums}", folder / sums)


def check(root: Path) -> None:
    """See once in a process whether what a path is the copy of can be written and read. Raises UserError."""
    place = origin(root)
    if place is not None:
        _checked(place)


def _checked(place: Place) -> Remote:
    """What is at an address. It is written to first: what it answers to that says what is wrong, as the answer to a
    question for an object does not."""
    from manyscale.runner.storage.remote import remote

    found = remote(place.url)
    found.check()
    return found


def remove(path: Path) -> None:
    """Remove what a path is the copy of. Raises UserError."""
    place = origin(path)
    if place is None:
        return
    from manyscale.runner.storage.remote import remote

    remote(place.url).remove(place.name)

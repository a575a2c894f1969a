"""Addresses of object storage, and the folder of this machine that holds copies of what is used of each.

That folder stands in the user's cache directory and is named by the address, so that a path below it says where it is
copied from: no table of them is kept anywhere. Nothing here loads pyarrow.fs.
"""

from __future__ import annotations

import os
import re
from os import PathLike, fspath
from pathlib import Path
from typing import Final, NamedTuple
from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit

from manyscale.runner.cache import default_cache
from manyscale.runner.errors import UserError

SCHEMES: Final = ("s3", "gs", "file")
QUERY: Final = {"s3": ("endpoint_override", "region", "scheme"), "gs": ("endpoint_override", "scheme"), "file": ()}
COPIES: Final = "remote"  # in the user's cache directory
_URL: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):/(/?)")
_POINT: Final = re.compile(r"([^?]+)/(points/\d{4,})(\?.*)?")  # of a sweep
_LONGEST: Final = 240  # bytes of a folder's name, of 255 that file systems take


class Address(NamedTuple):
    """``url`` as it is written here, whatever the user's spelling; ``bucket`` ("" of ``file``); ``prefix``: path in
    it, without slashes at its ends (of ``file`` the absolute path); ``options``: its query."""

    url: str
    scheme: str
    bucket: str
    prefix: str
    options: dict[str, str]


def is_url(text: str | PathLike[str]) -> bool:
    """Whether a text names object storage rather than a file of this machine."""
    found = _URL.match(os.fsdecode(text))
    return found is not None and (found.group(2) == "/" or found.group(1).lower() in SCHEMES)


def parsed(text: str) -> Address:
    """An address as the user wrote it, or a path made of that (``s3:/bucket``). Raises UserError, without what may be
    secret in it."""
    found = _URL.match(text)
    assert found is not None
    scheme = found.group(1).lower()
    known = ", ".join(f"{each}://" for each in SCHEMES)
    if scheme not in SCHEMES:
        raise UserError(f"{scheme}://: is no storage that is known here; known are {known} and folders")
    rest = text[found.end() :]
    authority, _, query = rest.partition("?")
    if "@" in authority.partition("/")[0]:
        raise UserError(
            f"{scheme}://...@{authority.partition('@')[2]}: an address must hold no keys; leave them to the "
            "environment (AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY), to ~/.aws/credentials or to the machine's role"
        )
    options = _options(scheme, authority, query)
    if scheme == "file":
        parts = urlsplit(f"file:///{authority.lstrip('/')}")
        bucket, prefix = "", os.path.normpath(unquote(parts.path))
    else:
        bucket, _, path = authority.partition("/")
        prefix = "/".join(part for part in unquote(path).split("/") if part not in ("", "."))
        if not bucket:
            raise UserError(f"{scheme}://: names no bucket; write {scheme}://BUCKET/PREFIX")
        if ".." in prefix.split("/"):
            raise UserError(f"{scheme}://{authority}: a path in a bucket has no ..")
    url = f"{scheme}://{bucket}{'/' if prefix and bucket else ''}{_quoted(prefix)}" + (
        f"?{urlencode(options)}" if options else ""
    )
    if len(quote(url, safe="")) > _LONGEST:
        raise UserError(f"{scheme}://{authority}: is too long an address; choose a shorter prefix")
    return Address(url, scheme, bucket, prefix, options)


def _quoted(name: str) -> str:
    """A path in an address: ``parsed`` reads it as it was."""
    return name.replace("%", "%25").replace("?", "%3F").replace("#", "%23")


def _options(scheme: str, authority: str, query: str) -> dict[str, str]:
    found = dict(sorted(parse_qsl(query, keep_blank_values=True)))
    for name in found:
        if name not in QUERY[scheme]:
            allowed = ", ".join(QUERY[scheme]) or "nothing"
            raise UserError(
                f"{scheme}://{authority}: {name} cannot stand behind ? in an address; what can is {allowed}, and keys "
                "stand in the environment"
            )
    return found


def located(place: str | PathLike[str]) -> Path:
    """The path of a folder or file that a user names: its own, or of an address the folder of this machine that holds
    its copies. ``#NAME`` behind an address, as ``absolute`` writes it, is a name below. Raises UserError for an address
    that is none."""
    if not is_url(place):
        return Path(place)
    url, _, name = os.fsdecode(place).partition("#")
    address = parsed(url)
    point = _POINT.fullmatch(address.url)
    if not name and point is not None:  # it needs what stands in the run directory of its sweep
        address, name = parsed(point.group(1) + (point.group(3) or "")), point.group(2)
    return copies_of(address) / name if name else copies_of(address)


def located_or_none(place: str | PathLike[str] | None) -> Path | None:
    """``located`` of a place that need not be named."""
    return None if place is None else located(place)


def copies_of(address: Address) -> Path:
    """The folder of this machine that holds copies of what is at an address."""
    return _copies() / quote(address.url, safe="")


def _copies() -> Path:
    return default_cache().absolute() / COPIES


class Place(NamedTuple):
    """Where a file of this machine is copied from: an address, and its name below (``""``: the address itself)."""

    url: str
    name: str

    def __str__(self) -> str:
        if not self.name:
            return self.url
        plain, mark, query = self.url.partition("?")
        return f"{plain}/{_quoted(self.name)}{mark}{query}"


def origin(path: Path) -> Place | None:
    """Where a path is copied from; None of a file of this machine alone, as those in hidden folders of a copy are."""
    text, root = os.path.abspath(path), f"{_copies()}{os.sep}"
    if not text.startswith(root):
        return None
    folder, _, name = text[len(root) :].partition(os.sep)
    if f"{os.sep}." in f"{os.sep}{os.path.dirname(name)}":
        return None
    return Place(unquote(folder), name.replace(os.sep, "/"))


def shown(path: Path) -> str:
    """A path as the user knows it: an address where it is a copy of what is there."""
    found = origin(path)
    return str(path) if found is None else str(found)


def absolute(path: Path) -> str:
    """What another machine finds the same place by (``located``): an address, or the absolute path of a folder that it
    may share."""
    found = origin(path)
    return str(path.absolute()) if found is None else f"{found.url}#{found.name}"


def with_addresses(text: str) -> str:
    """A line in which paths of copies stand as the addresses that they are copied from."""
    root = f"{_copies()}{os.sep}"
    if root not in text:
        return text
    return re.sub(
        re.escape(root) + r"([^\s/:,;)]+)((?:/[^\s:,;)]+)?)",
        lambda found: str(Place(unquote(found.group(1)), found.group(2).lstrip("/"))),
        text,
    )


def refuse(place: str | PathLike[str] | None, option: str, why: str) -> None:
    """Raises UserError for an address, or the folder of its copies, where a folder of this machine is needed."""
    if place is not None and (is_url(place) or origin(Path(fspath(place))) is not None):
        text = parsed(os.fsdecode(place)).url if is_url(place) else shown(Path(fspath(place)))
        raise UserError(f"{option} {text}: {why}; name a folder of this machine")

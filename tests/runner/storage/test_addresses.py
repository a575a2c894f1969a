"""Addresses of object storage: what is one, what is refused, and how a path of this machine says where it is from."""

from __future__ import annotations

from pathlib import Path

import pytest

from manyscale.runner.errors import UserError
from manyscale.runner.storage import address
from manyscale.runner.storage.address import located, origin, parsed, shown, with_addresses


@pytest.mark.parametrize(
    ("text", "url", "bucket", "prefix"),
    [
        ("s3://bucket/a/b", "s3://bucket/a/b", "bucket", "a/b"),
        ("S3://bucket//a/./b/", "s3://bucket/a/b", "bucket", "a/b"),
        ("s3:/bucket/a", "s3://bucket/a", "bucket", "a"),  # as pathlib writes it
        ("gs://bucket", "gs://bucket", "bucket", ""),
        ("file:///mnt/x/../y", "file:///mnt/y", "", "/mnt/y"),
        ("s3://bucket/50%2525/why%3F", "s3://bucket/50%2525/why%3F", "bucket", "50%25/why?"),
        ("s3://b/p?region=eu-west-1&scheme=http", "s3://b/p?region=eu-west-1&scheme=http", "b", "p"),
    ],
)
def test_one_place_has_one_address(text: str, url: str, bucket: str, prefix: str) -> None:
    found = parsed(text)
    assert (found.url, found.bucket, found.prefix) == (url, bucket, prefix)
    assert parsed(url) == found
    assert str(origin(address.copies_of(found))) == url


@pytest.mark.parametrize("text", ["s3://b/p", "gs://b", "file:///x", "s3:/b/p", "hdfs://host/p", "S3://b"])
def test_these_are_addresses(text: str) -> None:
    assert address.is_url(text)


@pytest.mark.parametrize("text", ["runs/s3", "s3", "a:b/c", "/mnt/s3:/x", "C:/x", "./s3://x"])
def test_these_are_paths(text: str) -> None:
    assert not address.is_url(text)
    assert located(text) == Path(text)


@pytest.mark.parametrize(
    ("text", "needle"),
    [
        ("s3://AKIA:topsecret@bucket/p", "must hold no keys; leave them to the environment"),
        ("s3://bucket/p?access_key=topsecret", "access_key cannot stand behind ?"),
        ("s3://bucket/p?secret_key=topsecret&region=x", "secret_key cannot stand behind ?"),
        ("s3:///p", "names no bucket"),
        ("s3://bucket/a/../../c", "has no .."),
        ("hdfs://host/p", "known are s3://, gs://, file:// and folders"),
        ("s3://bucket/" + "x" * 300, "too long"),
    ],
)
def test_what_is_refused_is_said_without_what_may_be_secret(text: str, needle: str) -> None:
    with pytest.raises(UserError) as error:
        located(text)
    assert needle in str(error.value)
    assert "topsecret" not in str(error.value)
    assert "AKIA" not in str(error.value)


def test_a_path_says_where_it_is_copied_from(private_cache: Path) -> None:
    root = located("s3://bucket/p?region=x")
    assert root.is_relative_to(private_cache)
    assert origin(root / "units" / "ab") == ("s3://bucket/p?region=x", "units/ab")
    assert shown(root / "units") == "s3://bucket/p/units?region=x"
    assert located(address.absolute(root / "units")) == root / "units"
    assert origin(Path("s3:")) is origin(private_cache / "units") is None
    assert with_addresses(f"{root}/units/a.arrow: is damaged") == "s3://bucket/p/units/a.arrow?region=x: is damaged"


def test_a_cache_directory_is_a_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "s3://bucket/p")
    with pytest.raises(UserError, match="XDG_CACHE_HOME is a folder of this machine"):
        located("s3://bucket/p")

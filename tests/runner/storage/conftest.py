"""A real server of S3's protocol (moto's), started once, and machines with caches of their own."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

KEYS = ("testing-key-id", "testing-secret-of-the-key")  # that must stand nowhere


@pytest.fixture(scope="session")
def s3_server() -> Iterator[str]:
    """The address of the server."""
    moto = pytest.importorskip("moto.server", reason="moto[s3,server] is not installed")
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = moto.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    yield "http://{}:{}".format(*server.get_host_and_port())
    server.stop()


@pytest.fixture
def bucket(s3_server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The address of a new bucket, in an environment that reaches it."""
    import boto3

    monkeypatch.setenv("AWS_ENDPOINT_URL", s3_server)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", KEYS[0])
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", KEYS[1])
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    name = f"bucket-{abs(hash(tmp_path))}"
    boto3.client("s3", endpoint_url=s3_server).create_bucket(Bucket=name)
    return f"s3://{name}"


@pytest.fixture
def on(cli: Callable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable:
    """``on(machine, command, ...)``: a command on a machine with a cache of that name."""

    def call(machine: str, *arguments: object) -> object:
        from manyscale.runner.storage import fetching

        fetching._fetched.clear()  # a process of its own has fetched nothing
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / machine))
        return cli(*arguments)

    return call

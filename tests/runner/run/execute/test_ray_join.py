"""What answers at an address, and what a user reads where it is no cluster for them."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from manyscale.runner.errors import UserError
from manyscale.runner.run.execute.ray_join import check_reachable, not_joined

SETTINGS = bytes.fromhex("000000040000000000")  # RFC 9113, 4.1: length 0, type 4, no flags, stream 0


@contextmanager
def answering(answer: bytes | None) -> Iterator[str]:
    """A server that says this to whoever has said something; None: it never answers. Yields its address."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            connection, _ = server.accept()
            with connection:
                while connection.recv(100):
                    if answer is not None:
                        connection.sendall(answer)
                        return

        thread = threading.Thread(target=serve)
        thread.start()
        yield f"127.0.0.1:{server.getsockname()[1]}"
        thread.join(10)


def test_a_server_of_http_2_may_be_a_head() -> None:
    with answering(SETTINGS) as address:
        check_reachable(address)


@pytest.mark.parametrize(("answer", "what"), [
    (b"HTTP/1.1 400 Bad Request\r\n\r\n", " but a web page, such as Ray's dashboard"),
    (b"SSH-2.0-OpenSSH_9.2p1\r\n", ""),
    (b"", ""),
    (None, ""),
])  # fmt: skip
def test_another_service_is_told_apart(answer: bytes | None, what: str) -> None:
    with answering(answer) as address, pytest.raises(UserError) as caught:
        check_reachable(address, 0.2 if answer is None else 5)
    assert str(caught.value).startswith(f"{address}: what answers there is no Ray cluster{what}; name its head's port")


def test_a_cluster_with_tls_is_left_to_ray(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_USE_TLS", "1")
    with socket.create_server(("127.0.0.1", 0)) as server:
        check_reachable(f"127.0.0.1:{server.getsockname()[1]}")


MISMATCH = """Version mismatch: The cluster was started with:
    Ray: 2.55.1
    Python: 3.12.3
This process on node 10.0.0.1 was started with:
    Ray: 2.60.0
    Python: 3.11.7
"""


@pytest.mark.parametrize(("address", "error", "message"), [
    ("auto", ConnectionError("Could not find"), "auto: no Ray cluster runs on this machine; start one with: ray start"),
    ("h:1", SystemExit(15), "h:1: what answers there is no Ray cluster"),
    ("h:1", RuntimeError("\nodd"), "h:1: the Ray cluster cannot be joined (odd); run manyscale on one of its nodes"),
    ("h:1", RuntimeError(MISMATCH), "h:1: the Ray cluster has Ray 2.55.1 and Python 3.12.3, here they are 2.60.0 and"),
])  # fmt: skip
def test_why_a_cluster_was_not_joined(address: str, error: BaseException, message: str) -> None:
    assert not_joined(address, error).startswith(message)

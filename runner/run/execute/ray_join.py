"""Whether a Ray cluster takes this process, asked before Ray joins it: Ray itself tries for a minute or more, and then
does not say what was wrong."""

from __future__ import annotations

import os
import re
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final

from manyscale.runner.errors import UserError
from manyscale.runner.run.execute.ray_workers import first_line

CONNECT_TIMEOUT_SECONDS: Final = 5.0
HOW_TO_START: Final = "start one with: ray start --head --port=6379"
_PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0"  # RFC 9113, 3.4, with empty SETTINGS
_SETTINGS: Final = 4  # the type of the frame that a server of HTTP/2 answers with
_GIVE_TOKEN: Final = "put the cluster's (there: ray get-auth-token) into ~/.ray/auth_token, or set RAY_AUTH_TOKEN"
_VERSIONS: Final = re.compile(r"Ray: (\S+)\s+Python: (\S+)")


def check_reachable(address: str, seconds: float = CONNECT_TIMEOUT_SECONDS) -> None:
    """Raises UserError unless what a Ray head could be answers at HOST:PORT, within some seconds for each step."""
    host, separator, port = address.rpartition(":")
    if "://" in address or not separator or not port.isdigit():
        raise UserError(
            f"{address!r} is not an address of a Ray cluster; write HOST:PORT, or auto for one on this machine"
        )
    try:
        with socket.create_connection((host.strip("[]"), int(port)), seconds) as connection:
            answer = b"" if _has_tls() else _greeting(connection)
    except (OSError, OverflowError) as error:
        raise UserError(f"{address}: no Ray cluster answers ({first_line(error)}); {HOW_TO_START}") from None
    if not _has_tls() and (len(answer) < 4 or answer[3] != _SETTINGS):
        what = " but a web page, such as Ray's dashboard" if answer.startswith(b"HTTP") else ""
        raise UserError(f"{address}: {_no_cluster(what)}")


def _no_cluster(what: str = "") -> str:
    return f"what answers there is no Ray cluster{what}; name its head's port, {HOW_TO_START}"


def _greeting(connection: socket.socket) -> bytes:
    """What a server says first, if it says something."""
    connection.sendall(_PREFACE)
    try:
        return connection.recv(9)
    except OSError:
        return b""


def _has_tls() -> bool:
    return os.environ.get("RAY_USE_TLS", "0").lower() in ("1", "true")


def check_admission(address: str) -> None:
    """Raises UserError where the head at HOST:PORT (or that ``auto`` finds) does not take the token that is here, or
    where this machine is no node of its cluster. A token is used, where there is one, unless RAY_AUTH_MODE says
    otherwise. Without a Ray that can be asked, it is left to Ray."""
    try:
        from ray import _raylet as raylet
        from ray._private.services import get_ray_address_from_environment
        from ray.exceptions import AuthenticationError, RpcError
    except ImportError:
        return
    head = address
    if address == "auto":
        try:
            head = get_ray_address_from_environment("auto", None)
        except ConnectionError:
            raise UserError(f"auto: no Ray cluster runs on this machine; {HOW_TO_START}") from None
        check_reachable(head)

    def ask(address: str) -> Any:
        with _unheard():  # Ray writes a warning, too
            return raylet.GcsClient(address=address)  # type: ignore[attr-defined]  # compiled

    try:
        try:
            client = ask(head)
        except AuthenticationError:
            if not use_token():
                raise
            client = ask(head)
    except AuthenticationError:
        raise UserError(f"{address}: {refusal()}") from None
    except RpcError:
        raise UserError(f"{address}: {_no_cluster()}") from None
    _check_membership(client, address)


@contextmanager
def _unheard() -> Iterator[None]:
    """Without what Ray's compiled part writes to standard error."""
    sys.stderr.flush()
    before = os.dup(2)
    try:
        with open(os.devnull, "wb") as nowhere:
            os.dup2(nowhere.fileno(), 2)
        yield
    finally:
        os.dup2(before, 2)
        os.close(before)


def use_token() -> bool:
    """Have this process and its children show the token that is here, as ``ray start --head`` does, unless
    RAY_AUTH_MODE says what to do; returns whether that changed something."""
    if "RAY_AUTH_MODE" in os.environ or not _has_token():
        return False
    from ray import _raylet as raylet

    os.environ["RAY_AUTH_MODE"] = "token"
    raylet.Config.initialize("")  # type: ignore[attr-defined]  # it had read the environment
    return True


def _has_token() -> bool:
    from ray import _raylet as raylet

    loader: Any = getattr(raylet, "AuthenticationTokenLoader", None)  # older ones have no tokens
    return loader is not None and bool(loader.instance().has_token(ignore_auth_mode=True))


def refusal() -> str:
    """Why a cluster's head did not take us in."""
    mode = os.environ.get("RAY_AUTH_MODE", "")
    if mode and mode.lower() != "token":
        return f"this Ray cluster asks for a token, and RAY_AUTH_MODE={mode} withholds it; set RAY_AUTH_MODE=token"
    try:
        known = _has_token()
    except Exception:  # a file that is named and cannot be read
        known = False
    if not known:
        return f"this Ray cluster asks for a token, and there is none here; {_GIVE_TOKEN}"
    names = [name for name in ("RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH") if os.environ.get(name)]
    where = names[0] if names else "~/.ray/auth_token"
    return f"this Ray cluster is another user's, or has a new token: it does not take that of {where}; {_GIVE_TOKEN}"


def _check_membership(client: Any, address: str) -> None:
    nodes: dict[Any, Any] = {}
    with suppress(Exception):  # left to Ray, which asks for more
        nodes = client.get_all_node_info(timeout=CONNECT_TIMEOUT_SECONDS)
    addresses = [node.node_manager_address for node in nodes.values() if node.state == 0]  # alive
    if addresses and not any(map(_is_mine, addresses)):
        others = f"{len(addresses)} nodes, such as {addresses[-1]}" if len(addresses) > 1 else f"{addresses[0]} is"
        raise UserError(
            f"{address}: this machine is no node of the Ray cluster ({others}); run manyscale on one of its nodes, "
            "or from here: manyscale submit STUDY --dashboard http://HEAD:8265"
        )


def _is_mine(address: str) -> bool:
    """Whether this machine has an address."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family) as probe:
        try:
            probe.bind((address, 0))
        except OSError:
            return False
    return True


def not_joined(address: str, error: BaseException) -> str:
    """Why a cluster could not be joined."""
    if address == "auto" and isinstance(error, ConnectionError):
        return f"auto: no Ray cluster runs on this machine; {HOW_TO_START}"
    if isinstance(error, SystemExit):
        return f"{address}: {_no_cluster()}"
    if len(found := _VERSIONS.findall(str(error))) == 2:
        (ray, python), (own_ray, own_python) = found
        return (
            f"{address}: the Ray cluster has Ray {ray} and Python {python}, here they are {own_ray} and {own_python}; "
            "install the same versions here as there"
        )
    return f"{address}: the Ray cluster cannot be joined ({first_line(error)}); run manyscale on one of its nodes"

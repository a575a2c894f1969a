"""A Ray cluster to work on: joined where it runs, or started on this machine, and left as it was found."""

from __future__ import annotations

import errno
import logging
import os
import secrets
import shutil
import signal
import sys
import sysconfig
import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from manyscale.runner.errors import RunError, UserError
from manyscale.runner.run.execute.ending import end_process
from manyscale.runner.run.execute.ray_join import check_admission, check_reachable, not_joined
from manyscale.runner.run.execute.ray_lost import HeadWatch, LastWords
from manyscale.runner.run.execute.ray_workers import first_line

ONE_THREAD: Final = {"OMP_NUM_THREADS": "1", "NUMBA_NUM_THREADS": "1"}
_DASHBOARD_NEEDS: Final = "ray.dashboard.optional_deps"
_own_authentication: Final[dict[str, str]] = {}  # empty until a cluster of our own is started


class Connection:
    """To the cluster at ``address`` (HOST:PORT, or ``auto``), or with ``local`` to one that this process has joined
    already, else to one of our own with ``num_cpus``. Raises UserError if nothing answers there."""

    def __init__(
        self, address: str, num_cpus: int | None, object_store_bytes: int | None, temp_dir: Path | None
    ) -> None:
        self.address = address
        self._num_cpus, self._object_store_bytes, self._temp_dir = num_cpus, object_store_bytes, temp_dir
        self._owned_temp_dir: Path | None = None
        self._owns_ray = False
        self._watch: HeadWatch | None = None
        self._last_words: LastWords | None = None
        if address not in ("local", "auto"):
            check_reachable(address)

    @property
    def can_grow(self) -> bool:
        """Whether nodes may come: not to a cluster of this process."""
        return self.address != "local"

    @property
    def is_own(self) -> bool:
        """Whether Ray was started here, so that workers inherit what this process sets."""
        return self._owns_ray and self.address == "local"

    def open(self) -> None:
        """Start or join Ray. Raises UserError if there is nothing to join."""
        starts = self.address == "local"
        with _environment(_authentication() if starts else {}), _keeping_sigterm(defer=starts):
            import ray  # reads RAY_AUTH_MODE and the token once, on import

            if not ray.is_initialized():
                self._initialise(ray)

    def _initialise(self, ray: Any) -> None:
        quiet = {"log_to_driver": False, "logging_level": logging.ERROR}
        try:
            if self.address == "local":
                environment = ONE_THREAD | {"PYTHONPATH": _python_path(), "RAY_USAGE_STATS_ENABLED": "0"}
                with _environment(environment), _without_loading_dashboard():
                    ray.init(
                        "local",
                        num_cpus=self._num_cpus,
                        object_store_memory=self._object_store_bytes,
                        include_dashboard=False,
                        _temp_dir=self._choose_temp_dir(),
                        **quiet,
                    )
            else:
                check_admission(self.address)
                ray.init(self.address, **quiet)
        except BaseException as error:  # SystemExit included: so Ray ends where a port answers but not as Ray
            ray.shutdown()
            self._remove_temp_dir()
            if isinstance(error, (KeyboardInterrupt, UserError)):
                raise
            if self.address == "local":
                raise RunError(f"Ray did not start ({first_line(error)}); run with --executor local") from None
            raise UserError(not_joined(self.address, error)) from None
        self._owns_ray = True
        if self.address != "local":
            self._last_words = LastWords(self.address)
            self._watch = HeadWatch(ray.get_runtime_context().gcs_address, self._lost)

    def _lost(self, text: str) -> None:
        self._take_words_back()
        end_process(text)

    def _take_words_back(self) -> None:
        if self._last_words is not None:
            self._last_words.take_back()
            self._last_words = None

    def _choose_temp_dir(self) -> str | None:
        """Ray's folder for sockets and logs: named by the host file or RAY_TMPDIR, else one that goes with the
        executor (Ray's own default is shared between users and tells ``auto`` of others to join this cluster)."""
        if self._temp_dir is not None:
            _make(self._temp_dir, "temp_dir")
            return str(self._temp_dir)
        if root := os.environ.get("RAY_TMPDIR"):
            _make(Path(root, "ray"), "RAY_TMPDIR")  # Ray does not
            return None
        short = len(tempfile.gettempdir()) <= 30  # paths of sockets have at most 107 characters, Ray adds 65
        self._owned_temp_dir = Path(tempfile.mkdtemp(prefix="ray-", dir=None if short else "/tmp"))
        return str(self._owned_temp_dir)

    def _remove_temp_dir(self) -> None:
        if self._owned_temp_dir is not None:
            shutil.rmtree(self._owned_temp_dir, ignore_errors=True)
            self._owned_temp_dir = None

    def close(self) -> None:
        """End Ray if it was started or joined here."""
        if self._watch is not None:
            self._watch.close()
            self._watch = None
        if self._owns_ray:
            import ray

            ray.shutdown()
            self._owns_ray = False
        self._take_words_back()
        self._remove_temp_dir()


def _make(folder: Path, name: str) -> None:
    """Make a folder for Ray's sockets and logs. Raises UserError where that cannot be written, as one of another
    user's cluster."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if not os.access(folder, os.W_OK | os.X_OK, effective_ids=os.access in os.supports_effective_ids):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    except OSError as error:
        raise UserError(
            f"{name}: {folder} cannot be written ({error.strerror}); it may be another user's: name one of your own"
        ) from None


def _authentication() -> dict[str, str]:
    """What keeps others out of a cluster of our own, whose ports anybody on the network can reach: a token of this
    process, since Ray takes it once. The user's own settings come first."""
    if "RAY_AUTH_MODE" in os.environ:
        return {}
    if "ray" not in sys.modules:
        _own_authentication.update(RAY_AUTH_MODE="token", RAY_AUTH_TOKEN=secrets.token_hex(32))
    return dict(_own_authentication)


@contextmanager
def _environment(changes: Mapping[str, str]) -> Iterator[None]:
    """Environment variables, for processes started inside; then as before."""
    before = {name: os.environ.get(name) for name in changes}
    os.environ.update(changes)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


@contextmanager
def _without_loading_dashboard() -> Iterator[None]:
    """Whether a dashboard could be started Ray finds out by loading all that one needs, a tenth of this process's time
    in a short sweep, though it is to start none. That these are installed is seen without that."""
    needed = ("aiohttp", "aiohttp_cors", "grpc", "opencensus", "opentelemetry", "prometheus_client")
    if _DASHBOARD_NEEDS in sys.modules or not all(find_spec(name) for name in needed):
        yield
        return
    stand_in = sys.modules[_DASHBOARD_NEEDS] = ModuleType(_DASHBOARD_NEEDS)
    try:
        yield
    finally:
        if sys.modules.get(_DASHBOARD_NEEDS) is stand_in:
            del sys.modules[_DASHBOARD_NEEDS]


@contextmanager
def _keeping_sigterm(defer: bool) -> Iterator[None]:
    """Ray takes SIGTERM for itself; in the end it is with whoever had taken it before. With ``defer`` one that comes
    meanwhile is told then: where Ray's start is cut short, processes of it go on for a minute and more. (Ray also sends
    it to itself, where it cannot join a cluster.)"""
    before, take = signal.getsignal(signal.SIGTERM), signal.signal
    if not callable(before) or threading.current_thread() is not threading.main_thread():
        yield
        return
    came: list[int] = []
    if defer:
        take(signal.SIGTERM, lambda number, _frame: came.append(number))

        def take_others(signalnum: int, handler: Any) -> Any:
            return before if signalnum == signal.SIGTERM else take(signalnum, handler)

        signal.signal = take_others
    try:
        yield
    finally:
        signal.signal = take
        take(signal.SIGTERM, before)
        if came:
            before(signal.SIGTERM, None)


def _python_path() -> str:
    """Where this process finds modules beyond what its Python installation has, for workers to find the same."""
    own = {sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")}
    return os.pathsep.join(
        path for entry in sys.path if os.path.isdir(path := os.path.abspath(entry)) and path not in own
    )

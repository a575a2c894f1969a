"""The Ray executor where no Ray runs: what it refuses, and how it shares work out."""

from __future__ import annotations

import os
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import pytest
from ray_units import SHARED, good_units, odd_unit

from manyscale.runner.errors import RunError, UserError
from manyscale.runner.predict.units import Outcome
from manyscale.runner.run.execute import ray as ray_module
from manyscale.runner.run.execute import ray_start
from manyscale.runner.run.execute.execution import Counts, Execution
from manyscale.runner.run.execute.local import LocalExecutor
from manyscale.runner.run.execute.ray import RayExecutor, batch_weight
from manyscale.runner.run.store import Store


def test_calls_share_the_work_between_all_workers() -> None:
    assert batch_weight(good_units(8), num_workers=2) == 1
    assert batch_weight(good_units(80), num_workers=2) == 10  # four calls per worker
    assert batch_weight(good_units(1), num_workers=64) == 1


def test_calls_are_short_enough_to_show_progress() -> None:
    assert batch_weight(good_units(10 * 256 * 8), num_workers=2) == 256
    heavy = [odd_unit("doubled", str(index), weight=10**8) for index in range(100)]
    assert batch_weight(heavy, num_workers=2) == ray_module.WEIGHT_PER_CALL


@pytest.mark.parametrize("address", ["head", "head:port", "ray://head:10001", "http://head:8265"])
def test_what_is_no_address_is_refused(address: str) -> None:
    with pytest.raises(UserError, match="is not an address of a Ray cluster; write HOST:PORT"):
        RayExecutor(address=address)


def test_an_address_where_nothing_answers_is_refused_at_once() -> None:
    begin = time.monotonic()
    with pytest.raises(UserError) as caught:
        RayExecutor(address="127.0.0.1:1")
    assert time.monotonic() - begin < 10
    assert str(caught.value).startswith("127.0.0.1:1: no Ray cluster answers (")
    assert "ray start --head" in str(caught.value)


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to become another user")
def test_the_folder_of_another_user_s_cluster_is_told_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    with tempfile.TemporaryDirectory(dir="/tmp") as root:
        (Path(root) / "ray").mkdir(mode=0o755)
        Path(root).chmod(0o777)
        monkeypatch.setenv("RAY_TMPDIR", root)
        connection = ray_start.Connection("local", 1, None, None)
        assert connection._choose_temp_dir() is None
        os.seteuid(65534)
        try:
            with pytest.raises(
                UserError, match=f"^RAY_TMPDIR: {root}/ray cannot be written .Permission denied.; it may"
            ):
                connection._choose_temp_dir()
        finally:
            os.seteuid(0)


@pytest.mark.parametrize(("address", "error", "message"), [
    ("auto", ConnectionError("Could not find"), "auto: no Ray cluster runs on this machine; start one with: ray start"),
    ("local", ValueError("no\nroom"), r"Ray did not start \(no\); run with --executor local"),
    ("local", RuntimeError("\nBad version"), r"Ray did not start \(Bad version\)"),
])  # fmt: skip
def test_what_ray_says_on_its_start_is_told_in_one_line(
    address: str, error: BaseException, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    import ray

    def failing_init(*_arguments: Any, **_options: Any) -> None:
        raise error

    monkeypatch.setattr(ray, "init", failing_init)
    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    monkeypatch.setattr(ray, "shutdown", lambda: None)
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setattr(ray_start, "check_admission", lambda _address: None)
    executor = RayExecutor(address=address)
    with pytest.raises((UserError, RunError), match=message) as caught:
        executor.start()
    assert "\n" not in str(caught.value)
    executor.close()


def test_a_cluster_of_our_own_has_a_token_unless_the_user_says_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray_start, "_own_authentication", {})
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    assert ray_start._authentication() == {}
    monkeypatch.delenv("RAY_AUTH_MODE")
    monkeypatch.delitem(sys.modules, "ray", raising=False)
    chosen = ray_start._authentication()
    assert chosen["RAY_AUTH_MODE"] == "token"
    assert len(chosen["RAY_AUTH_TOKEN"]) == 64
    monkeypatch.setitem(sys.modules, "ray", object())
    assert ray_start._authentication() == chosen  # Ray, once loaded, keeps its token


def test_start_leaves_the_environment_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    import ray

    found: list[dict[str, str]] = []

    def recording_init(*_arguments: Any, **_options: Any) -> None:
        found.append(dict(os.environ))
        raise RuntimeError("enough")

    monkeypatch.setattr(ray, "init", recording_init)
    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    monkeypatch.setattr(ray, "shutdown", lambda: None)
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    before = dict(os.environ)
    with pytest.raises(RunError, match="enough"):
        RayExecutor().start()
    assert found[0]["OMP_NUM_THREADS"] == found[0]["NUMBA_NUM_THREADS"] == "1"
    assert dict(os.environ) == before


def test_without_units_ray_is_not_started(tmp_path: Path) -> None:
    executor = RayExecutor(num_workers=1)
    assert list(executor.map([], SHARED, Store(tmp_path))) == []
    executor.close()


def test_the_local_executor_lets_defects_through(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError):
        list(LocalExecutor().map([odd_unit("is_defective")], SHARED, Store(tmp_path)))


@pytest.mark.parametrize("starts", [True, False])
def test_sigterm_while_ray_starts_is_told_once_it_has_started(starts: bool) -> None:
    """Ray's own handler would leave processes behind; where Ray joins a cluster, it sends itself the signal."""
    told: list[str] = []
    before = signal.signal(signal.SIGTERM, lambda *_: told.append("ours"))
    mine = signal.getsignal(signal.SIGTERM)
    try:
        with ray_start._keeping_sigterm(defer=starts):
            signal.signal(signal.SIGTERM, lambda *_: told.append("Ray's"))
            os.kill(os.getpid(), signal.SIGTERM)
            assert told == ([] if starts else ["Ray's"])
        assert told == (["ours"] if starts else ["Ray's"])
        assert signal.getsignal(signal.SIGTERM) is mine
    finally:
        signal.signal(signal.SIGTERM, before)


def test_a_unit_that_ran_elsewhere_counts_once_and_as_simulated_if_anybody_did(tmp_path: Path) -> None:
    recorded: list[str] = []
    execution = Execution(Store(tmp_path), LocalExecutor(), lambda _kind, _outcome, status: recorded.append(status))
    for status in ("reused", "reused", "simulated", "simulated", "reused"):  # in the order in which workers answer
        execution.told("burst", Outcome("key"), status)
    assert execution.counts == Counts(total=1, simulated=1)
    assert recorded == ["reused", "simulated"]
    assert execution.outcomes["key"][2] == "simulated"

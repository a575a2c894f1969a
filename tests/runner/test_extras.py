"""What is done without packages that manyscale works without: Ray. Their import fails, as where they are missing."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from pathlib import Path

import pytest

from manyscale.runner import extras
from manyscale.runner.errors import UserError
from manyscale.runner.run.execute import execution
from manyscale.runner.run.execute.choice import choose_executor
from manyscale.runner.run.execute.execution import Workers, where_it_pays
from manyscale.runner.run.execute.local import LocalExecutor
from manyscale.runner.run.execute.ray import RayExecutor


class Refusing:
    """A finder for which a package is not there."""

    def __init__(self, package: str) -> None:
        self._package = package

    def find_spec(self, name: str, path: Sequence[str] | None, target: object = None) -> ModuleSpec | None:
        if name.partition(".")[0] == self._package:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        return None


@pytest.fixture
def without_ray(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == "ray"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(sys, "meta_path", [Refusing("ray"), *sys.meta_path])
    monkeypatch.setattr(execution, "_told", set())


def test_what_is_installed_is_known_without_importing_it(monkeypatch: pytest.MonkeyPatch) -> None:
    assert extras.is_installed("numpy")
    assert not extras.is_installed("no_such_package")
    monkeypatch.setitem(sys.modules, "numpy", None)
    assert not extras.is_installed("numpy")


@pytest.mark.usefixtures("without_ray")
def test_auto_stays_in_one_process_and_says_once_how_to_get_more(capsys: pytest.CaptureFixture[str]) -> None:
    assert where_it_pays(False, "about 2 s of computing") == "local"
    assert capsys.readouterr().err == ""
    assert [where_it_pays(True, "about 40 s of computing") for _ in range(2)] == ["local", "local"]
    line = "manyscale: about 40 s of computing on one core; on all cores with Ray: pip install 'manyscale[ray]'\n"
    assert capsys.readouterr().err == line


@pytest.mark.usefixtures("without_ray")
def test_workers_stay_in_one_process(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    with Workers(tmp_path).execution(2_000_000_000) as chosen:
        assert isinstance(chosen.executor, LocalExecutor)
    assert capsys.readouterr().err.startswith("manyscale: 2,000 million accesses on one core;")


def test_auto_is_ray_where_it_is_installed(capsys: pytest.CaptureFixture[str]) -> None:
    assert where_it_pays(True, "about 40 s of computing") == "ray"
    assert capsys.readouterr().err == ""


@pytest.mark.usefixtures("without_ray")
@pytest.mark.parametrize(
    ("name", "address", "asked"), [("ray", None, "--executor ray"), ("auto", "head:6379", "--address head:6379")]
)
def test_a_run_that_asks_for_ray_is_refused(name: str, address: str | None, asked: str) -> None:
    with pytest.raises(UserError) as refused:
        choose_executor(name, [], address, None)
    assert str(refused.value) == f"{asked} needs Ray, which is not installed; pip install 'manyscale[ray]'"


@pytest.mark.usefixtures("without_ray")
def test_a_host_that_asks_for_ray_is_refused(tmp_path: Path) -> None:
    host = tmp_path / "host.yaml"
    host.write_text("schema: 1\nexecutor: ray\n")
    with pytest.raises(UserError) as refused:
        choose_executor("auto", [], None, host)
    assert str(refused.value).startswith(f"{host}: this host needs Ray, which is not installed; pip install")


@pytest.mark.usefixtures("without_ray")
def test_the_executor_itself_is_refused() -> None:
    with pytest.raises(UserError, match=r"^--executor ray needs Ray, which is not installed"):
        RayExecutor()
    with pytest.raises(UserError, match=r"^--address 127\.0\.0\.1:1 needs Ray"):
        RayExecutor(address="127.0.0.1:1")

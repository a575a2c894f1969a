"""Names that go work for one more release, with a warning that says what to write instead."""

from __future__ import annotations

import inspect
import warnings

import pytest

import manyscale
from manyscale.runner.api.deprecated import renames


@renames(num_workers=("workers", "9.9"))
def work(task: str, *, workers: int = 1) -> tuple[str, int]:
    """A function one of whose parameters had another name."""
    return task, workers


@pytest.mark.contract
def test_a_former_parameter_is_taken_and_told() -> None:
    with pytest.warns(
        DeprecationWarning, match=r"work\(num_workers=\.\.\.\) goes in manyscale 9\.9; write workers="
    ) as told:
        assert work("a", num_workers=3) == ("a", 3)
    assert told[0].filename == __file__  # where it was written, not where it was found


@pytest.mark.contract
def test_the_present_name_is_taken_without_a_word() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert work("a", workers=3) == ("a", 3)


@pytest.mark.contract
def test_both_names_at_once_are_refused() -> None:
    with pytest.raises(TypeError, match="got both 'workers' and its former name 'num_workers'"):
        work("a", workers=1, num_workers=2)


@pytest.mark.contract
def test_a_former_parameter_is_not_in_the_signature() -> None:
    assert list(inspect.signature(work).parameters) == ["task", "workers"]


@pytest.mark.contract
def test_a_former_name_of_the_package_is_found_and_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(manyscale._FORMER, "simulate", ("run", "9.9"))
    with pytest.warns(
        DeprecationWarning, match=r"manyscale\.simulate goes in manyscale 9\.9; write manyscale\.run"
    ) as told:
        assert manyscale.simulate is manyscale.run
    assert told[0].filename == __file__


@pytest.mark.contract
def test_runs_take_the_former_name_of_workers(tmp_path) -> None:
    with pytest.warns(DeprecationWarning, match="workers") as told:  # noqa: SIM117
        with pytest.raises(manyscale.UserError, match=r"^workers 0: at least one"):
            manyscale.run("lulesh-8", tmp_path / "out", num_workers=0)
    assert told[0].filename == __file__

"""What the report says about the limits of models."""

from __future__ import annotations

import pytest

from manyscale.runner.registry import names
from manyscale.runner.report.sections.limits import _CPU, _NETWORK


@pytest.mark.contract
def test_every_built_in_model_says_what_it_leaves_out() -> None:
    assert set(_NETWORK) == set(names("network"))
    assert set(_CPU) == set(names("cpu"))

"""Every timing model keeps its contract on a workload of its kind; those that do not are found out."""

from __future__ import annotations

import pytest

from manyscale.runner import shipped
from manyscale.runner.registry import names
from manyscale.testing import check_timing_model

pytestmark = pytest.mark.contract
EXAMPLES = str(shipped.folder())
TASKS = {
    "workload": {"path": f"{EXAMPLES}/multizone-8.tar.zst", "detail": f"{EXAMPLES}/multizone-8-detail.tar.zst"},
    "target": "marenostrum3",
    "mapping": {"cores_per_rank": 2},
}
STUDIES = {
    "burst": {},
    "amm": {"workload": {"path": f"{EXAMPLES}/black_scholes-8.tar.zst"}, "target": "laptop"},
    "interval": TASKS,
    "detailed": {**TASKS, "sampling": {"ranks": [0]}},
}


@pytest.mark.slow
@pytest.mark.parametrize("name", names("cpu"))
def test_built_in(name):
    check_timing_model(name, **STUDIES[name])


def test_the_simplest_of_them():
    check_timing_model("burst")

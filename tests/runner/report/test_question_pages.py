"""Pages of what-ifs, plans, comparisons and scaling: whole, equal for equal tables, and with the table's figures."""

from __future__ import annotations

import base64
import gzip

import pyarrow as pa
import pytest

from manyscale.models.workload.notes import Note, Severity
from manyscale.runner.report import compare_page, plan_page, scaling_page, what_if_page
from manyscale.runner.run import script

from .test_report import Outline, check_self_contained

NOTE = Note("made-up", Severity.changes, "of <b>something</b>")


def what_ifs() -> str:
    table = pa.table(
        {
            "point_id": [0, 1], "what_if": ["base", "ideal-network"], "makespan_seconds": [2.0, 1.5],
            "base_seconds": [2.0, 2.0], "change_seconds": [0.0, -0.5], "speedup": [1.0, 4 / 3],
        }
    )  # fmt: skip
    return what_if_page.page(table, "What-ifs of <x>", [NOTE])


def comparison() -> str:
    rows = [
        {"group": "figure", "item": "makespan", "a": 1.0, "b": 1.1, "difference": 0.1, "unit": "s"},
        {"group": "figure", "item": "load_balance", "a": 0.5, "b": 0.75, "difference": 0.25, "unit": "1"},
        {"group": "state", "item": "<wait>", "a": 0.4, "b": 0.3, "difference": -0.1, "unit": "s"},
        {"group": "rank", "item": "rank 0, wait", "a": 0.4, "b": 0.4, "difference": 0.0, "unit": "s"},
    ]
    return compare_page.page(pa.Table.from_pylist(rows), "<a>", "b", [NOTE])


def plan() -> str:
    table = pa.table(
        {
            "element_kind": ["interval"] * 3, "element_id": [3, 7, 9], "stratum": [0, 1, 1],
            "weight": [0.5, 0.25, 0.25], "model": ["<simpoint>"] * 3,
        }
    )  # fmt: skip
    return plan_page.page(table, "Plan of <x>", "3 of 10 intervals", [NOTE])


def scaling() -> str:
    columns = {
        "label": ["<a>", "b"], "num_ranks": [8, 64], "num_cores": [8, 64], "makespan_s": [4.0, 1.0],
        "speed_up": [1.0, 4.0], "efficiency": [1.0, 0.5], "parallel_efficiency": [0.9, 0.8],
        "load_balance": pa.array([None, None], pa.float64()), "communication_efficiency": [0.9, None],
    }  # fmt: skip
    return scaling_page.page(pa.table(columns), "Scaling of <x>", [NOTE])


PAGES = {"what-if": what_ifs, "comparison": comparison, "plan": plan, "scaling": scaling}
SAID = {
    "what-if": ["2.000 s", "ideal-network", "1.500 s", "-500.0 ms", "-25.0 %", "1.333"],
    "comparison": ["1.000 s", "1.100 s", "+100.0 ms", "+10.0 %", "+25.0 points", "No difference.", "<wait>"],
    "plan": ["3 of 10 intervals", "50.0 %", "<simpoint>", "Chosen intervals"],
    "scaling": ["1.000 s", "50.0 %", "parallel efficiency", "communication efficiency", "<a>"],
}


@pytest.mark.contract
@pytest.mark.parametrize("name", PAGES)
def test_a_page_is_whole_and_says_the_figures(name: str) -> None:
    text = PAGES[name]()
    page = check_self_contained(text)
    lines = page.text.split("\n")
    for said in [*SAID[name], "changes [made-up] of <b>something</b>"]:
        assert said in lines, said
    assert page.tags["h1"] == 1
    assert page.charts
    assert set(page.charts) <= set(page.ids)
    assert PAGES[name]() == text


@pytest.mark.contract
def test_a_ratio_that_no_run_has_is_left_out() -> None:
    assert "load balance" not in Outline(scaling()).text


@pytest.mark.contract
def test_the_script_in_a_page_is_plotly_s() -> None:
    packed = Outline(what_ifs()).scripts["plotly"]
    assert gzip.decompress(base64.b64decode(packed)) == script.content()
    assert len(packed) < 0.45 * len(script.content())


@pytest.mark.contract
def test_the_nonce_follows_from_the_page() -> None:
    """A script that a name brings in has none: the policy lets only scripts with the page's nonce run."""
    text = what_ifs()
    nonce = text.split("script-src 'nonce-")[1].split("'")[0]
    assert text.count(f'nonce="{nonce}"') == 1
    assert nonce not in comparison()

"""``predict --transitions``: executions by probabilities against loops counted by hand, and files that are wrong."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from loop_traces import COLUMN, INNER, ROW, STORE, num_executions, write_trace
from scipy.sparse import csr_array

from manyscale.models.memory.amm.block_probabilities import executions
from manyscale.runner.errors import UserError
from manyscale.runner.predict.memory.given_transitions import read_transitions

TRACED = (8, 16, 24, 32, 40)
N = 64


@pytest.fixture(scope="module")
def traces(tmp_path_factory) -> list[str]:
    folder = tmp_path_factory.mktemp("traces")
    return [f"{n}={write_trace(folder, n)}" for n in TRACED]


def loops(inner: int) -> str:
    """A product of N rows by N columns whose innermost loop takes so many turns."""
    rows = [
        (INNER, INNER, 1 - 1 / inner), (INNER, STORE, 1 / inner),
        (STORE, COLUMN, (N * N - N) / N**2), (STORE, ROW, (N - 1) / N**2), (STORE, 5, 1 / N**2),
    ]  # fmt: skip
    return "size,source,target,probability\n" + "".join(f"{N},{a},{b},{p!r}\n" for a, b, p in rows)


@pytest.mark.theory
@pytest.mark.parametrize("recipe", ["operands", "paper"])
def test_loops_are_executed_as_often_as_their_probabilities_say(cli, tmp_path, traces, recipe):
    inner, given = 10, tmp_path / "given.csv"
    given.write_text(loops(inner))
    options = [
        "--sizes",
        N,
        "--transitions",
        given,
        "--recipe",
        recipe,
        "--target",
        "xeon-e5-2695",
        "-o",
        tmp_path / "out",
    ]
    outcome = cli("predict", *traces, *options, "--no-report")
    assert outcome.status == 0
    assert "[given-transitions]" in outcome.out + outcome.err
    blocks = pq.read_table(tmp_path / "out" / "blocks.parquet").to_pylist()
    found = [row["executions"] for row in blocks if row["kind"] == "predicted"]
    expected = num_executions(N)
    expected[INNER] = N * N * inner
    assert found == expected
    profile = pq.read_table(tmp_path / "out" / "profile.parquet").to_pylist()
    accesses = sum(row["count"] for row in profile if row["block_id"] == INNER)
    assert accesses == pytest.approx(2 * expected[INNER], rel=1e-6)


@pytest.mark.theory
def test_a_run_that_forks_and_joins():
    """Block 0 goes on with 1 (a third) or 2, 1 with 2, 2 begins again (a half) or ends: 2, 2/3 and 2 executions."""
    pi = csr_array(([1 / 3, 2 / 3, 1.0, 0.5], ([0, 0, 1, 2], [1, 2, 2, 0])), shape=(4, 4))
    found = executions(pi, np.array([0, 0, 0.5, 0]), np.array([1.0, 0, 0, 0]))
    assert found == pytest.approx([2, 2 / 3, 2, 0])


@pytest.mark.theory
def test_runs_that_never_end_are_told():
    pi = csr_array(([1.0, 1.0], ([0, 1], [1, 0])), shape=(3, 3))
    with pytest.raises(ValueError, match="come to block 0 never end"):
        executions(pi, np.array([0, 0, 1.0]), np.array([1.0, 0, 0]))


@pytest.mark.parametrize(
    ("rows", "told"),
    [
        ("3,3,0.5\n3,4,0.4", "given.csv: probabilities of block 3 add up to 0.9, not to 1"),
        ("3,99,1", "given.csv: block 99 is none of the traces' 6"),
        ("3,x,1", "given.csv, line 2: needs the columns"),
        ("3,4,2", "given.csv, line 2: give sizes above zero"),
        ("3,4,0.5\n3,4,0.5", "given.csv, line 3: a second row"),
        ("", "given.csv: holds no row"),
    ],
)
def test_what_is_no_probability_is_refused(tmp_path: Path, rows: str, told: str):
    given = tmp_path / "given.csv"
    given.write_text(f"source,target,probability\n{rows}\n")
    with pytest.raises(UserError, match=re.escape(told)):
        read_transitions(given).check(6)

"""llm.c's GPT-2 in single precision, where its sources are at hand; and what its results are compared with."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import transformer
from gpt2.reference import Shape, from_bf16, logits_of, losses_of, random_model, slope, to_bf16
from tracing import nvcc


@pytest.mark.slow
def test_logits_of_a_traced_gpt2_are_those_of_numpy(tmp_path, monkeypatch):
    folder = os.environ.get("MANYSCALE_CUDA_SUITES")
    if folder is None or not Path(folder, transformer.CHECKOUT).is_dir():
        pytest.skip("MANYSCALE_CUDA_SUITES names no folder with llm.c")
    if not Path(nvcc()[0]).is_file():
        pytest.skip("nvcc is not installed")
    sources = transformer.checked_out(Path(folder, transformer.CHECKOUT), tmp_path)
    # training takes a minute
    monkeypatch.setitem(transformer.CASES, "fp32", replace(transformer.CASES["fp32"], steps=0))
    compared, trace = transformer.compared_case("fp32", 80, sources, "false", tmp_path)
    assert compared.problems == []
    assert compared.errors.keys() == {"logits, NumPy"}
    assert trace.is_dir()


def test_differences_above_the_tolerance_are_problems():
    compared = transformer.Compared("fp32", 80)
    compared.expect("near", [1.0, 4.0], [1.0, 4.0 + 4e-6], 1e-5)
    assert compared.problems == []
    compared.expect("far", [1.0, 4.0], [1.0 + 8e-5, 4.0], 1e-5)
    compared.expect("nothing", [np.nan], [1.0], 1e-5)
    assert [each.split(":")[0] for each in compared.problems] == ["far", "nothing"]


def test_bfloat16_goes_to_the_nearest_and_to_even():
    ulp = 2.0**-7
    values = [1 + ulp / 2, 1 + 3 * ulp / 2, 1 + 0.51 * ulp, -1 - 0.49 * ulp]
    assert from_bf16(to_bf16(values)).tolist() == [1, 1 + 2 * ulp, 1 + ulp, -1]


def test_a_later_token_changes_no_earlier_logits():
    shape = Shape(layers=1, heads=2, channels=8, vocabulary=11, padded=16, batch=1, tokens=6)
    parameters = random_model(shape, "fp32", 1)
    tokens = np.array([[1, 2, 3, 4, 5, 6]], np.int32)
    first = logits_of(shape, parameters, tokens)
    tokens[0, 3] = 10
    second = logits_of(shape, parameters, tokens)
    assert np.array_equal(first[0, :3], second[0, :3])
    assert (np.abs(first - second).max(-1)[0, 3:] > 1e-3).all()


def test_slope_of_the_loss_by_the_final_bias():
    """The derivative by the last layer's bias is the embedding times the probabilities less the targets."""
    shape = replace(Shape(), layers=1, heads=2, channels=8, vocabulary=11, padded=16, batch=1, tokens=6)
    parameters = random_model(shape, "fp32", 1)
    tokens = np.random.default_rng(2).integers(0, 11, (2, 1, 6)).astype(np.int32)
    logits = logits_of(shape, parameters, tokens[0])
    probabilities = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
    assert np.allclose(losses_of(logits, tokens[1])[0], -np.log(probabilities[0, np.arange(6), tokens[1, 0]]))
    expected = ((probabilities - np.eye(11)[tokens[1]]) @ parameters["wte"][:11]).mean((0, 1))
    direction = np.arange(8.0)
    assert np.isclose(slope(shape, parameters, tokens, {"lnfb": direction}, 1e-3), expected @ direction, rtol=1e-8)

"""What steps keep in a GPU's memory against figures worked out in the papers: Rajbhandari et al. (ZeRO, SC 2020), and
Korthikanti et al., "Reducing Activation Recomputation in Large Transformer Models" (MLSys 2023)."""

from __future__ import annotations

from typing import Any

import pytest

from manyscale.models.transformer.memory import memory
from manyscale.models.transformer.shape import Transformer

pytestmark = pytest.mark.theory
GPT_3 = {"layers": 96, "hidden": 12288, "heads": 96}
MT_NLG = {"layers": 105, "hidden": 20480, "heads": 128}


def shaped(**keys: Any) -> Transformer:
    return Transformer(**{"sequence": 2048, "vocabulary": 51200, "global_batch": 1024, **keys})


@pytest.mark.parametrize(
    ("zero", "dp", "gigabytes"),
    [(0, 64, 120), (1, 4, 52.5), (2, 4, 41.3), (3, 4, 30), (1, 64, 31.4), (2, 64, 16.6), (3, 64, 1.9)],
)
def test_states_are_those_of_zero(zero, dp, gigabytes):
    """Figure 1 and table 1, of 7.5 billion parameters: the shape of Narayanan et al., table 1, has 7.47."""
    found = memory(shaped(layers=36, hidden=4096, heads=32, zero=zero, dp=dp))
    states = found.weights + found.gradients + found.optimiser
    assert states / 1e9 == pytest.approx(gigabytes, rel=0.02)


@pytest.mark.parametrize(
    ("keys", "of_layer"),
    [  # table 2, GPT-3's: 5as/h = 80
        ({}, 34 + 80),
        ({"tp": 8}, 10 + 24 / 8 + 80 / 8),
        ({"tp": 8, "sequence_parallel": True}, 34 / 8 + 80 / 8),
        ({"tp": 8, "recompute": "selective"}, 10 + 24 / 8),
        ({"tp": 8, "sequence_parallel": True, "recompute": "selective"}, 34 / 8),
        ({"recompute": "full"}, 2),
    ],
)
def test_activations_of_a_layer_are_those_of_korthikanti(keys, of_layer):
    few, more = (memory(shaped(**GPT_3 | {"layers": layers}, **keys)).activations for layers in (48, 96))
    assert (more - few) / (48 * 2048 * 12288) == pytest.approx(of_layer)


@pytest.mark.parametrize(("model", "saved"), [(GPT_3, 0.70), (MT_NLG, 0.65)])
def test_selective_recomputation_saves_what_section_5_says(model, saved):
    kept, less = (memory(shaped(**model, recompute=each)).activations for each in ("none", "selective"))
    assert 1 - less / kept == pytest.approx(saved, abs=0.01)


@pytest.mark.parametrize(("interleaved", "layers"), [(1, 96), (3, 96 * (1 + 7 / 24))])
def test_the_first_stage_keeps_activations_of_a_whole_model(interleaved, layers):
    """Section 4.2.3: L layers, and L (1 + (p - 1) / (p m)) of m pieces; the mask behind the words' vectors is p sbh/t
    more (section 4.3)."""
    keys = {"tp": 8, "pp": 8, "sequence_parallel": True, "recompute": "selective", "interleaved": interleaved}
    found = memory(shaped(**GPT_3, **keys)).activations
    assert found * 8 / (2048 * 12288) == pytest.approx(34 * layers + 8)


def test_ends_of_the_model_keep_what_section_4_3_says():
    """sbh/t (1 + 4 (1 + v/h)) without a pipeline."""
    keys = {"tp": 8, "sequence_parallel": True, "recompute": "selective"}
    ends = memory(shaped(**GPT_3, **keys)).activations - 34 * 96 * 2048 * 12288 / 8
    assert ends == pytest.approx(2048 * 12288 / 8 * (1 + 4 * (1 + 51200 / 12288)))


@pytest.mark.parametrize(
    ("keys", "batch"),
    [  # table 3
        ({"layers": 48, "hidden": 6144, "heads": 64, "tp": 8, "micro_batch": 4}, 4),
        ({**GPT_3, "tp": 8, "pp": 8, "interleaved": 3}, 64),
        ({**MT_NLG, "tp": 8, "pp": 35, "interleaved": 3}, 280),
        ({"layers": 128, "hidden": 25600, "heads": 160, "tp": 8, "pp": 64}, 512),
    ],
)
def test_the_models_of_figure_1_fit_into_80_gb_by_both_means_alone(keys, batch):
    """Sequence parallelism and selective recomputation; without them they need more than an A100 has."""
    step = shaped(**keys, global_batch=batch)
    less = step.model_copy(update={"sequence_parallel": True, "recompute": "selective"})
    assert memory(less).total < 80e9 < memory(step).total


def test_fused_attention_keeps_no_scores():
    """Dao et al. (FlashAttention, 2022): as selective recomputation."""
    fused, again = (memory(shaped(**GPT_3, **each)) for each in ({"flash_attention": True}, {"recompute": "selective"}))
    assert fused == again

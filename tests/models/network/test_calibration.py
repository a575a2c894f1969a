"""Calibration against lines that are known."""

from __future__ import annotations

import numpy as np
import pytest

from manyscale.models.network.calibration import fit_ping_pong

SIZES = np.concatenate([[0], 2 ** np.arange(23)])


def line(latency_us: float, megabytes_per_second: float, sizes: np.ndarray = SIZES) -> np.ndarray:
    return latency_us * 1e6 + sizes * 1e6 / megabytes_per_second


@pytest.mark.theory
def test_one_line_is_one_class() -> None:
    fit = fit_ping_pong(SIZES, line(10, 1250))
    assert len(fit.classes) == 1
    assert fit.latency_ps == pytest.approx(10e6, rel=1e-9)
    assert fit.ps_per_byte == pytest.approx(800, rel=1e-9)
    assert (fit.eager_threshold_bytes, fit.overhead_ps) == (None, None)
    assert np.abs(fit.residual).max() < 1e-9


@pytest.mark.theory
def test_a_handshake_above_a_size_is_the_threshold() -> None:
    eager, rendezvous = line(1.5, 4000), line(6, 10_000)
    fit = fit_ping_pong(SIZES, np.where(SIZES < 8192, eager, rendezvous))
    assert fit.eager_threshold_bytes == 8192
    assert [part.first_bytes for part in fit.classes] == [0, 8192]
    assert [part.latency_ps for part in fit.classes] == pytest.approx([1.5e6, 6e6])
    assert [part.ps_per_byte for part in fit.classes] == pytest.approx([250, 100])


@pytest.mark.theory
def test_a_class_without_a_jump_is_no_threshold() -> None:
    """The lines meet at 64 KiB: the rate changes, nothing else."""
    below = line(2, 1000)
    above = below[SIZES == 65536] + (SIZES - 65536) * 1e6 / 8000
    fit = fit_ping_pong(SIZES, np.where(SIZES < 65536, below, above))
    assert len(fit.classes) == 2
    assert fit.eager_threshold_bytes is None
    assert 1e6 / fit.ps_per_byte == pytest.approx(8000)


@pytest.mark.theory
def test_noise_of_one_percent_stays_within_its_errors() -> None:
    rng = np.random.default_rng(7)
    truth = np.where(SIZES < 8192, line(1.5, 4000), line(6, 10_000))
    off = []
    for _ in range(40):
        fit = fit_ping_pong(SIZES, truth * (1 + 0.01 * rng.standard_normal(len(SIZES))))
        assert fit.eager_threshold_bytes == 8192
        last = fit.classes[-1]
        off.append((last.ps_per_byte - 100) / last.ps_per_byte_error)
    assert np.mean(np.abs(off) < 2.5) > 0.85  # a t of some eight degrees of freedom: 96 %


@pytest.mark.theory
def test_the_overhead_is_what_a_stream_shows_and_the_latency_loses_it_twice() -> None:
    stream = np.full(10, 0.3e6)
    fit = fit_ping_pong(SIZES, line(2, 1000), SIZES[1:11], stream)
    assert (fit.overhead_ps, fit.gap_ps) == (0.3e6, 0.3e6)
    assert (fit.latency_ps, fit.wire_latency_ps) == pytest.approx((2e6, 1.4e6))
    slow = fit_ping_pong(SIZES, line(2, 1000), SIZES[1:11], np.full(10, 5e6))  # the interface, not the processor
    assert slow.overhead_ps == pytest.approx(1e6)
    assert slow.wire_latency_ps == pytest.approx(0, abs=1)


@pytest.mark.theory
def test_neither_latency_nor_rate_is_negative() -> None:
    times = np.linspace(9, 5, len(SIZES)) * 1e6
    assert all(part.latency_ps >= 0 and part.ps_per_byte >= 0 for part in fit_ping_pong(SIZES, times).classes)


@pytest.mark.parametrize(
    ("sizes", "times", "message"),
    [([1, 2], [1.0, 2.0], "2 sizes"), ([1, 2, 2], [1.0] * 3, "increasing"), ([1, 2, 3], [1.0, 0.0, 1.0], "positive")],
)
def test_what_says_nothing_is_refused(sizes: list[int], times: list[float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        fit_ping_pong(np.array(sizes), np.array(times))

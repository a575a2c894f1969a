"""Streams of a program: the end that caches are warmed with is the end of what is predicted."""

from __future__ import annotations

import numpy as np
import pytest
from loop_traces import write_trace

from manyscale.runner.predict.memory.prediction import nest_of
from manyscale.runner.predict.memory.stream_units import ProgramStreams
from manyscale.runner.predict.memory.training import read_training
from manyscale.runner.readers.stores import detail_store

SIZES = (8, 10, 12, 14, 16)


@pytest.fixture
def streams(tmp_path, monkeypatch) -> ProgramStreams:
    monkeypatch.setattr(detail_store, "CHUNK_SIZE", 500)
    inputs = [(n, str(write_trace(tmp_path, n))) for n in SIZES]
    training = read_training(inputs, "auto", tmp_path / "cache")
    nest, reason = nest_of(training)
    assert nest is not None, reason
    return ProgramStreams(
        training.program, training.sites, nest, [(run.stream, run.block_number) for run in training.runs]
    )


def joined(batches) -> tuple[np.ndarray, np.ndarray]:
    return tuple(np.concatenate(columns) for columns in zip(*batches(), strict=True))


@pytest.mark.contract
@pytest.mark.parametrize("place", [{"size": 24}, {"run": 4}])
@pytest.mark.parametrize("share", [0.01, 0.1, 0.5, 1.0])
def test_the_end_of_a_stream(streams, place, share):
    block_ids, addresses = joined(streams.batches(place))
    least = int(share * len(addresses))
    end_ids, end_addresses = joined(streams.end_of(place, least))
    assert least <= len(end_addresses) <= len(addresses)
    assert np.array_equal(end_addresses, addresses[len(addresses) - len(end_addresses) :])
    assert np.array_equal(end_ids, block_ids[len(block_ids) - len(end_ids) :])
    if share <= 0.1:
        assert len(end_addresses) < 0.5 * len(addresses)


@pytest.mark.contract
def test_a_traced_stream_and_its_nest_are_one(streams):
    (traced_ids, traced), (made_ids, made) = joined(streams.batches({"run": 2})), joined(streams.batches({"size": 12}))
    assert np.array_equal(traced_ids, made_ids)
    assert len(np.unique(traced.astype(np.int64) - made.astype(np.int64))) <= 3  # an offset for each array

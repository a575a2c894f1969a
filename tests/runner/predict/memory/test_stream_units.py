"""Streams of a program: the end that caches are warmed with is the end of what is predicted."""

from __future__ import annotations

import numpy as np
import pytest
from loop_traces import write_trace

from manyscale.models.machine import Node
from manyscale.models.machine.processor import data_caches
from manyscale.runner.predict.memory.prediction import nest_of
from manyscale.runner.predict.memory.simulated import beyond, simulate, translated
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


@pytest.mark.contract
@pytest.mark.parametrize(("second", "is_one_pass"), [("64 KiB", True), ("1 KiB", False)])
def test_translation_and_prefetching_are_those_of_a_pass_of_their_own(streams, second: str, is_one_pass: bool):
    """An inclusive second level no larger than the first takes lines from it, so that the pass is not shared."""
    sizes = {"L1": "1 KiB", "L2": second}
    caches = {name: {"size": size, "line": "64 B", "ways": 2, "latency": "4 cycles"} for name, size in sizes.items()}
    caches["L1"]["prefetcher"] = {}
    caches["L2"]["inclusion"] = "inclusive"
    tlbs = {"L1": {"entries": 2, "ways": 2}}
    node = Node.model_validate({"sockets": 1, "cores_per_socket": 1, "caches": caches, "tlbs": tlbs})
    batches = streams.batches({"size": 24})
    counts, known = translated(batches, streams.sites, node, before=batches)
    alone = simulate(batches, streams.sites, data_caches(node.caches), before=batches)
    assert np.array_equal(counts.values.sum(axis=2), alone)
    assert (known is not None) == is_one_pass
    own = beyond(batches, streams.sites, node, before=batches)
    assert beyond(batches, streams.sites, node, before=batches, known=known) == own
    assert 0 < own.stream_ratio < 1
    assert own.page_rates is not None
    assert own.page_rates.whole[0] < 1

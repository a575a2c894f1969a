"""Profiles from a sample of each stream: AMM's algorithm 1 (distances by the exact engine, or by StatStack), StatStack,
or SHARDS."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from manyscale.models.memory.access_stream import Sites, accesses
from manyscale.models.memory.distances.block_sampling import ExactSampledBlocks, SampledBlocks
from manyscale.models.memory.distances.shards import Shards
from manyscale.models.memory.distances.statstack import StatStack
from manyscale.models.memory.reuse_profile import ReuseProfile
from manyscale.models.workload.notes import Note, informs
from manyscale.runner.errors import UserError
from manyscale.runner.predict.memory.streams import Stream

METHODS: Final = ("blocks", "blocks-statstack", "statstack", "shards")


def parse_rate(text: str, option: str = "--rate") -> float:
    """A share such as ``1 %`` or ``0.01``. Raises UserError unless above 0 and at most 1."""
    number, percent, _ = text.partition("%")
    try:
        rate = float(number) / (100 if percent else 1)
    except ValueError:
        rate = 0.0
    if not 0 < rate <= 1:
        raise UserError(f"{option} {text!r}: write a share such as '1 %', above 0 and at most 100 %")
    return rate


def profiles(
    streams: Sequence[Stream], sites: Sites, granularity_bytes: int, method: str, rate: float, seed: int
) -> tuple[list[ReuseProfile], list[Note]]:
    """(the estimated profile of every stream by itself, notes on its error). ``method``: a name of ``METHODS``. Raises
    UserError where a stream touches too little for the method."""
    found = {"blocks": _blocks, "blocks-statstack": _blocks_statstack, "statstack": _statstack}
    result, notes = [], list[Note]()
    for stream in streams:
        try:
            if method != "shards":
                result.append(found[method](stream, sites, granularity_bytes, rate, seed))
                continue
            sample = Shards(rate, seed)
            for block_ids, addresses in stream.batches():
                sample.feed(accesses(block_ids, addresses, sites, granularity_bytes))
            result.append(sample.profile(granularity_bytes))
        except ValueError as error:
            raise UserError(f"{stream.name}: {error}; sample more with --rate, or use --method exact") from None
        text = (
            f"SHARDS sampled {sample.num_sampled_units:,} distinct units; distances are expected to be "
            f"{100 * sample.expected_relative_error:.1f} % off"
        )
        notes.append(informs("distances-sampled", text, stream.name))
    return result, notes


def _blocks(stream: Stream, sites: Sites, granularity_bytes: int, rate: float, seed: int) -> ReuseProfile:
    sample = ExactSampledBlocks(stream.executions(sites.num_blocks), sites, granularity_bytes, rate, seed=seed)
    for block_ids, addresses in stream.batches():
        sample.feed(block_ids, addresses)
    return sample.profile()


def _blocks_statstack(stream: Stream, sites: Sites, granularity_bytes: int, rate: float, seed: int) -> ReuseProfile:
    sample = SampledBlocks(stream.executions(sites.num_blocks), sites, granularity_bytes, rate, seed=seed)
    for first, end in reversed(stream.pieces(1)):
        sample.feed(*stream.read(first, end))
    return sample.profile()


def _statstack(stream: Stream, sites: Sites, granularity_bytes: int, rate: float, seed: int) -> ReuseProfile:
    sample = StatStack(max(1, round(1 / rate)), seed)
    for block_ids, addresses in stream.batches():
        sample.feed(accesses(block_ids, addresses, sites, granularity_bytes))
    return sample.profile(granularity_bytes)

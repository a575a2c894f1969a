"""What a target says of SMs that issue by the compiler's control bits (``node.gpu.core``).

The structure is that of Huerta, Abaie Shoushtary, Cruz, González, "Dissecting and Modeling the Architecture of Modern
GPU Cores" (MICRO 2025, arXiv 2503.20481), whose measurements on Ampere the defaults are. What they could only assume
(the size of the stream buffer and of the instruction buffer) is said to be assumed here, too.
"""

from __future__ import annotations

from typing import Final

from pydantic import Field, model_validator

from manyscale.models.workload.parameters import Bytes, Count, Cycles, Strict

CODE_LINE: Final = 128  # bytes
CONSTANT_LINE: Final = 64
CONSTANT_BLOCK: Final = 256  # a line of the SM's cache
MOST_QUEUED: Final = 8


class ReadOnlyCache(Strict):
    """A cache of instructions (lines of 128 B) or of constants (lines of 64 B), replaced by least recent use."""

    size_bytes: Bytes = Field(alias="size")
    """The capacity."""
    ways: Count
    """The number of ways of each set."""

    def sets(self, line: int) -> int:
        """How many sets there are, of lines of ``line`` bytes."""
        return self.size_bytes // (line * self.ways)


class ControlledCore(Strict):
    """An SM whose schedulers follow the control bits of instructions: stall counters, the yield bit, six dependence
    counters, reuse of operands. It times launches whose trace has those bits; others are timed by the scoreboard."""

    redirect_cycles: Cycles = Field(default=10, alias="redirect")
    """From the issue of a taken branch to that of the instruction it leads to, in the nearest instruction cache."""
    l0_instructions: ReadOnlyCache = Field(
        default_factory=lambda: ReadOnlyCache.model_validate({"size": "32 KiB", "ways": 32}),
        alias="l0_instruction_cache",
    )
    """The instruction cache of a scheduler."""
    l1_instructions: ReadOnlyCache = Field(
        default_factory=lambda: ReadOnlyCache.model_validate({"size": "128 KiB", "ways": 16}),
        alias="l1_instruction_cache",
    )
    """The instruction cache of an SM."""
    prefetched_lines: Count = Field(default=8, alias="prefetched")
    """The lines of instructions behind a miss that a stream buffer fetches."""
    l0_constants: ReadOnlyCache = Field(
        default_factory=lambda: ReadOnlyCache.model_validate({"size": "2 KiB", "ways": 8}), alias="l0_constant_cache"
    )
    """Each of the two constant caches of a scheduler: of instructions of fixed latency, and of loads."""
    upper_cycles: Cycles = Field(default=79, alias="upper_latency")
    """From a miss in a scheduler's cache of instructions or constants to the line, if the SM's cache has it."""
    memory_cycles: Cycles = Field(default=166, alias="memory_latency")
    """What L2 adds to that, if the SM's cache does not have the line."""
    constant_wait_cycles: Cycles = Field(default=4, alias="constant_wait")
    """How long a scheduler waits for a constant before it turns to another warp."""
    memory_queue: Count = 5
    """The memory instructions that a scheduler's part of the SM holds."""
    memory_interval_cycles: Cycles = Field(default=4, alias="memory_interval")
    """Between two memory instructions of a scheduler."""
    shared_interval_cycles: Cycles = Field(default=2, alias="shared_interval")
    """Between two memory instructions that the structures of the SM take."""
    unit_queue: Count = 3
    """The instructions of variable latency that wait for a unit before their scheduler holds the next one back."""
    other_latency_cycles: Cycles = Field(default=24, alias="other_latency")
    """Of instructions of variable latency that none of `units` has: special registers, shuffles, conversions."""
    cold_start_cycles: Cycles = Field(default=0, alias="cold_start")
    """How much later a launch begins that a scoreboard times, which waits for no code and no constants."""
    register_ports: Count = 1
    """The registers of a warp that each of the two banks reads in a cycle."""
    barrier_cycles: Cycles = Field(default=20, alias="barrier_latency")
    """From the arrival of a block's last warp at a barrier to the next instruction."""

    @model_validator(mode="after")
    def _sizes(self) -> ControlledCore:
        caches = {
            "l0_instruction_cache": (self.l0_instructions, CODE_LINE),
            "l1_instruction_cache": (self.l1_instructions, CODE_LINE),
            "l0_constant_cache": (self.l0_constants, CONSTANT_LINE),
        }
        for key, (cache, line) in caches.items():
            if not cache.size_bytes or cache.sets(line) * line * cache.ways != cache.size_bytes:
                raise ValueError(
                    f"{key}: {cache.size_bytes} B are no whole number of sets of {cache.ways} lines of {line} B"
                )
        if self.memory_queue > MOST_QUEUED:
            raise ValueError(f"memory_queue: {self.memory_queue} is more than the {MOST_QUEUED} that the model holds")
        return self

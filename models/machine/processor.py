"""What models of cores and memory read of a node: caches, address translation, main memory, and the core itself.

Latencies of what runs at the core's clock are counted in its cycles; those of main memory are times. What a machine
file leaves out stays None, and a model that needs it says so (``needed``).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Final, Literal, TypeVar

from pydantic import Field, field_validator, model_validator

from manyscale.models.spelling import unknown
from manyscale.models.workload.detail_tables import InstructionClass
from manyscale.models.workload.parameters import (
    Bytes,
    Count,
    CountOrNone,
    Cycles,
    PsPerByte,
    Strict,
    TimePs,
)

T = TypeVar("T")
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
# classes that use the units of another one; every other class has its own unless ``shared_units`` says otherwise
_SHARED_UNITS: Final = {
    InstructionClass.fp_fma: InstructionClass.fp_mul,
    InstructionClass.fp_sqrt: InstructionClass.fp_div,
    InstructionClass.call: InstructionClass.branch,
    InstructionClass.call_return: InstructionClass.branch,
}


class Prefetcher(Strict):
    """A stream prefetcher: it follows up to ``streams`` sequences of lines at once, each inside a page of ``page``
    bytes, and once a sequence has been confirmed ``confirm`` times fetches ``degree`` lines, at most ``distance``
    lines ahead. ``interrupted_page``: the page of a sequence between whose lines come more than as many others that
    the cache misses."""

    streams: Count = 16
    """How many sequences of lines it follows at once."""
    confirm: Count = 2
    """How often a sequence must be confirmed before it fetches."""
    degree: Count = 2
    """How many lines it fetches at a time."""
    distance: Count = 16
    """How many lines ahead it fetches at most."""
    page_bytes: Bytes = Field(default=4096, alias="page")
    """The size of a page, at whose end a sequence ends."""
    interrupted_page_bytes: Bytes | None = Field(default=None, alias="interrupted_page")
    """The size of a page, at whose end a sequence begins anew where most lines that the cache misses are in no
    sequence; lines come when they have been asked for long enough. By default nothing ends there, and lines that are
    foreseen come in time (`cpu: amm` and `predict`)."""

    @field_validator("interrupted_page_bytes")
    @classmethod
    def _page(cls, value: int | None) -> int | None:
        if value is not None and (value < 512 or value & (value - 1)):
            raise ValueError(f"{value} B is not a power of two of at least 512 B")
        return value


class Cache(Strict):
    """One level of cache.

    ``inclusion``: of what the levels nearer to the core hold, this level holds all (inclusive: what it evicts leaves
    them, too), nothing (exclusive: it is filled by what they evict), or neither is promised. ``latency``: load to use,
    in core cycles. ``bandwidth``: what one core reads from this level; ``shared_bandwidth``: what all cores that
    share it read together (without limit where it is not given). ``sector``: part of a line that is valid and
    transferred by itself.
    """

    size_bytes: Bytes = Field(alias="size")
    """The capacity of one cache of this level."""
    shared_by_cores: Count = 1
    """How many cores share one cache."""
    line_bytes: Bytes | None = Field(default=None, alias="line")
    """The size of a line."""
    ways: Count | None = None
    """The number of ways of each set."""
    replacement: Literal["lru", "tree-plru", "random"] = "lru"
    """Which line gives way."""
    inclusion: Literal["inclusive", "exclusive", "neither"] = "neither"
    """Whether it holds all that nearer levels hold (`inclusive`), nothing of it (`exclusive`), or neither is
    promised."""
    write: Literal["write-back", "write-through"] = "write-back"
    """Whether written lines go on at once (`write-through`) or when they give way (`write-back`)."""
    write_allocate: bool = True
    """Whether a write that misses brings the line in."""
    sector_bytes: Bytes | None = Field(default=None, alias="sector")
    """The part of a line that is valid and transferred by itself. By default the line."""
    latency_cycles: Cycles | None = Field(default=None, alias="latency")
    """From load to use, in cycles of the core."""
    ps_per_byte: PsPerByte | None = Field(default=None, alias="bandwidth")
    """What one core reads from this level."""
    shared_ps_per_byte: PsPerByte | None = Field(default=None, alias="shared_bandwidth")
    """What all cores that share it read together. By default there is no limit."""
    prefetcher: Prefetcher | None = None
    """A stream prefetcher at this level."""

    @model_validator(mode="after")
    def _geometry(self) -> Cache:
        line, ways = self.line_bytes, self.ways
        if line is not None and (line < 8 or line & (line - 1)):
            raise ValueError(f"line: {line} B is not a power of two of at least 8 B")
        if line is not None and self.size_bytes % line:
            raise ValueError(f"size: {self.size_bytes} B is no whole number of lines of {line} B")
        if line is not None and ways is not None and (self.size_bytes // line) % ways:
            raise ValueError(f"ways: {self.size_bytes // line} lines cannot be divided into sets of {ways}")
        sector = self.sector_bytes
        if sector is not None and (line is None or sector < 8 or sector & (sector - 1) or line % sector):
            raise ValueError(f"sector: {sector} B is no power of two of at least 8 B that divides a line")
        if self.replacement == "tree-plru" and ways is not None and ways & (ways - 1):
            raise ValueError(f"ways: tree-plru needs a power of two, not {ways}")
        return self

    @property
    def num_lines(self) -> int:
        """Lines that it holds (the paper's B). Raises ValueError where the file says no line size."""
        return self.size_bytes // needed(self.line_bytes, "line")

    @property
    def num_sets(self) -> int:
        """Raises ValueError where the file says no line size or ways."""
        return self.num_lines // needed(self.ways, "ways")


class Tlb(Strict):
    """One level of address translation for data. ``latency``: what a translation that is found here, not nearer, costs
    beyond the access, in core cycles."""

    entries: Count
    """The number of translations it holds."""
    ways: Count
    """The number of ways of each set."""
    page_bytes: Bytes = Field(default=4096, alias="page")
    """The size of a page."""
    latency_cycles: Cycles = Field(default=0.0, alias="latency")
    """What a translation that is found here costs beyond the access, in cycles of the core."""

    @model_validator(mode="after")
    def _geometry(self) -> Tlb:
        if self.entries % self.ways:
            raise ValueError(f"ways: {self.entries} entries cannot be divided into sets of {self.ways}")
        if self.page_bytes < 512 or self.page_bytes & (self.page_bytes - 1):
            raise ValueError(f"page: {self.page_bytes} B is not a power of two of at least 512 B")
        return self


class Dram(Strict):
    """DRAM behind the caches of one socket: ``channels`` of ``channel_bandwidth`` each, each with ``banks`` that hold
    one open row of ``row`` bytes (open-page policy). Consecutive lines go to consecutive channels, then to columns of a
    row, then to banks. ``activate`` (tRCD), ``access`` (tCL) and ``precharge`` (tRP): of a row that is closed, of a
    column, of a row that has to give way; a bank that was activated is busy for ``row_cycle`` (tRC)."""

    channels: Count
    """The channels of a socket. Consecutive lines go to consecutive channels."""
    banks: Count
    """The banks of a channel, each with one open row."""
    row_bytes: Bytes = Field(alias="row")
    """The size of a row."""
    channel_ps_per_byte: PsPerByte = Field(alias="channel_bandwidth")
    """The bandwidth of one channel."""
    activate_ps: TimePs = Field(alias="activate")
    """What opening a row takes (tRCD)."""
    access_ps: TimePs = Field(alias="access")
    """What reading a column takes (tCL)."""
    precharge_ps: TimePs = Field(alias="precharge")
    """What closing a row takes (tRP)."""
    row_cycle_ps: TimePs = Field(alias="row_cycle")
    """The least time between two activations of a bank (tRC)."""

    @field_validator("row_bytes")
    @classmethod
    def _row(cls, value: int) -> int:
        if value < 64 or value & (value - 1):
            raise ValueError(f"{value} B is not a power of two of at least 64 B")
        return value


class MainMemory(Strict):
    """``latency``: load to use of a line that no cache holds. ``bandwidth``: what one core reads; ``node_bandwidth``:
    what all cores of a node together read. ``page_walk``: cycles of a translation that no TLB holds. ``page_fault``:
    of the first access to a page that the system has to give. With ``dram``, models that know it take ``latency`` as
    that of a bank whose row is closed, and bandwidths from its channels."""

    latency_ps: TimePs = Field(alias="latency")
    """From load to use of a line that no cache holds."""
    ps_per_byte: PsPerByte = Field(alias="bandwidth")
    """What one core reads."""
    node_ps_per_byte: PsPerByte | None = Field(default=None, alias="node_bandwidth")
    """What all cores of a node together read. By default there is no limit."""
    page_walk_cycles: Cycles = Field(default=0.0, alias="page_walk")
    """The cycles of a translation that no TLB holds."""
    page_fault_ps: TimePs | None = Field(default=None, alias="page_fault")
    """What the first access to a page takes that the system has to give."""
    dram: Dram | None = None
    """Channels, banks and rows, for models that know them."""

    @model_validator(mode="after")
    def _covers_dram(self) -> MainMemory:
        if self.dram is not None and self.latency_ps < self.dram.activate_ps + self.dram.access_ps:
            raise ValueError("latency: is less than dram's activate and access together, which it includes")
        return self


class Numa(Strict):
    """Between the sockets of a node: what a line of another socket's memory or caches takes beyond a local one, and
    what a link from one socket to the others carries. ``pages``: whose memory a page of ``page`` bytes lies in, that
    of the socket which touched it first, or of the sockets in turn."""

    latency_ps: TimePs = Field(alias="latency")
    """What a line of another socket takes beyond a local one."""
    ps_per_byte: PsPerByte = Field(alias="bandwidth")
    """What a link from one socket to the others carries."""
    pages: Literal["first-touch", "interleave"] = "first-touch"
    """In whose memory a page lies: that of the socket which touched it first, or of the sockets in turn."""
    page_bytes: Bytes = Field(default=4096, alias="page")
    """The size of a page."""


class InstructionCost(Strict):
    """Of instructions of one class: ``latency`` until a dependent one can start, and ``reciprocal_throughput``, the
    mean distance of independent ones, both in core cycles."""

    latency_cycles: Cycles = Field(alias="latency")
    """Until a dependent instruction can start."""
    reciprocal_throughput_cycles: Cycles = Field(alias="reciprocal_throughput")
    """The mean distance of independent instructions."""


class Core(Strict):
    """An out-of-order core. ``width``: instructions that enter the reorder buffer per cycle, and that leave it unless
    ``commit`` says otherwise;
    ``line_fill_buffers``: lines that may be on their way to the first cache at once; ``store_to_load``: cycles from a
    store to a load of the same bytes that follows it. ``instructions``: cost by class (detail_tables.InstructionClass;
    ``atomic`` is taken as int_alu where it is left out); memory accesses cost what the memory does, beside.

    Where they differ: ``general_store_to_load`` for general registers, ``vector_loads_per_cycle`` and
    ``vector_stores_per_cycle``; ``vector_load``: cycles that a load of a vector register takes beyond the cache's
    latency. Limits that count only where they are given: ``accesses_per_cycle``, loads and stores together;
    ``forwarded_loads_per_cycle``, loads that stores still on their way answer; ``vector_registers``, for results of
    instructions in the reorder buffer; ``fetch``, the aligned window of code that is fetched per cycle (a loop that
    lies in two takes two cycles). ``repeated_accesses``: how many accesses more than one a load is that is answered by
    an instruction which reads and writes memory (it comes before the data and is tried again).
    ``string_bytes_per_cycle``: what string instructions move. ``misprediction``: cycles from the end of a mispredicted
    branch until what follows enters. ``writes_back_aside``: lines written back take no bandwidth from lines read.
    ``fuses_branches``: a compare and the branch after it are one; ``eliminates_moves``: moves between registers of one
    file take no unit and no time (``move`` is then the cost of those from one file to another). ``shared_units``:
    groups of classes that the same units execute, so that their reciprocal throughputs add up (without it, only fp_fma
    shares fp_mul's, fp_sqrt fp_div's, and calls and returns those of branches)."""

    width: Count
    """Instructions that enter the reorder buffer per cycle."""
    hardware_threads: Count = 1
    """Threads of each core that execute at once, all alike: each has an equal part of the core and its caches."""
    commit: CountOrNone = 0
    """Instructions that leave it per cycle. 0: as many as enter."""
    reorder_buffer: Count
    """Instructions that the reorder buffer holds."""
    loads_per_cycle: Positive
    """Loads that can start per cycle."""
    stores_per_cycle: Positive
    """Stores that can start per cycle."""
    load_buffer: CountOrNone = 0
    """Loads that may be under way at once. 0: no limit."""
    store_buffer: CountOrNone = 0
    """Stores that may be under way at once. 0: no limit."""
    line_fill_buffers: Count
    """Lines that may be on their way to the first cache at once."""
    store_to_load_cycles: Cycles = Field(alias="store_to_load")
    """From a store to a load of the same bytes that follows it."""
    instructions: dict[str, InstructionCost] = Field(
        json_schema_extra={"propertyNames": {"enum": [each.name for each in InstructionClass]}}
    )
    """The cost of each class of instruction. `atomic` is taken as `int_alu` where it is left out."""
    general_store_to_load_cycles: Cycles | None = Field(default=None, alias="general_store_to_load")
    """The same as `store_to_load` for general registers, where it differs."""
    vector_loads_per_cycle: Positive | None = None
    """Loads of vector registers per cycle, where it differs."""
    vector_stores_per_cycle: Positive | None = None
    """Stores of vector registers per cycle, where it differs."""
    accesses_per_cycle: Positive | None = None
    """Loads and stores together per cycle. By default there is no limit beside their own."""
    fetch_bytes: Bytes | None = Field(default=None, alias="fetch")
    """The aligned window of code that is fetched per cycle. By default fetching limits nothing."""
    string_bytes_per_cycle: Positive | None = None
    """What string instructions move per cycle."""
    vector_registers: CountOrNone = 0
    """Vector registers for results of instructions in the reorder buffer. 0: no limit."""
    forwarded_loads_per_cycle: Positive | None = None
    """Loads per cycle that stores still on their way answer."""
    repeated_accesses: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0.0
    """How many accesses more than one a load is that an instruction answers which reads and writes memory."""
    vector_load_cycles: Cycles = Field(default=0.0, alias="vector_load")
    """What a load of a vector register takes beyond the cache's latency."""
    misprediction_cycles: Cycles = Field(default=0.0, alias="misprediction")
    """From the end of a mispredicted branch until what follows enters."""
    writes_back_aside: bool = False
    """Whether lines written back take no bandwidth from lines read."""
    fuses_branches: bool = True
    """Whether a compare and the branch after it are one."""
    eliminates_moves: bool = True
    """Whether moves between registers of one file take no unit and no time."""
    shared_units: tuple[tuple[str, ...], ...] = ()
    """Groups of classes that the same units execute, so that their reciprocal throughputs add up."""

    @field_validator("instructions")
    @classmethod
    def _atomic(cls, instructions: dict[str, InstructionCost]) -> dict[str, InstructionCost]:
        # machine files of before there was the class do not name it
        plain = instructions.get("int_alu")
        return instructions if plain is None else {**instructions, "atomic": instructions.get("atomic", plain)}

    @model_validator(mode="after")
    def _classes(self) -> Core:
        known = {each.name for each in InstructionClass}
        wrong = sorted(set(self.instructions) - known)
        missing = sorted(known - set(self.instructions))
        if wrong or missing:
            none = f"no cost of {', '.join(missing)}; the classes are {', '.join(sorted(known))}"
            raise ValueError(f"instructions: {unknown('class', wrong[0], sorted(known)) if wrong else none}")
        shared = [name for group in self.shared_units for name in group]
        twice = sorted({name for name in shared if shared.count(name) > 1})
        if twice or not known.issuperset(shared):
            what = f"{twice[0]} stands in it twice" if twice else f"unknown class {min(set(shared) - known)!r}"
            raise ValueError(f"shared_units: {what}; the classes are {', '.join(sorted(known))}")
        return self

    def units(self) -> dict[InstructionClass, InstructionClass]:
        """The class whose units each class uses."""
        units = {each: _SHARED_UNITS.get(each, each) for each in InstructionClass}
        for group in self.shared_units:
            mine = {units[InstructionClass[name]] for name in group}
            units = {each: min(mine) if unit in mine else unit for each, unit in units.items()}
        return units

    @property
    def free_classes(self) -> list[str]:
        """Classes of instructions that take no time, but for ``nop``, which has nothing to do."""
        return [name for name, cost in self.instructions.items() if not cost.latency_cycles and name != "nop"]


def needed(value: T | None, key: str, place: str = "") -> T:
    """``value``; raises ValueError naming the machine file's key where it is None."""
    if value is None:
        raise ValueError(f"{place}{key} is not given; add it to the machine")
    return value


def data_caches(caches: Mapping[str, Cache]) -> dict[str, Cache]:
    """The levels that data pass, the nearest to the core first, as the machine lists them; instruction caches, whose
    names end with I, left out."""
    return {name: cache for name, cache in caches.items() if not name.upper().endswith("I")}

"""A GPU as the models of it read it: frozen, validated parameters. Latencies count cycles of the SM's clock.

Sources of the defaults' meaning: the pipeline is that of Accel-Sim (Khairy et al., ISCA 2020), whose RTX 3070
configuration ``rtx3070.yaml`` holds; the caches of Fermi and of GPUMech's table 7 are lines without sectors.
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Final, Literal

from pydantic import Field, model_validator

from manyscale.models.gpu.arithmetic.classes import InstructionClass
from manyscale.models.gpu.arithmetic.parameters import OWN_UNITS, InstructionTiming, OfTarget
from manyscale.models.gpu.device.links import HostLink, PeerLink
from manyscale.models.gpu.matrix.parameters import Matrix
from manyscale.models.gpu.matrix.shapes import Element
from manyscale.models.gpu.sm.control.parameters import ControlledCore
from manyscale.models.machine.blocks import Block
from manyscale.models.workload.parameters import Bytes, Count, Cycles, FrequencyHz, PsPerByte, Strict, TimePs

SECTOR_BYTES: Final = 32  # of the traces' accesses
WARP_THREADS: Final = 32
_UNEVEN: Final = 1 << 11  # slices whose number is a multiple of this and no power of two have no rule (l2/slices.py)
_SHORTEST_WAY: Final = 16  # cycles between two SMs
UNITS: Final[tuple[OfTarget, ...]] = ("int", "fp32", "fp64", "sfu", "tensor", "branch", "uniform", "texture")
FRONTS: Final = (*UNITS, *OWN_UNITS)  # all units of a scheduler

Share = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]


class Unit(Strict):
    """A class of execution units, one of each for every scheduler. ``latency``: from dispatch to the result;
    ``interval``: before the next instruction of the class can be dispatched."""

    latency_cycles: Cycles = Field(alias="latency")
    """From dispatch to the result."""
    interval_cycles: Cycles = Field(alias="interval")
    """Before the next instruction of the class can be dispatched."""


class BulkCopies(Strict):
    """The unit of an SM that copies blocks of bytes and boxes of tensors (TMA)."""

    latency_cycles: Cycles = Field(default=0, alias="latency")
    """From the issue of the instruction to the first request."""
    interval_cycles: Cycles = Field(default=1, alias="interval")
    """Between two requests, each of a sector of L1, or of as many as pass to L2 together (`crossbar.sectors`)."""


class Clusters(Strict):
    """How blocks of a thread block cluster reach each other's shared memory."""

    gpcs: Count = 1
    """The graphics processing clusters: the SMs of one run the blocks of a cluster."""
    tpc_sms: Count = 1
    """The SMs of a texture processing cluster, of which a GPC has whole ones: as many as the others, or one more."""
    latency_cycles: Cycles = Field(alias="latency")
    """From an access to another SM's shared memory to its result there or back."""
    interval_cycles: Cycles = Field(default=1, alias="interval")
    """What an access takes for each word of the busiest bank."""

    @model_validator(mode="after")
    def _is_long(self) -> Clusters:
        if self.latency_cycles < _SHORTEST_WAY:
            raise ValueError(f"latency: {self.latency_cycles:g} cycles are fewer than {_SHORTEST_WAY}")
        return self


class SharedMemory(Strict):
    """Of an SM. An instruction takes the unit for as many cycles as the busiest of 32 banks of 4 bytes has words to
    give. ``splits``: sizes that shared memory can take of what ``l1.size`` says, the smallest that the resident blocks
    need; the rest is L1 (none: they are memories of their own). ``per_block_reserved``: what the system takes of each
    block's share, in units of ``allocation_unit``."""

    size_bytes: Bytes = Field(alias="size")
    """The shared memory of an SM."""
    splits_bytes: tuple[Bytes, ...] = Field(default=(), alias="splits")
    """The sizes that shared memory can take of what `l1.size` says; the rest is L1. By default they are memories of
    their own."""
    latency_cycles: Cycles = Field(alias="latency")
    """The latency of an access."""
    reserved_bytes: Bytes = Field(default=0, alias="per_block_reserved")
    """What the system takes of each block's share."""
    unit_bytes: Bytes = Field(default=128, alias="allocation_unit")
    """The unit in which shared memory is allocated."""


class GpuCache(Strict):
    """L1 or L2 of a GPU.

    ``sector``: part of a line that is valid and transferred by itself (the line, where there are none). ``latency``: of
    an L1 from a request's entry into its pipeline to the lookup, of an L2 from its arrival at a slice to the lookup
    (see Gpu.l1_hit_cycles and so on for what a load waits in all). ``mshrs`` entries of outstanding misses, each for
    ``merges`` requests; of an L2, ``side_pool`` more of a slice wait aside for any of them, and a slice takes no
    request behind one for which there is no room. ``banks`` of an L1 each take one request a cycle, sector by sector in
    turn; ``slices`` of an L2 one each. ``write``: ``through`` (a hit is updated), ``evict`` (a hit is invalidated) or
    ``back``. ``write_allocate``: whether a written sector stands in the cache after a miss; it can be read only once
    all of its bytes were written or it was fetched. ``dirty_share``: lines that were written to are not replaced before
    their share of the cache is as large (Accel-Sim). ``kept_between_launches``: of an L2; an L1 is empty when a launch
    begins.
    """

    size_bytes: Bytes = Field(alias="size")
    """The capacity."""
    ways: Count
    """The number of ways of each set."""
    line_bytes: Bytes = Field(default=128, alias="line")
    """The size of a line."""
    sector_bytes: Bytes = Field(default=32, alias="sector")
    """The part of a line that is valid and transferred by itself."""
    latency_cycles: Cycles = Field(alias="latency")
    """Of an L1 from a request's entry to the lookup, of an L2 from its arrival at a slice to the lookup."""
    mshrs: Count
    """The misses that may be outstanding at once."""
    merges: Count
    """The requests that each of them holds."""
    side_pool: int = Field(default=0, ge=0)
    """The requests of a slice of L2 that wait for its misses beyond these, so that those behind them go on."""
    banks: Count = 1
    """The banks of an L1, each of which takes one request a cycle."""
    slices: Count = 1
    """The slices of an L2, each of which takes one request a cycle."""
    write: Literal["through", "evict", "back"]
    """What a write does: `through` (a hit is updated), `evict` (a hit is invalidated) or `back`."""
    write_allocate: bool = True
    """Whether a written sector stands in the cache after a miss."""
    dirty_share: Share = 0.0
    """The share of the cache that written lines must have before one of them gives way."""
    kept_between_launches: bool = False
    """Whether an L2 keeps its content from launch to launch."""

    @model_validator(mode="after")
    def _geometry(self) -> GpuCache:
        line, sector = self.line_bytes, self.sector_bytes
        if not line or line & (line - 1) or line % SECTOR_BYTES or line > 256:
            raise ValueError(f"line: {line} B is no power of two between {SECTOR_BYTES} and 256 B")
        if not sector or sector & (sector - 1) or sector % SECTOR_BYTES or line % sector:
            raise ValueError(f"sector: {sector} B is no power of two of at least {SECTOR_BYTES} B that divides a line")
        if not self.size_bytes or self.size_bytes % (line * self.ways * self.slices):
            raise ValueError(f"size: {self.size_bytes} B is no whole number of sets of {self.ways} lines in each slice")
        if self.num_sets & (self.num_sets - 1):
            raise ValueError(f"size: {self.num_sets} sets of {self.ways} lines are no power of two")
        if self.banks & (self.banks - 1):
            raise ValueError(f"banks: {self.banks} is no power of two")
        return self

    @property
    def num_sets(self) -> int:
        """Sets of each slice."""
        return self.size_bytes // (self.line_bytes * self.ways * self.slices)


class BlockDispatch(Strict):
    """How fast a GPU gives its SMs thread blocks (not those of clusters)."""

    interval_cycles: Cycles = Field(default=0, alias="interval")
    """Between two blocks that the GPU gives out, in turn to its SMs. By default all that have room take one at once."""
    turnaround_cycles: Cycles = Field(default=0, alias="turnaround")
    """From a block's end until the next one begins in its place."""


class GpuCrossbar(Strict):
    """Between SMs and slices of L2. ``sectors`` (of ``l2.sector``) pass each SM's and each slice's port in a cycle, one
    way and the other; those that go together are of one SM and for one slice. ``past_l1``: sectors of an access that
    passes L1 (also a copy to shared memory) that the load/store unit gives the port in a cycle, as far as the port's
    queue has room; an access to L1 takes as long as its banks do."""

    sectors: Literal[1, 2, 4] = 1
    """The sectors that an SM, and a slice, sends and gets in a cycle."""
    past_l1: Count = 1
    """The sectors of an access that passes L1 that the load/store unit deals with in a cycle."""


class DramTiming(Strict):
    """Rows and banks of a channel, counted in cycles of the DRAM's clock ``frequency``: activate to read (RCD), read to
    data (CL), precharge (RP), activate to precharge (RAS), activate to activate of a bank (RC) and of two (RRD),
    column to column (CCD) and in one bank group (CCDL), write to read (CDLR), write to precharge (WR). Where they are
    named, also four activates (FAW), read to write (RTW), and refreshes of single banks (JEDEC's REFSB), which take
    RFC of each bank in every REFI, one bank after the other."""

    frequency_hz: FrequencyHz = Field(alias="frequency")
    """The clock of the DRAM, in whose cycles the other keys are counted."""
    banks: Count
    """The banks of a channel."""
    bank_groups: Count
    """The groups of banks of a channel."""
    row_bytes: Bytes = Field(alias="row")
    """The size of a row."""
    rcd: Count
    """Activate to read."""
    cl: Count
    """Read to data."""
    wl: Count
    """Write to data."""
    rp: Count
    """Precharge."""
    ras: Count
    """Activate to precharge."""
    rc: Count
    """Activate to activate of one bank."""
    rrd: Count
    """Activate to activate of two banks."""
    ccd: Count
    """Column to column."""
    ccdl: Count
    """Column to column in one group of banks."""
    cdlr: Count
    """Write to read."""
    wr: Count
    """Write to precharge."""
    faw: int = Field(default=0, ge=0)
    """The window in which no more than four banks are activated."""
    rtw: int = Field(default=0, ge=0)
    """Read to write."""
    refi: int = Field(default=0, ge=0)
    """Refresh to refresh of one bank; 0: none is refreshed."""
    rfc: int = Field(default=0, ge=0)
    """What the refresh of a bank takes."""

    @model_validator(mode="after")
    def _of_address_bits(self) -> DramTiming:
        for key, value in (("banks", self.banks), ("bank_groups", self.bank_groups), ("row", self.row_bytes)):
            if not value or value & (value - 1):
                raise ValueError(f"{key}: {value} is no power of two")
        if self.bank_groups > self.banks:
            raise ValueError(f"bank_groups: {self.bank_groups} of {self.banks} banks")
        if (self.refi == 0) != (self.rfc == 0):
            raise ValueError(f"refi: {self.refi} and rfc: {self.rfc}; refreshes need both")
        if self.refi and self.rfc + self.rp + self.rcd >= self.refi:
            raise ValueError(f"refi: {self.refi} cycles leave no time between refreshes of {self.rfc}")
        return self


class GpuDram(Strict):
    """``latency``: on the way to DRAM, beside what its rows and its bus take. ``bandwidth`` of all ``channels``
    together. ``queue``: requests that a channel chooses from (first ready, first come first served)."""

    channels: Count
    """The channels of the DRAM."""
    size_bytes: Bytes | None = Field(default=None, alias="size")
    """What a program's data may take of it: weights, activations and so on of a step that is larger do not fit."""
    bandwidth_ps_per_byte: PsPerByte = Field(alias="bandwidth")
    """The bandwidth of all channels together."""
    latency_cycles: Cycles = Field(alias="latency")
    """What the way to DRAM takes beside its rows and its bus."""
    queue: Count = 64
    """The requests that a channel chooses from: first ready, first come first served."""
    writes: int = Field(default=0, ge=0)
    """The writes that a channel holds, on their way and in its queue; with more, its slices of L2 wait before they take
    another line. 0: any number."""
    timing: DramTiming | None = None
    """Rows and banks. Without it, only latency and bandwidth count."""


class Gpu(Block):
    """A GPU of ``sms`` streaming multiprocessors, each with ``schedulers`` that issue one instruction a cycle.

    ``compute_capability``: the highest SM version (86 is sm_86) whose instructions it runs. ``warps``, ``threads`` and
    ``blocks``: the most that are resident on an SM, whichever is reached first. ``registers``: of 32 bits, allocated to
    warps in units of ``register_unit``. ``pipeline``: cycles between the end of an instruction's latency and the issue
    of one that needs its result. ``scheduler``: how a warp is chosen; ``active_warps`` of each scheduler in the
    two-level one. ``launch_latency``: between a launch and its first instruction; ``interconnect``: cycles from SM to
    L2 and back, each way.
    """

    key: ClassVar[str] = "node.gpu"

    sms: Count
    """The number of streaming multiprocessors."""
    frequency_hz: FrequencyHz = Field(alias="frequency")
    """The clock of the SMs."""
    compute_capability: Count
    """The highest SM version whose instructions it runs; 86 is sm_86."""
    warps: Count
    """The most warps that are resident on an SM."""
    threads: Count
    """The most threads that are resident on an SM."""
    blocks: Count
    """The most thread blocks that are resident on an SM."""
    registers: Count
    """The 32-bit registers of an SM."""
    register_unit: Count = 256
    """The unit in which registers are allocated to a warp."""
    schedulers: Count
    """The warp schedulers of an SM, each of which issues one instruction a cycle."""
    scheduler: Literal["loose-round-robin", "greedy-then-oldest", "oldest-first", "two-level"] = "loose-round-robin"
    """How a warp is chosen."""
    active_warps: Count = 8
    """The active warps of each scheduler in the two-level one."""
    pipeline_cycles: Cycles = Field(alias="pipeline")
    """From the end of an instruction's latency to the issue of one that needs its result."""
    units: dict[OfTarget, Unit]
    """The execution units by class of instruction, one of each for every scheduler."""
    instructions: dict[InstructionClass, InstructionTiming] = {}
    """Instructions whose rate is not that of the unit which Accel-Sim has them on. Those that are not listed take what
    the unit takes."""
    matrix: Matrix | None = None
    """Tensor cores by type and shape. Without it all matrix instructions take what `units.tensor` says."""
    bulk_copies: BulkCopies = BulkCopies()
    """The unit of an SM that copies blocks of bytes and boxes of tensors (TMA)."""
    clusters: Clusters | None = None
    """How blocks of a thread block cluster reach each other. Without it they run as any others."""
    shared_memory: SharedMemory
    """The shared memory of an SM."""
    l1: GpuCache
    """The first cache, one for each SM."""
    l2: GpuCache
    """The second cache, one for all."""
    interconnect_cycles: Cycles = Field(default=0, alias="interconnect")
    """From an SM to L2, and the same back."""
    crossbar: GpuCrossbar = GpuCrossbar()
    """How much passes between an SM and L2 in a cycle."""
    dram: GpuDram
    """The memory of the GPU."""
    launch_latency_cycles: Cycles = Field(default=0, alias="launch_latency")
    """From a launch to its first instruction."""
    host_call_ps: TimePs = Field(default=0, alias="host_call")
    """What each CUDA call takes the host that makes it, where the replay knows streams."""
    dispatch: BlockDispatch = BlockDispatch()
    """How fast blocks are given out to SMs."""
    host_link: HostLink | None = None
    """What copies between host and GPU go over. Without it they take no time."""
    peer_link: PeerLink | None = None
    """What copies between two GPUs of a node go over. Without it they go over `host_link`."""
    names: tuple[str, ...] = ()
    """The names that its driver gives it, such as `Tesla V100-SXM2-32GB`: kernels that were traced on a GPU of one of
    these names take their traced times."""
    start_latency_ps: TimePs | None = Field(default=None, alias="start_latency")
    """From when a host has given an idle stream a kernel or a copy whose time was traced until it begins. Behind work
    that the stream still does, nothing of it is seen."""
    stream_gap_ps: TimePs = Field(default=0, alias="stream_gap")
    """From the end of such a kernel or copy until the next one of its stream begins."""
    core: ControlledCore | None = None
    """How SMs issue launches whose trace has the compiler's control bits. Without it, a scoreboard times them all."""

    def matrix_flops(self, element: Element) -> float | None:
        """Peak of its tensor cores in operations a second, two for each multiply-add: dense, as its data sheet has it
        (``matrix.peaks``), else by rate and clock. None for a type that they do not multiply."""
        if self.matrix is None:
            return None
        rate = self.matrix.rates.get(element)
        return None if rate is None else self.matrix.peaks_flops.get(element, 2.0 * rate * self.sms * self.frequency_hz)

    @property
    def front_cycles(self) -> int:
        """Of the pipeline, those from issue to dispatch to a unit; the rest is after the unit's latency."""
        return (round(self.pipeline_cycles) + 1) // 2

    @property
    def l1_hit_cycles(self) -> int:
        """From the issue of a load that hits in L1 to that of an instruction that needs it."""
        return self.front_cycles + 1 + round(self.l1.latency_cycles)

    @property
    def l2_hit_cycles(self) -> int:
        """The same for a hit in L2: lookup, the way there (3 cycles and the interconnect), L2, the way back (6)."""
        return self.l1_hit_cycles + round(self.l2.latency_cycles) + 9 + 2 * round(self.interconnect_cycles)

    @property
    def dram_cycles(self) -> float:
        """What DRAM takes beyond that, where the row is closed: latency, RCD and CL."""
        timing = self.dram.timing
        row = (timing.rcd + timing.cl) * self.frequency_hz / timing.frequency_hz if timing else 0.0
        return round(self.dram.latency_cycles) + row

    @model_validator(mode="after")
    def _whole(self) -> Gpu:
        missing = [name for name in UNITS if name not in self.units]
        if missing:
            raise ValueError(f"units: {', '.join(missing)} missing; every class of instructions needs its unit")
        for name, timing in self.instructions.items():
            if timing.latency_cycles is None and timing.unit in OWN_UNITS:
                raise ValueError(f"instructions.{name}: no latency, which the unit {timing.unit} does not tell")
        if self.l2.slices % self.dram.channels:
            raise ValueError(f"l2.slices: {self.l2.slices} are no multiple of {self.dram.channels} channels")
        if self.l2.slices % _UNEVEN == 0 and self.l2.slices & (self.l2.slices - 1):
            raise ValueError(
                f"l2.slices: {self.l2.slices} are a multiple of {_UNEVEN} and no power of two; the models spread "
                "lines over no such number"
            )
        for key, value, most in (
            ("l2.slices", self.l2.slices, 1 << 15), ("l2.ways", self.l2.ways, 1 << 16),
            ("l2.size: sets of a slice", self.l2.num_sets, 1 << 16), ("dram.queue", self.dram.queue, (1 << 15) - 1),
        ):  # fmt: skip
            if value > most:  # places in L2 and in the queue are numbers of 16 bits (gpu/memory_state.py)
                raise ValueError(f"{key}: {value} are more than {most}")
        if self.dram.timing and self.dram.timing.row_bytes < self.l2.line_bytes:
            raise ValueError(f"dram.timing.row: {self.dram.timing.row_bytes} B are less than a line of L2")
        if self.l1.line_bytes != self.l2.line_bytes:
            raise ValueError("l1.line and l2.line differ; the models need one size of lines")
        if self.l1.kept_between_launches:
            raise ValueError("l1.kept_between_launches: no model keeps an L1; set it to false")
        if self.l1.side_pool:
            raise ValueError("l1.side_pool: only slices of L2 have one; leave it out")
        return self

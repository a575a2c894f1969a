"""The numbers of a GPU that the kernels of its SMs read."""

from __future__ import annotations

from functools import cache
from typing import Final, NamedTuple

from manyscale.models.gpu.parameters import Gpu
from manyscale.models.gpu.sm.control.parameters import CODE_LINE, CONSTANT_LINE, ControlledCore

SCHEDULERS: Final = ("loose-round-robin", "greedy-then-oldest", "oldest-first", "two-level")
ROUND_ROBIN, GREEDY, OLDEST, TWO_LEVEL = range(4)
WRITES: Final = ("through", "evict", "back")
THROUGH, EVICT, BACK = range(3)
SEND_QUEUE: Final = 16  # misses and writes of an L1 that wait to be sent (Accel-Sim's configurations)
QUEUED_MEMORY: Final = 4  # memory instructions of a scheduler before the load/store unit: one in each of two registers
# and two collectors


def shift_of(power: int) -> int:
    """Of a power of two: dividing costs a kernel as much as twenty additions."""
    return power.bit_length() - 1


class SmLimits(NamedTuple):
    """All int64; a ``shift`` is of a power of two, a ``mask`` one less. ``warps``: slots that blocks take. ``front``
    and ``back``: of the pipeline, cycles before a unit (3 with an operand read, in the model) and after it;
    ``dirty_limit``: of frames, below which those that were written stay. ``full``: all bytes of a sector.
    ``request_shift``: of the bytes of a request; ``copy_latency`` and ``copy_interval`` of the unit for bulk copies.
    ``cluster``: blocks of one, which a GPC of ``gpcs`` takes, of ``tpcs`` of ``tpc_sms`` SMs; latency and interval of
    their accesses to each other. ``slots``: resident blocks, of ``block_warps`` warps (0: launches share the SM, and
    each block has slots of its own). ``ipc_shift``: of a bucket of the IPC over time.
    ``controlled``: whether control bits time the launch; what follows is of gpu/sm/control/parameters.py then,
    ``barrier``: from the arrival of the last warp (1 otherwise), ``above``: from the SM's cache of instructions to L2
    and back. ``port``: sectors that pass to L2, and come from there, in a cycle; ``past_l1``: those that the load/store
    unit gives it. ``register_ports`` of a bank of registers. ``block_pace``: between two blocks that an SM takes;
    ``block_turnaround``: from a block's end to the next one in its place; ``paced``: whether an SM takes a block for
    more reasons than that it has room."""

    warps: int
    schedulers: int
    scheduler: int
    active_warps: int
    front: int
    back: int
    shared_latency: int
    sector_shift: int
    set_mask: int
    banks: int
    bank_mask: int
    l1_latency: int
    mshrs: int
    merges: int
    write: int
    write_allocate: int
    dirty_limit: int
    full: int
    slots: int
    block_warps: int
    ipc_shift: int
    first_sm: int
    request_shift: int
    copy_latency: int
    copy_interval: int
    cluster: int
    cluster_latency: int
    cluster_interval: int
    gpcs: int
    tpcs: int
    tpc_sms: int
    controlled: int
    memory_queue: int
    memory_interval: int
    shared_interval: int
    unit_queue: int
    redirect: int
    prefetched: int
    upper: int
    above: int
    constant_wait: int
    barrier: int
    l0_code_sets: int
    l0_code_ways: int
    l1_code_sets: int
    l1_code_ways: int
    constant_sets: int
    constant_ways: int
    port: int
    port_shift: int
    past_l1: int
    register_ports: int
    block_pace: int
    block_turnaround: int
    paced: int


@cache
def _usual_core() -> ControlledCore:
    """That of a target that names none (checking its keys takes as long as a thousand warp instructions)."""
    return ControlledCore()


def sm_limits(
    gpu: Gpu, l1_frames: int, slots: int, block_warps: int, ipc_cycles: int, first_sm: int = 0,
    controlled: bool = False, cluster: int = 1,
) -> SmLimits:  # fmt: skip
    """``l1_frames``: lines of L1 beside shared memory; ``slots``: resident blocks of ``block_warps`` warps;
    ``ipc_cycles``, a power of two: a bucket of the IPC over time; ``first_sm`` of a group of them."""
    pipeline = round(gpu.pipeline_cycles)
    core = gpu.core or _usual_core()
    # where memory instructions leave a scheduler's queue stands in their rows
    earlier = gpu.front_cycles - 10 if controlled else 0
    earlier_l1 = gpu.front_cycles - 12 if controlled else 0
    return SmLimits(
        warps=slots * block_warps,
        schedulers=gpu.schedulers,
        scheduler=SCHEDULERS.index(gpu.scheduler),
        active_warps=gpu.active_warps,
        front=gpu.front_cycles,
        back=pipeline - gpu.front_cycles,
        shared_latency=max(0, round(gpu.shared_memory.latency_cycles) + earlier),
        sector_shift=shift_of(gpu.l1.line_bytes // gpu.l1.sector_bytes),
        set_mask=gpu.l1.num_sets - 1,
        banks=gpu.l1.banks,
        bank_mask=gpu.l1.banks - 1,
        l1_latency=max(1, round(gpu.l1.latency_cycles) + earlier_l1),
        mshrs=gpu.l1.mshrs,
        merges=gpu.l1.merges,
        write=WRITES.index(gpu.l1.write),
        write_allocate=int(gpu.l1.write_allocate),
        dirty_limit=round(gpu.l1.dirty_share * l1_frames),
        full=0xFFFFFFFF,
        slots=slots,
        block_warps=block_warps,
        ipc_shift=shift_of(ipc_cycles),
        first_sm=first_sm,
        request_shift=shift_of(gpu.l1.sector_bytes),
        copy_latency=round(gpu.bulk_copies.latency_cycles),
        copy_interval=max(1, round(gpu.bulk_copies.interval_cycles)),
        cluster=cluster,
        cluster_latency=0 if gpu.clusters is None else round(gpu.clusters.latency_cycles),
        cluster_interval=1 if gpu.clusters is None else max(1, round(gpu.clusters.interval_cycles)),
        gpcs=1 if gpu.clusters is None else gpu.clusters.gpcs,
        tpcs=gpu.sms if gpu.clusters is None else -(-gpu.sms // gpu.clusters.tpc_sms),
        tpc_sms=1 if gpu.clusters is None else gpu.clusters.tpc_sms,
        controlled=int(controlled),
        memory_queue=core.memory_queue if controlled else 0,
        memory_interval=round(core.memory_interval_cycles),
        shared_interval=round(core.shared_interval_cycles),
        unit_queue=core.unit_queue,
        redirect=round(core.redirect_cycles),
        prefetched=core.prefetched_lines,
        upper=round(core.upper_cycles),
        above=round(core.memory_cycles),
        constant_wait=round(core.constant_wait_cycles),
        barrier=round(core.barrier_cycles) if controlled else 1,
        l0_code_sets=core.l0_instructions.sets(CODE_LINE),
        l0_code_ways=core.l0_instructions.ways,
        l1_code_sets=core.l1_instructions.sets(CODE_LINE),
        l1_code_ways=core.l1_instructions.ways,
        constant_sets=core.l0_constants.sets(CONSTANT_LINE),
        constant_ways=core.l0_constants.ways,
        port=gpu.crossbar.sectors,
        port_shift=shift_of(gpu.crossbar.sectors),
        past_l1=gpu.crossbar.past_l1,
        register_ports=core.register_ports,
        block_pace=max(1, round(gpu.dispatch.interval_cycles * gpu.sms)),
        block_turnaround=round(gpu.dispatch.turnaround_cycles),
        paced=int(max(gpu.dispatch.interval_cycles, gpu.dispatch.turnaround_cycles, core.cold_start_cycles) > 0),
    )

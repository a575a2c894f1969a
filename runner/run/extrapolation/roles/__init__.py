"""A training step on more GPUs than were traced: new ranks take after traced ones of their role.

The ranks of a trace stand in a box whose dimensions are groups (data, tensor, pipeline parallel: ``layout.py``). In the
wanted box each rank has a traced rank as its source (``sources.py``), whose operations, sizes and times it has;
communicators span what they spanned (``families.py``); sizes of collectives follow from the members (``sizes.py``);
speeds of CPUs and GPUs differ as those of like ranks did (``speeds.py``).

Collectives keep their traced time where their group has as many members at the same distances, messages where their
ends are as far apart; the rest is the network model's. Where data parallel groups use ``reduce_scatter`` the optimiser
works on shards: its kernels take t/n of their time.

Assumptions: what a rank does follows from its role, and does not change with the number of ranks; the work of a rank
stays (weak scaling); speeds of ranks are independent of each other, of CPU and GPU, too; when a rank begins is as its
source did.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from manyscale.models.workload import MAX_RANKS, Workload, WorkloadError
from manyscale.runner.errors import UserError
from manyscale.runner.limits import memory_bytes
from manyscale.runner.run.extrapolation.roles.families import Families, Span, find_families
from manyscale.runner.run.extrapolation.roles.layout import WORDS, Layout, members_of, traced_layout
from manyscale.runner.run.extrapolation.roles.report import notes
from manyscale.runner.run.extrapolation.roles.result import Scaled
from manyscale.runner.run.extrapolation.roles.sizes import sharded
from manyscale.runner.run.extrapolation.roles.sources import Sources, find_sources, unmatched
from manyscale.runner.run.extrapolation.roles.speeds import find_speeds, stragglers
from manyscale.runner.run.extrapolation.roles.tables import ROW_BYTES, Grid, tables
from manyscale.runner.run.extrapolation.roles.wanted import Wanted

_NOT_BY_DATA: Final = tuple(name for name in WORDS if name != "dp")  # dimensions that do not share an optimiser


def scaled(path: str, workload: Workload, wanted: Wanted) -> Scaled:
    """The workload of a trace on other groups. Raises UserError, one line, for a trace or groups that do not fit."""
    _refuse(path, workload)
    traced = traced_layout(workload, tuple(wanted.groups), wanted.traced, path)
    layout = _layout(traced, wanted)
    families = find_families(workload, traced, layout, path)
    sources = find_sources(workload, traced, layout, families, wanted.stand_ins, path)
    _refuse_large(path, workload, sources)
    speeds = find_speeds(workload, sources, wanted.spread, wanted.seed)
    optimiser = _optimiser(workload, layout, families)
    keeps = np.array(
        [_keeps_time(workload, layout, families, index, wanted) for index in range(len(families.families))]
    )
    cpu, gpu = (speed.ratio for speed in speeds)
    grid = Grid(workload, traced, layout, families, sources, cpu, gpu, optimiser, keeps)
    slowest = tuple(stragglers(layout, families, speeds, wanted.spread))
    found = Scaled(path, workload, traced, layout, families, sources, speeds, slowest, optimiser, wanted, None)
    name = f"{workload.name}-{layout.num_ranks}"
    try:
        made = Workload(name, layout.num_ranks, tables(grid), (*notes(found), *workload.notes), "extrapolated")
    except WorkloadError as error:
        raise UserError(f"{path}: {error}") from None
    _check_messages(found, made)
    return found.with_workload(made)


def _refuse(path: str, workload: Workload) -> None:
    if not workload.tables["gpu_operations"].num_rows:
        raise UserError(
            f"{path}: nothing is given to a GPU there; --groups and --role are for traces of GPUs: of other programs "
            "give traces of two or more numbers of ranks"
        )
    for level, what in (("launches", "instructions of kernel launches"), ("tasks", "task instances")):
        if workload.tables[level].num_rows:
            raise UserError(f"{path}: has {what}, which more ranks do not share; give a trace of times alone")


def _refuse_large(path: str, workload: Workload, sources: Sources) -> None:
    operations = int(np.diff(workload.rank_offsets)[sources.rank].sum())
    size, most = ROW_BYTES * operations, memory_bytes()
    if most is not None and size > most:
        raise UserError(
            f"{path}: {len(sources.rank)} ranks of it have {operations} operations, which need {size / 1e9:.0f} GB of "
            f"memory, of {most / 1e9:.0f} GB; choose smaller groups"
        )


def _layout(traced: Layout, wanted: Wanted) -> Layout:
    groups = dict(wanted.groups)
    unknown = [name for name in groups if name not in traced.names]
    if unknown:
        raise UserError(
            f"--groups: {unknown[0]} is no group of the trace, whose ranks are {traced}; name it in --traced"
        )
    if set(groups) == set(traced.names):
        layout = Layout(tuple(groups), tuple(groups.values()))
    else:
        sizes = (groups.get(name, size) for name, size in zip(traced.names, traced.sizes, strict=True))
        layout = Layout(traced.names, tuple(sizes))
    if wanted.ranks is not None and wanted.ranks != layout.num_ranks:
        raise UserError(
            f"--ranks {wanted.ranks}: the groups {layout} have {layout.num_ranks} ranks; change one of them, or leave "
            f"--ranks out{'' if groups else ' (name the sizes of groups with --groups)'}"
        )
    if layout.num_ranks > MAX_RANKS:
        raise UserError(f"--groups {layout}: {layout.num_ranks} ranks; at most {MAX_RANKS} can be replayed")
    return layout


def _optimiser(workload: Workload, layout: Layout, families: Families) -> np.ndarray:
    """float64[ranks]: what kernels that update parameters take of the time that they took."""
    kind, rank = (workload.column("operations", name) for name in ("kind", "rank"))
    family = families.of_communicator[workload.column("operations", "communicator_id")]
    ratio = np.ones(workload.num_ranks)
    for index, each in enumerate(families.families):
        spanned = [name for name, span in zip(layout.names, each.spans, strict=True) if span is Span.whole]
        if not each.grows or all(name.lower() in _NOT_BY_DATA for name in spanned):
            continue
        shares = np.unique(rank[(family == index) & sharded(kind)])
        ratio[shares] = np.minimum(ratio[shares], each.traced_members / each.members)
    return ratio


def _keeps_time(workload: Workload, layout: Layout, families: Families, index: int, wanted: Wanted) -> bool:
    """Whether the groups of a family have as many members as in the trace, as far apart, and all of them were traced:
    else what was measured holds the wait for those that were not."""
    family = families.families[index]
    members = members_of(workload)
    own = [members[number] for number in np.flatnonzero(families.of_communicator == index).tolist()]
    if family.grows or not set(wanted.stand_ins).isdisjoint(np.concatenate(own).tolist()):
        return False
    traced = np.sort(own[0])
    one = family.member_table(layout)[0]
    return bool(np.array_equal(traced - traced[0], one - one[0]))


def _check_messages(found: Scaled, made: Workload) -> None:
    """Raises UserError for messages that nobody receives: where a longer pipeline has unlike stages, or a rank stands
    in for one with other partners."""
    if not (found.wanted.stand_ins or any(found.sources.chains & np.not_equal(found.layout.sizes, found.old.sizes))):
        return
    columns = [made.column("operations", name) for name in ("kind", "rank", "peer", "source")]
    pair = unmatched((columns[0], columns[1], columns[2], columns[3]), made.num_ranks)
    if pair is not None:
        behind = ", ".join(str(found.sources.rank[rank]) for rank in pair)
        raise UserError(
            f"{found.path}: rank {pair[0]} would send rank {pair[1]} another number of messages than that receives "
            f"(they take after traced ranks {behind}); choose other --role, or --groups with the traced pipeline"
        )

"""What a run has of the features on which models differ (models/workload/domain.py), and the notes that follow: what
the chosen models leave out, and settings that none of them reads."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Final

import numpy as np

from manyscale.models.gpu.arithmetic.classes import UNLIKE_UNITS, class_of
from manyscale.models.gpu.domains import COPIES, ROOTS, TRACED
from manyscale.models.gpu.parameters import Gpu
from manyscale.models.machine import Network
from manyscale.models.machine.processor import data_caches
from manyscale.models.machine.storage import Accesses, accesses
from manyscale.models.network.collectives.rules import CollectiveRules
from manyscale.models.network.operation_graph import is_ordered
from manyscale.models.workload import ANY_SOURCE, COLLECTIVES, OperationKind, PhaseKind, Workload
from manyscale.models.workload.asynchronous import PREFETCHING
from manyscale.models.workload.domain import FEATURES, Domain, LeavesOut
from manyscale.models.workload.gpu_step_tables import has_times
from manyscale.models.workload.gpu_tables import GpuOperationKind
from manyscale.models.workload.notes import Note, informs
from manyscale.runner.predict.gpu.checks import runs_clusters
from manyscale.runner.predict.gpu.options import GpuChoice
from manyscale.runner.predict.gpu.streams.joins import joins
from manyscale.runner.predict.node.options import MANY_RANKS, MOST_RANKS_IN_TRACES
from manyscale.runner.predict.phase_source import FILE, Case
from manyscale.runner.readers import workload_folder
from manyscale.runner.registry import lookup, names
from manyscale.runner.study.targets import shipped_content

_OF_READERS: Final = ("flop_rate", "time_unit", "application")  # options that some readers take (OPTIONS there)
_COPIES: Final = (int(GpuOperationKind.copy_to_device), int(GpuOperationKind.copy_to_host))
_UNREAD: Final = "plays no part: nothing that the run does reads it"
# that the trace with times has, and not the one with instructions
_OF_STREAMS: Final = ("copies", "host-calls", "free-host-calls", "launches-of-ranks", "shared-gpus", "ranks-in-turn",
                      "streams", "folded-gpus", "several-gpus")  # fmt: skip
_NO_SETTING: Final = ("schema", "name", "description", "sources")


def found_features(case: Case, node_of_rank: np.ndarray, launches: Workload | None) -> dict[str, int]:
    """How often a run has each feature, those that it has. ``node_of_rank`` int[ranks]; ``launches``: the workload with
    its kernel launches. O(operations + members of communicators + launches)."""
    traced = _has_traced_kernels(case, launches)
    counts: dict[str, Any] = {
        "traced-kernels": traced,
        **_of_network(case, node_of_rank),
        **_of_cores(case, node_of_rank, launches),
    }
    if launches is not None:
        own = {**_of_launches(case, launches, node_of_rank), "launches": launches.tables["launches"].num_rows}
        counts |= {name: count for name, count in own.items() if not (traced and name in _OF_STREAMS)}
    return {name: int(count) for name, count in counts.items() if count}


def _has_traced_kernels(case: Case, launches: Workload | None) -> bool:
    """Whether kernels take times of the trace, at least those whose instructions no other trace has."""
    return has_times(case.traced.tables) and (launches is None or _names_instructions(case))


def _names_instructions(case: Case) -> bool:
    """Whether another trace has the instructions of kernels, by their names."""
    return case.study.workload.gpu_trace is not None and case.study.mapping.launches is None


def _of_network(case: Case, node_of_rank: np.ndarray) -> dict[str, Any]:
    workload, network = case.workload, case.machine.network
    found = case.shared.once(("file accesses",), lambda: accesses(workload))
    # all that is read of it
    chosen = (network.collectives, network.eager_threshold_bytes, network.topology, network.blocks.get("flow"))
    return case.shared.once(
        ("features of the network", node_of_rank.tobytes(), *map(str, chosen)),
        lambda: _of_messages(workload, network, node_of_rank),
    ) | _of_files(found, is_named=case.machine.storage is not None)


def _of_messages(workload: Workload, network: Network, node_of_rank: np.ndarray) -> dict[str, Any]:
    kind, peer = workload.column("operations", "kind"), workload.column("operations", "peer")
    rows = workload.send_rows
    source, destination = workload.column("operations", "rank")[rows], peer[rows]
    same_node = node_of_rank[source] == node_of_rank[destination]
    to_self = source == destination
    collective = np.isin(kind, COLLECTIVES)
    between, within, calls = _of_collectives(workload, collective, node_of_rank)
    rules = CollectiveRules.model_validate(network.collectives)
    between = between * rules.sends_messages + int(np.count_nonzero(~same_node))
    within = within * rules.sends_messages + int(np.count_nonzero(same_node & ~to_self))
    over_links = getattr(network.topology, "loopback", "own") == "through-links"
    return {
        "messages-between-nodes": between,
        "messages-within-nodes": within,
        "messages-to-self": np.count_nonzero(to_self),
        "own-routes": 0 if over_links else within + np.count_nonzero(to_self),
        "rendezvous": np.count_nonzero(workload.column("operations", "bytes")[rows] >= network.eager_threshold_bytes),
        "collectives": calls * rules.sends_messages,
        "collective-formulas": calls * rules.has_formulas,
        "shared-links": between * (network.topology is not None),
        "rates-in-steps": _is_solved_in_steps(network),
        "wildcard-receives": np.count_nonzero(
            ((kind == OperationKind.recv) | (kind == OperationKind.irecv)) & (peer == ANY_SOURCE)
        ),
        "waits-for-any": np.count_nonzero(kind == OperationKind.waitany),
        "unordered-operations": 0 if is_ordered(workload) else 1,
    }


def _is_solved_in_steps(network: Network) -> bool:
    if not network.has_block("flow") or network.topology is None:
        return False
    from manyscale.models.network.flow.parameters import Flow  # costs what few runs need

    block = Flow.of(network)
    return block is not None and block.step_ps > 0


def _of_files(found: Accesses, *, is_named: bool) -> dict[str, Any]:
    alone = np.unique(found.rank[~found.is_collective & (found.bytes > 0)])
    return {
        "file-accesses": len(found.row),
        "storage-unnamed": 0 if is_named else len(found.row),
        "lone-accesses": len(alone) if is_named and len(alone) > 1 else 0,
        "open-accesses": np.count_nonzero(found.is_open) * is_named,
    }


def _of_collectives(workload: Workload, collective: np.ndarray, node_of_rank: np.ndarray) -> tuple[int, int, int]:
    """Calls of collectives on communicators whose members lie on several nodes, on ones of which several members lie
    on one node, and of several members."""
    communicator = workload.column("operations", "communicator_id")[collective]
    calls = np.bincount(communicator[communicator >= 0], minlength=workload.tables["communicators"].num_rows)
    offsets, members = workload.lists("communicators", "members")
    between = within = several = 0
    for each in np.flatnonzero(calls):
        nodes = node_of_rank[members[offsets[each] : offsets[each + 1]]]
        distinct = len(np.unique(nodes))
        between += int(calls[each]) * (distinct > 1)
        within += int(calls[each]) * (len(nodes) > distinct)
        several += int(calls[each]) * (len(nodes) > 1)
    return between, within, several


def _of_cores(case: Case, node_of_rank: np.ndarray, launches: Workload | None) -> dict[str, Any]:
    workload, node, study = case.workload, case.machine.node, case.study
    computes = (workload.column("phases", "kind") == PhaseKind.compute) & (workload.column("phases", "duration_ps") > 0)
    is_whole_run = launches is workload and not workload.tables["gpu_operations"].num_rows
    phases = 0 if is_whole_run else int(np.count_nonzero(computes))
    has_detail = case.traced.detail is not None or study.workload.detail is not None
    simulates = phases or (has_detail and launches is None)
    core, memory = node.core, node.main_memory
    counts = {
        "traced-times": phases,
        "described-cores": phases if core is not None else 0,
        "tasks": case.traced.tables["tasks"].num_rows,
        "neighbours": np.count_nonzero(np.bincount(node_of_rank)[node_of_rank] > 1),
        "sockets": node.numa is not None and study.mapping.cores_per_rank > node.cores_per_socket,
        "unlike-cores": len(node.core_kinds),
        "hardware-threads": core is not None and core.hardware_threads > 1,
        "address-translation": len(node.tlbs),
        "prefetchers": sum(cache.prefetcher is not None for cache in data_caches(node.caches).values()),
        "interrupted-prefetchers": sum(
            cache.prefetcher is not None and cache.prefetcher.interrupted_page_bytes is not None
            for cache in data_caches(node.caches).values()
        ),
        "dram-rows": memory is not None and memory.dram is not None,
        "free-instructions": 0 if core is None else len(core.free_classes),
        "free-mispredictions": core is not None and not core.misprediction_cycles,
    }
    return (counts if simulates else {}) | {"no-times": launches is None and _has_no_times(workload)}


def _has_no_times(workload: Workload) -> bool:
    """Whether it is a profile of one program, and nothing in it took any time."""
    is_profile = workload.detail is not None or any(workload.tables[name].num_rows for name in ("intervals", "stacks"))
    return is_profile and workload.num_ranks == 1 and not workload.column("phases", "duration_ps").any()


def _of_launches(case: Case, launches: Workload, node_of_rank: np.ndarray) -> dict[str, Any]:
    gpu = Gpu.of(case.machine.node)
    streams, version = (launches.column("launches", name) for name in ("stream", "binary_version"))
    executed = case.shared.once(("executed opcodes", launches.digest), lambda: _executed(launches))
    rank, launch, kind = (launches.column("gpu_operations", name) for name in ("rank", "launch_id", "kind"))
    sharing = np.bincount(node_of_rank[np.unique(rank[launch > 0])]) if np.any(launch) else np.zeros(1, np.int64)
    several = np.maximum(0, sharing - case.machine.node.num_gpus).sum()
    joined, devices = joins(case), launches.column("gpu_operations", "device")
    copied = np.count_nonzero(np.isin(kind, _COPIES)) if len(kind) else launches.tables["copies"].num_rows
    if gpu is not None and gpu.host_link is not None:
        if len(kind):
            copied = 0 if joined else copied
        else:  # those behind the last launch are left
            last = launches.column("launches", "launch_id").max(initial=0)
            copied = np.count_nonzero(launches.column("copies", "before_launch_id") > last)
    counts = {
        "copies": copied,
        **_host_calls(kind if joined else kind[:0], gpu),
        "launches-of-ranks": 0 if joined else np.count_nonzero(launch),
        "shared-gpus": 0 if joined else several,
        "ranks-in-turn": several if joined and not case.study.options(GpuChoice).mps else 0,
        "streams": 0 if joined else len(np.unique(streams)) - 1,
        "folded-gpus": max(0, int(devices.max(initial=0)) + 1 - case.machine.node.num_gpus) if joined else 0,
        "several-gpus": 0 if len(kind) else case.machine.node.num_gpus - 1,
        "later-code": 0 if gpu is None else np.count_nonzero(version > gpu.compute_capability),
        "gpu-dram-rows": gpu is not None and gpu.dram.timing is not None,
    }
    if gpu is not None and gpu.core is not None and launches.gpu is not None:
        ids = launches.column("launches", "launch_id").tolist()
        bits = sum(launches.gpu.detailed_counts(launch_id) is not None for launch_id in ids)
        counts |= {"control-bits": bits, "no-control-bits": len(ids) - bits}
    for name, patterns in ROOTS.items():
        counts[name] = sum(
            count for root, count in executed.items() if any(fnmatchcase(root, pattern) for pattern in patterns)
        )
    told = case.shared.once(("executed opcodes with words", launches.digest), lambda: _executed(launches, told=True))
    of_told = {root: told.get(root, 0) for root in TRACED}
    of_clusters = case.shared.once(
        ("executed opcodes of clusters", launches.digest), lambda: _executed(launches, told=True, in_clusters=True)
    )
    counts["asynchronous-operations"] = sum(of_told.values())
    counts["described-copies"] = sum(of_told[root] for root in COPIES)
    counts["bulk-copies"] -= counts["described-copies"]
    counts["bulk-prefetches"] -= sum(of_told[root] for root in PREFETCHING)
    counts["block-clusters"] += sum(of_clusters.get(root, 0) for root in TRACED)
    if runs_clusters(case.study, gpu):
        counts["block-clusters"] = 0
    if gpu is not None and gpu.matrix is not None:
        counts["matrix-instructions"] = 0
    timed = gpu.instructions if gpu is not None else {}
    counts["instruction-classes"] = sum(
        count for root, count in executed.items() if root in UNLIKE_UNITS and class_of(root) not in timed
    )
    return counts


def _host_calls(kind: np.ndarray, gpu: Gpu | None) -> dict[str, int]:
    """Of what ranks give their GPUs (GpuOperationKind), by whether the target says what a call takes the host."""
    calls = int(np.count_nonzero(~np.isin(kind, (GpuOperationKind.communication, GpuOperationKind.device_buffer))))
    known = gpu is not None and gpu.host_call_ps > 0
    return {"host-calls": calls if known else 0, "free-host-calls": 0 if known else calls}


def _executed(launches: Workload, *, told: bool = False, in_clusters: bool = False) -> dict[str, int]:
    """Warp instructions of all launches, or those ``told`` with words of asynchronous operations, or those whose blocks
    are ``in_clusters``, by the root of their opcode."""
    found: dict[str, int] = {}
    streams = launches.gpu
    if streams is None:
        return found
    for launch_id in launches.column("launches", "launch_id").tolist():
        if (told and not streams.has_words(launch_id)) or (in_clusters and streams.cluster_blocks(launch_id) == 1):
            continue
        for root, count in streams.executed(launch_id).items():
            found[root] = found.get(root, 0) + count
    return found


def domains(case: Case, *, has_launches: bool) -> Iterator[tuple[str, str, Domain | None]]:
    """(level, name, domain) of the models that a study uses; None for one that declares none."""
    model, timed = case.study.model, has_times(case.traced.tables)
    chosen = [("cpu", model.cpu), ("network", model.network)]
    if has_launches and timed and _names_instructions(case):
        chosen += [("gpu", "traced"), ("gpu", model.gpu or "detailed")]
    elif has_launches:
        chosen.append(("gpu", model.gpu or ("traced" if timed else "detailed")))
    for level, name in chosen:
        yield level, name, getattr(lookup(level, name), "DOMAIN", None)


def domain_notes(case: Case, found: Mapping[str, int], *, has_launches: bool) -> list[Note]:
    """What the chosen models leave out of what was found."""
    notes = []
    for level, name, domain in domains(case, has_launches=has_launches):
        if domain is None:
            notes.append(informs("domain-unknown", f"model {level}: {name} does not say what it leaves out"))
            continue
        for feature in FEATURES[level]:
            if feature not in found:
                continue
            stance = domain.features.get(feature)
            if stance is None:  # of a plug-in that was written before the feature was known
                text = f"model {level}: {name} does not say what it makes of {FEATURES[level][feature]}"
                notes.append(informs("domain-unknown", text, count=found[feature]))
            elif isinstance(stance, LeavesOut):
                notes.append(stance.note(feature, f"model {level}: {name}", found[feature]))
    return notes


def setting_notes(case: Case, found: Mapping[str, int], *, has_launches: bool) -> list[Note]:
    """A note for each setting that plays no part: keys of the machine that the study sets, or in which a whole machine
    differs from the shipped one of its name; and blocks of options."""
    used = list(domains(case, has_launches=has_launches))
    notes = []
    for key in sorted(_keys_set(case)):
        why = _why_unused(key, used, found)
        if why:
            notes.append(informs("setting-without-effect", f"plays no part: {why}", f"target.{key}"))
    many = {MANY_RANKS} if case.workload.num_ranks > MOST_RANKS_IN_TRACES else set()
    for name, block in case.study:
        for key in block.unread(found) if hasattr(block, "unread") else ():
            notes.append(informs("setting-without-effect", _UNREAD, f"{name}.{key}"))
        is_used = getattr(block, "is_used", None)
        if is_used is not None and block != type(block)() and not is_used(case.study, {*found, *many}):
            notes.append(informs("setting-without-effect", _UNREAD, name))
    notes += [
        informs("setting-without-effect", "plays no part: the trace's format does not leave it open", name)
        for name in _unused_of_reader(case)
    ]
    if _unused_detail(case):
        text = f"plays no part: model cpu: {case.study.model.cpu} simulates no cores"
        notes.append(informs("setting-without-effect", text, "workload.detail"))
    return notes


def why_unused(case: Case, keys: Sequence[str], found: Mapping[str, int], *, has_launches: bool) -> str:
    """Why none of some keys of the study plays a part; "" if one does, or if one might."""
    used, why = list(domains(case, has_launches=has_launches)), ""
    for key in keys:
        name, _, rest = key.partition(".")
        block = getattr(case.study, name, None)
        if name == "target":
            why = _why_unused(rest, used, found)
        elif block is not None and hasattr(block, "unread"):
            why = _UNREAD if rest.partition(".")[0] in block.unread(found) else ""
        else:
            return ""
        if not why:
            return ""
        why = f"{key} {why if why == _UNREAD else f'plays no part: {why}'}"
    return why


def _unused_of_reader(case: Case) -> list[str]:
    """What the study says about its trace, and the reader does not ask."""
    choice = case.study.workload
    is_folder = case.shared.once(
        (FILE, "workload", choice.path), lambda: workload_folder.can_read(Path(choice.path).expanduser())
    )
    form = "workload" if is_folder else case.traced.source_format
    asked = getattr(lookup("reader", form), "OPTIONS", ()) if form in names("reader") else _OF_READERS
    given = [name for name in _OF_READERS if getattr(choice, name) != type(choice).model_fields[name].default]
    return [f"workload.{name}" for name in given if name not in asked]


def _unused_detail(case: Case) -> bool:
    """Whether the study names a trace of the detailed level, and its model of cores simulates none."""
    return case.study.workload.detail is not None and case.study.model.cpu not in ("detailed", "interval")


def _keys_set(case: Case) -> set[str]:
    keys = {key for key, _ in _leaf_items(case.study.target_overrides)}
    if "schema" in keys:  # a whole machine, as of a run that is resumed
        name = case.machine.name
        shipped = case.shared.once(("shipped machine", name), lambda: shipped_content(name))
        before, after = dict(_leaf_items(shipped or {})), dict(_leaf_items(case.machine_content))
        keys = set() if shipped is None else {key for key in {**before, **after} if before.get(key) != after.get(key)}
    return {key for key in keys if key.partition(".")[0] not in _NO_SETTING}


def _leaf_items(content: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in content.items():
        if isinstance(value, Mapping) and value:
            yield from _leaf_items(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def _why_unused(key: str, used: Sequence[tuple[str, str, Domain | None]], found: Mapping[str, int]) -> str:
    """Why no model reads a key; "" if one does, or if one might."""
    missing: list[str] = []
    for _, _, domain in used:
        if domain is None:
            return ""
        for read, needs in domain.reads.items():
            if key == read or key.startswith(f"{read}.") or read.startswith(f"{key}."):
                if not needs or any(need in found for need in needs):
                    return ""
                missing += needs
    texts = {name: text for features in FEATURES.values() for name, text in features.items()}
    if missing:
        return f"the run has no {' or '.join(dict.fromkeys(texts[name] for name in missing))}"
    models = ", ".join(f"{level}: {name}" for level, name, _ in used)
    return f"none of the models ({models}) reads it"

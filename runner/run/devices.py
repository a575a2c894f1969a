"""Work units of runs whose ranks give GPUs work (models/network/devices/model.py), and what they say of a run.

A rank *computes* while its host does, and while it waits for its GPU; in an MPI call it has the call's state.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

import numpy as np
import pyarrow as pa

from manyscale.models.gpu.device.hosts import Given
from manyscale.models.gpu.device.program import again, build
from manyscale.models.gpu.device.state import MPI_CALL, Devices
from manyscale.models.gpu.parameters import Gpu
from manyscale.models.machine import Network, ideal_network
from manyscale.models.network.devices.model import (
    replay_with_devices,
    rows_of_messages,
    strands_needed,
    takes_message_times,
)
from manyscale.models.network.program import Program
from manyscale.models.network.replay.timeline import Placement
from manyscale.models.workload import Workload
from manyscale.models.workload.gpu_step_tables import has_times
from manyscale.models.workload.gpu_tables import GpuOperationKind
from manyscale.models.workload.notes import Errs, Note, changes, informs, percent
from manyscale.runner.predict.gpu.streams.copies import copy_statistics
from manyscale.runner.predict.gpu.streams.given import on_machine, shares_gpu
from manyscale.runner.predict.gpu.streams.overlaps import Known
from manyscale.runner.predict.gpu.traced.times import TracedGiven
from manyscale.runner.predict.statistic import Statistic
from manyscale.runner.predict.units import Arrays
from manyscale.runner.run import coupled, device_collectives, links

_G: Final = GpuOperationKind
_COPIES: Final = tuple(int(kind) for kind in (_G.copy_to_device, _G.copy_to_host, _G.copy_on_device))
_SHARED: Final = ", whose device it is, too, or since their node has too few for all"
_MOST_TOLD: Final = 64  # GPUs that each have a figure of their own


def replay_point(parameters: Mapping[str, Any], inputs: Mapping[str, Any]) -> Arrays:
    """As replay_units.replay_point, for ranks that give GPUs work: no critical path, but what GPUs did.

    Inputs: ``program``; ``compute_ps`` int64 per operation; ``nodes``: what ranks give, kinds of launches, which
    operations send memory of GPUs, what is known of launches that overlap, and traced times (None: there are none), as
    predict/gpu/streams and predict/gpu/traced make them. Parameters beside those of replay_point: ``gpu`` (content of
    the machine's), ``num_gpus`` of a node, ``ranks_share`` (launches of several ranks run at the same time).
    """
    network = Network.model_validate(parameters["network"])
    placement = Placement(np.asarray(parameters["node_of_rank"], np.int32), parameters["num_nodes"])
    gpu = Gpu.model_validate(parameters["gpu"])
    given, kinds, on_device, known, traced = inputs["nodes"]
    takes_ps = None
    if len(known.given):
        takes_ps = np.full(len(given), -1, np.int64)
        takes_ps[known.given] = known.takes_ps
    given = on_machine(given, placement.node_of_rank, parameters["num_gpus"])
    whole_program = inputs["program"]
    program, strand_of_row = _with_needed(whole_program, given, traced)
    between, of_several = _between_gpus(whole_program, given, on_device, placement.node_of_rank, gpu, network)

    sharing = 0 if traced is None else shares_gpu(given)
    takes_times = takes_message_times(parameters["model"], network)
    as_hosts = 0 if between is None or takes_times else np.count_nonzero(between >= 0)
    of_gpus = np.count_nonzero(between >= 0) if between is not None and takes_times else 0
    of_several = of_several if takes_times else 0

    told = None if traced is None else traced.collectives.told
    takes = device_collectives.taken(
        traced, whole_program, given, on_device, network, parameters["num_gpus"], placement.num_nodes
    )
    if takes is not None and takes_times and np.any((own := takes.alone_ps) >= 0):
        between = own if between is None else np.where(own >= 0, own, between)
    of_several = takes.of_several if takes is not None and takes.of_messages is not None else of_several
    meet, at_once, sending, own_ways = None, None, program, None
    if takes is not None:
        meet, at_once = takes.meetings(), takes.at_once()
        if parameters["model"] == "flow" and not takes_times:
            sending, meet, own_ways = takes.on_links(program)
            as_hosts = 0 if own_ways is not None else as_hosts
    devices_of = build(
        given, kinds, gpu, whole_program.rank_offsets, inputs["compute_ps"], ranks_share=parameters["ranks_share"],
        takes_ps=takes_ps, traced_ps=None if traced is None else traced.takes_ps, meetings=at_once,
        strand_of_row=strand_of_row,
    )  # fmt: skip
    ideal_makespan_ps = replay_with_devices(
        program, devices_of, ideal_network(network), placement, told=told
    ).makespan_ps
    again(devices_of, meet)
    result = replay_with_devices(
        sending, devices_of, network, placement, model=parameters["model"], message_ps=between, told=told, own=own_ways
    )
    of_given = devices_of.of_given
    waited_for = causes(result.devices, of_given, given)
    nothing = {name: getattr(result.devices, name)[:0].copy() for name in ("item", "edge", "work")}
    result = replace(result, devices=result.devices._replace(**nothing))
    devices_of = replace(devices_of, devices=result.devices)  # what is not needed any more is most of the memory
    found, timeline, count = result.devices.operation, result.timeline, parameters["num_point_to_point"]
    at = np.maximum(of_given, 0)
    times = {name: np.where(of_given >= 0, found[name][at], -1) for name in ("given", "start", "runs", "end")}
    last = result.rank_end_ps.copy()
    np.maximum.at(last, given.rank, times["end"])
    return {
        "end_ps": result.end_ps,
        "send_ps": timeline.send_ps[:count].copy(),
        "receive_ps": timeline.receive_ps[:count].copy(),
        "rank_end_ps": last,
        "ideal_makespan_ps": np.array([ideal_makespan_ps], np.int64),
        "gpu_id": devices_of.gpu_id,
        "gpu_busy_ps": result.devices.gpu["busy"].copy(),
        "gpu_overlapped_ps": result.devices.gpu["overlapped"].copy(),
        "gpu_assumed_ps": result.devices.gpu["assumed"].copy(),
        "launches_moved": np.array([_moved(known, times["runs"])], np.int64),
        "sets_together": np.array([known.sets], np.int64),
        "messages_of_gpus": np.array([of_gpus], np.int64),
        "messages_as_hosts": np.array([as_hosts], np.int64),
        "ranks_sharing_gpus": np.array([0, sharing] if parameters["ranks_share"] else [sharing, 0], np.int64),
        "messages_of_several_gpus": np.array([of_several], np.int64),
        **{f"given_{name}_ps": values for name, values in times.items()},
        **{f"given_{name}": getattr(given, name) for name in ("rank", "kind", "stream", "bytes", "gpu")},
        "given_priority": result.devices.stream["priority"][found["stream"][at]].astype(np.int32),
        "given_engine": np.where(of_given >= 0, found["engine"][at], -1).astype(np.int32),
        "given_cause": waited_for,
        **_messages_of_streams(whole_program, given, times["start"], count),
        "begin_ps": result.begin_ps,
        **({} if takes is None else takes.arrays()),
        **(
            {"collectives_beside_ps": device_collectives.beside_ps(takes, given.rank, times["runs"], times["end"])}
            if takes is not None and own_ways is None
            else {}
        ),
        **links.to_arrays(timeline.links),
    }


def _with_needed(program: Program, given: Given, traced: TracedGiven | None) -> tuple[Program, np.ndarray | None]:
    """The program with a strand for what hosts call and streams send alone, and that of each operation, where times
    were traced: others are many."""
    if traced is None:
        return program, None
    needed = np.ones(int(program.rank_offsets[-1]), np.bool_)
    needed[given.row[(given.kind != _G.communication) | (traced.collectives.of_given >= 0)]] = False
    return strands_needed(program, needed)


def _messages_of_streams(program: Program, given: Given, start_ps: np.ndarray, count: int) -> Arrays:
    """Of each of the first ``count`` messages, int64: when the streams of both ends had come to it, and the row of the
    workload's operations that receives it; -1 of those that are not between streams, none where all are."""
    mine = (given.kind == _G.communication) & (given.row >= 0)
    came = np.full(int(program.rank_offsets[-1]), -1, np.int64)
    came[given.row[mine]] = start_ps[mine]
    rows = [rows_of_messages(program, receives=receives)[:count] for receives in (False, True)]
    sends, receives = (np.where(each >= 0, came[np.maximum(each, 0)], -1) for each in rows)
    are = (sends >= 0) & (receives >= 0)
    end = count if are.any() else 0
    return {
        "message_start_ps": np.where(are, np.maximum(sends, receives), -1)[:end],
        "message_receive_row": np.where(are, rows[1], -1)[:end],
    }


def causes(devices: Devices, of_given: np.ndarray, given: Given) -> np.ndarray:
    """int32[given]: the row of ``given`` that each began behind, or that the host waited for last; -1 for none: it
    began when it was given. Of a collective: behind what its own stream came to it."""
    gives = of_given >= 0
    row_of = np.append(np.flatnonzero(gives), -1).astype(np.int32)
    found = np.full(len(given), -1, np.int32)
    found[gives] = row_of[devices.operation["cause"][of_given[gives]]]
    of_items = devices.item["cause"][devices.item["kind"] != MPI_CALL]  # by rank, thread and row
    threads = int(given.thread.max(initial=0)) + 1
    if threads == 1:
        found[~gives] = row_of[of_items[~gives]]
        return found
    order = np.lexsort((given.row, given.rank.astype(np.int64) * threads + given.thread))
    waits = ~gives[order]
    found[order[waits]] = row_of[of_items[waits]]
    return found


def ranks_table(workload: Workload, arrays: Mapping[str, np.ndarray]) -> pa.Table:
    """States of ranks: what a host waits for its GPU is no communication. Where times were traced, most operations are
    of GPUs, and have no rows of their own."""
    rank, operation = (workload.column("gpu_operations", name) for name in ("rank", "operation_id"))
    of_gpu = np.zeros(workload.num_operations, np.bool_)
    given = workload.column("gpu_operations", "kind") != _G.device_buffer
    of_gpu[(workload.rank_offsets[rank] + operation)[given]] = True
    rows = np.arange(workload.num_operations)
    if has_times(workload.tables):
        last = workload.rank_offsets[1:][np.diff(workload.rank_offsets) > 0] - 1
        rows = np.union1d(np.flatnonzero(~of_gpu), last)
    end = arrays["end_ps"][rows]
    exposed = np.where(of_gpu[rows], end, arrays["begin_ps"][rows])
    return coupled.ranks_table(workload, exposed, end, arrays["rank_end_ps"], rows)


def _moved(known: Known, runs_ps: np.ndarray) -> int:
    """Launches that do not run when they did where they were simulated beside others."""
    runs = runs_ps[known.given]
    first = np.full(int(known.of_set.max(initial=-1)) + 1, np.iinfo(np.int64).max)
    np.minimum.at(first, known.of_set, runs - known.at_ps)
    return int(np.count_nonzero(np.abs(runs - known.at_ps - first[known.of_set]) > known.slack_ps))


def _between_gpus(
    program: Program, given: Given, on_device: np.ndarray, node_of_rank: np.ndarray, gpu: Gpu, network: Network
) -> tuple[np.ndarray | None, int]:
    """int64[messages]: what messages from GPU to GPU of a node take, as fast as a copy between the two behind the
    latency of MPI inside a node; -1 for others. None where there are none. A rank's GPU is the first that it uses; how
    many messages are of ranks that use several."""
    row = rows_of_messages(program)
    source, destination = program.source.astype(np.int64), program.destination.astype(np.int64)
    found = (row >= 0) & on_device[np.maximum(row, 0)] & (source != destination)
    found &= node_of_rank[source] == node_of_rank[destination]
    if not found.any():
        return None, 0
    rank, first = np.unique(given.rank, return_index=True)
    own = np.full(program.num_ranks, -1, np.int64)
    own[rank] = given.gpu[first]
    uses_several = np.zeros(program.num_ranks, np.bool_)
    uses_several[given.rank[given.gpu != own[given.rank]]] = True
    of_several = int(np.count_nonzero(found & (uses_several[source] | uses_several[destination])))
    same = own[source] == own[destination]
    found &= (own[source] >= 0) & (own[destination] >= 0) & (same | (gpu.peer_link is not None))
    size = program.bytes.astype(np.float64)
    took = np.rint(size * 2 * gpu.dram.bandwidth_ps_per_byte).astype(np.int64)
    if gpu.peer_link is not None:
        took = np.where(same, took, gpu.peer_link.copy_ps(size))
    return np.where(found, network.intra_node.latency_ps + took, -1), of_several


def statistics(arrays: Mapping[str, np.ndarray]) -> dict[str, Statistic]:
    """Figures of GPUs, their copies and streams."""
    makespan = int(arrays["rank_end_ps"].max(initial=0))
    start, end, kind = (arrays[f"given_{name}"] for name in ("start_ps", "end_ps", "kind"))
    took = np.where(start >= 0, end - start, 0)
    copies = np.isin(kind, _COPIES)
    busy, overlapped = int(arrays["gpu_busy_ps"].sum()), int(arrays["gpu_overlapped_ps"].sum())
    count = len(arrays["gpu_busy_ps"])
    figures = {
        **copy_statistics(arrays["given_bytes"][copies], took[copies]),
        "gpu.busy_ratio": Statistic(
            busy / (makespan * count) if makespan else 0.0, "1", "ratio",
            "share of the time in which a GPU runs a launch, mean of the GPUs that are used",
        ),
        "gpu.overlap_ratio": Statistic(
            overlapped / busy if busy else 0.0, "1", "ratio", "share of that time in which it runs several"
        ),
    }  # fmt: skip
    if 1 < count <= _MOST_TOLD:
        for number, each in enumerate(arrays["gpu_busy_ps"].tolist()):
            text = f"share of the time in which GPU {int(arrays['gpu_id'][number])} runs a launch"
            figures[f"gpu.{number}.busy_ratio"] = Statistic(each / makespan if makespan else 0.0, "1", "ratio", text)
    return figures | device_collectives.statistics(arrays)


def notes(arrays: Mapping[str, np.ndarray]) -> list[Note]:
    """What the replay of streams assumes of this run."""
    found = []
    busy, overlapped, assumed = (int(arrays[f"gpu_{name}_ps"].sum()) for name in ("busy", "overlapped", "assumed"))
    if overlapped > assumed:
        sets = int(arrays["sets_together"][0])
        text = (
            f"launches ran beside others in {percent((overlapped - assumed) / busy)} of the time in which GPUs ran "
            f"any, and were simulated together: {sets} set{'s' * (sets != 1)} of them"
        )
        found.append(informs("launches-together", text, count=sets))
    if assumed:
        text = (
            f"launches ran beside others in {percent(assumed / busy)} of the time in which GPUs ran any, and were "
            "not simulated together: their blocks share SMs, L2 and DRAM by what each asks for alone"
        )
        found.append(changes("launches-overlap", text, errs=Errs.short))
    if moved := int(arrays["launches_moved"][0]):
        text = f"{moved} launches do not begin when they did where they were simulated together with others"
        found.append(changes("launches-moved", text, count=moved))
    in_turn, beside = arrays["ranks_sharing_gpus"].tolist()
    if in_turn:
        text = f"{in_turn} ranks share a GPU with others{_SHARED}: their launches take turns"
        found.append(informs("gpus-shared", text, count=in_turn))
    if beside:
        text = (
            f"{beside} ranks share a GPU with others{_SHARED}: with gpu.mps their launches run at the same time, each "
            "as long as alone"
        )
        found.append(changes("gpus-shared-at-once", text, count=beside, errs=Errs.short))
    if as_hosts := int(arrays["messages_as_hosts"][0]):
        text = (
            f"{as_hosts} messages between GPUs of a node take the way of the hosts' messages, and not "
            "node.gpu.peer_link: the network's model knows links of its own alone"
        )
        found.append(changes("gpu-messages-as-hosts", text, count=as_hosts))
    if of_gpus := int(arrays["messages_of_gpus"][0]):
        text = (
            f"{of_gpus} messages between GPUs hold no copy engine, and no SMs that would copy them: they go beside "
            "copies of the same GPUs, each at the link's whole bandwidth"
        )
        found.append(changes("messages-beside-copies", text, count=of_gpus, errs=Errs.short))
    if of_several := int(arrays["messages_of_several_gpus"][0]):
        text = (
            f"{of_several} messages between GPUs are of ranks that use several GPUs: they are taken to go from and to "
            "the first that each of these uses"
        )
        found.append(changes("gpu-of-messages", text, count=of_several))
    return [*found, *device_collectives.notes(arrays)]

"""Kernels of an SM and of DRAM that few launches need, and which launches these are."""

from __future__ import annotations

from manyscale.models.gpu.clusters_kernel import cluster_window, gpc_with_room
from manyscale.models.gpu.dram.kernel import refresh
from manyscale.models.gpu.launch_program import OPERATION, LaunchProgram
from manyscale.models.gpu.parameters import Gpu
from manyscale.models.gpu.sm.asynchronous.barrier_kernel import arrive_behind
from manyscale.models.gpu.sm.asynchronous.cluster_kernel import leave, take_message
from manyscale.models.gpu.sm.asynchronous.copy_kernel import move_copies, take_part
from manyscale.models.gpu.sm.asynchronous.operation_kernel import operate
from manyscale.models.gpu.sm.control.issue_kernel import begin_controlled, choose_youngest, issue_controlled
from manyscale.models.gpu.sm.control.queue_kernel import leave_queue
from manyscale.models.gpu.sm.limits import SmLimits


def want_for(program: LaunchProgram, limits: SmLimits, gpu: Gpu) -> None:
    """To be called before a launch runs: have what it needs compiled."""
    wanted = []
    if limits.controlled:
        wanted += [begin_controlled, choose_youngest, issue_controlled, leave_queue]
    if limits.cluster > 1:
        wanted += [cluster_window, gpc_with_room, leave, take_message]
    if limits.cluster > 1 or bool((program.static["kind"] >= OPERATION).any()):
        wanted += [operate, arrive_behind, move_copies, take_part]
    if gpu.dram.timing is not None and gpu.dram.timing.refi:
        wanted.append(refresh)
    for kernel in wanted:
        kernel.want()

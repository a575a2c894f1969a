"""Kernels of an SM that few launches need, and which launches these are."""

from __future__ import annotations

from manyscale.models.gpu.clusters_kernel import cluster_window
from manyscale.models.gpu.launch_program import OPERATION, LaunchProgram
from manyscale.models.gpu.sm.asynchronous.cluster_kernel import leave, take_message
from manyscale.models.gpu.sm.asynchronous.copy_kernel import move_copies, take_part
from manyscale.models.gpu.sm.asynchronous.operation_kernel import operate
from manyscale.models.gpu.sm.control.issue_kernel import begin_controlled, choose_youngest, issue_controlled
from manyscale.models.gpu.sm.limits import SmLimits


def want_for(program: LaunchProgram, limits: SmLimits) -> None:
    """To be called before a launch runs: have what it needs compiled."""
    wanted = []
    if limits.controlled:
        wanted += [begin_controlled, choose_youngest, issue_controlled]
    if limits.cluster > 1:
        wanted += [cluster_window, leave, take_message]
    if limits.cluster > 1 or bool((program.static["kind"] >= OPERATION).any()):
        wanted += [operate, move_copies, take_part]
    for kernel in wanted:
        kernel.want()

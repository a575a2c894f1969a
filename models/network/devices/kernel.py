"""The loops of a replay with GPUs: hosts, streams, strands and transfers in one simulated time.

Equal times: transfers, strands, hosts, operations of streams, GPUs; within each by number.
"""

from __future__ import annotations

from manyscale.models.gpu.device.kernel import run_devices
from manyscale.models.kernels import allocation_free, by_reference
from manyscale.models.network.coupled.kernel import run_fixed
from manyscale.models.network.dimemas.kernel import run_transfers
from manyscale.models.network.flow.kernel import run_flows
from manyscale.models.network.replay.timed_strands import cores_are_next


@allocation_free
def run_devices_fixed(steps, state, devices, flights, eager_start):  # type: ignore[no-untyped-def]
    """Strands, hosts, GPUs and transfers of a known cost, until nothing can go on."""
    steps, state = by_reference(steps), by_reference(state)
    devices, flights = by_reference(devices), by_reference(flights)
    while True:
        limit = run_fixed(steps, state, flights, eager_start)
        if not cores_are_next(state):
            return
        run_devices(state, devices, limit)


@allocation_free
def run_devices_flow(steps, state, devices, traffic, sharing, eager_start):  # type: ignore[no-untyped-def]
    """The same with transfers that share links."""
    steps, state, devices = by_reference(steps), by_reference(state), by_reference(devices)
    traffic, sharing = by_reference(traffic), by_reference(sharing)
    while True:
        limit = run_flows(steps, state, traffic, sharing, eager_start)
        if not cores_are_next(state):
            return
        run_devices(state, devices, limit)


@allocation_free
def run_devices_dimemas(steps, state, devices, is_eager, traffic):  # type: ignore[no-untyped-def]
    """The same with transfers that hold links and buses."""
    steps, state, devices = by_reference(steps), by_reference(state), by_reference(devices)
    traffic = by_reference(traffic)
    while True:
        limit = run_transfers(steps, state, is_eager, traffic)
        if not cores_are_next(state):
            return
        run_devices(state, devices, limit)

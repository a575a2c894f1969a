"""Checks of what can be plugged in: a function for each seam, which raises ContractError with a reason.

Built-ins are held to them, and whoever adds a format, a network, a sampler, a timing model, an executor or a writer can
hold it to them, too; docs/design/extending.md shows how. They need no test framework and no files but those they are
given:

>>> from manyscale.testing import check_network
>>> from manyscale.models.network import latency_bandwidth
>>> check_network(latency_bandwidth)
"""

from __future__ import annotations

from manyscale.testing.contract import ContractError
from manyscale.testing.executors import check_executor
from manyscale.testing.networks import check_network
from manyscale.testing.readers import check_reader
from manyscale.testing.samplers import check_sampler
from manyscale.testing.timing_models import check_timing_model
from manyscale.testing.writers import check_trace_writer, check_writer

__all__ = [
    "ContractError",
    "check_executor",
    "check_network",
    "check_reader",
    "check_sampler",
    "check_timing_model",
    "check_trace_writer",
    "check_writer",
]

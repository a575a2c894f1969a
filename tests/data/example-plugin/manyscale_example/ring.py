"""A network: nodes in a ring, where a message takes the latency once for every node that it comes to."""

from dataclasses import replace

import numpy as np

from manyscale.models.network.latency_bandwidth import message_law
from manyscale.models.network.replay.replay import replay_law

NAME = "ring"
VERSION = 1  # raised when results change


def replay(program, compute_ps, network, placement):
    """The timeline of a program."""
    law = message_law(program, network, placement.node_of_rank)
    distance = abs(placement.node_of_rank[program.source] - placement.node_of_rank[program.destination])
    hops = np.minimum(distance, placement.num_nodes - distance).astype(np.int64)
    further = np.where(law.cost_ps > 0, np.maximum(hops - 1, 0) * network.latency_ps, 0)
    return replay_law(program, compute_ps, replace(law, cost_ps=law.cost_ps + further))

"""A sampler of ranks: the first rank stands for the first half of them, the last rank for the others."""

import numpy as np

from manyscale.sampling.plan import Plan


def ends(population, rules, seed):
    """One or two ranks of a workload's."""
    count = population.workload.num_ranks
    half = np.minimum(np.arange(count) * 2 // count, count - 1)
    return Plan.of_strata("rank", np.unique([0, count - 1]), half)

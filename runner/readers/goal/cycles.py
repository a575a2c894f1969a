"""Dependencies of operations that go round: no order fulfils them, and such a schedule never ends."""

from __future__ import annotations

import numpy as np


def cycle_in(num_operations: int, after: np.ndarray, before: np.ndarray) -> list[int]:
    """Operations of which each requires the next, and the last the first; empty where there are none. ``after[i]``
    requires ``before[i]``. The shortest through one of its operations. O(operations + dependencies)."""
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import breadth_first_order, connected_components

    itself = np.flatnonzero(after == before)
    if len(itself):
        return [int(after[itself[0]])]
    graph = coo_array((np.ones(len(after), bool), (after, before)), (num_operations, num_operations)).tocsr()
    _, part = connected_components(graph, directed=True, connection="strong")
    size = np.bincount(part, minlength=1)
    if size.max(initial=0) < 2:
        return []
    start = int(np.argmax(size[part] > 1))
    reached, found_by = breadth_first_order(graph, start, directed=True)
    # the nearest that requires the first
    path = [int(reached[np.isin(reached, after[before == start])][0])]
    while path[-1] != start:
        path.append(int(found_by[path[-1]]))
    return path[::-1]

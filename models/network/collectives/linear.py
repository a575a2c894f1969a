"""Linear collectives: every participant talks to the root, or to all others, directly.

These are what SMPI does unless told otherwise (SimGrid 3.32: src/smpi/colls/smpi_default_selector.cpp and
smpi_nbc_impl.cpp; most blocking forms are the non-blocking ones with a wait at once), and what MPICH does
where only the root knows the sizes (src/mpi/coll/gatherv, scatterv) or in its throttled all-to-all. The order
of the posts is the source's. What a participant owes itself is a local copy and costs nothing.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from manyscale.models.network.collectives.call import CollectiveCall
from manyscale.models.network.collectives.schedules import ScheduleBuilder, Step
from manyscale.models.network.collectives.trees import segment_sizes

# Sends and receives in flight at once in MPICH's "scattered" all-to-all (MPIR_CVAR_ALLTOALL_THROTTLE).
MPICH_ALLTOALL_THROTTLE: Final = 32


def barrier(builder: ScheduleBuilder, call: CollectiveCall) -> None:
    """Empty messages to participant 0, then empty messages back (barrier-ompi.cpp, basic_linear)."""
    empty = np.zeros(call.num_participants, np.int64)
    _to_root(builder, 0, empty)
    _from_root(builder, 0, empty)


def barrier_unordered(builder: ScheduleBuilder, call: CollectiveCall) -> None:
    """SMPI's MPI_Ibarrier: all posts at once, so participant 0 releases the others before they arrive."""
    others = _others(call.num_participants, 0)
    arrive = builder.messages(others, 0, 0)
    release = builder.messages(0, others, 0)
    for sends, receives in ((Step.POST_SEND, Step.POST_RECEIVE), (Step.WAIT_SEND, Step.WAIT_RECEIVE)):
        builder.append(sends, arrive)
        at_root = np.stack([arrive, release], axis=1)
        builder.append(np.broadcast_to(np.array([receives, sends]), at_root.shape), at_root)
        builder.append(receives, release)


def bcast(builder: ScheduleBuilder, call: CollectiveCall) -> None:
    """The root sends the whole message to each (SMPI's MPI_Ibcast)."""
    _from_root(builder, call.root, np.full(call.num_participants, call.send_bytes))


def reduce(builder: ScheduleBuilder, call: CollectiveCall) -> None:
    """Each sends its whole message to the root (SMPI's MPI_Reduce and MPI_Ireduce)."""
    _to_root(builder, call.root, np.full(call.num_participants, call.send_bytes))


def reduce_ordered(builder: ScheduleBuilder, call: CollectiveCall) -> None:
    """Each sends its whole message to the root, which receives one by one, from the last participant on (Open MPI
    coll_base_reduce.c, basic_linear)."""
    others = _others(call.num_participants, call.root)[::-1]
    builder.send(others, call.root, call.send_bytes)


def gather_ordered(builder: ScheduleBuilder, call: CollectiveCall) -> None:
    """Each sends its block to the root, which receives one by one (Open MPI coll_base_gather.c, basic_linear)."""
    others = _others(call.num_participants, call.root)
    builder.send(others, call.root, call.block_bytes[others])


def gather_ordered_filled(builder: ScheduleBuilder, call: CollectiveCall) -> None:
    """As `gather_ordered`, without the empty blocks (Open MPI coll_basic_gatherv.c)."""
    others = _others(call.num_participants, call.root)
    others = others[call.block_bytes[others] > 0]
    builder.send(others, call.root, call.block_bytes[others])


def scatter_ordered(builder: ScheduleBuilder, call: CollectiveCall) -> None:
    """The root sends each its block, one by one (Open MPI coll_base_scatter.c, basic_linear)."""
    others = _others(call.num_participants, call.root)
    builder.send(call.root, others, call.block_bytes[others])


def scatter_ordered_filled(builder: ScheduleBuilder, call: CollectiveCall) -> None:
    """As `scatter_ordered`, without the empty blocks (Open MPI coll_basic_scatterv.c)."""
    others = _others(call.num_participants, call.root)
    others = others[call.block_bytes[others] > 0]
    builder.send(call.root, others, call.block_bytes[others])


def gather_synchronized(builder: ScheduleBuilder, call: CollectiveCall) -> None:
    """The root asks one after another for the first segment of its block, and waits for it; the rest of all blocks it
    gets at leisure (Open MPI coll_base_gather.c, linear_sync)."""
    others = _others(call.num_participants, call.root)
    first = segment_sizes(call, call.send_bytes)[0]
    ask = builder.messages(call.root, others, 0)
    begin = builder.messages(others, call.root, first)
    rest = builder.messages(others, call.root, call.send_bytes - first)
    at_root = np.stack([begin, ask, ask, rest, begin], axis=1)
    steps = (Step.POST_RECEIVE, Step.POST_SEND, Step.WAIT_SEND, Step.POST_RECEIVE, Step.WAIT_RECEIVE)
    builder.append(np.broadcast_to(np.array(steps), at_root.shape), at_root)
    builder.wait_receives(rest)
    builder.post_receives(ask)
    builder.wait_receives(ask)
    for messages in (begin, rest):
        builder.post_sends(messages)
        builder.wait_sends(messages)


def gather(builder: ScheduleBuilder, call: CollectiveCall) -> None:
    """Each sends its block to the root, which has posted all receives; empty blocks are sent too."""
    _to_root(builder, call.root, call.block_bytes)


def gather_filled(builder: ScheduleBuilder, call: CollectiveCall) -> None:
    """As `gather`, without the empty blocks (MPICH 4 gatherv_allcomm_linear.c)."""
    _to_root(builder, call.root, call.block_bytes, skip_empty=True)


def scatter(builder: ScheduleBuilder, call: CollectiveCall) -> None:
    """The root sends each its block, all at once; empty blocks are sent too."""
    _from_root(builder, call.root, call.block_bytes)


def scatter_filled(builder: ScheduleBuilder, call: CollectiveCall) -> None:
    """As `scatter`, without the empty blocks (MPICH 4 scatterv_allcomm_linear.c)."""
    _from_root(builder, call.root, call.block_bytes, skip_empty=True)


def allgather(builder: ScheduleBuilder, call: CollectiveCall) -> None:
    """Each sends its block to all others: for each in turn a send, then a receive (iallgather(v))."""
    _alternate(builder, call.block_bytes[:, None])


def allreduce(builder: ScheduleBuilder, call: CollectiveCall) -> None:
    """Each sends its whole message to all others (SMPI's MPI_Iallreduce)."""
    _alternate(builder, call.send_bytes)


def reduce_scatter(builder: ScheduleBuilder, call: CollectiveCall) -> None:
    """Each sends each other the block that is that one's result (SMPI's MPI_Ireduce_scatter)."""
    _alternate(builder, call.block_bytes[None, :])


def alltoall(builder: ScheduleBuilder, call: CollectiveCall) -> None:
    """Receives from the next one up, then sends from the next one down (alltoall-basic-linear.cpp)."""
    n = call.num_participants
    rank = np.arange(n, dtype=np.int32)[:, None]
    distance = np.arange(1, n, dtype=np.int32)[None, :]
    peers = np.concatenate([(rank + distance) % n, (rank - distance) % n], axis=1)
    _all_to_all(builder, np.repeat([Step.POST_RECEIVE, Step.POST_SEND], n - 1), peers, call.pair_bytes)


def alltoallv(builder: ScheduleBuilder, call: CollectiveCall) -> None:
    """Receives, then sends, each in rank order; empty ones too (SMPI's MPI_Alltoallv, MPI_Ialltoallv)."""
    peers = _peers(call.num_participants)
    posts = np.repeat([Step.POST_RECEIVE, Step.POST_SEND], peers.shape[1])
    _all_to_all(builder, posts, np.concatenate([peers, peers], axis=1), call.pair_bytes)


def alltoallv_filled(builder: ScheduleBuilder, call: CollectiveCall) -> None:
    """Receives, then sends, each in rank order and without the empty ones, all at once (Open MPI coll_base_alltoallv.c,
    basic_linear)."""
    sizes = call.pair_bytes.copy()
    np.fill_diagonal(sizes, 0)
    source, destination = np.nonzero(sizes)
    messages = builder.messages(source, destination, sizes[source, destination])
    by_receiver = messages[np.lexsort((source, destination))]
    builder.post_receives(by_receiver)
    builder.post_sends(messages)
    builder.wait_receives(by_receiver)
    builder.wait_sends(messages)


def alltoall_scattered(builder: ScheduleBuilder, call: CollectiveCall) -> None:
    """Non-blocking in batches of 32 distances, each waited for; empty messages are skipped.

    MPICH 4: alltoall_intra_scattered.c, alltoallv_intra_scattered.c. The message to oneself that stands in
    the first batch there is a memory copy and left out.
    """
    n, sizes = call.num_participants, call.pair_bytes
    for first in range(0, n, MPICH_ALLTOALL_THROTTLE):
        distance = np.arange(max(first, 1), min(first + MPICH_ALLTOALL_THROTTLE, n))
        source = np.tile(np.arange(n), len(distance))
        destination = (source - np.repeat(distance, n)) % n
        filled = sizes[source, destination] > 0
        source, destination = source[filled], destination[filled]
        messages = builder.messages(source, destination, sizes[source, destination])
        builder.post_receives(messages)
        builder.post_sends(messages)
        builder.wait_receives(messages)
        builder.wait_sends(messages)


def scan(builder: ScheduleBuilder, call: CollectiveCall) -> None:
    """Each sends its whole message to all higher ones (smpi_coll.cpp scan and exscan, iscan, iexscan)."""
    low, high = np.triu_indices(call.num_participants, 1)
    messages = builder.messages(low, high, call.send_bytes)
    by_receiver = messages[np.lexsort((low, high))]
    builder.post_receives(by_receiver)
    builder.post_sends(messages)
    builder.wait_receives(by_receiver)
    builder.wait_sends(messages)


def _others(n: int, root: int) -> NDArray[np.int64]:
    return np.delete(np.arange(n), root)


def _to_root(builder: ScheduleBuilder, root: int, sizes: NDArray[np.int64], skip_empty: bool = False) -> None:
    """The root posts all receives (sizes (n,) bytes) and waits; the others send and wait."""
    others = _others(len(sizes), root)
    if skip_empty:
        others = others[sizes[others] > 0]
    messages = builder.messages(others, root, sizes[others])
    builder.post_receives(messages)
    builder.post_sends(messages)
    builder.wait_receives(messages)
    builder.wait_sends(messages)


def _from_root(builder: ScheduleBuilder, root: int, sizes: NDArray[np.int64], skip_empty: bool = False) -> None:
    """The root posts all sends (sizes (n,) bytes) and waits; the others receive and wait."""
    others = _others(len(sizes), root)
    if skip_empty:
        others = others[sizes[others] > 0]
    messages = builder.messages(root, others, sizes[others])
    builder.post_sends(messages)
    builder.post_receives(messages)
    builder.wait_sends(messages)
    builder.wait_receives(messages)


def _peers(n: int) -> NDArray[np.int32]:
    """(n, n - 1): row i holds all participants but i, ascending."""
    peers = np.broadcast_to(np.arange(n - 1, dtype=np.int32), (n, n - 1))
    return peers + (peers >= np.arange(n, dtype=np.int32)[:, None])


def _alternate(builder: ScheduleBuilder, pair_bytes: ArrayLike) -> None:
    """All-to-all in which each posts, for every other in rank order, a send and then a receive."""
    peers = _peers(builder.num_participants)
    posts = np.tile([Step.POST_SEND, Step.POST_RECEIVE], peers.shape[1])
    _all_to_all(builder, posts, np.repeat(peers, 2, axis=1), pair_bytes)


def _all_to_all(
    builder: ScheduleBuilder, posts: NDArray[np.int64], peers: NDArray[np.int32], pair_bytes: ArrayLike
) -> None:
    """All posts at once, then the waits in the same order.

    posts (m,) are the codes that each participant posts, peers (n, m) with whom; pair_bytes, broadcast to
    (n, n), is what row sends to column. Built participant by participant, so that no sort is needed later.
    """
    n = builder.num_participants
    source = np.repeat(np.arange(n, dtype=np.int32), n - 1)
    destination = _peers(n).ravel()
    sizes = np.broadcast_to(np.asarray(pair_bytes, np.int64), (n, n))
    messages = builder.messages(source, destination, sizes[source, destination]).reshape(n, n - 1)

    own = np.arange(n, dtype=np.int32)[:, None]
    sender = np.where(posts == Step.POST_SEND, own, peers)
    receiver = np.where(posts == Step.POST_SEND, peers, own)
    message = messages[sender, receiver - (receiver > sender)]
    waits = np.where(posts == Step.POST_SEND, Step.WAIT_SEND, Step.WAIT_RECEIVE)
    builder.append(np.concatenate([posts, waits])[None, :], np.concatenate([message, message], axis=1))

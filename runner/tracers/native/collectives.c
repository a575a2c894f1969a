/* Records of collectives: their sizes, and the neighbours in a topology. */
#include "record.h"

#include <stdlib.h>
#include <string.h>

static MPI_Count count_at(struct ms_sizes sizes, int i) {
    return sizes.counts ? sizes.counts[i] : sizes.large_counts ? sizes.large_counts[i] : sizes.count;
}

static int64_t bytes_at(struct ms_sizes sizes, int i) {
    return ms_bytes(count_at(sizes, i), sizes.types ? sizes.types[i] : sizes.type);
}

static void list_bytes(struct ms_operation *operation, struct ms_sizes sizes, int count) {
    int64_t unit = -1; /* of a type that all have in common; unasked, for it may be invalid where all counts are 0 */
    for (int i = 0; i < count; i++) {
        MPI_Count number = count_at(sizes, i);
        if (sizes.types || number <= 0) {
            ms_list(operation, bytes_at(sizes, i));
            continue;
        }
        if (unit < 0) unit = ms_bytes(1, sizes.type);
        ms_list(operation, unit * (int64_t)number);
    }
}

/* The communicator of a collective whose sizes are recorded: NULL for one between groups. */
static struct ms_communicator *within(struct ms_operation *operation, MPI_Comm comm, int root) {
    struct ms_communicator *c = ms_on(operation, comm);
    if (!c || c->is_inter) return NULL;
    operation->peer = root;
    return c;
}

void ms_collective(struct ms_operation *operation, MPI_Comm comm, int root, int64_t bytes) {
    if (!within(operation, comm, root)) return;
    operation->bytes = operation->receive_bytes = bytes;
}

void ms_rooted(struct ms_operation *operation, MPI_Comm comm, int root, struct ms_sizes own, struct ms_sizes of_root) {
    struct ms_communicator *c = within(operation, comm, root);
    if (!c) return;
    operation->bytes = operation->receive_bytes = bytes_at(c->rank == root ? of_root : own, 0);
}

void ms_rooted_list(struct ms_operation *operation, MPI_Comm comm, int root, struct ms_sizes own,
                    struct ms_sizes of_root, int is_gather) {
    struct ms_communicator *c = within(operation, comm, root);
    if (!c) return;
    int64_t bytes = c->rank == root ? bytes_at(of_root, root) : bytes_at(own, 0);
    *(is_gather ? &operation->bytes : &operation->receive_bytes) = bytes;
    if (c->rank == root) list_bytes(operation, of_root, c->size);
}

void ms_allgather_list(struct ms_operation *operation, MPI_Comm comm, struct ms_sizes received) {
    struct ms_communicator *c = within(operation, comm, MS_NONE);
    if (!c) return;
    operation->bytes = bytes_at(received, c->rank);
    list_bytes(operation, received, c->size);
}

void ms_alltoall_list(struct ms_operation *operation, MPI_Comm comm, const void *sendbuf, struct ms_sizes sent,
                      struct ms_sizes received) {
    struct ms_communicator *c = within(operation, comm, MS_NONE);
    if (!c) return;
    list_bytes(operation, sendbuf == MPI_IN_PLACE ? received : sent, c->size);
    list_bytes(operation, received, c->size);
}

void ms_reduce_scatter(struct ms_operation *operation, MPI_Comm comm, struct ms_sizes received) {
    struct ms_communicator *c = within(operation, comm, MS_NONE);
    if (!c) return;
    operation->bytes = ms_bytes(1, received.type);
    operation->receive_bytes = bytes_at(received, c->rank);
    if (received.counts || received.large_counts) list_bytes(operation, received, c->size);
}

/* ---- neighbours in a topology ---- */

static void ask_neighbours(struct ms_communicator *c) {
    int kind, is_weighted, num[2] = {0, 0}, num_dimensions = 0;
    PMPI_Topo_test(c->handle, &kind);
    if (kind == MPI_DIST_GRAPH) PMPI_Dist_graph_neighbors_count(c->handle, &num[0], &num[1], &is_weighted);
    if (kind == MPI_GRAPH) PMPI_Graph_neighbors_count(c->handle, c->rank, &num[0]);
    if (kind == MPI_CART) PMPI_Cartdim_get(c->handle, &num_dimensions);
    if (kind == MPI_CART) num[0] = 2 * num_dimensions;
    if (kind != MPI_DIST_GRAPH) num[1] = num[0];
    c->num_neighbours[0] = num[0];
    c->num_neighbours[1] = num[1];
    for (int i = 0; i < 2; i++) c->neighbours[i] = calloc((size_t)num[i] + 1, 2 * sizeof(int));
    if (!c->neighbours[0] || !c->neighbours[1]) {
        c->num_neighbours[0] = c->num_neighbours[1] = 0;
        return;
    }
    if (kind == MPI_DIST_GRAPH) /* the other halves are for weights */
        PMPI_Dist_graph_neighbors(c->handle, num[0], c->neighbours[0], c->neighbours[0] + num[0] + 1, num[1],
                                  c->neighbours[1], c->neighbours[1] + num[1] + 1);
    if (kind == MPI_GRAPH) PMPI_Graph_neighbors(c->handle, c->rank, num[0], c->neighbours[0]);
    for (int d = 0; d < num_dimensions; d++)
        PMPI_Cart_shift(c->handle, d, 1, &c->neighbours[0][2 * d], &c->neighbours[0][2 * d + 1]);
    if (kind != MPI_DIST_GRAPH) memcpy(c->neighbours[1], c->neighbours[0], sizeof(int) * (size_t)num[0]);
}

void ms_neighbours(struct ms_operation *operation, MPI_Comm comm, struct ms_sizes sent, struct ms_sizes received) {
    struct ms_communicator *c = within(operation, comm, MS_NONE);
    if (!c) return;
    if (c->num_neighbours[0] < 0) ask_neighbours(c);
    for (int side = 1; side >= 0; side--) {
        ms_list(operation, c->num_neighbours[side]);
        for (int i = 0; i < c->num_neighbours[side]; i++) ms_list(operation, ms_world(c, c->neighbours[side][i]));
        list_bytes(operation, side ? sent : received, c->num_neighbours[side]);
    }
}

/* All collectives once, on ints, the roots being rank 1; then all again non-blocking, waited for together. Counts:
   bcast 1, reduce 2, allreduce 3, scan 4, exscan 5, gather 6, scatter 7, allgather 8, alltoall 9, reduce_scatter_block
   10; gatherv and allgatherv 1 + member, scatterv 2 + member, reduce_scatter 3 + member; alltoallv rank + member both
   ways; alltoallw rank + member doubles. Then some with MPI_IN_PLACE. */
#include <mpi.h>

enum { MOST = 16 };
static int a[4096], b[4096];
static int one[MOST], two[MOST], three[MOST], both[MOST], places[MOST], displacements[MOST];
static MPI_Datatype types[MOST];

int main(int argc, char **argv) {
    int rank, size, n = 0;
    MPI_Request q[MOST + 8];
    MPI_Comm w = MPI_COMM_WORLD;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(w, &rank);
    MPI_Comm_size(w, &size);
    for (int i = 0; i < size; i++) {
        one[i] = 1 + i;
        two[i] = 2 + i;
        three[i] = 3 + i;
        both[i] = rank + i;
        places[i] = 100 * i;
        displacements[i] = 400 * i;
        types[i] = MPI_DOUBLE;
    }
    MPI_Barrier(w);
    MPI_Bcast(a, 1, MPI_INT, 1, w);
    MPI_Reduce(a, b, 2, MPI_INT, MPI_SUM, 1, w);
    MPI_Allreduce(a, b, 3, MPI_INT, MPI_SUM, w);
    MPI_Scan(a, b, 4, MPI_INT, MPI_SUM, w);
    MPI_Exscan(a, b, 5, MPI_INT, MPI_SUM, w);
    MPI_Gather(a, 6, MPI_INT, b, 6, MPI_INT, 1, w);
    MPI_Scatter(a, 7, MPI_INT, b, 7, MPI_INT, 1, w);
    MPI_Allgather(a, 8, MPI_INT, b, 8, MPI_INT, w);
    MPI_Alltoall(a, 9, MPI_INT, b, 9, MPI_INT, w);
    MPI_Reduce_scatter_block(a, b, 10, MPI_INT, MPI_SUM, w);
    MPI_Gatherv(a, 1 + rank, MPI_INT, b, one, places, MPI_INT, 1, w);
    MPI_Allgatherv(a, 1 + rank, MPI_INT, b, one, places, MPI_INT, w);
    MPI_Scatterv(a, two, places, MPI_INT, b, 2 + rank, MPI_INT, 1, w);
    MPI_Reduce_scatter(a, b, three, MPI_INT, MPI_SUM, w);
    MPI_Alltoallv(a, both, places, MPI_INT, b, both, places, MPI_INT, w);
    MPI_Alltoallw(a, both, displacements, types, b, both, displacements, types, w);

    MPI_Ibarrier(w, &q[n++]);
    MPI_Ibcast(a, 1, MPI_INT, 1, w, &q[n++]);
    MPI_Ireduce(a, b, 2, MPI_INT, MPI_SUM, 1, w, &q[n++]);
    MPI_Iallreduce(a, b, 3, MPI_INT, MPI_SUM, w, &q[n++]);
    MPI_Iscan(a, b, 4, MPI_INT, MPI_SUM, w, &q[n++]);
    MPI_Iexscan(a, b, 5, MPI_INT, MPI_SUM, w, &q[n++]);
    MPI_Igather(a, 6, MPI_INT, b, 6, MPI_INT, 1, w, &q[n++]);
    MPI_Iscatter(a, 7, MPI_INT, b, 7, MPI_INT, 1, w, &q[n++]);
    MPI_Iallgather(a, 8, MPI_INT, b, 8, MPI_INT, w, &q[n++]);
    MPI_Ialltoall(a, 9, MPI_INT, b, 9, MPI_INT, w, &q[n++]);
    MPI_Ireduce_scatter_block(a, b, 10, MPI_INT, MPI_SUM, w, &q[n++]);
    MPI_Igatherv(a, 1 + rank, MPI_INT, b, one, places, MPI_INT, 1, w, &q[n++]);
    MPI_Iallgatherv(a, 1 + rank, MPI_INT, b, one, places, MPI_INT, w, &q[n++]);
    MPI_Iscatterv(a, two, places, MPI_INT, b, 2 + rank, MPI_INT, 1, w, &q[n++]);
    MPI_Ireduce_scatter(a, b, three, MPI_INT, MPI_SUM, w, &q[n++]);
    MPI_Ialltoallv(a, both, places, MPI_INT, b, both, places, MPI_INT, w, &q[n++]);
    MPI_Ialltoallw(a, both, displacements, types, b, both, displacements, types, w, &q[n++]);
    MPI_Waitall(n, q, MPI_STATUSES_IGNORE);

    MPI_Allreduce(MPI_IN_PLACE, b, 3, MPI_INT, MPI_SUM, w);
    MPI_Gather(rank == 1 ? MPI_IN_PLACE : a, 6, MPI_INT, b, 6, MPI_INT, 1, w);
    MPI_Alltoallv(MPI_IN_PLACE, 0, 0, MPI_DATATYPE_NULL, b, both, places, MPI_INT, w);
    MPI_Allgather(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, b, 8, MPI_INT, w);
    MPI_Finalize();
    return 0;
}

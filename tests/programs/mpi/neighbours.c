/* On 4 ranks. A line of 4 (not periodic): neighbor_allgather of 3 ints. A ring as distributed graph, from the left to
   the right: neighbor_alltoallv of 1 + rank ints, and the rest once, non-blocking. */
#include <mpi.h>

int main(int argc, char **argv) {
    int rank, size, a[64] = {0}, b[64];
    MPI_Comm line, ring;
    MPI_Request q[4];
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Cart_create(MPI_COMM_WORLD, 1, &size, (int[]){0}, 0, &line);
    MPI_Neighbor_allgather(a, 3, MPI_INT, b, 3, MPI_INT, line);
    int left = (rank + size - 1) % size, right = (rank + 1) % size, mine = 1 + rank, theirs = 1 + left, zero = 0;
    MPI_Aint far = 0;
    MPI_Datatype type = MPI_DOUBLE;
    MPI_Dist_graph_create_adjacent(MPI_COMM_WORLD, 1, &left, MPI_UNWEIGHTED, 1, &right, MPI_UNWEIGHTED, MPI_INFO_NULL, 0,
                                   &ring);
    MPI_Neighbor_alltoallv(a, &mine, &zero, MPI_INT, b, &theirs, &zero, MPI_INT, ring);
    MPI_Ineighbor_allgather(a, 2, MPI_INT, b, 2, MPI_INT, ring, &q[0]);
    MPI_Ineighbor_allgatherv(a, mine, MPI_INT, b, &theirs, &zero, MPI_INT, ring, &q[1]);
    MPI_Ineighbor_alltoall(a, 4, MPI_INT, b, 4, MPI_INT, line, &q[2]);
    MPI_Ineighbor_alltoallw(a, &mine, &far, &type, b, &theirs, &far, &type, ring, &q[3]);
    MPI_Waitall(4, q, MPI_STATUSES_IGNORE);
    MPI_Finalize();
    return 0;
}

/* MPI 4, on 2 ranks: a message with a large count each way, isendrecv (tags 5 and 6), a persistent allreduce of 3 ints
   started twice, alltoallv with large counts of 1 + member ints. */
#include <mpi.h>

int main(int argc, char **argv) {
    int rank, a[16] = {0}, b[16];
    MPI_Request request;
    MPI_Comm world = MPI_COMM_WORLD;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(world, &rank);
    if (rank == 0) MPI_Send_c(a, 7, MPI_INT, 1, 1, world);
    else MPI_Recv_c(b, 16, MPI_INT, 0, 1, world, MPI_STATUS_IGNORE);
    MPI_Isendrecv(a, 2, MPI_INT, 1 - rank, 5 + rank, b, 2, MPI_INT, 1 - rank, 6 - rank, world, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    MPI_Allreduce_init(a, b, 3, MPI_INT, MPI_SUM, world, MPI_INFO_NULL, &request);
    for (int i = 0; i < 2; i++) {
        MPI_Start(&request);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
    }
    MPI_Request_free(&request);
    MPI_Count counts[2] = {1, 2}, mine[2] = {1 + rank, 1 + rank};
    MPI_Aint places[2] = {0, 8};
    MPI_Alltoallv_c(a, counts, places, MPI_INT, b, mine, places, MPI_INT, world);
    MPI_Finalize();
    return 0;
}

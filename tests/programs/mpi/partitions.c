/* Two ranks. Rank 0 sends rank 1 a message of 4 partitions of 2 doubles twice; the last is ready at the end. */
#include <mpi.h>

int main(int argc, char **argv) {
    int rank, here, order[2] = {2, 0};
    double data[8] = {0};
    MPI_Request request;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (rank == 0) MPI_Psend_init(data, 4, 2, MPI_DOUBLE, 1, 3, MPI_COMM_WORLD, MPI_INFO_NULL, &request);
    else MPI_Precv_init(data, 2, 4, MPI_DOUBLE, 0, 3, MPI_COMM_WORLD, MPI_INFO_NULL, &request);
    for (int i = 0; i < 2; i++) {
        MPI_Start(&request);
        if (rank == 0 && i == 0) {
            for (int p = 0; p < 4; p++) MPI_Pready(p, request);
        } else if (rank == 0) {
            MPI_Pready_list(2, order, request);
            MPI_Pready_range(3, 3, request);
            MPI_Pready(1, request);
        } else {
            MPI_Parrived(request, 0, &here);
        }
        MPI_Wait(&request, MPI_STATUS_IGNORE);
    }
    MPI_Request_free(&request);
    MPI_Finalize();
    return 0;
}

/* Ranks 0 and 1: 10 messages each way of 8 << i bytes, i = 0 to 9, with tag i; other ranks do nothing. */
#include <mpi.h>

int main(int argc, char **argv) {
    static char buffer[8 << 10];
    int rank;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    for (int i = 0; i < 10; i++) {
        if (rank == 0) {
            MPI_Send(buffer, 8 << i, MPI_BYTE, 1, i, MPI_COMM_WORLD);
            MPI_Recv(buffer, 8 << i, MPI_BYTE, 1, i, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        } else if (rank == 1) {
            MPI_Recv(buffer, 8 << i, MPI_BYTE, 0, i, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            MPI_Send(buffer, 8 << i, MPI_BYTE, 0, i, MPI_COMM_WORLD);
        }
    }
    MPI_Finalize();
    return 0;
}

/* A loop of MPI_Waitany over receives, with work for each that depends on who completed. */
#include "program.h"
int main(int argc, char **argv) {
    MPI_Request requests[16];
    start(&argc, &argv);
    if (rank == 0) {
        for (int round = 0; round < 2; round++) {
            for (int from = 1; from < size; from++)
                MPI_Irecv(buffer, LARGE, MPI_BYTE, from, round, MPI_COMM_WORLD, &requests[from - 1]);
            for (int i = 1; i < size; i++) {
                int index;
                MPI_Waitany(size - 1, requests, &index, MPI_STATUS_IGNORE);
                work(3);
                MPI_Send(buffer, 64, MPI_BYTE, index + 1, 9, MPI_COMM_WORLD);
            }
        }
    } else {
        for (int round = 0; round < 2; round++) {
            work(11 * ((rank * 5 + round) % size) + 2);
            MPI_Send(buffer, rank == 2 ? LARGE : 500, MPI_BYTE, 0, round, MPI_COMM_WORLD);
            MPI_Recv(buffer, 64, MPI_BYTE, 0, 9, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        }
    }
    finish();
}

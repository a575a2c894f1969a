/* Synchronous sends: the sender waits for the receiver whatever the size. */
#include "program.h"
int main(int argc, char **argv) {
    start(&argc, &argv);
    for (int round = 0; round < 4; round++) {
        int bytes = round % 2 ? LARGE : 100;
        if (rank == 0) {
            work(round < 2 ? 5 : 300); /* early, then late */
            MPI_Ssend(buffer, bytes, MPI_BYTE, 1, round, MPI_COMM_WORLD);
            MPI_Send(buffer, bytes, MPI_BYTE, 2, round, MPI_COMM_WORLD);
        } else if (rank == 1) {
            work(100);
            MPI_Recv(buffer, bytes, MPI_BYTE, 0, round, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            MPI_Ssend(buffer, 8, MPI_BYTE, 2, round, MPI_COMM_WORLD);
        } else {
            work(130);
            MPI_Recv(buffer, 8, MPI_BYTE, 1, round, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            MPI_Recv(buffer, bytes, MPI_BYTE, 0, round, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        }
    }
    finish();
}

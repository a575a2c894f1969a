/* Two phases with the same tag: posted wildcards, then specific receives, then wildcards again. */
#include "program.h"
int main(int argc, char **argv) {
    MPI_Request requests[16];
    MPI_Status status;
    start(&argc, &argv);
    if (rank == 0) {
        for (int i = 1; i < size; i++) MPI_Irecv(buffer, LARGE, MPI_BYTE, MPI_ANY_SOURCE, 1, MPI_COMM_WORLD, &requests[i]);
        for (int i = 1; i < size; i++) MPI_Wait(&requests[i], &status), work(2 * status.MPI_SOURCE);
        for (int i = 1; i < size; i++) MPI_Send(buffer, 1, MPI_BYTE, i, 2, MPI_COMM_WORLD);
        for (int i = size - 1; i > 0; i--) MPI_Recv(buffer, LARGE, MPI_BYTE, i, 1, MPI_COMM_WORLD, &status);
        for (int i = 1; i < size; i++) MPI_Send(buffer, 1, MPI_BYTE, i, 2, MPI_COMM_WORLD);
        for (int i = 1; i < size; i++) {
            MPI_Recv(buffer, LARGE, MPI_BYTE, MPI_ANY_SOURCE, 1, MPI_COMM_WORLD, &status);
            work(5 + status.MPI_SOURCE);
        }
    } else {
        for (int round = 0; round < 3; round++) {
            work(1 + 23 * ((rank * 3 + round) % size));
            MPI_Send(buffer, rank == 2 ? LARGE : 100 * rank, MPI_BYTE, 0, 1, MPI_COMM_WORLD);
            if (round < 2) MPI_Recv(other, 1, MPI_BYTE, 0, 2, MPI_COMM_WORLD, &status);
        }
    }
    finish();
}

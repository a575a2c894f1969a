/* Receives with any tag from one source, and with any tag from any source. */
#include "program.h"
int main(int argc, char **argv) {
    MPI_Status status;
    start(&argc, &argv);
    if (rank == 0) {
        for (int i = 0; i < 4; i++) {
            MPI_Recv(buffer, LARGE, MPI_BYTE, 1, MPI_ANY_TAG, MPI_COMM_WORLD, &status);
            work(1 + status.MPI_TAG);
        }
        for (int i = 0; i < 2 * (size - 1); i++) {
            MPI_Recv(buffer, LARGE, MPI_BYTE, MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &status);
            work(1 + status.MPI_TAG + status.MPI_SOURCE);
        }
    } else {
        for (int i = 0; rank == 1 && i < 4; i++) MPI_Send(buffer, i % 2 ? 10 : LARGE, MPI_BYTE, 0, 30 - i, MPI_COMM_WORLD);
        work(900 + 31 * rank);
        MPI_Send(buffer, 100 * rank, MPI_BYTE, 0, 3 * rank, MPI_COMM_WORLD);
        work(41 * rank);
        MPI_Send(buffer, LARGE, MPI_BYTE, 0, 7 * rank, MPI_COMM_WORLD);
    }
    finish();
}

/* Work in small pieces until MPI_Testany finds one of several receives; the answer goes to its sender. */
#include "program.h"
int main(int argc, char **argv) {
    MPI_Request requests[16];
    start(&argc, &argv);
    if (rank == 0) {
        for (int from = 1; from < size; from++)
            MPI_Irecv(buffer, LARGE, MPI_BYTE, from, 1, MPI_COMM_WORLD, &requests[from - 1]);
        for (int i = 1; i < size; i++) {
            int index, done = 0;
            while (!done) {
                work(3);
                MPI_Testany(size - 1, requests, &index, &done, MPI_STATUS_IGNORE);
            }
            MPI_Send(buffer, i, MPI_BYTE, index + 1, 2, MPI_COMM_WORLD);
            work(1);
        }
    } else {
        work(20 * rank);
        MPI_Send(buffer, rank % 2 ? LARGE : 1000 * rank, MPI_BYTE, 0, 1, MPI_COMM_WORLD);
        MPI_Recv(buffer, 100, MPI_BYTE, 0, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    }
    finish();
}

/* Work in small pieces until MPI_Test succeeds, without a wait. */
#include "program.h"
int main(int argc, char **argv) {
    MPI_Request request;
    start(&argc, &argv);
    for (int round = 0; round < 4; round++) {
        int done = 0;
        if (rank == 0) {
            MPI_Irecv(buffer, LARGE, MPI_BYTE, 1, round % 2, MPI_COMM_WORLD, &request);
            while (!done) {
                work(7);
                MPI_Test(&request, &done, MPI_STATUS_IGNORE);
            }
            MPI_Send(buffer, 10, MPI_BYTE, 1, 5, MPI_COMM_WORLD);
        } else {
            work(50);
            MPI_Send(buffer, round < 2 ? 2000 : LARGE, MPI_BYTE, 0, round % 2, MPI_COMM_WORLD);
            MPI_Recv(buffer, 10, MPI_BYTE, 0, 5, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        }
    }
    finish();
}

/* MPI_Probe for messages that are there, from any source; receives of those sizes; ready sends. */
#include "program.h"
int main(int argc, char **argv) {
    MPI_Request request;
    MPI_Status status;
    start(&argc, &argv);
    if (rank == 0) {
        MPI_Barrier(MPI_COMM_WORLD);
        for (int i = 1; i < size; i++) {
            int bytes;
            MPI_Probe(MPI_ANY_SOURCE, 1, MPI_COMM_WORLD, &status);
            MPI_Get_count(&status, MPI_BYTE, &bytes);
            MPI_Recv(buffer, bytes, MPI_BYTE, status.MPI_SOURCE, 1, MPI_COMM_WORLD, &status);
            work(status.MPI_SOURCE);
        }
    } else {
        work(7 * rank);
        MPI_Isend(buffer, 500 * rank, MPI_BYTE, 0, 1, MPI_COMM_WORLD, &request);
        MPI_Barrier(MPI_COMM_WORLD);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
    }
    MPI_Irecv(other, LARGE, MPI_BYTE, (rank + size - 1) % size, 2, MPI_COMM_WORLD, &request);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Rsend(buffer, LARGE, MPI_BYTE, (rank + 1) % size, 2, MPI_COMM_WORLD);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    finish();
}

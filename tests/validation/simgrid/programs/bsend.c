/* Buffered sends go on at once, above the threshold too. */
#include "program.h"
int main(int argc, char **argv) {
    int capacity = 10 * (LARGE + MPI_BSEND_OVERHEAD);
    MPI_Request request;
    start(&argc, &argv);
    MPI_Buffer_attach(malloc(capacity), capacity);
    for (int round = 0; round < 3; round++) {
        int next = (rank + 1) % size, previous = (rank + size - 1) % size;
        MPI_Bsend(buffer, LARGE, MPI_BYTE, next, round, MPI_COMM_WORLD);
        MPI_Ibsend(buffer, 2000, MPI_BYTE, next, 10 + round, MPI_COMM_WORLD, &request);
        work(20 + 90 * rank);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        MPI_Recv(other, LARGE, MPI_BYTE, previous, round, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        MPI_Recv(other, 2000, MPI_BYTE, previous, 10 + round, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    }
    finish();
}

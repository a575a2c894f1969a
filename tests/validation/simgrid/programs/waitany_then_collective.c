/* MPI_Waitany over receives and a send until all are done, then a non-blocking collective. */
#include "program.h"
int main(int argc, char **argv) {
    MPI_Request requests[3];
    start(&argc, &argv);
    work(12 * rank + 1);
    MPI_Irecv(other, LARGE, MPI_BYTE, (rank + size - 1) % size, 1, MPI_COMM_WORLD, &requests[0]);
    MPI_Isend(buffer, LARGE, MPI_BYTE, (rank + 1) % size, 1, MPI_COMM_WORLD, &requests[1]);
    MPI_Irecv(buffer, 100, MPI_BYTE, (rank + size - 1) % size, 2, MPI_COMM_WORLD, &requests[2]);
    MPI_Send(other, 100, MPI_BYTE, (rank + 1) % size, 2, MPI_COMM_WORLD);
    for (int i = 0; i < 3; i++) {
        int index;
        MPI_Waitany(3, requests, &index, MPI_STATUS_IGNORE);
        work(2);
    }
    MPI_Iallreduce(buffer, other, 4, MPI_INT, MPI_SUM, MPI_COMM_WORLD, &requests[0]);
    work(30);
    MPI_Wait(&requests[0], MPI_STATUS_IGNORE);
    finish();
}

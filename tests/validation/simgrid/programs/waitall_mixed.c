/* One MPI_Waitall over sends, receives and non-blocking collectives. */
#include "program.h"
int main(int argc, char **argv) {
    MPI_Request requests[5];
    start(&argc, &argv);
    for (int round = 0; round < 3; round++) {
        int next = (rank + 1) % size, previous = (rank + size - 1) % size;
        MPI_Irecv(other, LARGE, MPI_BYTE, previous, round, MPI_COMM_WORLD, &requests[0]);
        MPI_Iallreduce(buffer, other, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD, &requests[1]);
        work(10 + 20 * ((rank + round) % size));
        MPI_Isend(buffer, round ? LARGE : 1000, MPI_BYTE, next, round, MPI_COMM_WORLD, &requests[2]);
        MPI_Ibcast(buffer, 20000, MPI_DOUBLE, round, MPI_COMM_WORLD, &requests[3]);
        requests[4] = MPI_REQUEST_NULL;
        work(15);
        MPI_Waitall(5, requests, MPI_STATUSES_IGNORE);
    }
    finish();
}

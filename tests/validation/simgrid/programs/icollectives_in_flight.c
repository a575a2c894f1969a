/* Several non-blocking collectives at once, waited for in another order than posted. */
#include "program.h"
int main(int argc, char **argv) {
    MPI_Request bcast, reduce, gather;
    start(&argc, &argv);
    for (int round = 0; round < 2; round++) {
        work(9 * ((rank + round) % size));
        MPI_Ibcast(buffer, LARGE, MPI_BYTE, 1, MPI_COMM_WORLD, &bcast);
        MPI_Iallreduce(buffer, other, 10, MPI_INT, MPI_SUM, MPI_COMM_WORLD, &reduce);
        work(5);
        MPI_Wait(&reduce, MPI_STATUS_IGNORE);
        MPI_Iallgather(buffer, 100, MPI_INT, other, 100, MPI_INT, MPI_COMM_WORLD, &gather);
        work(20 + rank);
        MPI_Wait(&gather, MPI_STATUS_IGNORE);
        work(1);
        MPI_Wait(&bcast, MPI_STATUS_IGNORE);
    }
    finish();
}

/* Every non-blocking collective without a root, with work between post and wait. */
#include "program.h"
int main(int argc, char **argv) {
    int counts[16], places[16], sent[16], received[16];
    MPI_Datatype types[16];
    MPI_Request request;
    start(&argc, &argv);
    for (int i = 0; i < size; i++) {
        counts[i] = 300 * (i + 1), places[i] = 20000 * i, types[i] = MPI_INT;
        sent[i] = 100 * rank + 10 * i, received[i] = 100 * i + 10 * rank;
    }
    for (int round = 0; round < 2; round++) {
        work(12 * ((rank * 3 + round) % size));
        MPI_Ibarrier(MPI_COMM_WORLD, &request);
        work(8 * rank), MPI_Wait(&request, MPI_STATUS_IGNORE);
        MPI_Iallreduce(buffer, other, 20000, MPI_INT, MPI_SUM, MPI_COMM_WORLD, &request);
        work(25), MPI_Wait(&request, MPI_STATUS_IGNORE);
        MPI_Iallgather(buffer, 2000, MPI_INT, other, 2000, MPI_INT, MPI_COMM_WORLD, &request);
        work(3 * rank), MPI_Wait(&request, MPI_STATUS_IGNORE);
        MPI_Iallgatherv(buffer, counts[rank], MPI_INT, other, counts, places, MPI_INT, MPI_COMM_WORLD, &request);
        work(10), MPI_Wait(&request, MPI_STATUS_IGNORE);
        MPI_Ialltoall(buffer, 3000, MPI_INT, other, 3000, MPI_INT, MPI_COMM_WORLD, &request);
        work(40 - 5 * rank), MPI_Wait(&request, MPI_STATUS_IGNORE);
        MPI_Ialltoallv(buffer, sent, places, MPI_INT, other, received, places, MPI_INT, MPI_COMM_WORLD, &request);
        work(1), MPI_Wait(&request, MPI_STATUS_IGNORE);
        MPI_Ireduce_scatter(buffer, other, counts, MPI_INT, MPI_SUM, MPI_COMM_WORLD, &request);
        work(6 * rank), MPI_Wait(&request, MPI_STATUS_IGNORE);
        MPI_Ireduce_scatter_block(buffer, other, 100, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD, &request);
        work(4), MPI_Wait(&request, MPI_STATUS_IGNORE);
        MPI_Ialltoallw(buffer, sent, places, types, other, received, places, types, MPI_COMM_WORLD, &request);
        work(3 * (size - rank)), MPI_Wait(&request, MPI_STATUS_IGNORE);
        MPI_Iscan(buffer, other, 900, MPI_INT, MPI_SUM, MPI_COMM_WORLD, &request);
        work(2), MPI_Wait(&request, MPI_STATUS_IGNORE);
        MPI_Iexscan(buffer, other, 900, MPI_INT, MPI_SUM, MPI_COMM_WORLD, &request);
        work(11), MPI_Wait(&request, MPI_STATUS_IGNORE);
    }
    finish();
}

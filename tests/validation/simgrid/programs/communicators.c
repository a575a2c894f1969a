/* Point-to-point messages on a part of the ranks and on a second communicator of all: peers are world ranks in the trace. */
#include "program.h"
int main(int argc, char **argv) {
    MPI_Comm half, twin;
    int me, members;
    start(&argc, &argv);
    MPI_Comm_split(MPI_COMM_WORLD, rank % 2, -rank, &half);
    MPI_Comm_dup(MPI_COMM_WORLD, &twin);
    MPI_Barrier(MPI_COMM_WORLD); /* SMPI lets the calls above take time, and does not trace it: start here */
    origin = MPI_Wtime() - (rank ? 2 : 1) * (10e-6 + 16 / 1.25e9);
    MPI_Comm_rank(half, &me);
    MPI_Comm_size(half, &members);
    for (int round = 0; round < 3; round++) {
        int next = (me + 1) % members, previous = (me + members - 1) % members;
        work(10 * rank + round);
        if (me % 2) {
            MPI_Recv(other, LARGE, MPI_BYTE, previous, round, half, MPI_STATUS_IGNORE);
            MPI_Send(buffer, 900, MPI_BYTE, next, round, half);
        } else {
            MPI_Send(buffer, LARGE, MPI_BYTE, next, round, half);
            MPI_Recv(other, LARGE, MPI_BYTE, previous, round, half, MPI_STATUS_IGNORE);
        }
        if (rank == 0) MPI_Send(buffer, 40, MPI_BYTE, size - 1, 9, twin);
        if (rank == size - 1) MPI_Recv(other, 40, MPI_BYTE, 0, 9, twin, MPI_STATUS_IGNORE);
        MPI_Barrier(twin);
    }
    finish();
}

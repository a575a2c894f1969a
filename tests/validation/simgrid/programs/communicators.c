/* Point-to-point messages on a part of the ranks and on a second communicator of all: peers are world ranks in the trace. */
#include "program.h"
int main(int argc, char **argv) {
    MPI_Comm half, twin;
    MPI_Group world, group;
    int me, members, mine[16], number = 0;
    start(&argc, &argv);
    for (int i = size - 1; i >= 0; i--)
        if (i % 2 == rank % 2) mine[number++] = i;
    MPI_Comm_group(MPI_COMM_WORLD, &world);
    MPI_Group_incl(world, number, mine, &group);
    MPI_Comm_create_group(MPI_COMM_WORLD, group, 0, &half); /* takes no time in SMPI, unlike split and dup */
    MPI_Comm_create_group(MPI_COMM_WORLD, world, 1, &twin);
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

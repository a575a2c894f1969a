/* Ranks 0 and 1: every mode of sending, 10 bytes with tag 1, 20 with tag 2, ... Then sendrecv with one tag, with two
   tags, with MPI_PROC_NULL on either side and in place; a send and a receive with MPI_PROC_NULL. */
#include <mpi.h>
#include <stdlib.h>

int main(int argc, char **argv) {
    static char a[1000], b[1000], space[10000];
    int rank;
    MPI_Request r, q[4];
    MPI_Comm world = MPI_COMM_WORLD;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(world, &rank);
    MPI_Buffer_attach(space, sizeof space);
    if (rank == 0) {
        MPI_Send(a, 10, MPI_BYTE, 1, 1, world);
        MPI_Bsend(a, 20, MPI_BYTE, 1, 2, world);
        MPI_Ssend(a, 30, MPI_BYTE, 1, 3, world);
        MPI_Barrier(world);
        MPI_Rsend(a, 40, MPI_BYTE, 1, 4, world);
        MPI_Isend(a, 50, MPI_BYTE, 1, 5, world, &q[0]);
        MPI_Ibsend(a, 60, MPI_BYTE, 1, 6, world, &q[1]);
        MPI_Issend(a, 70, MPI_BYTE, 1, 7, world, &q[2]);
        MPI_Waitall(3, q, MPI_STATUSES_IGNORE);
        MPI_Barrier(world);
        MPI_Irsend(a, 80, MPI_BYTE, 1, 8, world, &r);
        MPI_Wait(&r, MPI_STATUS_IGNORE);
    } else if (rank == 1) {
        for (int i = 1; i <= 3; i++) MPI_Recv(b, 1000, MPI_BYTE, 0, i, world, MPI_STATUS_IGNORE);
        MPI_Irecv(b, 1000, MPI_BYTE, 0, 4, world, &r);
        MPI_Barrier(world);
        MPI_Wait(&r, MPI_STATUS_IGNORE);
        for (int i = 5; i <= 7; i++) MPI_Irecv(b + 100 * i, 100, MPI_BYTE, 0, i, world, &q[i - 5]);
        MPI_Waitall(3, q, MPI_STATUSES_IGNORE);
        MPI_Irecv(b, 1000, MPI_BYTE, 0, 8, world, &r);
        MPI_Barrier(world);
        MPI_Wait(&r, MPI_STATUS_IGNORE);
    } else {
        MPI_Barrier(world);
        MPI_Barrier(world);
    }
    if (rank < 2) {
        int other = 1 - rank;
        MPI_Sendrecv(a, 11, MPI_INT, other, 9, b, 100, MPI_INT, other, 9, world, MPI_STATUS_IGNORE);
        MPI_Sendrecv(a, 12, MPI_INT, other, 10 + rank, b, 100, MPI_INT, other, 10 + other, world, MPI_STATUS_IGNORE);
        MPI_Sendrecv(a, 13, MPI_INT, rank ? MPI_PROC_NULL : 1, 12, b, 100, MPI_INT, rank ? 0 : MPI_PROC_NULL, 12, world,
                     MPI_STATUS_IGNORE);
        MPI_Sendrecv_replace(b, 14, MPI_INT, other, 13, other, 13, world, MPI_STATUS_IGNORE);
        MPI_Send(a, 15, MPI_INT, MPI_PROC_NULL, 14, world);
        MPI_Recv(a, 15, MPI_INT, MPI_PROC_NULL, 14, world, MPI_STATUS_IGNORE);
    }
    MPI_Finalize();
    return 0;
}

/* Ranks 0 and 1: persistent sends of all modes (tags 1 to 4, 10 to 40 bytes) and receives, started together three
   times, then one of each by MPI_Start; the receives of tag 2 are from any source. */
#include <mpi.h>

int main(int argc, char **argv) {
    static char a[1000], space[10000];
    int rank, none = 0;
    MPI_Request q[4];
    MPI_Comm world = MPI_COMM_WORLD;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(world, &rank);
    MPI_Buffer_attach(space, sizeof space);
    if (rank == 0) {
        MPI_Send_init(a, 10, MPI_BYTE, 1, 1, world, &q[0]);
        MPI_Bsend_init(a, 20, MPI_BYTE, 1, 2, world, &q[1]);
        MPI_Ssend_init(a, 30, MPI_BYTE, 1, 3, world, &q[2]);
        MPI_Rsend_init(a, 40, MPI_BYTE, 1, 4, world, &q[3]);
    } else if (rank == 1) {
        for (int i = 0; i < 4; i++)
            MPI_Recv_init(a + 100 * i, 100, MPI_BYTE, i == 1 ? MPI_ANY_SOURCE : 0, i + 1, world, &q[i]);
    }
    for (int i = 0; i < 3; i++) {
        if (rank == 1) MPI_Startall(4, q);
        MPI_Barrier(world);
        if (rank == 0) MPI_Startall(4, q);
        if (rank < 2) MPI_Waitall(4, q, MPI_STATUSES_IGNORE);
    }
    if (rank < 2) {
        MPI_Startall(none, q);
        MPI_Start(&q[0]);
        MPI_Wait(&q[0], MPI_STATUS_IGNORE);
        MPI_Wait(&q[0], MPI_STATUS_IGNORE); /* inactive: returns at once, completes nothing */
        for (int i = 0; i < 4; i++) MPI_Request_free(&q[i]);
    }
    MPI_Finalize();
    return 0;
}

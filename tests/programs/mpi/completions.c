/* Rank 0 receives from any source, with any tag, what the other ranks send: by MPI_Recv; then per rank one message of
   tag 20 + rank and 4 x rank bytes, completed by each of the wait and test functions; then one is cancelled. */
#include <mpi.h>

enum { MOST = 64 };
static int size;
static char room[MOST][1000];
static MPI_Request q[MOST];

static void open_receives(void) {
    for (int i = 1; i < size; i++) MPI_Irecv(room[i], 1000, MPI_BYTE, MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &q[i - 1]);
    MPI_Barrier(MPI_COMM_WORLD); /* now the others send */
}

int main(int argc, char **argv) {
    int rank, flag, index, count, indices[MOST];
    MPI_Status status, statuses[MOST];
    MPI_Comm world = MPI_COMM_WORLD;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(world, &rank);
    MPI_Comm_size(world, &size);
    int n = size - 1;
    if (rank > 0) {
        MPI_Send(room[0], 8 * rank, MPI_BYTE, 0, 5, world);
        for (int way = 0; way < 8; way++) {
            MPI_Barrier(world);
            MPI_Send(room[0], 4 * rank, MPI_BYTE, 0, 20 + rank, world);
        }
    } else {
        for (int i = 0; i < n; i++) MPI_Recv(room[0], 1000, MPI_BYTE, MPI_ANY_SOURCE, MPI_ANY_TAG, world, MPI_STATUS_IGNORE);
        open_receives();
        for (int i = 0; i < n; i++) MPI_Wait(&q[i], i % 2 ? &status : MPI_STATUS_IGNORE);
        open_receives();
        MPI_Waitall(n, q, statuses);
        open_receives();
        for (int i = 0; i < n; i++) MPI_Waitany(n, q, &index, MPI_STATUS_IGNORE);
        MPI_Waitany(n, q, &index, MPI_STATUS_IGNORE); /* nothing is active: MPI_UNDEFINED */
        open_receives();
        for (int done = 0; done < n; done += count) MPI_Waitsome(n, q, &count, indices, MPI_STATUSES_IGNORE);
        open_receives();
        for (int i = 0; i < n; i++)
            do MPI_Test(&q[i], &flag, MPI_STATUS_IGNORE);
            while (!flag);
        open_receives();
        do MPI_Testall(n, q, &flag, MPI_STATUSES_IGNORE);
        while (!flag);
        open_receives();
        for (int done = 0; done < n;) {
            MPI_Testany(n, q, &index, &flag, &status);
            done += flag && index != MPI_UNDEFINED;
        }
        open_receives();
        for (int done = 0; done < n; done += count) MPI_Testsome(n, q, &count, indices, statuses);
    }
    MPI_Barrier(world);
    if (rank == 0) {
        MPI_Irecv(room[0], 1000, MPI_BYTE, 1, 99, world, &q[0]);
        MPI_Cancel(&q[0]);
        MPI_Wait(&q[0], MPI_STATUS_IGNORE);
    }
    MPI_Finalize();
    return 0;
}

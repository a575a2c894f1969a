/* Rank 0 sends 1000 messages to rank 1, message i with tag i and i bytes, all open at once; the receives are waited for
   one by one from the last to the first, the sends with one call. */
#include <mpi.h>

enum { MANY = 1000 };

int main(int argc, char **argv) {
    static char buffer[MANY][MANY];
    static MPI_Request requests[MANY];
    int rank;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    for (int i = 0; i < MANY; i++) {
        if (rank == 0) MPI_Isend(buffer[i], i, MPI_BYTE, 1, i, MPI_COMM_WORLD, &requests[i]);
        if (rank == 1) MPI_Irecv(buffer[i], MANY, MPI_BYTE, 0, i, MPI_COMM_WORLD, &requests[i]);
    }
    if (rank == 0) MPI_Waitall(MANY, requests, MPI_STATUSES_IGNORE);
    for (int i = MANY - 1; rank == 1 && i >= 0; i--) MPI_Wait(&requests[i], MPI_STATUS_IGNORE);
    MPI_Finalize();
    return 0;
}

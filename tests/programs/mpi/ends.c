/* Three messages around a ring, then the last rank ends the program: argument "abort" by MPI_Abort, "crash" by a signal
   while the others wait, "exit" without MPI_Finalize, like all others. */
#include <mpi.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

int main(int argc, char **argv) {
    int rank, size, value = 0;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    for (int i = 0; i < 3; i++)
        MPI_Sendrecv(&value, 1, MPI_INT, (rank + 1) % size, i, &value, 1, MPI_INT, (rank + size - 1) % size, i,
                     MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    if (!strcmp(argv[1], "exit")) exit(0);
    if (rank == size - 1 && !strcmp(argv[1], "abort")) MPI_Abort(MPI_COMM_WORLD, 3);
    if (rank == size - 1 && !strcmp(argv[1], "crash")) raise(SIGSEGV);
    MPI_Recv(&value, 1, MPI_INT, size - 1, 9, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Finalize();
    return 0;
}

/* MPI_Sendrecv with tags among themselves, MPI_Sendrecv_replace, and from any source. */
#include "program.h"
int main(int argc, char **argv) {
    start(&argc, &argv);
    int next = (rank + 1) % size, previous = (rank + size - 1) % size;
    for (int round = 0; round < 3; round++) {
        work(9 * ((rank + round) % size) + 1);
        MPI_Sendrecv(buffer, LARGE, MPI_BYTE, next, round, other, LARGE, MPI_BYTE, previous, round, MPI_COMM_WORLD,
                     MPI_STATUS_IGNORE);
        work(3 * rank);
        MPI_Sendrecv_replace(buffer, 500, MPI_INT, previous, 7, next, 7, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        MPI_Sendrecv(buffer, 10, MPI_INT, next, 8, other, 10, MPI_INT, MPI_ANY_SOURCE, 8, MPI_COMM_WORLD,
                     MPI_STATUS_IGNORE);
    }
    finish();
}

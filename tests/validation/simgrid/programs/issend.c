/* Non-blocking synchronous sends with work before the wait, to receivers that come late. */
#include "program.h"
int main(int argc, char **argv) {
    MPI_Request requests[8];
    start(&argc, &argv);
    for (int round = 0; round < 3; round++) {
        int number = 0;
        for (int to = 0; to < size; to++)
            if (to != rank) MPI_Issend(buffer, to * 30000, MPI_BYTE, to, round, MPI_COMM_WORLD, &requests[number++]);
        work(10 * (rank + 1) * (rank + 1));
        for (int from = size - 1; from >= 0; from--)
            if (from != rank)
                MPI_Recv(other, rank * 30000, MPI_BYTE, from, round, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        work(7);
        for (int i = 0; i < number; i++) MPI_Wait(&requests[i], MPI_STATUS_IGNORE);
    }
    finish();
}

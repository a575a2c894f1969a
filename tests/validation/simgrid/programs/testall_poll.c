/* Work in small pieces until MPI_Testall succeeds. */
#include "program.h"
int main(int argc, char **argv) {
    MPI_Request requests[2];
    start(&argc, &argv);
    for (int round = 0; round < 3; round++) {
        int next = (rank + 1) % size, previous = (rank + size - 1) % size, done = 0;
        work(13 * rank + 1);
        MPI_Irecv(other, LARGE, MPI_BYTE, previous, round, MPI_COMM_WORLD, &requests[0]);
        MPI_Isend(buffer, round == 1 ? 300 : LARGE, MPI_BYTE, next, round, MPI_COMM_WORLD, &requests[1]);
        while (!done) {
            work(3);
            MPI_Testall(2, requests, &done, MPI_STATUSES_IGNORE);
        }
    }
    finish();
}

/* Receives, sends, MPI_Waitall for the sends only, then a wait for each receive: the exchange of LULESH. */
#include "program.h"
int main(int argc, char **argv) {
    MPI_Request receives[8], sends[26];
    start(&argc, &argv);
    for (int round = 0; round < 4; round++) {
        for (int i = 0; i < 26; i++) sends[i] = MPI_REQUEST_NULL;
        for (int d = 1; d <= 2; d++)
            MPI_Irecv(other, LARGE, MPI_BYTE, (rank + size - d) % size, d, MPI_COMM_WORLD, &receives[d]);
        work(12 * ((rank + round) % size) + 1);
        for (int d = 1; d <= 2; d++)
            MPI_Isend(buffer, d == 1 ? 700 : LARGE, MPI_BYTE, (rank + d) % size, d, MPI_COMM_WORLD, &sends[d]);
        MPI_Waitall(26, sends, MPI_STATUSES_IGNORE);
        for (int d = 1; d <= 2; d++) {
            MPI_Wait(&receives[d], MPI_STATUS_IGNORE);
            work(6);
        }
    }
    finish();
}

/* Blocking receives from any source; who comes first is decided by work of different length. */
#include "program.h"
int main(int argc, char **argv) {
    MPI_Status status;
    start(&argc, &argv);
    for (int round = 0; round < 3; round++) {
        if (rank == 0) {
            for (int i = 1; i < size; i++) {
                MPI_Recv(buffer, LARGE, MPI_BYTE, MPI_ANY_SOURCE, round, MPI_COMM_WORLD, &status);
                work(10 * status.MPI_SOURCE); /* what follows depends on who it was */
            }
        } else {
            work(20 + 17 * ((rank * 3 + round) % size));
            MPI_Send(buffer, rank % 2 ? 1000 * rank : LARGE, MPI_BYTE, 0, round, MPI_COMM_WORLD);
        }
    }
    finish();
}

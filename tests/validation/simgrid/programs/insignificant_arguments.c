/* Rooted collectives whose arguments at the other ranks mean nothing, and MPI_IN_PLACE. */
#include "program.h"
int main(int argc, char **argv) {
    int counts[16], places[16];
    start(&argc, &argv);
    for (int i = 0; i < size; i++) counts[i] = 100 * i, places[i] = 1000 * i;
    for (int root = 0; root < size; root++) {
        int here = rank == root;
        work(7 * rank);
        MPI_Scatter(buffer, here ? 500 : 999999, MPI_INT, other, 500, MPI_INT, root, MPI_COMM_WORLD);
        MPI_Gather(buffer, 300, MPI_INT, other, here ? 300 : 77, MPI_INT, root, MPI_COMM_WORLD);
        work(1);
        MPI_Scatter(here ? buffer : NULL, here ? 600 : 0, here ? MPI_INT : MPI_DATATYPE_NULL, other, 600, MPI_INT, root,
                    MPI_COMM_WORLD);
        MPI_Gather(buffer, 20000, MPI_INT, here ? other : NULL, here ? 20000 : 0, here ? MPI_INT : MPI_DATATYPE_NULL, root,
                   MPI_COMM_WORLD);
        MPI_Gather(here ? MPI_IN_PLACE : buffer, 200, MPI_INT, buffer, 200, MPI_INT, root, MPI_COMM_WORLD);
        MPI_Scatter(buffer, 400, MPI_INT, here ? MPI_IN_PLACE : other, 400, MPI_INT, root, MPI_COMM_WORLD);
        MPI_Gatherv(buffer, counts[rank], MPI_INT, other, here ? counts : NULL, here ? places : NULL, MPI_INT, root,
                    MPI_COMM_WORLD);
        MPI_Scatterv(buffer, here ? counts : NULL, here ? places : NULL, MPI_INT, other, counts[rank], MPI_INT, root,
                     MPI_COMM_WORLD);
    }
    MPI_Allgather(MPI_IN_PLACE, 0, MPI_INT, buffer, 1000, MPI_INT, MPI_COMM_WORLD);
    MPI_Alltoall(MPI_IN_PLACE, 0, MPI_INT, buffer, 1000, MPI_INT, MPI_COMM_WORLD);
    finish();
}

/* Reductions with scattered results: equal and unequal counts, MPI_Reduce_scatter_block, in place. */
#include "program.h"
int main(int argc, char **argv) {
    int counts[16], equal[16];
    start(&argc, &argv);
    for (int i = 0; i < size; i++) counts[i] = 1000 * (i + 1) + (i == 1 ? 20000 : 0), equal[i] = 3000;
    work(20 * rank);
    MPI_Reduce_scatter(buffer, other, counts, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    work(3);
    MPI_Reduce_scatter(buffer, other, equal, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
    work(size - rank);
    MPI_Reduce_scatter_block(buffer, other, 40, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    MPI_Allreduce(MPI_IN_PLACE, other, 30000, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    work(2 * rank);
    MPI_Reduce(rank ? buffer : MPI_IN_PLACE, buffer, 70, MPI_LONG, MPI_SUM, 0, MPI_COMM_WORLD);
    MPI_Scan(buffer, other, 5, MPI_DOUBLE_INT, MPI_MAXLOC, MPI_COMM_WORLD);
    MPI_Exscan(buffer, other, 9000, MPI_SHORT, MPI_BAND, MPI_COMM_WORLD);
    finish();
}

/* Marked regions around stretches of computing, 1 to 6 units long: outer 1, "in\"ner" within it 2, outer again 3 (after
   a barrier), none 4, last 5 (after a barrier); after MPI_Finalize 6. */
#include <mpi.h>

#include "manyscale.h"

static void compute(int units) {
    volatile double x = 1;
    for (int i = 0; i < units * 1000000; i++) x = x * 1.0000001;
}

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    MANYSCALE_BEGIN("outer");
    compute(1);
    MANYSCALE_BEGIN("in\"ner");
    compute(2);
    MANYSCALE_END();
    MPI_Barrier(MPI_COMM_WORLD);
    compute(3);
    MANYSCALE_END();
    compute(4);
    MPI_Barrier(MPI_COMM_WORLD);
    MANYSCALE_BEGIN("last");
    compute(5);
    MANYSCALE_END();
    MPI_Finalize();
    compute(6);
    return 0;
}

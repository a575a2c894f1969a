/* passes STEPS: in each step rank r sums 1,000 numbers r + 1 times, then sends the sum on around the ring. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

enum { NUMBERS = 1000 };
double numbers[NUMBERS];

static __attribute__((noinline)) double sum_up(int passes, int step) {
    double sum = 0;
    for (int pass = 0; pass < passes; pass++)
        for (int i = 0; i < NUMBERS; i++) sum += numbers[i] * step;
    return sum;
}

int main(int argc, char **argv) {
    int rank, size;
    double own, other, all;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    for (int step = 0; step < (argc > 1 ? atoi(argv[1]) : 4); step++) {
        own = sum_up(rank + 1, step);
        MPI_Sendrecv(&own, 1, MPI_DOUBLE, (rank + 1) % size, 0, &other, 1, MPI_DOUBLE, (rank + size - 1) % size, 0,
                     MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        MPI_Allreduce(&own, &all, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    }
    MPI_Finalize();
    return 0;
}

/* A program whose tasks one thread creates: creator STEPS TASKS WORK, TASKS instances in each of STEPS iterations, each
   of WORK steps of a chain. How far creation bounds such programs is what Grass discusses for HYDRO (UPC 2017, section
   6.4.5: "the time devoted to task creation and scheduling limits the scalability"). */
#include <mpi.h>
#include <stdlib.h>

static void work(long steps) {
    unsigned long x = 1;
    for (long i = 0; i < steps; i++) {
        x = x * 3 + 1;
        __asm__ volatile("" : "+r"(x));
    }
}

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    if (argc != 4) MPI_Abort(MPI_COMM_WORLD, 2);
    long steps = atol(argv[1]), tasks = atol(argv[2]), each = atol(argv[3]);
    for (long step = 0; step < steps; step++) {
        MPI_Pcontrol(1000 + (int)step);
        MPI_Barrier(MPI_COMM_SELF); /* an operation in each iteration */
#pragma omp parallel
#pragma omp single
        for (long task = 0; task < tasks; task++) {
#pragma omp task
            work(each);
        }
    }
    MPI_Finalize();
    return 0;
}

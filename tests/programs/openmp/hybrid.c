/* hybrid ITERATIONS TASKS: in each iteration each rank creates TASKS tasks in chains of depend(inout), and one that sends
   to the right and receives from the left (MPI inside a task); then all ranks reduce outside of any task. */
#include <mpi.h>
#include <stdlib.h>

static double x[64];

static void work(double *value) {
    for (int j = 0; j < 300; j++) *value += j;
}

static void exchange(int rank, int size) {
    int in;
    MPI_Sendrecv(&rank, 1, MPI_INT, (rank + 1) % size, 1, &in, 1, MPI_INT, (rank + size - 1) % size, 1, MPI_COMM_WORLD,
                 MPI_STATUS_IGNORE);
}

int main(int argc, char **argv) {
    int rank, size, given;
    double sum;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &given);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    for (int k = 0; argc > 2 && k < atoi(argv[1]); k++) {
#pragma omp parallel
#pragma omp single
        {
            for (int i = 0; i < atoi(argv[2]); i++) {
#pragma omp task depend(inout : x[i % 64]) // at: work
                work(&x[i % 64]);
            }
#pragma omp task // at: exchange
            exchange(rank, size);
        }
        MPI_Allreduce(x, &sum, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    }
    MPI_Finalize();
    return 0;
}

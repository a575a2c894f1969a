/* Ranks pass a token round twice and compute in between; then rank 1 (or the only one) ends as the first argument says:
   "well", "exit" (without MPI_Finalize), "crash" (a null pointer), "kill", "abort" (MPI_Abort), "hang" (waits for a
   message that never comes), "fork" (starts a child, then goes on). */
#include <mpi.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static volatile double sink;

static void compute(int n) {
    for (int i = 0; i < n; i++) sink += 1.0 / (i + 1);
}

int main(int count, char **words) {
    const char *ending = count > 1 ? words[1] : "well";
    int rank, size, token = 7;
    MPI_Init(&count, &words);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    for (int round = 0; round < 2; round++) {
        compute(1000000);
        if (rank == 0) {
            MPI_Send(&token, 1, MPI_INT, (rank + 1) % size, round, MPI_COMM_WORLD);
            MPI_Recv(&token, 1, MPI_INT, (rank + size - 1) % size, round, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        } else {
            MPI_Recv(&token, 1, MPI_INT, rank - 1, round, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            MPI_Send(&token, 1, MPI_INT, (rank + 1) % size, round, MPI_COMM_WORLD);
        }
    }
    if (rank == 1) {
        if (!strcmp(ending, "exit")) exit(3);
        if (!strcmp(ending, "crash")) *(volatile int *)NULL = 1;
        if (!strcmp(ending, "kill")) kill(getpid(), SIGKILL);
        if (!strcmp(ending, "abort")) MPI_Abort(MPI_COMM_WORLD, 5);
        if (!strcmp(ending, "fork")) {
            pid_t child = fork();
            if (child == 0) {
                compute(1000);
                _exit(0);
            }
            waitpid(child, NULL, 0);
        }
        if (!strcmp(ending, "hang")) MPI_Recv(&token, 1, MPI_INT, 0, 99, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Finalize();
    return 0;
}

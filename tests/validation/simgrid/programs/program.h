/* Common to all programs: start, work in simulated time, and the end of each rank. SMPI declares smpi_execute_flops. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LARGE 100000 /* bytes: above SMPI's threshold of 65,536 */
static char buffer[4000000], other[4000000];
static int rank, size;
static double origin; /* of the times that are printed */

static void start(int *argc, char ***argv) {
    MPI_Init(argc, argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
}

/* Compute for whole microseconds on a host of 1 Gflop/s: at most six digits, so that the trace holds it exactly. */
static void work(int microseconds) { smpi_execute_flops(microseconds * 1e3); }

static void finish(void) {
    printf("end %d %.12f\n", rank, MPI_Wtime() - origin);
    fflush(stdout);
    MPI_Finalize();
}

/* Ranks as a grid of rows and columns, as square as their number allows, and blocks dealt out to it cyclically. */
#ifndef PROGRAMS_GRID_H
#define PROGRAMS_GRID_H

#include <mpi.h>

#include "../common.h"

struct grid {
    int rank, size, rows, columns;
};

/* Starts MPI at a level of thread support that the program needs. */
static inline struct grid start_grid(int *argc, char ***argv, int thread_support) {
    struct grid grid;
    int provided;
    MPI_Init_thread(argc, argv, thread_support, &provided);
    if (provided < thread_support) fail("this MPI library does not support threads as the program uses them");
    MPI_Comm_rank(MPI_COMM_WORLD, &grid.rank);
    MPI_Comm_size(MPI_COMM_WORLD, &grid.size);
    grid.columns = 1;
    for (int divisor = 2; divisor * divisor <= grid.size; divisor++)
        if (grid.size % divisor == 0) grid.columns = divisor;
    grid.rows = grid.size / grid.columns;
    return grid;
}

static inline int grid_owner(const struct grid *grid, int row, int column) {
    return row % grid->rows * grid->columns + column % grid->columns;
}

/* The largest of an error over all ranks, judged; rank 0 tells. What main returns. */
static inline int finish_grid(const struct grid *grid, const char *program, double error, double tolerance) {
    double largest;
    MPI_Allreduce(&error, &largest, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    MPI_Finalize();
    int right = largest <= tolerance; /* also false for a NaN */
    return grid->rank == 0 ? verdict(program, right) : !right;
}

#endif

/* Jacobi iterations for the Laplace equation on a 2-D grid, in blocks; halos are exchanged inside tasks.

   jacobi [blocks 4] [block_size 32] [iterations 4]

   Every rank has blocks x blocks blocks of block_size x block_size points; ranks form a grid. An iteration is one
   parallel region. Its exchange tasks each shift one block's edge to one neighbour and receive from the opposite one
   (one MPI_Sendrecv, MPI_PROC_NULL at the grid's border; columns are an MPI vector); they follow each other, since
   MPI_THREAD_SERIALIZED allows one MPI call at a time, and since every rank has them in the same order none waits for
   ever. Update tasks at the border of a rank depend on the halos they read. Then the residual is reduced over all ranks.

   Counts per rank and iteration, n = blocks:
     instances   exchange 4 n, update n^2
     edges       exchange <- exchange 4 n - 1, update <- exchange 4 n
     messages    n to each neighbour that is there (no wrap-around), of block_size * 8 bytes; one MPI_Allreduce

   Check: sin(pi x) sin(pi y) is an eigenvector: each iteration multiplies it by (cos(pi h) + cos(pi h')) / 2. */
#include "grid.h"

#include <math.h>

enum side { north, south, west, east };

static struct grid grid;
static int num_blocks, block_size, stride; /* stride: points in a row of the array, halos included */
static double *old_values, *new_values;
static double *residuals;   /* [block row][block column] */
static char *marks;         /* [block row + 1][block column + 1]: what depend clauses name; the border is the halos */
static MPI_Datatype column_type;

static double *point(double *values, int row, int column) { return &values[(row + 1) * stride + column + 1]; }
static char *mark(int row, int column) { return &marks[(row + 1) * (num_blocks + 2) + column + 1]; }

static int neighbour(enum side side) {
    int row = grid.rank / grid.columns + (side == south) - (side == north);
    int column = grid.rank % grid.columns + (side == east) - (side == west);
    int inside = row >= 0 && row < grid.rows && column >= 0 && column < grid.columns;
    return inside ? row * grid.columns + column : MPI_PROC_NULL;
}

/* Sends the edge of the block at an index along a side to the neighbour there; the halo opposite is received. */
static void exchange(enum side to, enum side from, int index) {
    int first = index * block_size, last = num_blocks * block_size - 1;
    int along_row = to == north || to == south;
    int edge = to == north || to == west ? 0 : last, halo = to == north || to == west ? last + 1 : -1;
    double *sent = along_row ? point(old_values, edge, first) : point(old_values, first, edge);
    double *received = along_row ? point(old_values, halo, first) : point(old_values, first, halo);
    int count = along_row ? block_size : 1;
    MPI_Datatype type = along_row ? MPI_DOUBLE : column_type;
    int tag = to * num_blocks + index;
    MPI_Sendrecv(sent, count, type, neighbour(to), tag, received, count, type, neighbour(from), tag, MPI_COMM_WORLD,
                 MPI_STATUS_IGNORE);
}

static void update(int block_row, int block_column) {
    double largest = 0;
    for (int i = block_row * block_size; i < (block_row + 1) * block_size; i++) {
        const double *above = point(old_values, i - 1, 0), *here = point(old_values, i, 0);
        const double *below = point(old_values, i + 1, 0);
        double *target = point(new_values, i, 0);
        for (int j = block_column * block_size; j < (block_column + 1) * block_size; j++) {
            target[j] = 0.25 * (above[j] + below[j] + here[j - 1] + here[j + 1]);
            double change = distance(target[j], here[j]);
            if (change > largest) largest = change;
        }
    }
    residuals[block_row * num_blocks + block_column] = largest;
}

static void create_exchanges(void) {
    const enum side from[] = {south, north, east, west};
    for (int to = north; to <= east; to++)
        for (int index = 0; index < num_blocks; index++) {
            enum side source = from[to];
            int row = source == north ? -1 : source == south ? num_blocks : index;
            int column = source == west ? -1 : source == east ? num_blocks : index;
            char *halo = mark(row, column), *mpi = mark(-1, -1);
#pragma omp task depend(out : halo[0]) depend(inout : mpi[0])
            exchange((enum side)to, source, index);
        }
}

static void create_updates(void) {
    for (int row = 0; row < num_blocks; row++)
        for (int column = 0; column < num_blocks; column++) {
            char *above = mark(row - 1, column), *below = mark(row + 1, column);
            char *left = mark(row, column - 1), *right = mark(row, column + 1);
#pragma omp task depend(in : above[0], below[0], left[0], right[0])
            update(row, column);
        }
}

static double iterate(void) {
    double largest = 0, residual;
#pragma omp parallel
#pragma omp single
    {
        create_exchanges();
        create_updates();
    }
    for (int block = 0; block < num_blocks * num_blocks; block++)
        if (residuals[block] > largest) largest = residuals[block];
    MPI_Allreduce(&largest, &residual, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    double *swapped = old_values;
    old_values = new_values;
    new_values = swapped;
    return residual;
}

/* Fills the array with the eigenvector (factor 0), or the largest distance from factor times the eigenvector. */
static double visit(double factor) {
    int side = num_blocks * block_size;
    double row_step = pi / (side * grid.rows + 1), column_step = pi / (side * grid.columns + 1), largest = 0;
    for (int i = 0; i < side; i++)
        for (int j = 0; j < side; j++) {
            double y = row_step * (grid.rank / grid.columns * side + i + 1);
            double x = column_step * (grid.rank % grid.columns * side + j + 1);
            double *value = point(old_values, i, j), start = sin(x) * sin(y);
            if (factor == 0)
                *value = start;
            else if (!(distance(*value, factor * start) <= largest))
                largest = distance(*value, factor * start);
        }
    return largest;
}

int main(int argc, char **argv) {
    grid = start_grid(&argc, &argv, MPI_THREAD_SERIALIZED);
    num_blocks = argument(argc, argv, 1, 4, 1);
    block_size = argument(argc, argv, 2, 32, 1);
    int iterations = argument(argc, argv, 3, 4, 1);
    int side = num_blocks * block_size;
    stride = side + 2;
    old_values = zeros((size_t)stride * stride, sizeof(double));
    new_values = zeros((size_t)stride * stride, sizeof(double));
    residuals = zeros((size_t)num_blocks * num_blocks, sizeof(double));
    marks = zeros((size_t)(num_blocks + 2) * (num_blocks + 2), 1);
    MPI_Type_vector(block_size, 1, stride, MPI_DOUBLE, &column_type);
    MPI_Type_commit(&column_type);
    visit(0);
    double eigenvalue = (cos(pi / (side * grid.rows + 1)) + cos(pi / (side * grid.columns + 1))) / 2;
    double residual = 0;
    for (int iteration = 0; iteration < iterations; iteration++) {
        MANYSCALE_ITERATION(iteration);
        MANYSCALE_BEGIN("sweep");
        residual = iterate();
        MANYSCALE_END();
    }
    MPI_Type_free(&column_type);
    double factor = pow(eigenvalue, iterations), error = visit(factor);
    /* The residual is the largest change: at most that of the eigenvector's largest possible value, 1. */
    if (!(residual > 0 && residual <= (1 - eigenvalue) * (1 + 1e-9))) error = 1;
    return finish_grid(&grid, "jacobi", error, 1e-12);
}

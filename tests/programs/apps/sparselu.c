/* LU factorisation, without pivots, of a sparse matrix of dense blocks, dealt out to ranks in a 2-D block-cyclic way.

   sparselu [blocks 12] [block_size 16] [iterations 1]

   Step k: lu0(k, k); fwd(k, j) for the blocks to its right and bdiv(i, k) for those below it that are there;
   bmod(i, j) for each pair of such blocks, which creates block (i, j) where it is not there yet. Tasks declare no
   dependences: taskwait and taskgroup separate the stages. MPI is called between the tasks, by whichever thread has the
   single region (MPI_THREAD_SERIALIZED). An iteration factorises the same matrix again.

   There from the start: (i, j) with |i - j| <= 1 or (3 i + 5 j) mod 7 == 0.
   Counts: they follow from the blocks that are there; tests/programs/counts.py enumerates them. Over all ranks and per
   iteration N lu0; one fwd or bdiv for each block that is there in the end off the diagonal; no edges. Messages of
   block_size^2 * 8 bytes: lu0's result to the ranks with a fwd or a bdiv, theirs to the ranks with a bmod of them.

   Check: L (U 1) = A 1. */
#include "grid.h"

static struct grid grid;
static int num_blocks, block_size;
static double **blocks;  /* [i * num_blocks + j]: own blocks that are there; NULL elsewhere */
static char *there;      /* [i * num_blocks + j], of all ranks */
static double **panel;   /* places for blocks of other ranks: [j] for (k, j), [num_blocks + i] for (i, k) */
static MPI_Request *requests;

static int is_mine(int i, int j) { return grid_owner(&grid, i, j) == grid.rank; }
static int is_there(int i, int j) { return there[i * num_blocks + j]; }
static int at_start(int i, int j) { return (i - j <= 1 && j - i <= 1) || (3 * i + 5 * j) % 7 == 0; }
static size_t elements(void) { return (size_t)block_size * block_size; }

static void lu0(double *a) {
    for (int k = 0; k < block_size; k++)
        for (int i = k + 1; i < block_size; i++) {
            double factor = a[i * block_size + k] /= a[k * block_size + k];
            for (int j = k + 1; j < block_size; j++) a[i * block_size + j] -= factor * a[k * block_size + j];
        }
}

/* x = L^-1 x */
static void fwd(const double *diagonal, double *x) {
    for (int k = 0; k < block_size; k++)
        for (int i = k + 1; i < block_size; i++)
            for (int j = 0; j < block_size; j++)
                x[i * block_size + j] -= diagonal[i * block_size + k] * x[k * block_size + j];
}

/* x = x U^-1 */
static void bdiv(const double *diagonal, double *x) {
    for (int i = 0; i < block_size; i++)
        for (int k = 0; k < block_size; k++) {
            double factor = x[i * block_size + k] /= diagonal[k * block_size + k];
            for (int j = k + 1; j < block_size; j++) x[i * block_size + j] -= factor * diagonal[k * block_size + j];
        }
}

static void bmod(const double *below, const double *right, double *x) {
    for (int i = 0; i < block_size; i++)
        for (int k = 0; k < block_size; k++) {
            double factor = below[i * block_size + k];
            for (int j = 0; j < block_size; j++) x[i * block_size + j] -= factor * right[k * block_size + j];
        }
}

/* Block (i, j) of step k = min(i, j), own or received. */
static double *final_block(int i, int j) {
    if (is_mine(i, j)) return blocks[i * num_blocks + j];
    return panel[i > j ? num_blocks + i : j];
}

/* Whether a rank works with block (i, j) of step k = min(i, j) once it is final. */
static int needs(int rank, int i, int j) {
    for (int other = (i < j ? i : j) + 1; other < num_blocks; other++) {
        if (i >= j && is_there(j, other) && grid_owner(&grid, i, other) == rank) return 1;
        if (i <= j && is_there(other, i) && grid_owner(&grid, other, j) == rank) return 1;
    }
    return 0;
}

/* Sends own block (i, j) to who needs it; how many requests there are now. */
static int send_block(int i, int j, int num_requests) {
    if (!is_there(i, j) || !is_mine(i, j)) return num_requests;
    for (int rank = 0; rank < grid.size; rank++)
        if (rank != grid.rank && needs(rank, i, j))
            MPI_Isend(final_block(i, j), block_size * block_size, MPI_DOUBLE, rank, i * num_blocks + j, MPI_COMM_WORLD,
                      &requests[num_requests++]);
    return num_requests;
}

static void receive_block(int i, int j) {
    if (!is_there(i, j) || is_mine(i, j) || !needs(grid.rank, i, j)) return;
    MPI_Recv(final_block(i, j), block_size * block_size, MPI_DOUBLE, grid_owner(&grid, i, j), i * num_blocks + j,
             MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}

static void share_diagonal(int k) {
    int num_requests = send_block(k, k, 0);
    receive_block(k, k);
    MPI_Waitall(num_requests, requests, MPI_STATUSES_IGNORE);
}

static void share_panels(int k) {
    int num_requests = 0;
    for (int other = k + 1; other < num_blocks; other++) {
        num_requests = send_block(k, other, num_requests);
        num_requests = send_block(other, k, num_requests);
    }
    for (int other = k + 1; other < num_blocks; other++) {
        receive_block(k, other);
        receive_block(other, k);
    }
    MPI_Waitall(num_requests, requests, MPI_STATUSES_IGNORE);
}

static void factorise_panels(int k) {
    if (is_mine(k, k)) {
        double *diagonal = final_block(k, k);
#pragma omp task
        lu0(diagonal);
#pragma omp taskwait
    }
    share_diagonal(k);
    double *diagonal = final_block(k, k);
    for (int other = k + 1; other < num_blocks; other++) {
        if (is_there(k, other) && is_mine(k, other)) {
            double *right = final_block(k, other);
#pragma omp task
            fwd(diagonal, right);
        }
        if (is_there(other, k) && is_mine(other, k)) {
            double *below = final_block(other, k);
#pragma omp task
            bdiv(diagonal, below);
        }
    }
#pragma omp taskwait
    share_panels(k);
}

static void update_rest(int k) {
#pragma omp taskgroup
    for (int i = k + 1; i < num_blocks; i++)
        for (int j = k + 1; j < num_blocks; j++) {
            if (!is_there(i, k) || !is_there(k, j)) continue;
            there[i * num_blocks + j] = 1;
            if (!is_mine(i, j)) continue;
            double **block = &blocks[i * num_blocks + j], *target;
            if (!*block) *block = zeros(elements(), sizeof(double));
            target = *block;
            double *below = final_block(i, k), *right = final_block(k, j);
#pragma omp task
            bmod(below, right, target);
        }
}

/* Element of the matrix; large on the diagonal, so that no pivots are needed. */
static double element(int row, int column) {
    double value = fraction((uint64_t)row * 1000003 + column);
    return row == column ? value + num_blocks * block_size : value;
}

static void fill_block(int i, int j, double *block) {
    for (int row = 0; row < block_size; row++)
        for (int column = 0; column < block_size; column++)
            block[row * block_size + column] = element(i * block_size + row, j * block_size + column);
}

/* The matrix as it is at first: what the last factorisation created is gone. */
static void fill(void) {
    for (int i = 0; i < num_blocks; i++)
        for (int j = 0; j < num_blocks; j++) {
            double **block = &blocks[i * num_blocks + j];
            there[i * num_blocks + j] = (char)at_start(i, j);
            if (!at_start(i, j)) {
                free(*block);
                *block = NULL;
            } else if (is_mine(i, j)) {
                if (!*block) *block = zeros(elements(), sizeof(double));
                fill_block(i, j, *block);
            }
        }
}

enum part { whole, upper, unit_lower };

/* out = (that part of the own blocks) x, summed over the ranks. */
static void multiply(enum part part, const double *x, double *out) {
    int length = num_blocks * block_size;
    memset(out, 0, length * sizeof *out);
    for (int i = 0; i < num_blocks; i++)
        for (int j = 0; j < num_blocks; j++) {
            double *block = blocks[i * num_blocks + j];
            if (!block) continue;
            for (int row = i * block_size; row < (i + 1) * block_size; row++)
                for (int column = j * block_size; column < (j + 1) * block_size; column++) {
                    if ((part == upper && column < row) || (part == unit_lower && column > row)) continue;
                    double value = block[(row - i * block_size) * block_size + column - j * block_size];
                    out[row] += (part == unit_lower && row == column ? 1 : value) * x[column];
                }
        }
    MPI_Allreduce(MPI_IN_PLACE, out, length, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
}

static double largest_error(void) {
    int length = num_blocks * block_size;
    double *ones = zeros(length, sizeof *ones), *product = zeros(length, sizeof *product);
    double *factored = zeros(length, sizeof *factored), *expected = zeros(length, sizeof *expected), largest = 0;
    for (int row = 0; row < length; row++) ones[row] = 1;
    multiply(upper, ones, product);
    multiply(unit_lower, product, factored);
    fill();
    multiply(whole, ones, expected);
    for (int row = 0; row < length; row++) {
        double error = distance(factored[row], expected[row]) / expected[row];
        if (!(error <= largest)) largest = error;
    }
    return largest;
}

int main(int argc, char **argv) {
    grid = start_grid(&argc, &argv, MPI_THREAD_SERIALIZED);
    num_blocks = argument(argc, argv, 1, 12, 1);
    block_size = argument(argc, argv, 2, 16, 1);
    if (num_blocks > 150) fail("sparselu: at most 150 blocks a side: tags would be larger than MPI promises");
    int iterations = argument(argc, argv, 3, 1, 1);
    blocks = zeros((size_t)num_blocks * num_blocks, sizeof *blocks);
    there = zeros((size_t)num_blocks * num_blocks, 1);
    panel = zeros(2 * (size_t)num_blocks, sizeof *panel);
    for (int i = 0; i < 2 * num_blocks; i++) panel[i] = zeros(elements(), sizeof(double));
    requests = zeros(2 * (size_t)num_blocks * grid.size, sizeof *requests);
    for (int iteration = 0; iteration < iterations; iteration++) {
        MANYSCALE_ITERATION(iteration);
        MANYSCALE_BEGIN("fill");
        fill();
        MANYSCALE_END();
        MANYSCALE_BEGIN("factorise");
#pragma omp parallel
#pragma omp single
        for (int k = 0; k < num_blocks; k++) {
            factorise_panels(k);
            update_rest(k);
        }
        MANYSCALE_END();
    }
    return finish_grid(&grid, "sparselu", largest_error(), 1e-9);
}

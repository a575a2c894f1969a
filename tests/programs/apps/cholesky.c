/* Blocked Cholesky factorisation A = L L^T of a matrix dealt out to ranks in a 2-D block-cyclic way.

   cholesky [blocks 8] [block_size 32] [iterations 1]

   Blocks (i, j), j <= i < N; block (i, j) belongs to the rank at (i mod rows, j mod columns) of the grid of ranks.
   Step k: potrf(k, k); its factor goes to the ranks that hold a block below it; trsm(i, k) for i > k; each result goes
   to the ranks that update with it; syrk(i, i) and gemm(i, j), k < j < i, update what is left. MPI is called between
   the tasks, by the main thread (MPI_THREAD_FUNNELED); a rank waits for its tasks only before it sends or receives.
   An iteration factorises the same matrix again, in a parallel region of its own.

   Counts per iteration, over all ranks, N = blocks (of one rank: tests/programs/counts.py):
     instances   potrf N, trsm N(N-1)/2, syrk N(N-1)/2, gemm N(N-1)(N-2)/6
     edges on one rank
       potrf <- syrk N-1; trsm <- potrf N(N-1)/2, <- gemm (N-1)(N-2)/2; syrk <- trsm N(N-1)/2, <- syrk (N-1)(N-2)/2;
       gemm <- trsm N(N-1)(N-2)/3, <- gemm (N-1)(N-2)(N-3)/6; with N = 4: 3 + 6 + 3 + 6 + 3 + 8 + 1 = 30
     messages    of block_size^2 * 8 bytes, one for each final block and other rank that needs it

   Check: A_ij = u_i u_j (min(i, j) + 1) has the factor L_ij = u_i, exactly. */
#include "grid.h"

#include <math.h>

static struct grid grid;
static int num_blocks, block_size;
static double **blocks;  /* [i * num_blocks + j]: own blocks; NULL elsewhere */
static double **panel;   /* [i]: place for block (i, k) of another rank */
static MPI_Request *requests;
static int num_requests;

static void potrf(double *a) {
    for (int k = 0; k < block_size; k++) {
        double pivot = a[k * block_size + k] = sqrt(a[k * block_size + k]);
        for (int i = k + 1; i < block_size; i++) {
            double factor = a[i * block_size + k] /= pivot;
            for (int j = k + 1; j <= i; j++) a[i * block_size + j] -= factor * a[j * block_size + k];
        }
    }
}

static void trsm(const double *l, double *x) {
    for (int row = 0; row < block_size; row++)
        for (int j = 0; j < block_size; j++) {
            double sum = x[row * block_size + j];
            for (int k = 0; k < j; k++) sum -= x[row * block_size + k] * l[j * block_size + k];
            x[row * block_size + j] = sum / l[j * block_size + j];
        }
}

static void syrk(const double *x, double *c) {
    for (int i = 0; i < block_size; i++)
        for (int j = 0; j <= i; j++) {
            double sum = c[i * block_size + j];
            for (int k = 0; k < block_size; k++) sum -= x[i * block_size + k] * x[j * block_size + k];
            c[i * block_size + j] = sum;
        }
}

static void gemm(const double *x, const double *y, double *c) {
    for (int i = 0; i < block_size; i++)
        for (int j = 0; j < block_size; j++) {
            double sum = c[i * block_size + j];
            for (int k = 0; k < block_size; k++) sum -= x[i * block_size + k] * y[j * block_size + k];
            c[i * block_size + j] = sum;
        }
}

static double *own(int i, int j) { return blocks[i * num_blocks + j]; }

/* Block (i, k) of step k, own or received. */
static double *final_block(int i, int k) { return own(i, k) ? own(i, k) : panel[i]; }

/* Whether a rank works with block (i, k) once it is final. */
static int needs(int rank, int i, int k) {
    if (i == k) {
        for (int below = k + 1; below < num_blocks; below++)
            if (grid_owner(&grid, below, k) == rank) return 1;
        return 0;
    }
    for (int j = k + 1; j <= i; j++)
        if (grid_owner(&grid, i, j) == rank) return 1;
    for (int below = i; below < num_blocks; below++)
        if (grid_owner(&grid, below, i) == rank) return 1;
    return 0;
}

static MPI_Request *new_request(void) {
    if (num_requests == 0) {
        /* Blocks to send must be final, and the panel is no longer read. */
#pragma omp taskwait
    }
    return &requests[num_requests++];
}

/* Sends blocks first to last - 1 of column k to who needs them, and receives those needed here. */
static void share(int k, int first, int last) {
    int count = block_size * block_size;
    num_requests = 0;
    for (int i = first; i < last; i++) {
        int owner = grid_owner(&grid, i, k);
        if (owner != grid.rank) {
            if (needs(grid.rank, i, k))
                MPI_Irecv(panel[i], count, MPI_DOUBLE, owner, i, MPI_COMM_WORLD, new_request());
            continue;
        }
        for (int rank = 0; rank < grid.size; rank++)
            if (rank != grid.rank && needs(rank, i, k))
                MPI_Isend(own(i, k), count, MPI_DOUBLE, rank, i, MPI_COMM_WORLD, new_request());
    }
    if (num_requests) MPI_Waitall(num_requests, requests, MPI_STATUSES_IGNORE);
}

static void factorise_column(int k) {
    double *diagonal = final_block(k, k);
    if (own(k, k)) {
#pragma omp task depend(inout : diagonal[0])
        potrf(diagonal);
    }
    share(k, k, k + 1);
    for (int i = k + 1; i < num_blocks; i++) {
        double *below = own(i, k);
        if (!below) continue;
#pragma omp task depend(in : diagonal[0]) depend(inout : below[0])
        trsm(diagonal, below);
    }
    share(k, k + 1, num_blocks);
}

static void update_rest(int k) {
    for (int i = k + 1; i < num_blocks; i++) {
        double *left = final_block(i, k);
        double *diagonal = own(i, i);
        if (diagonal) {
#pragma omp task depend(in : left[0]) depend(inout : diagonal[0])
            syrk(left, diagonal);
        }
        for (int j = k + 1; j < i; j++) {
            double *other = final_block(j, k);
            double *block = own(i, j);
            if (!block) continue;
#pragma omp task depend(in : left[0], other[0]) depend(inout : block[0])
            gemm(left, other, block);
        }
    }
}

static double scale(int row) { return 1 + row % 4; }

static void allocate(void) {
    blocks = zeros((size_t)num_blocks * num_blocks, sizeof *blocks);
    panel = zeros(num_blocks, sizeof *panel);
    requests = zeros((size_t)num_blocks * (grid.size + 1), sizeof *requests);
    for (int i = 0; i < num_blocks; i++) {
        panel[i] = zeros((size_t)block_size * block_size, sizeof(double));
        for (int j = 0; j <= i; j++)
            if (grid_owner(&grid, i, j) == grid.rank)
                blocks[i * num_blocks + j] = zeros((size_t)block_size * block_size, sizeof(double));
    }
}

/* Calls for every element of an own block that belongs to the lower triangle; the largest error, or 0 where it fills. */
static double visit(int fill) {
    double largest = 0;
    for (int i = 0; i < num_blocks; i++)
        for (int j = 0; j <= i; j++) {
            double *block = own(i, j);
            if (!block) continue;
            for (int row = i * block_size; row < (i + 1) * block_size; row++)
                for (int column = j * block_size; column < (j + 1) * block_size && column <= row; column++) {
                    double *element = &block[(row - i * block_size) * block_size + column - j * block_size];
                    if (fill)
                        *element = scale(row) * scale(column) * (column + 1);
                    else if (!(distance(*element, scale(row)) <= largest))
                        largest = distance(*element, scale(row));
                }
        }
    return largest;
}

int main(int argc, char **argv) {
    grid = start_grid(&argc, &argv, MPI_THREAD_FUNNELED);
    num_blocks = argument(argc, argv, 1, 8, 1);
    block_size = argument(argc, argv, 2, 32, 1);
    int iterations = argument(argc, argv, 3, 1, 1);
    allocate();
    for (int iteration = 0; iteration < iterations; iteration++) {
        MANYSCALE_ITERATION(iteration);
        MANYSCALE_BEGIN("fill");
        visit(1);
        MANYSCALE_END();
        MANYSCALE_BEGIN("factorise");
#pragma omp parallel
#pragma omp master
        for (int k = 0; k < num_blocks; k++) {
            factorise_column(k);
            update_rest(k);
        }
        MANYSCALE_END();
    }
    return finish_grid(&grid, "cholesky", visit(0), 1e-9);
}

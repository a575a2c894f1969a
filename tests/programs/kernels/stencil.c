/* 3-D 7-point stencil in blocks, two sweeps a round: from one array to the other and back.

   stencil [x_blocks 12] [y_blocks 12] [z_blocks 8] [block_size 6] [iterations 2] [rounds 1]

   Working set: two arrays of x_blocks * y_blocks * z_blocks * block_size^3 doubles; strided accesses.

   Counts per iteration, N = x y z blocks, F = (x-1) y z + x (y-1) z + x y (z-1) faces between them:
     instances  sweep 2 N rounds
     edges      (N + 2 F) (2 rounds - 1): a block's sweep waits for the one before of itself and of its neighbours,
                whose results it reads, and who read what it overwrites
   Instructions: some 24 per point.

   Check: sin(pi x) sin(pi y) sin(pi z) is an eigenvector: a sweep multiplies it by the mean of three cosines. */
#include "../common.h"

#include <math.h>

static int num_blocks[3], block_size;
static size_t row_stride, plane_stride;
static double *arrays[2];
static char *marks[2]; /* what depend clauses name: a byte per block, and around them */

static double *point(double *array, int x, int y, int z) {
    return &array[(x + 1) * plane_stride + (y + 1) * row_stride + z + 1];
}

static char *mark(int array, int x, int y, int z) {
    return &marks[array][((size_t)(x + 1) * (num_blocks[1] + 2) + y + 1) * (num_blocks[2] + 2) + z + 1];
}

static void sweep(int from, int block_x, int block_y, int block_z) {
    const int64_t plane = (int64_t)plane_stride, row = (int64_t)row_stride;
    const int size = block_size;
    for (int x = block_x * size; x < (block_x + 1) * size; x++)
        for (int y = block_y * size; y < (block_y + 1) * size; y++) {
            const double *in = point(arrays[from], x, y, block_z * size);
            double *out = point(arrays[!from], x, y, block_z * size);
            for (int z = 0; z < size; z++)
                out[z] = (in[z - plane] + in[z + plane] + in[z - row] + in[z + row] + in[z - 1] + in[z + 1]) * (1.0 / 6);
        }
}

static void create_sweep(int from) {
    for (int x = 0; x < num_blocks[0]; x++)
        for (int y = 0; y < num_blocks[1]; y++)
            for (int z = 0; z < num_blocks[2]; z++) {
                char *self = mark(from, x, y, z), *out = mark(!from, x, y, z);
                char *left = mark(from, x - 1, y, z), *right = mark(from, x + 1, y, z);
                char *front = mark(from, x, y - 1, z), *back = mark(from, x, y + 1, z);
                char *below = mark(from, x, y, z - 1), *above = mark(from, x, y, z + 1);
#pragma omp task depend(in : self[0], left[0], right[0], front[0], back[0], below[0], above[0]) depend(out : out[0])
                sweep(from, x, y, z);
            }
}

/* Fills the array with the eigenvector (factor 0), or the largest distance from factor times the eigenvector. */
static double visit(double factor) {
    double step[3], largest = 0;
    for (int axis = 0; axis < 3; axis++) step[axis] = pi / (num_blocks[axis] * block_size + 1);
    for (int x = 0; x < num_blocks[0] * block_size; x++)
        for (int y = 0; y < num_blocks[1] * block_size; y++) {
            double line = sin(step[0] * (x + 1)) * sin(step[1] * (y + 1));
            for (int z = 0; z < num_blocks[2] * block_size; z++) {
                double *value = point(arrays[0], x, y, z), start = line * sin(step[2] * (z + 1));
                if (factor == 0)
                    *value = start;
                else if (!(distance(*value, factor * start) <= largest))
                    largest = distance(*value, factor * start);
            }
        }
    return largest;
}

int main(int argc, char **argv) {
    const int fallback[3] = {12, 12, 8};
    for (int axis = 0; axis < 3; axis++) num_blocks[axis] = argument(argc, argv, axis + 1, fallback[axis], 1);
    block_size = argument(argc, argv, 4, 6, 1);
    int iterations = argument(argc, argv, 5, 2, 1), rounds = argument(argc, argv, 6, 1, 1);
    row_stride = num_blocks[2] * block_size + 2;
    plane_stride = row_stride * (num_blocks[1] * block_size + 2);
    for (int array = 0; array < 2; array++) {
        arrays[array] = zeros(plane_stride * (num_blocks[0] * block_size + 2), sizeof(double));
        marks[array] = zeros((size_t)(num_blocks[0] + 2) * (num_blocks[1] + 2) * (num_blocks[2] + 2), 1);
    }
    visit(0);
    for (int iteration = 0; iteration < iterations; iteration++) {
        MANYSCALE_ITERATION(iteration);
#pragma omp parallel
#pragma omp single
        for (int number = 0; number < 2 * rounds; number++) create_sweep(number % 2);
    }
    double eigenvalue = 0;
    for (int axis = 0; axis < 3; axis++) eigenvalue += cos(pi / (num_blocks[axis] * block_size + 1)) / 3;
    return verdict("stencil", visit(pow(eigenvalue, 2.0 * rounds * iterations)) <= 1e-12);
}

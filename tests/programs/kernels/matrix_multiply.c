/* C = A B in blocks: high reuse of data, compute bound.

   matrix_multiply [blocks 13] [block_size 8] [iterations 2] [rows blocks]

   multiply(i, j, k) adds A(i, k) B(k, j) to C(i, j). B has blocks x blocks blocks, A and C rows x blocks. Working set:
   (blocks + 2 rows) * blocks * block_size^2 * 8 bytes. An iteration computes the same product again (C starts from 0).

   Counts per iteration, N = blocks, R = rows: multiply R N^2; edges R N (N - 1): those of one block of C follow each
   other.
   Instructions: some 7 block_size^3.

   Check: A_ij = u_i v_j, B_ij = w_i z_j, so that C_ij = u_i z_j (v . w), with whole numbers. */
#include "../common.h"

static int num_blocks, num_rows, block_size;
static double *a, *b, *c; /* [block row][block column][row][column] */

static double *block_of(double *matrix, int row, int column) {
    return matrix + ((size_t)row * num_blocks + column) * block_size * block_size;
}

static void multiply(const double *left, const double *right, double *sum) {
    for (int i = 0; i < block_size; i++)
        for (int k = 0; k < block_size; k++) {
            double factor = left[i * block_size + k];
            for (int j = 0; j < block_size; j++) sum[i * block_size + j] += factor * right[k * block_size + j];
        }
}

static int digit(int seed, int index) { return 1 + (seed * 5 + index * 3 + index / 7) % 4; }

static void fill(double *matrix, int rows, int row_seed, int column_seed) {
    for (int row = 0; row < rows * block_size; row++)
        for (int column = 0; column < num_blocks * block_size; column++)
            block_of(matrix, row / block_size, column / block_size)[row % block_size * block_size + column % block_size] =
                digit(row_seed, row) * digit(column_seed, column);
}

static int is_right(void) {
    int side = num_blocks * block_size, right = 1;
    double inner = 0;
    for (int k = 0; k < side; k++) inner += digit(2, k) * digit(3, k);
    for (int row = 0; row < num_rows * block_size; row++)
        for (int column = 0; column < side; column++) {
            const double *block = block_of(c, row / block_size, column / block_size);
            double expected = digit(1, row) * digit(4, column) * inner;
            right &= block[row % block_size * block_size + column % block_size] == expected;
        }
    return right;
}

int main(int argc, char **argv) {
    num_blocks = argument(argc, argv, 1, 13, 1);
    block_size = argument(argc, argv, 2, 8, 1);
    int iterations = argument(argc, argv, 3, 2, 1);
    num_rows = argument(argc, argv, 4, num_blocks, 1);
    size_t row_elements = (size_t)num_blocks * block_size * block_size, elements = num_rows * row_elements;
    a = zeros(elements, sizeof *a);
    b = zeros(num_blocks * row_elements, sizeof *b);
    c = zeros(elements, sizeof *c);
    fill(a, num_rows, 1, 2);
    fill(b, num_blocks, 3, 4);
    for (int iteration = 0; iteration < iterations; iteration++) {
        MANYSCALE_ITERATION(iteration);
        memset(c, 0, elements * sizeof *c);
#pragma omp parallel
#pragma omp single
        for (int i = 0; i < num_rows; i++)
            for (int j = 0; j < num_blocks; j++)
                for (int k = 0; k < num_blocks; k++) {
                    const double *left = block_of(a, i, k), *right = block_of(b, k, j);
                    double *sum = block_of(c, i, j);
#pragma omp task depend(in : left[0], right[0]) depend(inout : sum[0])
                    multiply(left, right, sum);
                }
    }
    return verdict("matrix_multiply", is_right());
}

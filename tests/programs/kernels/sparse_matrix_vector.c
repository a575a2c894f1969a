/* y = A x for a sparse matrix in compressed rows and one or several x, a task for each group of rows.

   sparse_matrix_vector [tasks 2048] [rows 8] [nonzeros 64] [columns 65536] [iterations 2] [vectors 1]

   Every row has 1 to 2 nonzeros - 1 elements, in any columns; each eighth task's rows have four times as many (load
   imbalance). A row is multiplied with one vector x after the other, so that a short row is used several times.
   Working set: each x has columns * 8 bytes; the matrix 12 bytes per element; y 8 bytes per row and vector.

   Counts per iteration: multiply tasks; no edges. Instructions: some 5 per element and vector; rows * nonzeros elements
   in the mean of the seven tasks of eight.

   Check: of each vector, sum of y = sum over columns of (column's sum) x, with whole numbers. */
#include "../common.h"

static int num_rows, num_columns, num_vectors; /* num_rows: in a task */
static int *first;                             /* [row]: its first element */
static int *column;                            /* [element] */
static double *value, *x, *y;                  /* [element], [vector][column], [row][vector] */

static void multiply(int task) {
    for (int row = task * num_rows; row < (task + 1) * num_rows; row++)
        for (int vector = 0; vector < num_vectors; vector++) {
            const double *from = x + (size_t)vector * num_columns;
            double sum = 0;
            for (int element = first[row]; element < first[row + 1]; element++)
                sum += value[element] * from[column[element]];
            y[(size_t)row * num_vectors + vector] = sum;
        }
}

int main(int argc, char **argv) {
    int num_tasks = argument(argc, argv, 1, 2048, 1);
    num_rows = argument(argc, argv, 2, 8, 1);
    int num_nonzeros = argument(argc, argv, 3, 64, 1), iterations = argument(argc, argv, 5, 2, 1), right = 1;
    num_columns = argument(argc, argv, 4, 65536, 1);
    num_vectors = argument(argc, argv, 6, 1, 1);
    if ((int64_t)num_tasks * num_rows * num_nonzeros * 8 > 1 << 30) fail("sparse_matrix_vector: too many elements");
    int rows = num_tasks * num_rows;
    first = zeros(rows + 1, sizeof *first);
    for (int row = 0; row < rows; row++) {
        int length = 1 + (int)(scatter(row) % (2 * (uint64_t)num_nonzeros - 1));
        first[row + 1] = first[row] + (row / num_rows % 8 == 7 ? 4 * length : length);
    }
    column = zeros(first[rows], sizeof *column);
    value = zeros(first[rows], sizeof *value);
    x = zeros((size_t)num_vectors * num_columns, sizeof *x);
    y = zeros((size_t)num_vectors * rows, sizeof *y);
    double *column_sum = zeros(num_columns, sizeof *column_sum);
    for (int vector = 0; vector < num_vectors; vector++)
        for (int i = 0; i < num_columns; i++) x[(size_t)vector * num_columns + i] = 1 + (i + vector) % 7;
    for (int element = 0; element < first[rows]; element++) {
        column[element] = (int)(scatter(~(uint64_t)element) % num_columns);
        value[element] = 1 + element % 5;
        column_sum[column[element]] += value[element];
    }
    for (int iteration = 0; iteration < iterations; iteration++) {
        MANYSCALE_ITERATION(iteration);
#pragma omp parallel
#pragma omp single
        for (int task = 0; task < num_tasks; task++) {
#pragma omp task
            multiply(task);
        }
    }
    for (int vector = 0; vector < num_vectors; vector++) {
        double difference = 0;
        for (int row = 0; row < rows; row++) difference += y[(size_t)row * num_vectors + vector];
        for (int i = 0; i < num_columns; i++) difference -= column_sum[i] * x[(size_t)vector * num_columns + i];
        right &= difference == 0;
    }
    return verdict("sparse_matrix_vector", right);
}

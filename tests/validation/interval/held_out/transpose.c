/* B = A + transposed A by tasks for blocks of A.
   transpose [blocks 24] [size 24] [iterations 2] */
#include "../../../programs/common.h"

int main(int argc, char **argv) {
    int blocks = argument(argc, argv, 1, 24, 1), size = argument(argc, argv, 2, 24, 1), n = blocks * size;
    int iterations = argument(argc, argv, 3, 2, 1), right = 1;
    double *a = zeros((size_t)n * n, sizeof *a), *b = zeros((size_t)n * n, sizeof *b);
    for (int i = 0; i < n * n; i++) a[i] = i;
    for (int iteration = 0; iteration < iterations; iteration++) {
        MANYSCALE_ITERATION(iteration);
#pragma omp parallel
#pragma omp single
        for (int y = 0; y < blocks; y++)
            for (int x = 0; x < blocks; x++)
#pragma omp task
                for (int i = y * size; i < (y + 1) * size; i++)
                    for (int j = x * size; j < (x + 1) * size; j++)
                        b[(size_t)i * n + j] = a[(size_t)i * n + j] + a[(size_t)j * n + i];
    }
    right &= b[1] == a[1] + a[n];
    return verdict("transpose", right);
}

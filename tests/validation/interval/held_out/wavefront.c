/* Longest common subsequence of two texts, in blocks that wait for the one above and the one to the left.
   wavefront [blocks 12] [size 64] [iterations 2] */
#include <stdlib.h>
#include "../../../programs/common.h"

int main(int argc, char **argv) {
    int blocks = argument(argc, argv, 1, 12, 1), size = argument(argc, argv, 2, 64, 1), n = blocks * size;
    int iterations = argument(argc, argv, 3, 2, 1), right = 1;
    char *a = zeros(n, 1), *b = zeros(n, 1);
    int *best = zeros((size_t)(n + 1) * (n + 1), sizeof *best);
    for (int i = 0; i < n; i++) a[i] = (char)(scatter(i) % 4), b[i] = (char)(scatter(~(uint64_t)i) % 4);
    for (int iteration = 0; iteration < iterations; iteration++) {
        MANYSCALE_ITERATION(iteration);
#pragma omp parallel
#pragma omp single
        for (int y = 0; y < blocks; y++)
            for (int x = 0; x < blocks; x++) {
                int *mine = best + (size_t)(y * size + 1) * (n + 1) + x * size + 1;
                int *above = y ? mine - (size_t)size * (n + 1) : mine, *left = x ? mine - size : mine;
#pragma omp task depend(in : above[0], left[0]) depend(inout : mine[0])
                for (int i = y * size + 1; i <= (y + 1) * size; i++)
                    for (int j = x * size + 1; j <= (x + 1) * size; j++) {
                        int *at = best + (size_t)i * (n + 1) + j, up = at[-(n + 1)], before = at[-1];
                        *at = a[i - 1] == b[j - 1] ? at[-(n + 2)] + 1 : up > before ? up : before;
                    }
            }
    }
    right &= best[(size_t)n * (n + 1) + n] > 0;
    return verdict("wavefront", right);
}

/* Transposition of a matrix of N x N doubles: reads along rows, writes along columns. */
#include "measure.h"

KERNEL kernel(double *restrict to, const double *restrict from, int n) {
    for (int i = 0; i < n; i++)
        for (int j = 0; j < n; j++) to[(size_t)j * n + i] = from[(size_t)i * n + j];
}

int main(int argc, char **argv) {
    int n = argument(argc, argv, 1, 100);
    double *from = array((size_t)n * n, 8), *to = array((size_t)n * n, 8);
    for (int i = 0; i < n * n; i++) from[i] = i, to[i] = 0;
    MEASURE(argument(argc, argv, 2, 0), kernel(to, from, n));
    printf("%g\n", to[n / 2]);
    return 0;
}

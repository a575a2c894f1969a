/* One sweep of a five-point stencil over N x N doubles: 5 (N - 2)^2 loads, (N - 2)^2 stores. */
#include "measure.h"

KERNEL kernel(double *restrict to, const double *restrict from, int n) {
    for (int i = 1; i < n - 1; i++)
        for (int j = 1; j < n - 1; j++)
            to[i * n + j] = 0.2 * (from[i * n + j] + from[(i - 1) * n + j] + from[(i + 1) * n + j] +
                                   from[i * n + j - 1] + from[i * n + j + 1]);
}

int main(int argc, char **argv) {
    int n = argument(argc, argv, 1, 64);
    size_t size = (size_t)n * n;
    double *from = array(size, 8), *to = array(size, 8);
    for (size_t i = 0; i < size; i++) from[i] = 1.0 / (1 + i % 11), to[i] = 0;
    MEASURE(argument(argc, argv, 2, 0), kernel(to, from, n));
    printf("%g\n", to[size / 2]);
    return 0;
}

/* R = alpha P Q + beta R of N x N doubles by three nested loops (second of AMM's benchmarks): 2 N^3 + N^2 loads, N^2
   stores where the sum stays in a register. */
#include "measure.h"

KERNEL kernel(double *restrict r, const double *restrict p, const double *restrict q, int n, double alpha, double beta) {
    for (int i = 0; i < n; i++)
        for (int j = 0; j < n; j++) {
            double sum = 0;
            for (int k = 0; k < n; k++) sum += p[i * n + k] * q[k * n + j];
            r[i * n + j] = alpha * sum + beta * r[i * n + j];
        }
}

int main(int argc, char **argv) {
    int n = argument(argc, argv, 1, 25);
    size_t size = (size_t)n * n;
    double *p = array(size, 8), *q = array(size, 8), *r = array(size, 8);
    for (size_t i = 0; i < size; i++) p[i] = 1.0 / (1 + i % 7), q[i] = 1.0 / (1 + i % 5), r[i] = 0;
    MEASURE(argument(argc, argv, 2, 0), kernel(r, p, q, n, 1.5, 0.5));
    printf("%g\n", r[size / 2]);
    return 0;
}

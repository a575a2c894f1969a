/* The four kernels of STREAM on N doubles (first of AMM's benchmarks): 6 N loads, 4 N stores. */
#include "measure.h"

#define SCALE 0.41421356237309503 /* a comes back to itself: s + s (1 + s) = 1 */

KERNEL kernel(double *restrict a, double *restrict b, double *restrict c, int n) {
    for (int i = 0; i < n; i++) c[i] = a[i];
    for (int i = 0; i < n; i++) b[i] = SCALE * c[i];
    for (int i = 0; i < n; i++) c[i] = a[i] + b[i];
    for (int i = 0; i < n; i++) a[i] = b[i] + SCALE * c[i];
}

int main(int argc, char **argv) {
    int n = argument(argc, argv, 1, 10000);
    double *a = array(n, 8), *b = array(n, 8), *c = array(n, 8);
    for (int i = 0; i < n; i++) a[i] = 1e-3 * i, b[i] = c[i] = 0;
    MEASURE(argument(argc, argv, 2, 0), (a[0] = 1, kernel(a, b, c, n)));
    printf("%g\n", c[n / 2]);
    return 0;
}

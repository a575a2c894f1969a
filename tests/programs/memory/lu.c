/* LU factorisation without pivoting of N x N doubles, in place on a fresh copy: loops whose bounds depend on others. */
#include <string.h>

#include "measure.h"

KERNEL kernel(double *restrict a, int n) {
    for (int k = 0; k < n; k++)
        for (int i = k + 1; i < n; i++) {
            double factor = a[i * n + k] / a[k * n + k];
            a[i * n + k] = factor;
            for (int j = k + 1; j < n; j++) a[i * n + j] -= factor * a[k * n + j];
        }
}

int main(int argc, char **argv) {
    int n = argument(argc, argv, 1, 32);
    size_t size = (size_t)n * n;
    double *a = array(size, 8), *original = array(size, 8);
    for (size_t i = 0; i < size; i++) original[i] = 1.0 / (1 + i % 13) + (i % ((size_t)n + 1) ? 0 : n);
    int repetitions = argument(argc, argv, 2, 0);
    double *times = malloc(sizeof *times * (size_t)(repetitions + 1));
    for (int i = 0; i <= repetitions; i++) {
        memcpy(a, original, size * sizeof *a);
        double begin = nanoseconds();
        kernel(a, n);
        times[i] = nanoseconds() - begin;
    }
    qsort(times + 1, (size_t)repetitions, sizeof *times, ascending);
    if (repetitions) printf("best %.0f ns, median %.0f ns\n", times[1], times[1 + repetitions / 2]);
    printf("%g\n", a[size - 1]);
    return 0;
}

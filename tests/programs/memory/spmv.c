/* A sparse matrix of N rows with 8 values in scattered columns each, by rows, times a vector. */
#include <stdint.h>

#include "measure.h"

KERNEL kernel(const int *restrict first, const int *restrict column, const double *restrict value,
              const double *restrict x, double *restrict y, int n) {
    for (int i = 0; i < n; i++) {
        double sum = 0;
        for (int k = first[i]; k < first[i + 1]; k++) sum += value[k] * x[column[k]];
        y[i] = sum;
    }
}

int main(int argc, char **argv) {
    enum { IN_A_ROW = 8 };
    int n = argument(argc, argv, 1, 1000);
    size_t values = IN_A_ROW * (size_t)n;
    int *first = array((size_t)n + 1, sizeof *first), *column = array(values, sizeof *column);
    double *value = array(values, sizeof *value), *x = array((size_t)n, sizeof *x), *y = array((size_t)n, sizeof *y);
    uint64_t state = 1;
    for (int i = 0; i <= n; i++) first[i] = IN_A_ROW * i;
    for (int i = 0; i < n; i++) x[i] = 1e-3 * i;
    for (size_t k = 0; k < values; k++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        column[k] = (int)((state >> 33) % (uint64_t)n);
        value[k] = 1.0 / (double)(k + 1);
    }
    MEASURE(argument(argc, argv, 2, 0), kernel(first, column, value, x, y, n));
    printf("%g\n", y[n / 2]);
    return 0;
}

/* Merge sort of N whole numbers in random order, from below: ceil(log2 N) passes over all of them, a branch that no
   predictor knows. */
#include "measure.h"

#include <string.h>

KERNEL kernel(int *values, int *merged, int n) {
    for (int width = 1; width < n; width *= 2) {
        for (int low = 0; low < n; low += 2 * width) {
            int middle = low + width < n ? low + width : n, high = low + 2 * width < n ? low + 2 * width : n;
            for (int i = low, j = middle, k = low; k < high; k++)
                if (i < middle && (j == high || values[i] <= values[j]))
                    merged[k] = values[i++];
                else
                    merged[k] = values[j++];
        }
        int *kept = values;
        values = merged;
        merged = kept;
    }
}

int main(int argc, char **argv) {
    int n = argument(argc, argv, 1, 256);
    int *values = array((size_t)n, sizeof *values), *merged = array((size_t)n, sizeof *merged);
    int *random = array((size_t)n, sizeof *random);
    unsigned state = 1;
    for (int i = 0; i < n; i++) state = state * 1664525u + 1013904223u, random[i] = state >> 8;
    memcpy(values, random, (size_t)n * sizeof *values);
    MEASURE(argument(argc, argv, 2, 0), kernel(values, merged, n));
    printf("%d\n", values[n / 2]);
    return 0;
}

/* A sum of N doubles taken in a scattered order from a table of 4 N: addresses that no loop counter gives. */
#include <stdint.h>

#include "measure.h"

static double result;

KERNEL kernel(const double *restrict table, const int *restrict index, int n) {
    double sum = 0;
    for (int i = 0; i < n; i++) sum += table[index[i]];
    result = sum;
}

int main(int argc, char **argv) {
    int n = argument(argc, argv, 1, 4096);
    double *table = array(4 * (size_t)n, 8);
    int *index = array(n, 4);
    uint64_t state = 1;
    for (int i = 0; i < 4 * n; i++) table[i] = 1e-3 * i;
    for (int i = 0; i < n; i++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        index[i] = (int)((state >> 33) % (4 * (uint64_t)n));
    }
    MEASURE(argument(argc, argv, 2, 0), kernel(table, index, n));
    printf("%g\n", result);
    return 0;
}

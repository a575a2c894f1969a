/* Counts N keys in 4096 bins, as threads that share the bins do: by atomic additions. */
#include "measure.h"

enum { BINS = 4096 };

KERNEL kernel(long *bins, const int *keys, int n) {
    for (int i = 0; i < n; i++) __atomic_fetch_add(&bins[keys[i]], 1, __ATOMIC_RELAXED);
}

int main(int argc, char **argv) {
    int n = argument(argc, argv, 1, 1000);
    int *keys = array(n, 4);
    long *bins = array(BINS, 8);
    unsigned state = 1;
    for (int i = 0; i < BINS; i++) bins[i] = 0;
    for (int i = 0; i < n; i++) state = state * 1664525u + 1013904223u, keys[i] = state >> 20;
    MEASURE(argument(argc, argv, 2, 0), kernel(bins, keys, n));
    printf("%ld\n", bins[7]);
    return 0;
}

/* 100 searches of a sorted array of N whole numbers: log2 N steps each, every one elsewhere. */
#include "measure.h"

KERNEL kernel(const int *values, const int *keys, int *found, int n) {
    for (int i = 0; i < 100; i++) {
        int low = 0, high = n;
        while (low < high) {
            int middle = low + (high - low) / 2;
            if (values[middle] < keys[i])
                low = middle + 1;
            else
                high = middle;
        }
        found[i] = low;
    }
}

int main(int argc, char **argv) {
    int n = argument(argc, argv, 1, 1000);
    int *values = array((size_t)n, sizeof *values), *keys = array(100, sizeof *keys), *found = array(100, sizeof *found);
    unsigned state = 1;
    for (int i = 0; i < n; i++) values[i] = 2 * i;
    for (int i = 0; i < 100; i++) state = state * 1664525u + 1013904223u, keys[i] = (state >> 8) % (2 * (unsigned)n);
    MEASURE(argument(argc, argv, 2, 0), kernel(values, keys, found, n));
    printf("%d\n", found[50]);
    return 0;
}

/* N rows of 16 B are put into N / 64 parts by a hash of their keys: counted, summed up, and moved to their places. */
#include <stdint.h>

#include "measure.h"

typedef struct {
    uint64_t key, payload;
} row;

static inline uint32_t part(uint64_t key, uint32_t parts) {
    return (uint32_t)((key * 0x9E3779B97F4A7C15u >> 32) * parts >> 32);
}

KERNEL kernel(const row *restrict rows, row *restrict moved, int *restrict next, int n, uint32_t parts) {
    for (uint32_t p = 0; p < parts; p++) next[p] = 0;
    for (int i = 0; i < n; i++) next[part(rows[i].key, parts)]++;
    int sum = 0;
    for (uint32_t p = 0; p < parts; p++) {
        int count = next[p];
        next[p] = sum;
        sum += count;
    }
    for (int i = 0; i < n; i++) moved[next[part(rows[i].key, parts)]++] = rows[i];
}

int main(int argc, char **argv) {
    int n = argument(argc, argv, 1, 1000);
    uint32_t parts = (uint32_t)n / 64 + 1;
    row *rows = array((size_t)n, sizeof *rows), *moved = array((size_t)n, sizeof *moved);
    int *next = array(parts, sizeof *next);
    uint64_t state = 1;
    for (int i = 0; i < n; i++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        rows[i] = (row){state >> 20, (uint64_t)i};
    }
    MEASURE(argument(argc, argv, 2, 0), kernel(rows, moved, next, n, parts));
    printf("%llu\n", (unsigned long long)moved[n / 2].payload);
    return 0;
}

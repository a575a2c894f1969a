/* A join of N rows with N rows by a hash table of chains: all rows of one side are put in, all of the other asked for. */
#include <stdint.h>

#include "measure.h"

typedef struct {
    uint32_t key, payload;
} row;

static uint64_t result;

static inline uint32_t bucket(uint32_t key, uint32_t mask) { return (key * 2654435761u >> 7) & mask; }

KERNEL kernel(const row *restrict build, const row *restrict probe, int *restrict head, int *restrict next,
              uint32_t mask, int n) {
    uint64_t sum = 0;
    for (uint32_t i = 0; i <= mask; i++) head[i] = -1;
    for (int i = 0; i < n; i++) {
        uint32_t place = bucket(build[i].key, mask);
        next[i] = head[place];
        head[place] = i;
    }
    for (int i = 0; i < n; i++) {
        uint32_t key = probe[i].key;
        for (int at = head[bucket(key, mask)]; at >= 0; at = next[at])
            if (build[at].key == key) sum += build[at].payload + probe[i].payload;
    }
    result = sum;
}

int main(int argc, char **argv) {
    int n = argument(argc, argv, 1, 1000);
    uint32_t buckets = 1;
    while (buckets < (uint32_t)n) buckets *= 2;
    row *build = array((size_t)n, sizeof *build), *probe = array((size_t)n, sizeof *probe);
    int *head = array(buckets, sizeof *head), *next = array((size_t)n, sizeof *next);
    uint64_t state = 1;
    for (int i = 0; i < n; i++) {
        build[i] = (row){2u * (uint32_t)i, (uint32_t)i};
        state = state * 6364136223846793005u + 1442695040888963407u;
        probe[i] = (row){2u * (uint32_t)((state >> 33) % (uint64_t)n), 1};
    }
    for (int i = n - 1; i > 0; i--) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        int other = (int)((state >> 33) % ((uint64_t)i + 1));
        row kept = build[i];
        build[i] = build[other], build[other] = kept;
    }
    MEASURE(argument(argc, argv, 2, 0), kernel(build, probe, head, next, buckets - 1, n));
    printf("%llu\n", (unsigned long long)result);
    return 0;
}

/* Connected parts of a graph of N vertices and 2 N random edges: union by size, paths halved on the way. */
#include <stdint.h>

#include "measure.h"

typedef struct {
    int from, to;
} edge;

static int64_t result;

static int root(int *parent, int at) {
    while (parent[at] != at) {
        parent[at] = parent[parent[at]];
        at = parent[at];
    }
    return at;
}

KERNEL kernel(const edge *restrict edges, int *parent, int *size, int n, int count) {
    int64_t joined = 0;
    for (int i = 0; i < n; i++) parent[i] = i, size[i] = 1;
    for (int k = 0; k < count; k++) {
        int a = root(parent, edges[k].from), b = root(parent, edges[k].to);
        if (a == b) continue;
        if (size[a] < size[b]) {
            int kept = a;
            a = b;
            b = kept;
        }
        parent[b] = a;
        size[a] += size[b];
        joined++;
    }
    result = joined;
}

int main(int argc, char **argv) {
    int n = argument(argc, argv, 1, 1000), count = 2 * n;
    edge *edges = array((size_t)count, sizeof *edges);
    int *parent = array((size_t)n, sizeof *parent), *size = array((size_t)n, sizeof *size);
    uint64_t state = 1;
    for (int k = 0; k < 2 * count; k++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        int vertex = (int)((state >> 33) % (uint64_t)n);
        *(k % 2 ? &edges[k / 2].to : &edges[k / 2].from) = vertex;
    }
    MEASURE(argument(argc, argv, 2, 0), kernel(edges, parent, size, n, count));
    printf("%lld\n", (long long)result);
    return 0;
}

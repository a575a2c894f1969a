/* Breadth-first search of a graph of N vertices with 8 edges to any others each, in compressed sparse rows. */
#include <stdint.h>

#include "measure.h"

static int reached;

KERNEL kernel(const int *restrict first, const int *restrict target, int *restrict depth, int *restrict queue, int n) {
    int begin = 0, end = 1;
    for (int i = 0; i < n; i++) depth[i] = -1;
    depth[0] = 0;
    queue[0] = 0;
    while (begin < end) {
        int vertex = queue[begin++];
        for (int k = first[vertex]; k < first[vertex + 1]; k++)
            if (depth[target[k]] < 0) {
                depth[target[k]] = depth[vertex] + 1;
                queue[end++] = target[k];
            }
    }
    reached = end;
}

int main(int argc, char **argv) {
    enum { OF_A_VERTEX = 8 };
    int n = argument(argc, argv, 1, 1000);
    int *first = array((size_t)n + 1, sizeof *first), *target = array(OF_A_VERTEX * (size_t)n, sizeof *target);
    int *depth = array((size_t)n, sizeof *depth), *queue = array((size_t)n, sizeof *queue);
    uint64_t state = 1;
    for (int i = 0; i <= n; i++) first[i] = OF_A_VERTEX * i;
    for (int k = 0; k < OF_A_VERTEX * n; k++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        target[k] = (int)((state >> 33) % (uint64_t)n);
    }
    MEASURE(argument(argc, argv, 2, 0), kernel(first, target, depth, queue, n));
    printf("%d\n", reached);
    return 0;
}

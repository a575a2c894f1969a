/* A walk along a list of N nodes of 32 bytes that lie in any order: nothing but loads that wait for each other. */
#include <stdint.h>

#include "measure.h"

typedef struct node {
    struct node *next;
    int64_t value, more[2];
} node;

static int64_t result;

KERNEL kernel(const node *at, int n) {
    int64_t sum = 0;
    for (int i = 0; i < n; i++) {
        sum += at->value;
        at = at->next;
    }
    result = sum;
}

int main(int argc, char **argv) {
    int n = argument(argc, argv, 1, 1000);
    node *nodes = array((size_t)n, sizeof *nodes);
    int *order = array((size_t)n, sizeof *order);
    uint64_t state = 1;
    for (int i = 0; i < n; i++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        int other = (int)((state >> 33) % ((uint64_t)i + 1));
        order[i] = order[other];
        order[other] = i;
    }
    for (int i = 0; i < n; i++) nodes[order[i]] = (node){&nodes[order[(i + 1) % n]], i, {0, 0}};
    MEASURE(argument(argc, argv, 2, 0), kernel(&nodes[order[0]], n));
    printf("%lld\n", (long long)result);
    return 0;
}

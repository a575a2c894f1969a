/* N / 4 searches of a binary tree of N nodes that lie in any order: every step waits for a load, and for a branch. */
#include <stdint.h>

#include "measure.h"

typedef struct node {
    int64_t key, value;
    struct node *left, *right;
} node;

static int64_t result;

KERNEL kernel(const node *root, const int *restrict keys, int count) {
    int64_t sum = 0;
    for (int i = 0; i < count; i++) {
        const node *at = root;
        while (at && at->key != keys[i]) at = keys[i] < at->key ? at->left : at->right;
        if (at) sum += at->value;
    }
    result = sum;
}

static node *tree(node *nodes, const int *place, int low, int high) {
    if (low >= high) return NULL;
    int middle = low + (high - low) / 2;
    node *made = &nodes[place[middle]];
    *made = (node){middle, middle, tree(nodes, place, low, middle), tree(nodes, place, middle + 1, high)};
    return made;
}

int main(int argc, char **argv) {
    int n = argument(argc, argv, 1, 1000), count = n / 4 + 1;
    node *nodes = array((size_t)n, sizeof *nodes);
    int *place = array((size_t)n, sizeof *place), *keys = array((size_t)count, sizeof *keys);
    uint64_t state = 1;
    for (int i = 0; i < n; i++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        int other = (int)((state >> 33) % ((uint64_t)i + 1));
        place[i] = place[other];
        place[other] = i;
    }
    for (int i = 0; i < count; i++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        keys[i] = (int)((state >> 33) % (uint64_t)n);
    }
    node *root = tree(nodes, place, 0, n);
    MEASURE(argument(argc, argv, 2, 0), kernel(root, keys, count));
    printf("%lld\n", (long long)result);
    return 0;
}

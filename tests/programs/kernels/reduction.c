/* Sum of many vectors: leaves sum their share, a binary tree adds the parts; parallelism decreases over time.

   reduction [leaves 1024] [rows 4] [width 768] [iterations 2] [shares 1]

   Every vector is added in so many equal shares (a power of two, so that sums are exact), one after the other: with
   short vectors tasks are long enough, and reuse what they read.
   Working set: leaves * rows * width * 8 bytes of input, and leaves * width * 8 bytes of parts.

   Counts per iteration, L = leaves: sum L, add L - 1; edges 2 (L - 1): every addition waits for both of its parts.
   Instructions: some 3 rows * width * shares in sum, 3 width * shares in add.

   Check: closed form, with whole numbers. */
#include "../common.h"

static int num_rows, width, num_shares;
static double share;
static double *input, *parts; /* [leaf][row][width], [leaf][width] */

static void add(double *to, const double *from) {
    for (int number = 0; number < num_shares; number++)
        for (int i = 0; i < width; i++) to[i] += share * from[i];
}

static void sum(int leaf) {
    for (int row = 0; row < num_rows; row++)
        add(parts + (size_t)leaf * width, input + ((size_t)leaf * num_rows + row) * width);
}

int main(int argc, char **argv) {
    int num_leaves = argument(argc, argv, 1, 1024, 1), right = 1;
    num_rows = argument(argc, argv, 2, 4, 1);
    width = argument(argc, argv, 3, 768, 1);
    int iterations = argument(argc, argv, 4, 2, 1);
    num_shares = argument(argc, argv, 5, 1, 1);
    if (num_shares & (num_shares - 1)) fail("reduction: the shares are a power of two");
    share = 1.0 / num_shares;
    int64_t total = (int64_t)num_leaves * num_rows;
    input = zeros((size_t)total * width, sizeof *input);
    parts = zeros((size_t)num_leaves * width, sizeof *parts);
    for (int64_t row = 0; row < total; row++)
        for (int i = 0; i < width; i++) input[row * width + i] = (double)(row + i);
    for (int iteration = 0; iteration < iterations; iteration++) {
        MANYSCALE_ITERATION(iteration);
        memset(parts, 0, (size_t)num_leaves * width * sizeof *parts);
#pragma omp parallel
#pragma omp single
        {
            for (int leaf = 0; leaf < num_leaves; leaf++) {
                double *part = parts + (size_t)leaf * width;
#pragma omp task depend(inout : part[0])
                sum(leaf);
            }
            for (int stride = 1; stride < num_leaves; stride *= 2)
                for (int leaf = 0; leaf + stride < num_leaves; leaf += 2 * stride) {
                    double *to = parts + (size_t)leaf * width, *from = to + (size_t)stride * width;
#pragma omp task depend(inout : to[0]) depend(in : from[0])
                    add(to, from);
                }
        }
    }
    for (int i = 0; i < width; i++) right &= parts[i] == (double)(total * (total - 1) / 2 + total * i);
    return verdict("reduction", right);
}

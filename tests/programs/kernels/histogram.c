/* Histograms of random keys: every task counts its share in bins that all share, with atomic additions.

   histogram [tasks 2048] [elements 512] [bins 4096] [iterations 2] [levels 1]

   A histogram for each level, one after the other: level 0 has all the bins, every further one half as many as that
   before. Working set: bins * 8 bytes on level 0, anywhere; the keys, 4 bytes each, are read once per level. Bins are
   doubles: the addition is a load and a compare-and-swap, so that what records loads sees the bins.

   Counts per iteration: count tasks; no edges. Instructions: some 12 elements * levels.

   Check: a serial count. */
#include "../common.h"

enum { most_levels = 31 };

static int *keys, num_elements, num_levels;
static double *bins[most_levels];

static void count(int task) {
    const int *own = keys + (size_t)task * num_elements;
    for (int level = 0; level < num_levels; level++) {
        double *level_bins = bins[level];
        for (int i = 0; i < num_elements; i++) {
#pragma omp atomic
            level_bins[own[i] >> level] += 1;
        }
    }
}

int main(int argc, char **argv) {
    int num_tasks = argument(argc, argv, 1, 2048, 1);
    num_elements = argument(argc, argv, 2, 512, 1);
    int num_bins = argument(argc, argv, 3, 4096, 1), iterations = argument(argc, argv, 4, 2, 1), right = 1;
    num_levels = argument(argc, argv, 5, 1, 1);
    if (num_levels > most_levels) fail("histogram: give at most 31 levels");
    size_t total = (size_t)num_tasks * num_elements;
    keys = zeros(total, sizeof *keys);
    for (int level = 0; level < num_levels; level++) bins[level] = zeros(((num_bins - 1) >> level) + 1, sizeof(double));
    for (size_t i = 0; i < total; i++) keys[i] = (int)(fraction(2 * i) * fraction(2 * i + 1) * num_bins);
    for (int iteration = 0; iteration < iterations; iteration++) {
        MANYSCALE_ITERATION(iteration);
#pragma omp parallel
#pragma omp single
        for (int task = 0; task < num_tasks; task++) {
#pragma omp task
            count(task);
        }
    }
    for (int level = 0; level < num_levels; level++) {
        for (size_t i = 0; i < total; i++) bins[level][keys[i] >> level] -= iterations;
        for (int bin = 0; bin <= (num_bins - 1) >> level; bin++) right &= bins[level][bin] == 0;
    }
    return verdict("histogram", right);
}

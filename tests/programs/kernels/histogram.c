/* Histogram of random keys: every task counts its share in bins that all share, with atomic additions.

   histogram [tasks 2048] [elements 512] [bins 4096] [iterations 2]

   Working set: bins * 8 bytes, anywhere; the keys, 4 bytes each, are read once. Bins are doubles: the addition is a load
   and a compare-and-swap, so that what records loads sees the bins.

   Counts per iteration: count tasks; no edges. Instructions: some 10 per element.

   Check: a serial count. */
#include "../common.h"

static int *keys, num_elements;
static double *bins;

static void count(int task) {
    const int *own = keys + (size_t)task * num_elements;
    for (int i = 0; i < num_elements; i++) {
#pragma omp atomic
        bins[own[i]] += 1;
    }
}

int main(int argc, char **argv) {
    int num_tasks = argument(argc, argv, 1, 2048, 1);
    num_elements = argument(argc, argv, 2, 512, 1);
    int num_bins = argument(argc, argv, 3, 4096, 1), iterations = argument(argc, argv, 4, 2, 1), right = 1;
    size_t total = (size_t)num_tasks * num_elements;
    keys = zeros(total, sizeof *keys);
    bins = zeros(num_bins, sizeof *bins);
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
    for (size_t i = 0; i < total; i++) bins[keys[i]] -= iterations;
    for (int bin = 0; bin < num_bins; bin++) right &= bins[bin] == 0;
    return verdict("histogram", right);
}

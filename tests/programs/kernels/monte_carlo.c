/* Monte Carlo integration of a tabulated function: independent tasks, each with its own random numbers.

   monte_carlo [tasks 2048] [samples 512] [table 1024] [iterations 2]

   Working set: table * 8 bytes, anywhere. An iteration draws the same samples again.

   Counts per iteration: sample tasks; no edges. Instructions: some 15 per sample.

   Check: the estimate lies within 6 standard errors of the table's mean. */
#include "../common.h"

#include <math.h>

static int num_samples, table_size;
static double *table, *sums;

static void sample(int task) {
    uint64_t state = scatter(task) | 1;
    double sum = 0;
    for (int i = 0; i < num_samples; i++) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        sum += table[((state >> 32) * (uint64_t)table_size) >> 32];
    }
    sums[task] = sum;
}

int main(int argc, char **argv) {
    int num_tasks = argument(argc, argv, 1, 2048, 1);
    num_samples = argument(argc, argv, 2, 512, 1);
    table_size = argument(argc, argv, 3, 1024, 1);
    int iterations = argument(argc, argv, 4, 2, 1);
    table = zeros(table_size, sizeof *table);
    sums = zeros(num_tasks, sizeof *sums);
    double mean = 0, square = 0, estimate = 0, count = (double)num_tasks * num_samples;
    for (int i = 0; i < table_size; i++) {
        table[i] = sqrt((i + 0.5) / table_size);
        mean += table[i] / table_size;
        square += table[i] * table[i] / table_size;
    }
    for (int iteration = 0; iteration < iterations; iteration++) {
        MANYSCALE_ITERATION(iteration);
#pragma omp parallel
#pragma omp single
        for (int task = 0; task < num_tasks; task++) {
#pragma omp task
            sample(task);
        }
    }
    for (int task = 0; task < num_tasks; task++) estimate += sums[task] / count;
    double error = 6 * sqrt(distance(square, mean * mean) / count) + 1e-9;
    return verdict("monte_carlo", distance(estimate, mean) <= error);
}

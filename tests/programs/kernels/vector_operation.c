/* y = y + a x on long vectors: regular, memory bound.

   vector_operation [tasks 2048] [elements 1024] [iterations 2] [updates 1]

   A task updates its elements so many times: with short vectors tasks are long enough, and reuse what they read.
   Working set: tasks * elements * 16 bytes.

   Counts per iteration: add_scaled tasks; no edges within an iteration. Instructions: some 3 elements * updates.

   Check: closed form, with whole numbers. */
#include "../common.h"

static const double factor = 3;

static void add_scaled(const double *x, double *y, int count, int updates) {
    for (int update = 0; update < updates; update++)
        for (int i = 0; i < count; i++) y[i] += factor * x[i];
}

int main(int argc, char **argv) {
    int num_tasks = argument(argc, argv, 1, 2048, 1), num_elements = argument(argc, argv, 2, 1024, 1);
    int iterations = argument(argc, argv, 3, 2, 1), updates = argument(argc, argv, 4, 1, 1), right = 1;
    size_t total = (size_t)num_tasks * num_elements;
    double *x = zeros(total, sizeof *x), *y = zeros(total, sizeof *y);
    for (size_t i = 0; i < total; i++) {
        x[i] = (double)(i % 1000);
        y[i] = (double)(i % 77);
    }
    for (int iteration = 0; iteration < iterations; iteration++) {
        MANYSCALE_ITERATION(iteration);
#pragma omp parallel
#pragma omp single
        for (int task = 0; task < num_tasks; task++) {
            const double *from = x + (size_t)task * num_elements;
            double *to = y + (size_t)task * num_elements;
#pragma omp task depend(in : from[0]) depend(inout : to[0])
            add_scaled(from, to, num_elements, updates);
        }
    }
    double sum = factor * iterations * updates;
    for (size_t i = 0; i < total; i++) right &= y[i] == (double)(i % 77) + sum * (double)(i % 1000);
    return verdict("vector_operation", right);
}

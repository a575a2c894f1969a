/* Loops over a grid that all threads share out alike (schedule(static)), one after the other: data parallel.

   loops [points 160] [iterations 2]

   An iteration differentiates, adds a source, transposes, smooths along rows and sums up. Working set: four arrays of
   points^2 doubles.

   Check: the sum of what is transposed stays the same, and all values are finite. */
#include "../../programs/common.h"

#include <math.h>

static int points;
static double *now, *flux, *turned, *source;

static double *at(double *array, int row, int column) { return &array[(size_t)row * points + column]; }

static void differentiate(void) {
#pragma omp for schedule(static)
    for (int i = 1; i < points - 1; i++)
        for (int j = 1; j < points - 1; j++)
            *at(flux, i, j) = 0.25 * (*at(now, i - 1, j) + *at(now, i + 1, j) + *at(now, i, j - 1) + *at(now, i, j + 1)) -
                              *at(now, i, j);
}

/* Work on few data. */
static void add_source(void) {
#pragma omp for schedule(static)
    for (int i = 0; i < points; i++)
        for (int j = 0; j < points; j += 4) {
            double x = *at(source, i, j), sum = 1;
            for (int term = 12; term > 0; term--) sum = 1 + x * sum / term;
            *at(now, i, j) += 1e-3 * sum + 0.5 * *at(flux, i, j);
        }
}

static void transpose(void) {
#pragma omp for schedule(static)
    for (int i = 0; i < points; i++)
        for (int j = 0; j < points; j++) *at(turned, i, j) = *at(now, j, i);
}

static void smooth(void) {
#pragma omp for schedule(static)
    for (int i = 0; i < points; i++) {
        double before = *at(turned, i, 0);
        for (int j = 0; j < points; j++) *at(now, i, j) = before = 0.5 * (before + *at(turned, i, j));
    }
}

static double sum_of(double *array) {
    static double sum;
#pragma omp single
    sum = 0;
#pragma omp for schedule(static) reduction(+ : sum)
    for (int i = 0; i < points; i++)
        for (int j = 0; j < points; j++) sum += *at(array, i, j);
    return sum;
}

int main(int argc, char **argv) {
    points = argument(argc, argv, 1, 160, 3);
    int iterations = argument(argc, argv, 2, 2, 1), right = 1;
    size_t count = (size_t)points * points;
    now = zeros(count, sizeof *now);
    flux = zeros(count, sizeof *flux);
    turned = zeros(count, sizeof *turned);
    source = zeros(count, sizeof *source);
    for (size_t i = 0; i < count; i++) now[i] = source[i] = fraction(i);
    for (int iteration = 0; iteration < iterations; iteration++) {
        double before = 0, after = 0;
        MANYSCALE_ITERATION(iteration);
#pragma omp parallel
        {
            differentiate();
            add_source();
            double sum = sum_of(now);
            transpose();
            double turned_sum = sum_of(turned);
            smooth();
#pragma omp single
            before = sum, after = turned_sum;
        }
        right &= isfinite(before) && distance(before, after) <= 1e-9 * count;
    }
    return verdict("loops", right);
}

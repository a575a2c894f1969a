/* marked: four marked iterations, without MPI; in the one of number n (from 0) three tasks store 100 (n + 1) numbers each. */
#include "manyscale.h"
#include <stdio.h>

static double numbers[400];

static __attribute__((noinline)) void touch(int count) {
    for (int i = 0; i < count; i++) ((volatile double *)numbers)[i] = i;
}

int main(void) {
    for (int step = 0; step < 4; step++) {
        MANYSCALE_ITERATION(step);
#pragma omp parallel
#pragma omp single
        for (int i = 0; i < 3; i++)
#pragma omp task
            touch(100 * (step + 1));
    }
    MANYSCALE_ITERATION(4);
    return printf("%g\n", numbers[3]) < 0;
}

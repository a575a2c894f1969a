/* tiny TASKS: that many tasks of one addition. Prints the CPU seconds that they took, what one reading of the clock
   takes, and the sum. */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static volatile long sum;

static double seconds(clockid_t clock) {
    struct timespec now;
    clock_gettime(clock, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

int main(int argc, char **argv) {
    const long tasks = argc > 1 ? atol(argv[1]) : 1000, readings = 1000000;
    double start = seconds(CLOCK_PROCESS_CPUTIME_ID);
    for (long i = 0; i < readings; i++) seconds(CLOCK_MONOTONIC);
    double middle = seconds(CLOCK_PROCESS_CPUTIME_ID);
#pragma omp parallel
#pragma omp single
    for (long i = 0; i < tasks; i++) {
#pragma omp task
        sum++;
    }
    double end = seconds(CLOCK_PROCESS_CPUTIME_ID);
    printf("%.9f %.12f %ld\n", end - middle, (middle - start) / (double)readings, sum);
    return 0;
}

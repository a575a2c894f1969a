/* What the programs of this folder share: PROGRAM N runs kernel() once; PROGRAM N REPETITIONS runs it so many times
   more, and prints the shortest and the median time in ns. kernel() is the region that is traced and predicted. */
#ifndef MEASURE_H
#define MEASURE_H
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define KERNEL __attribute__((noinline, used)) void

static double nanoseconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1e9 + now.tv_nsec;
}

static int ascending(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Aligned to a page, so that a run's addresses do not depend on what the allocator did before. */
static void *array(size_t count, size_t size) {
    size_t bytes = (count * size + 4095) / 4096 * 4096;
    void *memory = aligned_alloc(4096, bytes ? bytes : 4096);
    if (!memory) exit(2);
    return memory;
}

static int argument(int argc, char **argv, int place, int otherwise) {
    int value = argc > place ? atoi(argv[place]) : otherwise;
    if (value < 0 || (place == 1 && value < 1)) {
        fprintf(stderr, "usage: %s N [REPETITIONS]\n", argv[0]);
        exit(2);
    }
    return value;
}

#define MEASURE(repetitions, call)                                                                                      \
    do {                                                                                                                \
        int wanted = (repetitions);                                                                                     \
        call;                                                                                                           \
        double *times = malloc(sizeof *times * (size_t)(wanted + 1));                                                   \
        for (int i = 0; i < wanted; i++) {                                                                              \
            double begin = nanoseconds();                                                                               \
            call;                                                                                                       \
            times[i] = nanoseconds() - begin;                                                                           \
        }                                                                                                               \
        qsort(times, (size_t)wanted, sizeof *times, ascending);                                                         \
        if (wanted) printf("best %.0f ns, median %.0f ns\n", times[0], times[wanted / 2]);                              \
        free(times);                                                                                                    \
    } while (0)
#endif

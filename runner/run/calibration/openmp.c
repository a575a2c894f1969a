/* What OpenMP's runtime system takes, with nothing or little to do inside, on the threads of OMP_NUM_THREADS.

   openmp BUDGET_MS: of each request as many repetitions as the budget allows; a line per request with its best and
   median in ns, and the number of repetitions, as microbench.c prints them. After Bull, "Measuring synchronisation and
   scheduling overheads in OpenMP" (EWOMP 1999), and for tasks Bull, Reid and McDonnell, "A microbenchmark suite for
   OpenMP tasks" (IWOMP 2012).

   region: a parallel region with a static loop. loop: such a loop with its barrier inside a region. chunk: a chunk of a
   dynamic loop, of each thread. empty, filled: a task instance that one thread creates and the others help to execute,
   without and with work (FILLED steps of a chain for each two threads). lock: a critical section that all threads ask for. */
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { TIMES = 64, CHUNKS = 4096, TASKS = 1024, FILLED = 4000, MOST = 4096 };

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1e9 + t.tv_nsec;
}

static void nothing(long i) { __asm__ volatile("" : : "r"(i)); }

static void work(long times) {
    unsigned long x = 1;
    for (long i = 0; i < times; i++) {
        x = x * 3 + 1;
        __asm__ volatile("" : "+r"(x)); /* each waits for the one before, on any architecture */
    }
}

static double region(void) {
    double begin = now();
    for (int i = 0; i < TIMES; i++) {
#pragma omp parallel for schedule(static)
        for (int j = 0; j < TIMES; j++) nothing(j);
    }
    return (now() - begin) / TIMES;
}

static double loop(void) {
    double took = 0;
#pragma omp parallel
    {
#pragma omp barrier
        double begin = now();
        for (int i = 0; i < TIMES; i++) {
#pragma omp for schedule(static)
            for (int j = 0; j < TIMES; j++) nothing(j);
        }
#pragma omp master
        took = now() - begin;
    }
    return took / TIMES;
}

static double chunk(void) {
    double took = 0;
#pragma omp parallel
    {
#pragma omp barrier
        double begin = now();
#pragma omp for schedule(dynamic, 1)
        for (int j = 0; j < CHUNKS; j++) nothing(j);
#pragma omp master
        took = now() - begin;
    }
    return took / CHUNKS * omp_get_max_threads();
}

static double tasks(long steps) {
    double begin = now();
#pragma omp parallel
#pragma omp single
    for (int j = 0; j < TASKS; j++) {
#pragma omp task
        work(steps);
    }
    return (now() - begin) / TASKS;
}

static double empty(void) { return tasks(0); }

static double filled(void) { return tasks(FILLED * ((omp_get_max_threads() + 1) / 2)); }

static double lock(void) {
    double took = 0;
#pragma omp parallel
    {
#pragma omp barrier
        double begin = now();
        for (int i = 0; i < TIMES; i++) {
#pragma omp critical
            nothing(i);
        }
#pragma omp barrier
#pragma omp master
        took = now() - begin;
    }
    return took / TIMES / omp_get_max_threads();
}

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

int main(int argc, char **argv) {
    static double value[MOST];
    const struct {
        const char *name;
        double (*measure)(void);
    } requests[] = {{"region", region}, {"loop", loop},     {"chunk", chunk},
                    {"empty", empty},   {"filled", filled}, {"lock", lock}};
    double budget = argc > 1 ? atof(argv[1]) * 1e6 : 2e7;
    for (unsigned k = 0; k < sizeof requests / sizeof *requests; k++) {
        double end = now() + budget;
        int count = 0;
        while (count < MOST && (count < 5 || now() < end)) value[count++] = requests[k].measure();
        qsort(value, count, sizeof *value, by_value);
        printf("%s %.3f %.3f %d\n", requests[k].name, value[0], value[count / 2], count);
    }
    return 0;
}

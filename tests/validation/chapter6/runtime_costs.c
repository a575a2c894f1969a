/* What OpenMP's constructs cost by themselves, ns: the best of many batches, as EPCC's microbenchmarks measure it (Bull,
   "Measuring synchronisation and scheduling overheads in OpenMP", EWOMP 1999), with nothing to do inside. A line of JSON:
   a parallel region with a loop of static schedule, a barrier, an iteration of a dynamic loop, and a task that its
   creator's team executes. */
#include <omp.h>
#include <stdio.h>
#include <time.h>

enum { batches = 200, regions = 100, pieces = 256 };

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1e9 + t.tv_nsec;
}

static volatile int sink;
static void nothing(int i) { __asm__ volatile("" : : "r"(i)); }

int main(void) {
    double region = 1e18, barrier = 1e18, dynamic = 1e18, task = 1e18;
    int threads = omp_get_max_threads();
    for (int batch = 0; batch < batches; batch++) {
        double begin = now();
        for (int i = 0; i < regions; i++) {
#pragma omp parallel for schedule(static)
            for (int j = 0; j < threads; j++) nothing(j);
        }
        double each = (now() - begin) / regions;
        if (each < region) region = each;
        begin = now();
#pragma omp parallel
        for (int i = 0; i < regions; i++) {
#pragma omp barrier
        }
        each = (now() - begin - region) / regions;
        if (each < barrier) barrier = each;
        begin = now();
#pragma omp parallel for schedule(dynamic, 1)
        for (int j = 0; j < pieces; j++) nothing(j);
        each = (now() - begin - region) / pieces * threads;
        if (each < dynamic) dynamic = each;
        begin = now();
#pragma omp parallel
#pragma omp single
        for (int j = 0; j < pieces; j++) {
#pragma omp task firstprivate(j)
            nothing(j);
        }
        each = (now() - begin - region) / pieces;
        if (each < task) task = each;
    }
    sink = threads;
    printf("{\"threads\": %d, \"region_ns\": %.0f, \"barrier_ns\": %.0f, \"dynamic_ns\": %.0f, \"task_ns\": %.0f}\n", threads,
           region, barrier, dynamic, task);
    return 0;
}

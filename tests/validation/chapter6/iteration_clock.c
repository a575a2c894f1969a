/* A library to preload: it takes MPI_Pcontrol(1000 + step), reads the clocks at the beginning of each iteration, and in
   the end writes a line per iteration to the file ITERATION_CLOCK.RANK: nanoseconds up to the next iteration's beginning
   by the wall, nanoseconds of all threads by the process's CPU clock, minor page faults, and how often the kernel took a
   processor away meanwhile. The last iteration, whose end nothing marks, is left out. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <time.h>

enum { first_iteration = 1000, most = 1 << 16 };

static struct reading {
    long long wall, cpu;
    long faults, taken;
} begins[most];
static int count;

static long long nanoseconds(clockid_t clock) {
    struct timespec now;
    clock_gettime(clock, &now);
    return now.tv_sec * 1000000000LL + now.tv_nsec;
}

int MPI_Pcontrol(const int level, ...) {
    if (level < first_iteration || count == most) return 0;
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    begins[count++] = (struct reading){.cpu = nanoseconds(CLOCK_PROCESS_CPUTIME_ID), .faults = usage.ru_minflt,
                                       .taken = usage.ru_nivcsw, .wall = nanoseconds(CLOCK_MONOTONIC)};
    return 0;
}
extern __typeof__(MPI_Pcontrol) PMPI_Pcontrol __attribute__((alias("MPI_Pcontrol")));

__attribute__((destructor)) static void write_times(void) {
    const char *path = getenv("ITERATION_CLOCK"), *rank = getenv("PMI_RANK");
    char name[4096];
    if (!path || count < 2) return;
    snprintf(name, sizeof name, "%s.%s", path, rank ? rank : "0");
    FILE *file = fopen(name, "w");
    if (!file) return;
    for (int i = 0; i + 1 < count; i++)
        fprintf(file, "%lld %lld %ld %ld\n", begins[i + 1].wall - begins[i].wall, begins[i + 1].cpu - begins[i].cpu,
                begins[i + 1].faults - begins[i].faults, begins[i + 1].taken - begins[i].taken);
    fclose(file);
}

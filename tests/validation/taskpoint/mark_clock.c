/* A library to preload: it takes the marks of a program built with manyscale.h, reads the clock at the beginning of each
   iteration, and in the end writes a line per iteration to the file that MARK_CLOCK names: its nanoseconds up to the
   next iteration's beginning, and how often the kernel took a processor from the process meanwhile. The last one, whose
   end nothing marks, is left out. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <time.h>

enum { kind_iteration = 3, most = 1 << 16 };

static struct {
    long long nanoseconds;
    long taken;
} begins[most];
static int count;

void manyscale_mark(int kind, const char *name, long value) {
    (void)name, (void)value;
    if (kind != kind_iteration || count == most) return;
    struct rusage usage;
    struct timespec now;
    getrusage(RUSAGE_SELF, &usage);
    clock_gettime(CLOCK_MONOTONIC, &now);
    begins[count].taken = usage.ru_nivcsw;
    begins[count++].nanoseconds = now.tv_sec * 1000000000LL + now.tv_nsec;
}

__attribute__((destructor)) static void write_times(void) {
    const char *path = getenv("MARK_CLOCK");
    FILE *file = path ? fopen(path, "w") : NULL;
    if (!file) return;
    for (int i = 0; i + 1 < count; i++)
        fprintf(file, "%lld %ld\n", begins[i + 1].nanoseconds - begins[i].nanoseconds,
                begins[i + 1].taken - begins[i].taken);
    fclose(file);
}

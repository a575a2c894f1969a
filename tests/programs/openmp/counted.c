/* counted: touches a known number of new pages in each task and in each chunk of a loop, and waits in one task. */
#define _DEFAULT_SOURCE
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

enum { TASKS = 6, CHUNKS = 4, PAGES = 4096 };

static char *memory;
static long size;

static __attribute__((noinline)) void touch(int first, int count) {
    for (int i = 0; i < count; i++) ((volatile char *)memory)[(first + i) * size] = 1;
}

int main(void) {
    size = sysconf(_SC_PAGESIZE);
    memory = mmap(NULL, (size_t)(PAGES * size), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED || madvise(memory, (size_t)(PAGES * size), MADV_NOHUGEPAGE)) return 2;
#pragma omp parallel
#pragma omp single
    {
        for (int i = 0; i < TASKS; i++)
#pragma omp task firstprivate(i) /* touches */
            {
                touch(100 * i, 10 + i);
#pragma omp task firstprivate(i) /* inside */
                touch(100 * i + 50, 3);
#pragma omp taskwait
                touch(100 * i + 70, 2);
            }
#pragma omp taskwait
#pragma omp task /* waits */
        for (int i = 0; i < 5; i++) usleep(1000);
    }
#pragma omp parallel for schedule(dynamic, 1)
    for (int i = 0; i < CHUNKS; i++) touch(1000 + 100 * i, 20 * (i + 1));
    return printf("done\n") < 0;
}

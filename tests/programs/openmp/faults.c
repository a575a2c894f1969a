/* faults PAGES: the first of three loops computes, the second one is the first to write PAGES new pages, and the third
   one writes as many others, and computes. */
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

enum { page = 4096 };

static char *fresh(long pages) {
    char *found = mmap(NULL, (size_t)(pages * page), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (found == MAP_FAILED) exit(1);
    madvise(found, (size_t)(pages * page), MADV_NOHUGEPAGE);
    return found;
}

int main(int argc, char **argv) {
    const long pages = argc > 1 ? atol(argv[1]) : 1000;
    char *kept = fresh(pages);
    volatile double sum = 0;
#pragma omp parallel for // at: warm
    for (long i = 0; i < 100000; i++) sum += (double)i;
#pragma omp parallel for // at: touch
    for (long i = 0; i < pages; i++) kept[i * page] = 1;
    munmap(kept, (size_t)(pages * page));
    kept = fresh(pages);
#pragma omp parallel for // at: half
    for (long i = 0; i < 2 * pages; i++) {
        if (i < pages) kept[i * page] = 1;
        for (int j = 0; j < 100; j++) sum += (double)j;
    }
    printf("%d\n", kept[page] + (sum > 0));
    return 0;
}

/* Tasks and chunks of a loop, each with a local array of 256 elements, which it fills from a variable of main. */
static __attribute__((noinline)) void fill(const volatile int *shared) {
    volatile int own[256];
    for (int i = 0; i < 256; i++) own[i] = *shared;
}

int main(void) {
    int shared = 1;
#pragma omp parallel
#pragma omp single
    for (int i = 0; i < 4; i++) {
#pragma omp task shared(shared)
        fill(&shared);
    }
#pragma omp parallel for
    for (int i = 0; i < 4; i++) fill(&shared);
    return 0;
}

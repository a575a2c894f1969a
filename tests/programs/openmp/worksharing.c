/* Worksharing constructs, one function each: worksharing NAME. Each prints what it computed. Lines that tests look up
   carry a label: "at: LABEL". */
#define _GNU_SOURCE
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static long sum, last;

static void loop_static(void) {
#pragma omp for reduction(+ : sum) // at: static
    for (int i = 3; i < 100; i += 2) sum += i;
#pragma omp for schedule(static, 10) reduction(+ : sum) // at: static-10
    for (int i = 3; i < 100; i += 2) sum += i;
}

static void loop_dynamic(void) {
#pragma omp for schedule(dynamic, 20) lastprivate(last) reduction(+ : sum) // at: dynamic-20
    for (int i = 3; i < 100; i += 2) {
        sum += i;
        last = i;
    }
#pragma omp for schedule(dynamic) lastprivate(last) reduction(+ : sum) // at: dynamic
    for (long i = 7; i > 0; i -= 3) {
        sum += i;
        last = i;
    }
#pragma omp for schedule(dynamic, 3) collapse(2) reduction(+ : sum) // at: collapse
    for (unsigned i = 0; i < 2; i++)
        for (unsigned long j = 0; j < 4; j++) sum += i * 10 + j;
}

static void loop_guided(void) {
#pragma omp for schedule(guided, 4) lastprivate(last) reduction(+ : sum) // at: guided-4
    for (int i = 0; i < 5000; i++) {
        sum += i;
        last = i;
    }
}

static void loop_other(void) {
#pragma omp for schedule(runtime) reduction(+ : sum) // at: runtime
    for (int i = 0; i < 6; i++) sum += i;
#pragma omp for ordered schedule(dynamic, 2) reduction(+ : sum) // at: ordered
    for (int i = 0; i < 5; i++) {
#pragma omp ordered
        sum = sum * 2 + i;
    }
#pragma omp for // at: empty
    for (int i = 0; i < 0; i++) abort();
}

static void cancelled_once(void) {
#pragma omp for schedule(dynamic, 2) // at: cancelled
    for (int i = 0; i < 10; i++) {
        sum += i;
#pragma omp cancel for if (i == 5)
    }
}

static void loop_cancelled(void) {
    for (int k = 0; k < 300; k++) cancelled_once();
#pragma omp for schedule(dynamic, 4) // at: next
    for (int i = 0; i < 8; i++) {
#pragma omp atomic
        sum += i;
    }
}

static void others(void) {
    static omp_lock_t lock;
    omp_init_lock(&lock);
#pragma omp sections // at: sections
    {
#pragma omp section
        sum += 1;
#pragma omp section
        sum += 2;
#pragma omp section
        sum += 4;
    }
#pragma omp single // at: single
    sum += 8;
#pragma omp master // at: master
    sum += 16;
#pragma omp critical(one) // at: one
    sum += 32;
#pragma omp critical(two) // at: two
    sum += 64;
#pragma omp critical(one)
    sum += 128;
    omp_set_lock(&lock); // at: lock
    sum += 256;
    omp_unset_lock(&lock);
#pragma omp barrier // at: barrier
    sum += 512;
}

static void nested_regions(void) {
#pragma omp parallel num_threads(2) // at: inner
    {
#pragma omp for schedule(dynamic, 5) reduction(+ : sum) // at: inner-loop
        for (int i = 0; i < 10; i++) sum += i;
    }
}

/* A program that will have its threads whatever it was told: before the runtime looks for its settings. */
__attribute__((constructor)) static void forget_limit(void) {
    if (getenv("INSISTS")) unsetenv("OMP_THREAD_LIMIT");
}

static void insists(void) {
#pragma omp parallel num_threads(3) // at: three
    {
#pragma omp for schedule(dynamic, 1) reduction(+ : sum)
        for (int i = 0; i < 300; i++) sum += i;
#pragma omp single
        for (int i = 0; i < 300; i++) {
#pragma omp task // at: anybody's
#pragma omp atomic
            sum += 1;
        }
    }
}

/* A program's first construct: the runtime learns of schedule and region at once. */
static void combined(void) {
#pragma omp parallel for schedule(dynamic, 6) // at: combined
    for (int i = 0; i < 10; i++) {
#pragma omp atomic
        sum += i;
    }
#pragma omp parallel sections
    {
#pragma omp section
        last += 1;
#pragma omp section
        last += 2;
    }
}

int main(int argc, char **argv) {
    static const struct { const char *name; void (*run)(void); } constructs[] = {
        {"static", loop_static}, {"dynamic", loop_dynamic},     {"guided", loop_guided},   {"other", loop_other},
        {"others", others},      {"cancelled", loop_cancelled}, {"nested", nested_regions},
    };
    if (argc > 1 && (!strcmp(argv[1], "insists") || !strcmp(argv[1], "combined"))) {
        (argv[1][0] == 'i' ? insists : combined)();
        printf("%ld %ld\n", sum, last);
        return 0;
    }
    for (unsigned i = 0; i < sizeof constructs / sizeof *constructs && argc > 1; i++) {
        if (strcmp(argv[1], constructs[i].name)) continue;
#pragma omp parallel // at: parallel
        constructs[i].run();
        printf("%ld %ld\n", sum, last);
        return 0;
    }
    return 2;
}

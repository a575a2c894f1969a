/* Task constructs that a runtime system with one thread reports oddly, one function each: tasks NAME. Lines that tests
   look up carry a label: "at: LABEL". */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static volatile long sum;
static double a[64];

static void work(void) {
    for (int i = 0; i < 1000; i++) sum += i;
}

static void if0(void) {
#pragma omp task // at: ordinary
    work();
#pragma omp task if (0) // at: undeferred
    work();
#pragma omp task depend(out : a[0]) // at: writer
    work();
#pragma omp task if (0) depend(in : a[0]) // at: undeferred-reader
    work();
}

static void kinds(void) {
#pragma omp task depend(out : a[0])
    work();
#pragma omp task depend(in : a[0]) depend(out : a[1])
    work();
#pragma omp task depend(in : a[0]) depend(inout : a[2])
    work();
#pragma omp task depend(mutexinoutset : a[3]) depend(in : a[1], a[2])
    work();
#pragma omp task depend(mutexinoutset : a[3])
    work();
#pragma omp task depend(in : a[3])
    work();
}

static void taskwait(void) {
#pragma omp task depend(out : a[0])
    work();
#pragma omp task depend(out : a[1])
    work();
#pragma omp taskwait depend(in : a[0]) // at: taskwait-depend
#pragma omp taskwait // at: taskwait
}

static void untied(void) {
#pragma omp task untied // at: untied
    {
        work();
#pragma omp taskyield
        work();
#pragma omp task // at: child
        work();
#pragma omp taskwait
        work();
    }
#pragma omp task // at: tied
    {
        work();
#pragma omp taskyield
        work();
    }
}

static void taskloop(void) {
#pragma omp taskloop num_tasks(30) // at: taskloop
    for (int i = 0; i < 60; i++) {
        work();
#pragma omp task // at: inside
        work();
    }
#pragma omp taskloop grainsize(5) nogroup // at: nogroup
    for (int i = 0; i < 12; i++) work();
}

static void nested_level(int depth) {
    work();
    if (depth == 0) return;
    for (int i = 0; i < 2; i++) {
#pragma omp task // at: nested
        nested_level(depth - 1);
    }
    work();
}

static void nested(void) { nested_level(3); }

static void sites(void) {
    for (int i = 0; i < 3; i++) {
#pragma omp task // at: first
        work();
    }
#pragma omp task // at: second
    work();
#pragma omp task final(1) // at: final
    work();
#pragma omp task mergeable // at: mergeable
    work();
}

static void cancelled(void) {
#pragma omp taskgroup // at: taskgroup
    {
#pragma omp task // at: cancels
        {
            work();
#pragma omp cancel taskgroup
            abort();
        }
#pragma omp task // at: discarded
        abort();
    }
#pragma omp task // at: after
    work();
}

static void dies(void) {
#pragma omp task // at: dies
    {
        work();
#pragma omp task
        abort();
    }
}

int main(int argc, char **argv) {
    static const struct { const char *name; void (*run)(void); } constructs[] = {
        {"if0", if0},       {"kinds", kinds}, {"taskwait", taskwait},   {"untied", untied}, {"taskloop", taskloop},
        {"nested", nested}, {"sites", sites}, {"cancelled", cancelled}, {"dies", dies},
    };
    for (unsigned i = 0; i < sizeof constructs / sizeof *constructs && argc > 1; i++) {
        if (strcmp(argv[1], constructs[i].name)) continue;
#pragma omp parallel // at: parallel
#pragma omp single
        constructs[i].run();
        printf("%s ok\n", argv[1]);
        return 0;
    }
    return 2;
}

/* What the runtime-system level's two files share: the OMPT tool (openmp.c) and the entry points of the runtime that are
   interposed (openmp_entries.c), where programs say what OMPT does not tell. */
#ifndef MANYSCALE_OPENMP_H
#define MANYSCALE_OPENMP_H

#include "trace.h"

#include <stdatomic.h>

enum { UNKNOWN_SCHEDULE, STATIC, DYNAMIC, GUIDED, RUNTIME, AUTO };

struct range { uintptr_t low, high; };

/* A worksharing loop, or sections, that has begun. Values of the loop variable, not yet iterations from 0. */
struct loop {
    uint32_t id, task;
    int is_sections, has_lower;
    int64_t lower, num_iterations;
    int64_t piece; /* iterations handed out at a time, 0 for all that the runtime gives */
    int64_t rest_first, rest_last, rest_step, num_rest; /* given by the runtime, not yet handed out */
    int32_t is_last; /* the rest ends with the loop's last iteration */
};

#define DEEPEST 256
struct openmp {
    int is_tool;                  /* the runtime takes us */
    struct range runtime, tracer; /* where their code lies */
    atomic_uint foreign_events; /* of other threads than the traced one */
    /* what an interposed function tells the callbacks that the runtime makes inside it */
    uintptr_t caller; /* where the program called it, 0 unknown */
    int is_if0, is_sections;
    int schedule, is_ordered;
    uint32_t chunk; /* iterations, as the source asks; 0 if it does not */
    uint32_t num_loops;
    int num_open;
    struct loop open[DEEPEST];
};
extern struct openmp openmp MS_HIDDEN;

/* Iterations ``first`` to ``last`` of the loop variable begin to be executed, in ``loop``. */
void openmp_chunk(struct loop *loop, int64_t first, int64_t last, int64_t step) MS_HIDDEN;
void openmp_taskyield(void) MS_HIDDEN;
/* Initialise the runtime, once, if a program's first call of it would not do so before it is too late to see what it asks
   for; whether events are recorded. */
int openmp_initialise(void) MS_HIDDEN;

static inline int is_in(const struct range *range, uintptr_t address) {
    return address >= range->low && address < range->high;
}

/* Whether this thread's events are recorded. */
static inline int records(void) {
    if (MS_UNLIKELY(!ms.active || !openmp.is_tool)) return 0;
    if (MS_LIKELY(ms_own_thread())) return 1;
    atomic_fetch_add(&openmp.foreign_events, 1);
    return 0;
}

/* The innermost loop of the running task, or NULL. */
static inline struct loop *innermost(void) {
    struct loop *loop = openmp.num_open ? &openmp.open[openmp.num_open - 1] : NULL;
    return loop && loop->task == ms.task ? loop : NULL;
}

#endif

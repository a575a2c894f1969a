/* Entry points of the OpenMP runtime that are interposed, for what OMPT does not tell when there is one thread: that a
   task is undeferred (if(0)), where a taskloop stands, what schedule and chunk a loop asks for, taskyield. Names and
   arguments are the binary interface between compilers and runtime: __kmpc_* of clang, GOMP_* of GCC, whose entry points
   call __kmpc_* themselves.

   With one thread the runtime gives a dynamic loop all its iterations at once. Here it gets them in the chunks that its
   source asks for, each of which becomes an event. A static loop takes its iterations by itself (and GCC's without any
   call): it is one chunk. */
#define _GNU_SOURCE
#include "openmp.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

#define ENTRY __attribute__((visibility("default")))

/* The runtime's function, which a library may have loaded for itself alone: then what ``from``, the caller, sees. */
static void *entry(const char *name, const void *from) {
    void *found = dlsym(RTLD_NEXT, name);
    Dl_info info;
    if (!found && dladdr(from, &info) && info.dli_fname) {
        void *library = dlopen(info.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
        found = library ? dlsym(library, name) : NULL;
    }
    if (!found) {
        fprintf(stderr, "manyscale: the OpenMP runtime has no function %s; run the program without the tracer\n", name);
        abort();
    }
    return found;
}

/* Whether the call that an interposed function is entered by is recorded. */
static inline int enters(void) { return (MS_LIKELY(openmp.is_tool) || openmp_initialise()) && records(); }

/* ``real``: the runtime's own function of this name. */
#define REAL(name) \
    static __typeof__(&name) real; \
    if (MS_UNLIKELY(!real)) *(void **)&real = entry(#name, __builtin_return_address(0))
/* Inside an interposed function that is recorded: ``outer`` is to be put back. */
#define ENTER() \
    uintptr_t outer = openmp.caller, came_from = (uintptr_t)__builtin_return_address(0); \
    openmp.caller = is_in(&openmp.runtime, came_from) ? 0 : came_from
/* As ENTER, for functions that the runtime also calls by itself, on behalf of one that was entered. */
#define ENTER_PROGRAM() \
    uintptr_t outer = openmp.caller, came_from = (uintptr_t)__builtin_return_address(0); \
    if (!is_in(&openmp.runtime, came_from)) openmp.caller = came_from
#define LEAVE() openmp.caller = outer

/* ---- loops ---- */
static void ask(int schedule, int64_t chunk, int is_ordered) {
    openmp.schedule = schedule;
    openmp.chunk = chunk > 0 && chunk <= UINT32_MAX ? (uint32_t)chunk : 0;
    openmp.is_ordered = is_ordered;
}

/* From the interface's number of a schedule. */
static void ask_kmp(int number, int64_t chunk) {
    static const unsigned char schedules[] = {0, STATIC, STATIC, DYNAMIC, GUIDED, RUNTIME, AUTO};
    enum { FIRST = 32, ORDERED = 64, NO_MERGE = 160, MODIFIERS = 3 << 29 };
    int plain = number & ~MODIFIERS;
    if (plain > NO_MERGE) plain -= NO_MERGE - FIRST;
    int is_ordered = plain > ORDERED && plain < ORDERED + 7;
    if (is_ordered) plain -= ORDERED - FIRST;
    int index = plain - FIRST;
    int schedule = index == 13 ? STATIC : index == 14 ? GUIDED : index == 15 ? RUNTIME : index > 0 && index < 7 ? schedules[index] : 0;
    int has_chunk = index == 1 || index == 3 || index == 4 || index == 13;
    ask(schedule, has_chunk ? chunk : 0, is_ordered);
}

/* The next piece of what the runtime gave; whether there was one. */
static int take_rest(struct loop *loop, int64_t *first, int64_t *last) {
    if (!loop->num_rest) return 0;
    int64_t count = loop->num_rest < loop->piece ? loop->num_rest : loop->piece;
    *first = loop->rest_first;
    *last = loop->rest_first + (count - 1) * loop->rest_step;
    loop->rest_first += count * loop->rest_step;
    loop->num_rest -= count;
    openmp_chunk(loop, *first, *last, loop->rest_step);
    return 1;
}

/* The runtime gave iterations: the first piece of them, the others later. */
static void take(struct loop *loop, int64_t *first, int64_t *last, int64_t step, int32_t is_last) {
    if (!loop->piece || !step) {
        openmp_chunk(loop, *first, *last, step);
        return;
    }
    loop->rest_first = *first;
    loop->rest_step = step;
    loop->num_rest = (*last - *first) / step + 1;
    loop->is_last = is_last;
    take_rest(loop, first, last);
}

#define LOOPS(suffix, value_type, step_type) \
    ENTRY void __kmpc_for_static_init_##suffix(void *, int32_t, int32_t, int32_t *, value_type *, value_type *, step_type *, \
                                               step_type, step_type); \
    ENTRY void __kmpc_for_static_init_##suffix(void *place, int32_t thread, int32_t schedule, int32_t *last, \
                                               value_type *lower, value_type *upper, step_type *stride, step_type step, \
                                               step_type chunk) { \
        REAL(__kmpc_for_static_init_##suffix); \
        if (!enters()) { \
            real(place, thread, schedule, last, lower, upper, stride, step, chunk); \
            return; \
        } \
        ENTER(); \
        value_type first = *lower; \
        uint32_t before = openmp.num_loops; \
        ask_kmp(schedule, (int64_t)chunk); \
        real(place, thread, schedule, last, lower, upper, stride, step, chunk); \
        ask(UNKNOWN_SCHEDULE, 0, 0); \
        LEAVE(); \
        struct loop *loop = innermost(); \
        if (openmp.num_loops != before && loop) \
            openmp_chunk(loop, (int64_t)first, (int64_t)first + (loop->num_iterations - 1) * (int64_t)step, step); \
    } \
    ENTRY void __kmpc_dispatch_init_##suffix(void *, int32_t, int32_t, value_type, value_type, step_type, step_type); \
    ENTRY void __kmpc_dispatch_init_##suffix(void *place, int32_t thread, int32_t schedule, value_type lower, \
                                             value_type upper, step_type step, step_type chunk) { \
        REAL(__kmpc_dispatch_init_##suffix); \
        if (!enters()) { \
            real(place, thread, schedule, lower, upper, step, chunk); \
            return; \
        } \
        ENTER(); \
        ask_kmp(schedule, (int64_t)chunk); \
        real(place, thread, schedule, lower, upper, step, chunk); \
        ask(UNKNOWN_SCHEDULE, 0, 0); \
        LEAVE(); \
        struct loop *loop = innermost(); \
        if (loop && !loop->has_lower) { \
            loop->has_lower = 1; \
            loop->lower = (int64_t)lower; \
        } \
    } \
    ENTRY int __kmpc_dispatch_next_##suffix(void *, int32_t, int32_t *, value_type *, value_type *, step_type *); \
    ENTRY int __kmpc_dispatch_next_##suffix(void *place, int32_t thread, int32_t *last, value_type *lower, \
                                            value_type *upper, step_type *step) { \
        REAL(__kmpc_dispatch_next_##suffix); \
        if (!enters()) return real(place, thread, last, lower, upper, step); \
        struct loop *loop = innermost(); \
        int64_t first, end; \
        if (loop && take_rest(loop, &first, &end)) { \
            if (step) *step = (step_type)loop->rest_step; \
        } else { \
            ENTER_PROGRAM(); \
            int more = real(place, thread, last, lower, upper, step); \
            LEAVE(); \
            loop = innermost(); \
            if (!more || !loop) return more; \
            first = (int64_t)*lower; \
            end = (int64_t)*upper; \
            take(loop, &first, &end, step ? (int64_t)*step : 1, last ? *last : 0); \
        } \
        *lower = (value_type)first; \
        *upper = (value_type)end; \
        if (last && loop->piece) *last = !loop->num_rest && loop->is_last; \
        return 1; \
    }
LOOPS(4, int32_t, int32_t)
LOOPS(4u, uint32_t, int32_t)
LOOPS(8, int64_t, int64_t)
LOOPS(8u, uint64_t, int64_t)

/* GCC's loops: their entry points say the schedule, and then call those above. */
#define GOMP_LOOP(name, schedule) \
    ENTRY _Bool GOMP_loop_##name##_start(long, long, long, long, long *, long *); \
    ENTRY _Bool GOMP_loop_##name##_start(long from, long to, long step, long chunk, long *lower, long *upper) { \
        REAL(GOMP_loop_##name##_start); \
        if (!enters()) return real(from, to, step, chunk, lower, upper); \
        ENTER(); \
        ask(schedule, chunk, 0); \
        _Bool more = real(from, to, step, chunk, lower, upper); \
        ask(UNKNOWN_SCHEDULE, 0, 0); \
        LEAVE(); \
        return more; \
    } \
    ENTRY _Bool GOMP_loop_ull_##name##_start(_Bool, unsigned long long, unsigned long long, unsigned long long, \
                                             unsigned long long, unsigned long long *, unsigned long long *); \
    ENTRY _Bool GOMP_loop_ull_##name##_start(_Bool up, unsigned long long from, unsigned long long to, \
                                             unsigned long long step, unsigned long long chunk, unsigned long long *lower, \
                                             unsigned long long *upper) { \
        REAL(GOMP_loop_ull_##name##_start); \
        if (!enters()) return real(up, from, to, step, chunk, lower, upper); \
        ENTER(); \
        ask(schedule, (int64_t)chunk, 0); \
        _Bool more = real(up, from, to, step, chunk, lower, upper); \
        ask(UNKNOWN_SCHEDULE, 0, 0); \
        LEAVE(); \
        return more; \
    }
GOMP_LOOP(static, STATIC)
GOMP_LOOP(dynamic, DYNAMIC)
GOMP_LOOP(guided, GUIDED)
GOMP_LOOP(nonmonotonic_dynamic, DYNAMIC)
GOMP_LOOP(nonmonotonic_guided, GUIDED)

/* Loops that are a whole parallel region: the schedule is asked for before the region's own callbacks. */
#define GOMP_PARALLEL_LOOP(name, schedule) \
    ENTRY void GOMP_parallel_loop_##name(void (*)(void *), void *, unsigned, long, long, long, long, unsigned); \
    ENTRY void GOMP_parallel_loop_##name(void (*body)(void *), void *data, unsigned threads, long from, long to, long step, \
                                         long chunk, unsigned flags) { \
        REAL(GOMP_parallel_loop_##name); \
        if (!enters()) { \
            real(body, data, threads, from, to, step, chunk, flags); \
            return; \
        } \
        ENTER(); \
        ask(schedule, chunk, 0); \
        real(body, data, threads, from, to, step, chunk, flags); \
        ask(UNKNOWN_SCHEDULE, 0, 0); \
        LEAVE(); \
    }
GOMP_PARALLEL_LOOP(static, STATIC)
GOMP_PARALLEL_LOOP(dynamic, DYNAMIC)
GOMP_PARALLEL_LOOP(guided, GUIDED)
GOMP_PARALLEL_LOOP(nonmonotonic_dynamic, DYNAMIC)
GOMP_PARALLEL_LOOP(nonmonotonic_guided, GUIDED)

/* ---- sections, as GCC asks for them: a loop over their numbers ---- */
ENTRY unsigned GOMP_sections_start(unsigned);
ENTRY unsigned GOMP_sections_start(unsigned count) {
    REAL(GOMP_sections_start);
    if (!enters()) return real(count);
    ENTER();
    openmp.is_sections = 1;
    unsigned number = real(count);
    openmp.is_sections = 0;
    LEAVE();
    return number;
}

ENTRY void GOMP_parallel_sections(void (*)(void *), void *, unsigned, unsigned, unsigned);
ENTRY void GOMP_parallel_sections(void (*body)(void *), void *data, unsigned threads, unsigned count, unsigned flags) {
    REAL(GOMP_parallel_sections);
    if (!enters()) {
        real(body, data, threads, count, flags);
        return;
    }
    ENTER();
    openmp.is_sections = 1;
    real(body, data, threads, count, flags);
    openmp.is_sections = 0;
    LEAVE();
}

/* ---- tasks ---- */
ENTRY void __kmpc_omp_task_begin_if0(void *, int32_t, void *);
ENTRY void __kmpc_omp_task_begin_if0(void *place, int32_t thread, void *task) {
    REAL(__kmpc_omp_task_begin_if0);
    if (!enters()) {
        real(place, thread, task);
        return;
    }
    ENTER();
    openmp.is_if0 = 1;
    real(place, thread, task);
    openmp.is_if0 = 0;
    LEAVE();
}

ENTRY int32_t __kmpc_omp_taskyield(void *, int32_t, int);
ENTRY int32_t __kmpc_omp_taskyield(void *place, int32_t thread, int part) {
    REAL(__kmpc_omp_taskyield);
    if (!enters()) return real(place, thread, part);
    ENTER();
    openmp_taskyield();
    int32_t result = real(place, thread, part);
    LEAVE();
    return result;
}

ENTRY void GOMP_taskyield(void);
ENTRY void GOMP_taskyield(void) {
    REAL(GOMP_taskyield);
    if (enters()) {
        ENTER();
        openmp_taskyield();
        LEAVE();
    }
    real();
}

/* Tasks of a taskloop may run inside these calls. */
#define TASKLOOP(name, parameters, arguments) \
    ENTRY void name parameters; \
    ENTRY void name parameters { \
        REAL(name); \
        if (!enters()) { \
            real arguments; \
            return; \
        } \
        ENTER_PROGRAM(); \
        real arguments; \
        LEAVE(); \
    }
TASKLOOP(__kmpc_taskloop,
         (void *place, int32_t thread, void *task, int32_t condition, uint64_t *lower, uint64_t *upper, int64_t step,
          int32_t nogroup, int32_t schedule, uint64_t grain, void *copy),
         (place, thread, task, condition, lower, upper, step, nogroup, schedule, grain, copy))
TASKLOOP(__kmpc_taskloop_5,
         (void *place, int32_t thread, void *task, int32_t condition, uint64_t *lower, uint64_t *upper, int64_t step,
          int32_t nogroup, int32_t schedule, uint64_t grain, int32_t modifier, void *copy),
         (place, thread, task, condition, lower, upper, step, nogroup, schedule, grain, modifier, copy))
TASKLOOP(GOMP_taskloop,
         (void (*body)(void *), void *data, void (*copy)(void *, void *), long size, long alignment, unsigned flags,
          unsigned long number, int priority, long from, long to, long step),
         (body, data, copy, size, alignment, flags, number, priority, from, to, step))
TASKLOOP(GOMP_taskloop_ull,
         (void (*body)(void *), void *data, void (*copy)(void *, void *), long size, long alignment, unsigned flags,
          unsigned long number, int priority, unsigned long long from, unsigned long long to, unsigned long long step),
         (body, data, copy, size, alignment, flags, number, priority, from, to, step))

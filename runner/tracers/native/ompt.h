/* The part of the OpenMP tools interface that is used: names and values of the OpenMP specification 5.1, chapter 4 and
   appendix; declared here because compilers do not all install it. */
#ifndef MANYSCALE_OMPT_H
#define MANYSCALE_OMPT_H

#include <stdint.h>

typedef union { uint64_t value; void *ptr; } ompt_data_t;
typedef void (*ompt_callback_t)(void);
typedef void (*ompt_interface_fn_t)(void);
typedef ompt_interface_fn_t (*ompt_function_lookup_t)(const char *name);
typedef int (*ompt_set_callback_t)(int event, ompt_callback_t callback);
typedef struct {
    int (*initialize)(ompt_function_lookup_t lookup, int device, ompt_data_t *tool);
    void (*finalize)(ompt_data_t *tool);
    ompt_data_t tool;
} ompt_start_tool_result_t;
typedef struct { ompt_data_t variable; int type; } ompt_dependence_t;

enum { /* events */
    OMPT_PARALLEL_BEGIN = 3, OMPT_PARALLEL_END = 4, OMPT_TASK_CREATE = 5, OMPT_TASK_SCHEDULE = 6,
    OMPT_IMPLICIT_TASK = 7, OMPT_MUTEX_RELEASED = 17, OMPT_DEPENDENCES = 18, OMPT_WORK = 20, OMPT_MASKED = 21,
    OMPT_SYNC_REGION = 23, OMPT_MUTEX_ACQUIRED = 27, OMPT_CANCEL = 30,
};
enum { OMPT_SCOPE_BEGIN = 1, OMPT_SCOPE_END = 2 };
enum { /* of a task */
    OMPT_FLAG_INITIAL = 0x1, OMPT_FLAG_IMPLICIT = 0x2, OMPT_FLAG_EXPLICIT = 0x4, OMPT_FLAG_TASKWAIT = 0x10,
    OMPT_FLAG_UNTIED = 0x10000000, OMPT_FLAG_FINAL = 0x20000000, OMPT_FLAG_MERGEABLE = 0x40000000,
};
#define OMPT_FLAG_MERGED 0x80000000u
enum { /* of a parallel region */
    OMPT_FLAG_INVOKED_BY_PROGRAM = 0x1, /* its body is called by the program, as in those that GCC builds */
    OMPT_FLAG_LEAGUE = 0x40000000,      /* of teams */
};
enum { /* why a task left its thread */
    OMPT_TASK_COMPLETE = 1, OMPT_TASK_YIELD = 2, OMPT_TASK_CANCEL = 3, OMPT_TASK_DETACH = 4,
    OMPT_TASK_EARLY_FULFILL = 5, OMPT_TASK_LATE_FULFILL = 6, OMPT_TASK_SWITCH = 7, OMPT_TASKWAIT_COMPLETE = 8,
};
enum { /* of a synchronising region: 4 is one that the runtime system needs, all else from 8 on ends a construct */
    OMPT_BARRIER = 1, OMPT_BARRIER_IMPLICIT = 2, OMPT_BARRIER_EXPLICIT = 3, OMPT_TASKWAIT = 5, OMPT_TASKGROUP = 6,
    OMPT_REDUCTION = 7,
};
enum { /* of work */
    OMPT_LOOP = 1, OMPT_SECTIONS = 2, OMPT_SINGLE_EXECUTOR = 3, OMPT_SINGLE_OTHER = 4, OMPT_DISTRIBUTE = 6,
    OMPT_TASKLOOP = 7,
};
enum { OMPT_MUTEX_CRITICAL = 5, OMPT_MUTEX_ATOMIC = 6, OMPT_MUTEX_ORDERED = 7 }; /* lower: locks */
enum { OMPT_IN = 1, OMPT_OUT = 2, OMPT_INOUT = 3, OMPT_MUTEXINOUTSET = 4, OMPT_SOURCE = 5, OMPT_SINK = 6,
       OMPT_INOUTSET = 7 };

#endif

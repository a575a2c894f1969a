/* The runtime-system level: events of LLVM's OpenMP runtime (OMPT, OpenMP specification 5.1, chapter 4), on which
   programs built by GCC run, too.

   One thread is traced, as the launcher asks for one (Grass, UPC 2017, section 6.3.2). Then a task runs where it is
   created, and its creator goes on after it. A runtime with one thread flags every task as undeferred, reports no chunks
   of loops and places a taskloop's tasks in itself: openmp_entries.c sees what it was asked for.

   Task instances count from 0, the initial task, in order of creation. A task's number stands in the word that OMPT
   keeps for it: 0 none yet, else number + 1, and BEGUN once it ran. */
#define _GNU_SOURCE
#include "openmp.h"

#include "ompt.h"

#include <link.h>
#include <pthread.h>
#include <stdlib.h>

#define BEGUN (1ull << 63)
/* How a guided loop is handed out depends on the number of threads: here in about so many equal pieces. */
#define GUIDED_PIECES 256

enum { /* EventKind of models/task_tables.py */
    PARALLEL_BEGIN, PARALLEL_END, TASK_CREATE, TASK_BEGIN, TASK_END, TASK_SWITCH, TASKWAIT_BEGIN, TASKWAIT_END,
    TASKGROUP_BEGIN, TASKGROUP_END, BARRIER_BEGIN, BARRIER_END, LOOP_BEGIN, LOOP_CHUNK, LOOP_END, SINGLE_BEGIN,
    SINGLE_END, MASKED_BEGIN, MASKED_END, SECTIONS_BEGIN, SECTION, SECTIONS_END, CRITICAL_BEGIN, CRITICAL_END, TASKYIELD,
    CANCEL, IMPLICIT_BEGIN = 29, IMPLICIT_END, TASKLOOP_BEGIN, TASKLOOP_END,
    /* records that are no events of their own; they take no time */
    DEPENDENCE = 64, /* flags: DependenceKind, extra: task, value: address */
    PARENT,          /* of the task created just before: value, where it is not the one that was running */
    LOOP,            /* of the loop begun just before: flags: schedule, extra: chunk of the source, value: iterations */
    FRAMES,          /* detailed level; extra: a task that has begun, value: its frames lie below this address */
};
enum { UNDEFERRED = 1, UNTIED = 2, FINAL = 4, MERGEABLE = 8, MERGED = 16, IMPLICIT = 32, INITIAL = 64, IN_TASKLOOP = 128,
       IS_TASKWAIT = 256 }; /* TaskFlag of models/task_tables.py */
enum { IN_PARALLEL = 1, IN_TASK, IN_LOOP_OF_TASKS, IN_TASKWAIT, IN_TASKGROUP, IN_BARRIER, IN_LOOP, IN_DISTRIBUTE,
       IN_SECTIONS, IN_SINGLE, IN_MASKED, IN_CRITICAL, IN_LOCK, IN_ORDERED, IN_ATOMIC, IN_TASKYIELD, IN_TEAMS, IN_CANCEL };
static const char *const constructs[] = {
    "", "parallel", "task", "taskloop", "taskwait", "taskgroup", "barrier", "loop", "distribute", "sections", "single",
    "masked", "critical", "lock", "ordered", "atomic", "taskyield", "teams", "cancel",
};

struct openmp openmp;
static uint32_t num_tasks = 1;
static uint32_t region_site; /* of the parallel region begun last */
static uintptr_t region_frame;
static uint32_t largest_team = 1;
static int told_invoker;
static uintptr_t waits_at; /* where the last taskwait with dependences was asked for */

/* ---- places in the program, numbered from 1; 0 is an unknown one ---- */
#define NUM_SLOTS 16384
static struct { uint64_t key; uint32_t id; } sites[NUM_SLOTS];
static uint32_t num_sites;

static __attribute__((noinline)) uint32_t new_site(uint64_t slot, uint64_t key, uintptr_t address, int construct) {
    if (num_sites == NUM_SLOTS / 2) {
        ms_stop("the program has more than 8192 OpenMP constructs");
        return 0;
    }
    sites[slot].key = key;
    sites[slot].id = ++num_sites;
    ms_define("{\"site\": %u, \"address\": %llu, \"construct\": \"%s\"}", num_sites, (unsigned long long)address,
              constructs[construct]);
    return num_sites;
}

/* Whether code is the runtime's or ours, no place in the program. */
static inline int is_internal(uintptr_t address) {
    return is_in(&openmp.runtime, address) || is_in(&openmp.tracer, address);
}

static inline uint32_t site(const void *code, int construct) {
    uintptr_t address = (uintptr_t)code;
    if (MS_UNLIKELY(is_internal(address))) address = openmp.caller;
    if (!address) return 0;
    uint64_t key = (uint64_t)address << 5 | (uint64_t)construct;
    uint64_t slot = key * 0x9e3779b97f4a7c15u >> 50;
    while (sites[slot].key != key) {
        if (!sites[slot].key) return new_site(slot, key, address, construct);
        slot = (slot + 1) % NUM_SLOTS;
    }
    return sites[slot].id;
}

/* ---- records ---- */
static inline struct ms_event *add(unsigned kind, uint32_t extra, int64_t value) {
    struct ms_event *event = ms_event(kind);
    if (event) {
        event->extra = extra;
        event->value = value;
    }
    return event;
}

static inline void add_part(unsigned kind, unsigned flags, uint32_t extra, int64_t value) {
    struct ms_stream *stream = &ms.streams[MS_EVENTS];
    if (MS_UNLIKELY(*stream->used + sizeof(struct ms_event) > stream->capacity)) {
        ms_flush(MS_EVENTS);
        if (!ms.active) return;
        ms_lap_restart();
    }
    struct ms_event *event = (struct ms_event *)(stream->data + *stream->used);
    *event = (struct ms_event){(uint16_t)kind, (uint16_t)flags, ms.num_operations, ms.task, extra, value, 0};
    *stream->used += sizeof *event;
    ms.num_events++;
}

/* The stack pointer of what called the callback that this is used in: what the runtime calls next has its frames below. */
#define CALLERS_STACK ((uintptr_t)__builtin_frame_address(0) + 2 * sizeof(void *))

static void add_frames(uint32_t task, uintptr_t below) {
    static int is_told;
    pthread_attr_t attributes;
    void *low;
    size_t size;
    if (MS_LIKELY(ms.level < MS_LEVEL_DETAILED)) return;
    if (!is_told && !pthread_getattr_np(pthread_self(), &attributes)) {
        if (!pthread_attr_getstack(&attributes, &low, &size))
            ms_define("{\"stack\": %llu}", (unsigned long long)(uintptr_t)low);
        pthread_attr_destroy(&attributes);
    }
    is_told = 1;
    add_part(FRAMES, 0, task, (int64_t)below);
}

static uint32_t new_task(ompt_data_t *data) {
    data->value = (uint64_t)num_tasks + 1;
    return num_tasks++;
}

/* The number of a task that was perhaps created by a thread that is not traced. */
static inline uint32_t number(ompt_data_t *data) {
    if (MS_UNLIKELY(!(data->value & ~BEGUN))) {
        uint32_t id = new_task(data);
        add(TASK_CREATE, 0, id);
    }
    return (uint32_t)((data->value & ~BEGUN) - 1);
}

/* ---- callbacks: tasks ---- */
static void on_task_create(ompt_data_t *creator, const void *frame, ompt_data_t *data, int flags, int has_dependences,
                           const void *code) {
    (void)frame;
    (void)has_dependences;
    if (!records() || flags & OMPT_FLAG_INITIAL) return;
    uint32_t parent = creator ? number(creator) : ms.task, id = new_task(data);
    uint16_t kept = (uint16_t)((flags & OMPT_FLAG_UNTIED ? UNTIED : 0) | (flags & OMPT_FLAG_FINAL ? FINAL : 0) |
                               (flags & OMPT_FLAG_MERGEABLE ? MERGEABLE : 0) | (flags & (int)OMPT_FLAG_MERGED ? MERGED : 0));
    int construct = IN_TASK;
    if (MS_UNLIKELY(flags & OMPT_FLAG_TASKWAIT)) {
        construct = IN_TASKWAIT;
        kept = IS_TASKWAIT;
        waits_at = (uintptr_t)code;
    } else if (MS_UNLIKELY(openmp.is_if0)) {
        openmp.is_if0 = 0;
        kept |= UNDEFERRED;
        /* GCC's if(0) with dependences: the runtime waits for them, then begins the task by itself */
        if (!openmp.caller && is_internal((uintptr_t)code)) code = (const void *)waits_at;
    } else if (MS_UNLIKELY(is_internal((uintptr_t)code))) {
        construct = IN_LOOP_OF_TASKS;
        kept |= IN_TASKLOOP;
    }
    uint32_t at = site(code, construct);
    struct ms_event *event = add(TASK_CREATE, at, id);
    if (event) event->flags = kept;
    if (MS_UNLIKELY(parent != ms.task)) add_part(PARENT, 0, 0, parent);
    if (MS_UNLIKELY(kept & IS_TASKWAIT)) add(TASKWAIT_BEGIN, at, id);
}

static void on_dependences(ompt_data_t *data, const ompt_dependence_t *dependences, int count) {
    static const signed char kinds[] = {[OMPT_IN] = 0, [OMPT_OUT] = 1, [OMPT_INOUT] = 2, [OMPT_MUTEXINOUTSET] = 3,
                                        [OMPT_SOURCE] = -1, [OMPT_SINK] = -1, [OMPT_INOUTSET] = 4};
    if (!records()) return;
    uint32_t id = number(data);
    for (int i = 0; i < count && ms.active; i++) {
        unsigned type = (unsigned)dependences[i].type;
        int kind = type - 1 < sizeof kinds - 1 ? kinds[type] : 255; /* 255: the reader says so */
        if (kind >= 0) add_part(DEPENDENCE, (unsigned)kind, id, (int64_t)dependences[i].variable.value);
    }
}

static void on_task_schedule(ompt_data_t *prior, int status, ompt_data_t *next) {
    if (!records()) return;
    if (status == OMPT_TASKWAIT_COMPLETE) {
        add(TASKWAIT_END, site((const void *)waits_at, IN_TASKWAIT), prior ? (int64_t)number(prior) : -1);
        return;
    }
    if (!next || !prior) return; /* a detached task is fulfilled later than it ended */
    uint32_t id = number(next);
    int begins = 0;
    int ends = status == OMPT_TASK_COMPLETE || status == OMPT_TASK_CANCEL || status == OMPT_TASK_DETACH ||
               status == OMPT_TASK_EARLY_FULFILL;
    if (ends && prior->value & BEGUN) {
        ms.task = number(prior);
        add(TASK_END, 0, id);
    } else if (!ends && id != ms.task) { /* equal: an untied task that goes on at a scheduling point */
        begins = !(next->value & BEGUN);
        add(begins ? TASK_BEGIN : TASK_SWITCH, 0, id);
    }
    next->value |= BEGUN;
    ms.task = id;
    if (begins) add_frames(id, CALLERS_STACK);
}

static void on_implicit_task(int endpoint, ompt_data_t *region, ompt_data_t *data, unsigned team, unsigned index, int flags) {
    (void)region;
    (void)index;
    if (!records()) return;
    if (endpoint == OMPT_SCOPE_END) {
        if (data) ms.task = number(data);
        if (!(flags & OMPT_FLAG_INITIAL) || ms.task) add(IMPLICIT_END, 0, ms.task);
        return;
    }
    if (flags & OMPT_FLAG_INITIAL && num_tasks == 1) {
        data->value = 1 | BEGUN;
        return;
    }
    if (team > largest_team) {
        largest_team = team;
        ms_define("{\"team\": %u}", team);
    }
    uint32_t id = new_task(data);
    struct ms_event *event = add(IMPLICIT_BEGIN, region_site, id);
    if (event) event->flags = IMPLICIT;
    data->value |= BEGUN;
    ms.task = id;
    add_frames(id, region_frame);
}

static void on_parallel_begin(ompt_data_t *creator, const void *frame, ompt_data_t *region, unsigned asked_for, int flags,
                              const void *code) {
    (void)frame;
    if (!records()) return;
    if (creator) ms.task = number(creator);
    if (flags & OMPT_FLAG_INVOKED_BY_PROGRAM && !told_invoker) {
        told_invoker = 1;
        ms_define("{\"invoker\": \"program\"}");
    }
    region_site = site(code, flags & OMPT_FLAG_LEAGUE ? IN_TEAMS : IN_PARALLEL);
    region->value = region_site;
    region_frame = CALLERS_STACK;
    add(PARALLEL_BEGIN, region_site, asked_for);
}

static void on_parallel_end(ompt_data_t *region, ompt_data_t *creator, int flags, const void *code) {
    (void)flags;
    (void)code;
    if (!records()) return;
    if (creator) ms.task = number(creator);
    add(PARALLEL_END, region ? (uint32_t)region->value : 0, 0);
}

/* ---- callbacks: synchronisation ---- */
static void on_sync_region(int kind, int endpoint, ompt_data_t *region, ompt_data_t *data, const void *code) {
    (void)region;
    (void)data;
    if (!records() || kind == OMPT_REDUCTION) return;
    int ends = endpoint == OMPT_SCOPE_END;
    if (kind == OMPT_TASKWAIT)
        add(ends ? TASKWAIT_END : TASKWAIT_BEGIN, site(code, IN_TASKWAIT), -1);
    else if (kind == OMPT_TASKGROUP)
        add(ends ? TASKGROUP_END : TASKGROUP_BEGIN, ends ? 0 : site(code, IN_TASKGROUP), 0);
    else
        add(ends ? BARRIER_END : BARRIER_BEGIN, site(code, IN_BARRIER), kind == OMPT_BARRIER_EXPLICIT);
}

static int of_mutex(int kind) {
    return kind == OMPT_MUTEX_CRITICAL ? IN_CRITICAL : kind == OMPT_MUTEX_ORDERED ? IN_ORDERED
                                                   : kind == OMPT_MUTEX_ATOMIC    ? IN_ATOMIC : IN_LOCK;
}

static void on_mutex_acquired(int kind, uint64_t mutex, const void *code) {
    if (records()) add(CRITICAL_BEGIN, site(code, of_mutex(kind)), (int64_t)mutex);
}

/* The end of a construct is of the type of its beginning: the reader finds it. */
static void on_mutex_released(int kind, uint64_t mutex, const void *code) {
    (void)kind;
    (void)code;
    if (records()) add(CRITICAL_END, 0, (int64_t)mutex);
}

static void on_masked(int endpoint, ompt_data_t *region, ompt_data_t *data, const void *code) {
    (void)region;
    (void)data;
    if (!records()) return;
    int ends = endpoint == OMPT_SCOPE_END;
    add(ends ? MASKED_END : MASKED_BEGIN, ends ? 0 : site(code, IN_MASKED), 0);
}

static void on_cancel(ompt_data_t *data, int flags, const void *code) {
    (void)data;
    if (records()) add(CANCEL, code ? site(code, IN_CANCEL) : 0, flags);
}

/* ---- callbacks: worksharing ---- */
static void begin_loop(uint32_t at, int is_sections, int64_t count) {
    /* a cancelled loop, whose end was not reported */
    while (innermost()) openmp.num_open--;
    if (openmp.num_open == DEEPEST) {
        ms_stop("worksharing constructs are nested more than 256 deep");
        return;
    }
    struct loop *loop = &openmp.open[openmp.num_open++];
    *loop = (struct loop){.task = ms.task, .is_sections = is_sections, .num_iterations = count};
    if (is_sections) {
        add(SECTIONS_BEGIN, at, count);
        return;
    }
    loop->id = openmp.num_loops++;
    add(LOOP_BEGIN, at, loop->id);
    add_part(LOOP, (unsigned)openmp.schedule, openmp.chunk, count);
    int64_t least = openmp.chunk ? openmp.chunk : 1, fair = (count + GUIDED_PIECES - 1) / GUIDED_PIECES;
    /* the runtime counts an ordered loop's iterations itself */
    if (openmp.schedule == DYNAMIC && !openmp.is_ordered) loop->piece = least;
    if (openmp.schedule == GUIDED && !openmp.is_ordered) loop->piece = (fair + least - 1) / least * least;
    openmp.schedule = UNKNOWN_SCHEDULE;
    openmp.chunk = 0;
    openmp.is_ordered = 0;
}

static void end_loop(void) {
    struct loop *loop = innermost();
    if (!loop) return;
    openmp.num_open--;
    add(loop->is_sections ? SECTIONS_END : LOOP_END, 0, loop->is_sections ? 0 : loop->id);
}

void openmp_chunk(struct loop *loop, int64_t first, int64_t last, int64_t step) {
    if (!step) return;
    if (!loop->has_lower) { /* with one thread the first chunk begins the loop */
        loop->has_lower = 1;
        loop->lower = first;
    }
    int64_t from = (first - loop->lower) / step, length = (last - first) / step + 1;
    add(loop->is_sections ? SECTION : LOOP_CHUNK, length < UINT32_MAX ? (uint32_t)length : UINT32_MAX, from);
}

void openmp_taskyield(void) {
    add(TASKYIELD, openmp.caller ? site((const void *)openmp.caller, IN_TASKYIELD) : 0, 0);
}

static void on_work(int kind, int endpoint, ompt_data_t *region, ompt_data_t *data, uint64_t count, const void *code) {
    (void)region;
    if (!records()) return;
    int ends = endpoint == OMPT_SCOPE_END;
    if (data && !ends) ms.task = number(data);
    switch (kind) {
    case OMPT_LOOP:
    case OMPT_DISTRIBUTE: /* ends of the two are sometimes reported for each other */
    case OMPT_SECTIONS: {
        if (ends) {
            end_loop();
            break;
        }
        int is_sections = kind == OMPT_SECTIONS || openmp.is_sections;
        openmp.is_sections = 0;
        uint32_t at = site(code ? code : (const void *)openmp.caller,
                           is_sections ? IN_SECTIONS : kind == OMPT_DISTRIBUTE ? IN_DISTRIBUTE : IN_LOOP);
        begin_loop(at, is_sections, (int64_t)count);
        break;
    }
    case OMPT_SINGLE_EXECUTOR:
    case OMPT_SINGLE_OTHER:
        add(ends ? SINGLE_END : SINGLE_BEGIN, ends ? 0 : site(code, IN_SINGLE), kind == OMPT_SINGLE_EXECUTOR);
        break;
    case OMPT_TASKLOOP:
        add(ends ? TASKLOOP_END : TASKLOOP_BEGIN, ends ? 0 : site(code, IN_LOOP_OF_TASKS), (int64_t)count);
        break;
    default: /* workshare, scope: nothing is distributed that could be scheduled */
        break;
    }
}

/* ---- what recording costs ---- */
/* Events that nothing happened at, and the CPU clock, as often as it takes: the least of each. What that takes itself is
   in no time and no count. */
static void measure_costs(void) {
    enum { BATCHES = 20, PAIRS = 32 };
    struct ms_stream *stream = &ms.streams[MS_EVENTS];
    uint64_t used = *stream->used, of_events = UINT64_MAX, of_clock = UINT64_MAX;
    if (ms.detail_on || ms.watches_events || used + 2 * PAIRS * sizeof(struct ms_event) > stream->capacity) return;
    uint64_t lap = ms_lap(), burst = ms.burst_ns; /* the runtime system's own start: time before the first event */
    uint64_t began = ms_wall(), recorded = ms.recorded_ns; /* the phase waits for nothing meanwhile */
    uint32_t num_events = ms.num_events, position = ms.event_position;
    int counts_events = ms.counts_events;
    if (ms.num_counters) ms_counters_take();
    ms.counts_events = 0;
    for (int batch = 0; batch < BATCHES; batch++) {
        ms_lap_restart();
        uint64_t before = ms_wall();
        for (int i = 0; i < PAIRS; i++) {
            on_sync_region(OMPT_BARRIER_IMPLICIT, OMPT_SCOPE_BEGIN, NULL, NULL, NULL);
            on_sync_region(OMPT_BARRIER_IMPLICIT, OMPT_SCOPE_END, NULL, NULL, NULL);
        }
        uint64_t events = ms_wall();
        ms_thread_cpu();
        uint64_t clock = ms_wall();
        if (events - before < of_events) of_events = events - before;
        if (clock - events < of_clock) of_clock = clock - events;
        *stream->used = used;
        ms.num_events = num_events;
        ms.event_position = position;
    }
    ms.counts_events = counts_events;
    ms.burst_ns = burst;
    ms.event_ns = of_events / (2 * PAIRS);
    ms.clock_ns = of_clock;
    if (ms.faults_ns) ms.faults = ms_count_faults();
    ms_define("{\"event_ns\": %llu, \"clock_ns\": %llu, \"faults_ns\": %llu}", (unsigned long long)ms.event_ns,
              (unsigned long long)ms.clock_ns, (unsigned long long)ms.faults_ns);
    if (ms.num_counters) ms_counters_go_on();
    ms.recorded_ns = recorded + (ms_wall() - began);
    ms_lap_restart();
    ms.lap_cpu -= lap;
    ms.lap_wall -= lap;
}

/* ---- the tool ---- */
struct lookup { uintptr_t address; struct range *range; };

static int find_range(struct dl_phdr_info *info, size_t size, void *data) {
    (void)size;
    struct lookup *lookup = data;
    struct range range = {UINTPTR_MAX, 0};
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *header = &info->dlpi_phdr[i];
        if (header->p_type != PT_LOAD) continue;
        uintptr_t low = info->dlpi_addr + header->p_vaddr, high = low + header->p_memsz;
        if (low < range.low) range.low = low;
        if (high > range.high) range.high = high;
    }
    if (!is_in(&range, lookup->address)) return 0;
    *lookup->range = range;
    return 1;
}

static int initialize(ompt_function_lookup_t lookup, int device, ompt_data_t *tool) {
    (void)device;
    (void)tool;
    if (!ms_start() || ms.level < MS_LEVEL_TASKS) return 0;
    ompt_set_callback_t set = (ompt_set_callback_t)lookup("ompt_set_callback");
    if (!set) return 0;
    dl_iterate_phdr(find_range, &(struct lookup){(uintptr_t)lookup, &openmp.runtime});
    dl_iterate_phdr(find_range, &(struct lookup){(uintptr_t)&find_range, &openmp.tracer});
    const struct { int event; ompt_callback_t callback; const char *name; } callbacks[] = {
        {OMPT_PARALLEL_BEGIN, (ompt_callback_t)on_parallel_begin, "parallel_begin"},
        {OMPT_PARALLEL_END, (ompt_callback_t)on_parallel_end, "parallel_end"},
        {OMPT_TASK_CREATE, (ompt_callback_t)on_task_create, "task_create"},
        {OMPT_TASK_SCHEDULE, (ompt_callback_t)on_task_schedule, "task_schedule"},
        {OMPT_IMPLICIT_TASK, (ompt_callback_t)on_implicit_task, "implicit_task"},
        {OMPT_DEPENDENCES, (ompt_callback_t)on_dependences, "dependences"},
        {OMPT_WORK, (ompt_callback_t)on_work, "work"},
        {OMPT_MASKED, (ompt_callback_t)on_masked, "masked"},
        {OMPT_SYNC_REGION, (ompt_callback_t)on_sync_region, "sync_region"},
        {OMPT_MUTEX_ACQUIRED, (ompt_callback_t)on_mutex_acquired, "mutex_acquired"},
        {OMPT_MUTEX_RELEASED, (ompt_callback_t)on_mutex_released, "mutex_released"},
        {OMPT_CANCEL, (ompt_callback_t)on_cancel, "cancel"},
    };
    for (unsigned i = 0; i < sizeof callbacks / sizeof *callbacks; i++)
        if (set(callbacks[i].event, callbacks[i].callback) != 5) /* always */
            ms_define("{\"unreported\": \"%s\"}", callbacks[i].name);
    openmp.is_tool = 1;
    measure_costs();
    return 1;
}

static void finalize(ompt_data_t *tool) { (void)tool; }

extern int omp_get_max_threads(void) __attribute__((weak));

int openmp_initialise(void) {
    static int tried;
    if (!tried && omp_get_max_threads) {
        tried = 1;
        omp_get_max_threads();
    }
    return ms.active && openmp.is_tool;
}

void ms_tasks_finish(void) {
    unsigned foreign = atomic_load(&openmp.foreign_events);
    if (foreign) ms_define("{\"foreign_events\": %u}", foreign);
}

__attribute__((visibility("default"))) ompt_start_tool_result_t *ompt_start_tool(unsigned version, const char *name);
ompt_start_tool_result_t *ompt_start_tool(unsigned version, const char *name) {
    static ompt_start_tool_result_t result = {initialize, finalize, {0}};
    (void)version;
    (void)name;
    const char *level = getenv("MANYSCALE_TRACE_LEVEL");
    if (ms.active ? ms.level < MS_LEVEL_TASKS : !getenv("MANYSCALE_TRACE_DIR") || !level || atoi(level) < MS_LEVEL_TASKS)
        return NULL;
    /* Else LLVM's runtime splits a taskloop in halves by tasks of its own. It reads its settings after this. */
    setenv("KMP_TASKLOOP_MIN_TASKS", "2147483647", 0);
    return &result;
}

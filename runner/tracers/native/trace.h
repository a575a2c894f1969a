/* What the parts of the tracer share: one trace file per process, clocks, marks.

   A process writes PREFIX.trace, a sequence of compressed chunks, each of one stream, and keeps what it has not yet
   written in PREFIX.tail, a file mapped into memory: so that whatever kills the process loses nothing. A process that
   ends as it should removes its tail. All integers are little endian.

   Streams: definitions (JSON lines), operations (struct ms_operation), lists (int64 that belong to operations, in their
   order), events (struct ms_event), the detailed level's own, and where counters are read at events, their increase (int64
   each, -1 unknown) before each event of the workload's table. Operations and events are one sequence: an event says how
   many operations came before it.

   These are of the thread that was traced first. The MPI calls of others have two streams more, of operations (in the
   order in which they ended, with the thread's number, from 1, in place of num_events) and of their lists; an unfinished
   one there is a thread's end. Where MPI was not asked to allow such calls, they are counted and reported. */
#ifndef MANYSCALE_TRACE_H
#define MANYSCALE_TRACE_H

#include <stddef.h>
#include <stdint.h>
#include <time.h>

#define MS_HIDDEN __attribute__((visibility("hidden")))
#define MS_LIKELY(x) __builtin_expect(!!(x), 1)
#define MS_UNLIKELY(x) __builtin_expect(!!(x), 0)

enum { MS_DEFINITIONS, MS_OPERATIONS, MS_LISTS, MS_EVENTS, MS_DETAIL, MS_THREAD_OPERATIONS, MS_THREAD_LISTS, MS_COUNTS,
       MS_STREAMS };
enum { MS_LEVEL_MPI = 1, MS_LEVEL_TASKS = 2, MS_LEVEL_DETAILED = 3 };

enum {
    MS_UNFINISHED = 1, /* the call had not returned when the trace ended */
    MS_CANCELLED = 2,
    MS_WILDCARD = 4, /* a receive from any source: peer is the one it got */
    MS_ANY_TAG = 8,
    MS_FAILED = 16, /* the call returned an error */
    MS_NULL_PEER = 32, /* MPI_PROC_NULL */
    MS_IN_PLACE = 64,
    MS_INTERCOMMUNICATOR = 128,
    MS_COMPLETED = 256, /* a test that completed all it names */
    MS_COUNTED = 512, /* the lists begin with what the counters counted since the call before */
    MS_OTHER_THREAD = 1024, /* not of the thread that was traced first */
    MS_DEVICE_BUFFER = 2048, /* a buffer is in the memory of a GPU */
};

struct ms_operation {
    uint16_t call; /* index of the list of names in the definition "calls" */
    uint16_t flags;
    int32_t communicator;
    int32_t peer;     /* world rank, or root within the communicator; -2 where there is none */
    int32_t source;   /* receive side of a sendrecv; -2 */
    int32_t tag;      /* -1 any */
    int32_t receive_tag;
    int32_t request;  /* that the call opens; -1 */
    uint32_t num_lists; /* how many values of the stream "lists" are this operation's */
    int64_t bytes;
    int64_t receive_bytes;
    uint64_t start_ns; /* wall clock, CLOCK_MONOTONIC */
    uint64_t end_ns;
    uint64_t cpu_ns;   /* CPU time since the previous operation ended */
    /* the same of all threads, of the longest thread, and the wall clock's without waiting for a CPU; see ms_times */
    uint64_t process_ns, longest_ns, elapsed_ns;
    uint32_t num_events; /* events before it */
    int32_t region;    /* innermost marked region, -1 */
};

struct ms_event {
    uint16_t kind; /* EventKind of the workload's task tables */
    uint16_t flags;
    uint32_t num_operations; /* operations before it */
    uint32_t task;           /* instance that was running */
    uint32_t extra;          /* by kind */
    int64_t value;           /* by kind */
    uint64_t cpu_ns;         /* CPU time since the previous event or operation */
};

struct ms_stream {
    unsigned char *data; /* in the mapped tail */
    uint64_t *used;      /* bytes; stands in the tail's header */
    uint64_t capacity;
};

struct ms_state {
    int active;      /* records are taken */
    int level;
    int depth;       /* inside a traced call: calls that the library makes itself are not recorded */
    int num_counters; /* that are read */
    int counts_events; /* at events, too */
    int detail_on;   /* inside a window of the detailed level */
    int is_emulated; /* an emulator's plugin records that level */
    int hidden;      /* how deep the traced thread is in what is not the program's, where it is emulated */
    uint32_t num_operations, num_events;
    uint32_t position;  /* operations that happen in every run: all but tests and probes */
    uint32_t event_position; /* events of the workload's table: kinds below 64 */
    int watches_events;  /* windows of the detailed level are told in events */
    int32_t region;
    uint32_t task;      /* running task instance */
    uint64_t lap_wall, lap_cpu, lap_pending; /* see ms_lap */
    uint64_t phase_wall; /* when the last operation ended */
    int is_threaded; /* several threads may call MPI */
    uint64_t burst_ns;  /* CPU time since the last operation, in laps already taken */
    uint64_t event_ns, clock_ns, faults_ns; /* what an event, the CPU clock and counting page faults take: see ms_own_lap */
    uint64_t recorded_ns; /* what was taken off laps for that since the phase began */
    int64_t faults;     /* minor page faults of the traced thread, when last counted */
    int rank, num_ranks; /* once they are known; 0 of 0 */
    int pauses;         /* how deep the traced thread is in stand-ins, whose time is nobody's */
    uint64_t part_ns;   /* of burst_ns, what came before the phase's clocks were restarted after a pause */
    uint64_t parts[3];  /* the struct ms_times of what came before */
    struct ms_stream streams[MS_STREAMS];
};
extern struct ms_state ms MS_HIDDEN;

/* Start recording in this process, once; whether it records. Cheap when called again. */
int ms_start(void) MS_HIDDEN;
/* The same where MPI is initialised: the calling thread is the traced one, unless another has recorded before. */
int ms_start_thread(void) MS_HIDDEN;
/* Write everything and close; the end of the process does it if nobody else. */
void ms_finish(void) MS_HIDDEN;
/* Stop recording for a reason that the trace will tell; the program goes on. */
void ms_stop(const char *reason) MS_HIDDEN;
/* One line of JSON: printf-like, without the newline. */
void ms_define(const char *format, ...) MS_HIDDEN __attribute__((format(printf, 1, 2)));
/* Append an already encoded chunk to the trace file. */
void ms_write_chunk(int stream, const void *data, uint64_t bytes) MS_HIDDEN;
/* Write out what a stream's buffer holds. */
void ms_flush(int stream) MS_HIDDEN;
/* Whether recording calls come from the traced thread. */
int ms_own_thread(void) MS_HIDDEN;
/* Who this process is, once MPI knows. */
void ms_set_rank(int rank, int size, const char *library) MS_HIDDEN;

/* An operation begins: NULL where nothing is to be recorded (inactive, nested, another thread). ``frame``: of the
   function that stands in for the call. */
#define ms_begin(call) ms_begin_in(call, __builtin_frame_address(0))
struct ms_operation *ms_begin_in(unsigned call, const void *frame) MS_HIDDEN;
/* It ends; everything is filled in but times. ``repeats``: it happens in every run (not a test or a probe). */
void ms_end(struct ms_operation *operation, int repeats) MS_HIDDEN;
/* Append a value to the operation's lists. */
void ms_list(struct ms_operation *operation, int64_t value) MS_HIDDEN;

/* Moves the window of the detailed level: called after each operation and mark, and after events if need be. */
void ms_window(void) MS_HIDDEN;
/* Called when the window opens or closes; the detailed level's (a no-op where it is not built). */
void ms_detail_window(int open) MS_HIDDEN __attribute__((weak));
void ms_detail_finish(void) MS_HIDDEN __attribute__((weak));
/* Called before the end is written; the runtime level's (a no-op where it is not built). */
void ms_tasks_finish(void) MS_HIDDEN __attribute__((weak));
/* Called on every event and operation while the window is open: a segment ends. */
void ms_detail_segment(void) MS_HIDDEN __attribute__((weak));

/* The same under an emulator (emulated.c). */
void ms_emulated_segment(void) MS_HIDDEN;
void ms_emulated_window(int open) MS_HIDDEN;
void ms_emulated_finish(void) MS_HIDDEN;
/* Instructions that do nothing, but that the plugin knows: what follows is not the program's; it is; a segment ends. */
enum { MS_HIDES, MS_SHOWS, MS_ENDS };
#if defined(__x86_64__)
#define MS_TELL(what) __asm__ volatile(".byte 0x0f, 0x1f, 0x80, %c0, 0x51, 0x53, 0x4d" : : "i"(what) : "memory")
#else
#define MS_TELL(what) ((void)(what))
#endif
static inline void ms_hide(void) {
    if (MS_UNLIKELY(ms.is_emulated) && !ms.hidden++) MS_TELL(MS_HIDES);
}
static inline void ms_show(void) {
    if (MS_UNLIKELY(ms.is_emulated) && !--ms.hidden && ms.detail_on) MS_TELL(MS_SHOWS);
}

/* Counters, where they are built: open those of this thread (how many there are), what they counted since the restart (how
   many are valid), and restart. At an event they are taken before what the tracer does, and put behind it; the time of
   both is nobody's. */
enum { MS_MOST_COUNTERS = 8 };
int ms_counters_start(void) MS_HIDDEN __attribute__((weak));
int ms_counters_since(int64_t *increase) MS_HIDDEN __attribute__((weak));
void ms_counters_restart(void) MS_HIDDEN __attribute__((weak));
void ms_counters_take(void) MS_HIDDEN __attribute__((weak));
void ms_counters_put(void) MS_HIDDEN __attribute__((weak));
/* Leave out what was counted since the last take. */
void ms_counters_go_on(void) MS_HIDDEN __attribute__((weak));
/* Append to a stream's buffer. */
void ms_append(int stream, const void *data, uint64_t bytes) MS_HIDDEN;

/* Times of a phase, ns: CPU time of the process and of its longest thread, and by the wall clock, less what the thread
   that takes longest was ready and waited for a CPU: so that a machine that is shared by more threads than it has CPUs
   does not show. Each at least the traced thread's CPU time, which all are in a phase of less than MS_LAP_NS. */
struct ms_times { uint64_t process_ns, longest_ns, elapsed_ns; };
void ms_times_start(void) MS_HIDDEN;
/* Begin a phase at ms.lap_wall. */
void ms_times_restart(void) MS_HIDDEN;
/* Those of the phase that ends at ``wall``; ``cpu``: the traced thread's CPU time. */
struct ms_times ms_times_since(uint64_t wall, uint64_t cpu) MS_HIDDEN;
/* The phase's clocks stand still from the one to the other. */
void ms_pause(void) MS_HIDDEN;
void ms_resume(void) MS_HIDDEN;
/* ms_times_since of the whole phase, its pauses left out; the next one begins. */
struct ms_times ms_times_of_phase(uint64_t wall, uint64_t cpu) MS_HIDDEN;
/* How long this thread has been ready and waited for a CPU, ns, since it began. */
uint64_t ms_own_delay(void) MS_HIDDEN;
/* This thread ends, which is not the traced one. */
void ms_thread_ends(void) MS_HIDDEN;

/* What several threads may change: one at a time, where several call MPI. */
void ms_lock(void) MS_HIDDEN;
void ms_unlock(void) MS_HIDDEN;

static inline uint64_t ms_wall(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}
static inline uint64_t ms_thread_cpu(void) {
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* CPU time since the last lap, ns. The thread's CPU clock is a system call (hundreds of ns), the wall clock is not. Two
   laps less than 50 us apart: the wall clock, since nothing that takes the CPU away takes so little. Further apart: the
   CPU clock, less what was given out by the wall clock since it was last read; so the sum is always that of the CPU
   clock. */
#define MS_LAP_NS 50000
static inline uint64_t ms_lap_at(uint64_t wall) {
    uint64_t passed = wall - ms.lap_wall;
    ms.lap_wall = wall;
    if (MS_LIKELY(passed < MS_LAP_NS)) {
        ms.lap_pending += passed;
        return passed;
    }
    uint64_t cpu = ms_thread_cpu(), since = cpu - ms.lap_cpu;
    uint64_t lap = since > ms.lap_pending ? since - ms.lap_pending : 0;
    ms.lap_cpu = cpu;
    ms.lap_pending = 0;
    if (MS_UNLIKELY(ms.counts_events)) ms.lap_wall = ms_wall(); /* what follows is nobody's: ms_counters_put */
    return lap;
}
static inline uint64_t ms_lap(void) { return ms_lap_at(ms_wall()); }
/* A lap without what recording its event takes. Laps from MS_FAULTS_NS on end with a count of page faults. */
#define MS_FAULTS_NS 10000
static inline uint64_t ms_own_lap(uint64_t wall) {
    uint64_t lap = ms_lap_at(wall), cost = ms.event_ns;
    if (MS_UNLIKELY(ms.counts_events)) cost = lap >= MS_LAP_NS ? ms.clock_ns : 0; /* the rest is in no lap */
    else if (MS_UNLIKELY(lap >= MS_FAULTS_NS)) cost += ms.faults_ns + (lap >= MS_LAP_NS ? ms.clock_ns : 0);
    if (MS_UNLIKELY(cost > lap)) cost = lap;
    ms.recorded_ns += cost;
    return lap - cost;
}
/* Record the page faults since the last count, if there are any, for the event or operation that comes next. */
enum { MS_PAGE_FAULTS = 68 };
int64_t ms_count_faults(void) MS_HIDDEN;
void ms_page_faults(void) MS_HIDDEN;
/* Begin a lap here: what came before belongs to nobody (time inside MPI or the tracer). */
static inline void ms_lap_restart(void) {
    ms.lap_cpu = ms_thread_cpu();
    ms.lap_wall = ms_wall(); /* last: reading the CPU clock takes long */
    ms.lap_pending = 0;
}

/* A new event, its time taken; the caller fills extra and value. NULL where nothing is to be recorded. */
static inline struct ms_event *ms_event(unsigned kind) {
    if (MS_UNLIKELY(!ms.active)) return NULL;
    ms_hide();
    uint64_t wall = ms_wall();
    if (MS_UNLIKELY(ms.counts_events)) ms_counters_take();
    struct ms_stream *stream = &ms.streams[MS_EVENTS];
    uint64_t lap = ms_own_lap(wall);
    ms.burst_ns += lap;
    if (MS_UNLIKELY(lap >= MS_FAULTS_NS && ms.faults_ns)) ms_page_faults();
    if (MS_UNLIKELY(*stream->used + sizeof(struct ms_event) > stream->capacity)) {
        ms_flush(MS_EVENTS);
        if (!ms.active) return NULL;
        ms_lap_restart();
    }
    if (MS_UNLIKELY(ms.detail_on) && ms_detail_segment) ms_detail_segment();
    struct ms_event *event = (struct ms_event *)(stream->data + *stream->used);
    event->kind = (uint16_t)kind;
    event->flags = 0;
    event->num_operations = ms.num_operations;
    event->task = ms.task;
    event->extra = 0;
    event->value = 0;
    event->cpu_ns = lap;
    *stream->used += sizeof *event;
    ms.num_events++;
    ms.event_position += kind < 64;
    if (MS_UNLIKELY(ms.watches_events)) ms_window();
    if (MS_UNLIKELY(ms.counts_events)) ms_counters_put();
    ms_show();
    return event;
}

#endif

/* Time outside MPI that the thread which calls MPI does not compute itself: what other threads compute meanwhile, and
   what it waits for. Readings are system calls (1 to 2 us): none is made for phases of less than MS_LAP_NS.

   Threads are known from pthread_create, which stands here before the C library's. Those that the MPI library starts
   are its own business. */
#define _GNU_SOURCE
#include "trace.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

struct thread {
    clockid_t clock;
    pid_t id;
    int is_library; /* of the MPI library */
    uint64_t cpu, delay; /* when they were last read */
    void *(*function)(void *);
    void *argument;
    struct thread *next;
};
struct found { uint64_t longest, delay, library, known; }; /* of all threads but the traced one, since the last reading */

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static struct thread *threads;
static struct found ended; /* of threads that are no more */
static pthread_key_t at_exit;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static __thread struct thread *self __attribute__((tls_model("initial-exec")));
static int own_file = -1; /* the traced thread's schedstat */
static uint64_t read_wall, read_process, read_thread, read_delay, read_slices;

static uint64_t clock_ns(clockid_t clock) {
    struct timespec t;
    return clock_gettime(clock, &t) ? 0 : (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* What a schedstat says: how long its thread was ready and did not run, and how often it was put on a CPU. */
static int scheduling(int file, uint64_t *delay, uint64_t *slices) {
    char text[96];
    unsigned long long ran, waited, times;
    ssize_t length = file < 0 ? -1 : pread(file, text, sizeof text - 1, 0);
    if (length <= 0) return 0;
    text[length] = 0;
    if (sscanf(text, "%llu %llu %llu", &ran, &waited, &times) != 3) return 0;
    *delay = waited;
    *slices = times;
    return 1;
}

static uint64_t delay_of(pid_t id) {
    char path[64];
    uint64_t delay = 0, slices;
    snprintf(path, sizeof path, "/proc/self/task/%d/schedstat", (int)id);
    int file = open(path, O_RDONLY | O_CLOEXEC);
    scheduling(file, &delay, &slices);
    if (file >= 0) close(file);
    return delay;
}

uint64_t ms_own_delay(void) { return delay_of(gettid()); }

static void add(struct found *found, const struct thread *thread, uint64_t cpu, uint64_t delay) {
    if (thread->is_library) {
        found->library += cpu;
        return;
    }
    found->known += cpu;
    if (cpu <= found->longest) return;
    found->longest = cpu;
    found->delay = delay;
}

static void thread_ends(void *ended_thread) {
    struct thread *thread = ended_thread;
    ms_thread_ends();
    pthread_mutex_lock(&mutex);
    uint64_t cpu = clock_ns(CLOCK_THREAD_CPUTIME_ID) - thread->cpu;
    add(&ended, thread, cpu, cpu > MS_LAP_NS ? delay_of(thread->id) - thread->delay : 0);
    for (struct thread **at = &threads; *at; at = &(*at)->next) {
        if (*at != thread) continue;
        *at = thread->next;
        break;
    }
    pthread_mutex_unlock(&mutex);
    free(thread);
}

static void make_key(void) { pthread_key_create(&at_exit, thread_ends); }

static void *thread_begins(void *begun) {
    struct thread *thread = begun;
    void *(*function)(void *) = thread->function;
    void *argument = thread->argument;
    pthread_once(&once, make_key);
    thread->id = gettid();
    self = thread;
    if (pthread_getcpuclockid(pthread_self(), &thread->clock) || pthread_setspecific(at_exit, thread)) {
        free(thread);
        self = NULL;
        return function(argument);
    }
    pthread_mutex_lock(&mutex);
    thread->next = threads;
    threads = thread;
    pthread_mutex_unlock(&mutex);
    return function(argument);
}

__attribute__((visibility("default"))) int pthread_create(pthread_t *handle, const pthread_attr_t *attributes,
                                                          void *(*function)(void *), void *argument) {
    static __typeof__(pthread_create) *real;
    if (!real) real = (__typeof__(real))dlsym(RTLD_NEXT, "pthread_create");
    struct thread *thread = ms.active ? malloc(sizeof *thread) : NULL;
    if (!thread) return real(handle, attributes, function, argument);
    int by_library = ms_own_thread() ? ms.depth > 0 || ms.pauses > 0 : self && self->is_library;
    *thread = (struct thread){.is_library = by_library, .function = function, .argument = argument};
    int error = real(handle, attributes, thread_begins, thread);
    if (error) free(thread);
    return error;
}

/* What all threads but the traced one did since the last reading of this sort. */
static struct found read_threads(int wants_delay) {
    pthread_mutex_lock(&mutex);
    struct found found = ended;
    struct thread *longest = NULL;
    for (struct thread *each = threads; each; each = each->next) {
        uint64_t now = clock_ns(each->clock), since = now > each->cpu ? now - each->cpu : 0, before = found.longest;
        add(&found, each, since, 0);
        if (found.longest > before) longest = each;
        each->cpu = now > each->cpu ? now : each->cpu;
    }
    if (longest && wants_delay) {
        uint64_t delay = delay_of(longest->id);
        found.delay = delay - longest->delay;
        longest->delay = delay;
    }
    ended = (struct found){0};
    pthread_mutex_unlock(&mutex);
    return found;
}

void ms_times_start(void) {
    char path[64];
    snprintf(path, sizeof path, "/proc/self/task/%d/schedstat", (int)gettid());
    int file = open(path, O_RDONLY | O_CLOEXEC);
    /* out of the way of programs that count on the lowest numbers */
    own_file = file < 0 ? -1 : fcntl(file, F_DUPFD_CLOEXEC, 200);
    if (file >= 0) close(file);
    read_wall = 0;
    ms_times_restart();
}

void ms_times_restart(void) {
    ms.phase_wall = ms.lap_wall;
    ms.recorded_ns = 0;
    if (ms.lap_wall - read_wall < MS_LAP_NS) return;
    uint64_t process = clock_ns(CLOCK_PROCESS_CPUTIME_ID);
    if (process - read_process > ms.lap_cpu - read_thread + MS_LAP_NS / 50) read_threads(0);
    read_process = process;
    read_thread = ms.lap_cpu;
    read_wall = ms.lap_wall;
    for (int tries = 0; tries < 3; tries++) {
        uint64_t before = ms_wall();
        scheduling(own_file, &read_delay, &read_slices);
        ms_lap_restart();
        if (ms.lap_wall - before < MS_LAP_NS) break; /* else it waited for a CPU between the two, which one alone counts */
    }
    ms.phase_wall = ms.lap_wall;
}

struct ms_times ms_times_since(uint64_t wall, uint64_t cpu) {
    struct ms_times times = {cpu, cpu, cpu};
    uint64_t passed = wall - ms.phase_wall;
    passed -= ms.recorded_ns < passed ? ms.recorded_ns : passed;
    if (MS_LIKELY(passed < MS_LAP_NS)) return times;
    uint64_t process = clock_ns(CLOCK_PROCESS_CPUTIME_ID) - read_process, own = ms_thread_cpu() - read_thread;
    uint64_t others = process > own ? process - own : 0, delay = 0, delay_now, slices;
    if (others > passed / 50) {
        struct found found = read_threads(1);
        others -= found.library < others ? found.library : others;
        uint64_t unknown = others > found.known ? others - found.known : 0; /* of threads that are made otherwise */
        uint64_t longest = found.longest > unknown ? found.longest : unknown;
        times.process_ns = cpu + others;
        if (longest > passed) longest = passed;
        if (longest > cpu) times.longest_ns = longest, delay = found.delay;
    }
    times.elapsed_ns = times.longest_ns;
    if (passed - passed / 20 > times.longest_ns && scheduling(own_file, &delay_now, &slices) && slices != read_slices) {
        uint64_t after = ms_wall() - wall; /* the wait for a CPU in it is not the phase's */
        delay += delay_now - read_delay; /* one after the other: the traced thread waits for the longest */
        if (after > MS_LAP_NS) delay = delay > after ? delay - after : 0;
        if (passed > delay && passed - delay > times.elapsed_ns) times.elapsed_ns = passed - delay;
    }
    return times;
}

void ms_pause(void) {
    ms.burst_ns += ms_lap();
    struct ms_times part = ms_times_since(ms.lap_wall, ms.burst_ns - ms.part_ns);
    ms.parts[0] += part.process_ns;
    ms.parts[1] += part.longest_ns;
    ms.parts[2] += part.elapsed_ns;
    ms.part_ns = ms.burst_ns;
}

void ms_resume(void) {
    ms_lap_restart();
    ms_times_restart();
}

struct ms_times ms_times_of_phase(uint64_t wall, uint64_t cpu) {
    struct ms_times times = ms_times_since(wall, cpu - ms.part_ns);
    times.process_ns += ms.parts[0];
    times.longest_ns += ms.parts[1];
    times.elapsed_ns += ms.parts[2];
    ms.part_ns = ms.parts[0] = ms.parts[1] = ms.parts[2] = 0;
    return times;
}

/* The trace file of a process: buffers, chunks, limits, and what happens when the process forks, stops or dies. */
#define _GNU_SOURCE
#include "trace.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define VERSION 2
#define CHUNK_MAGIC 0x4b43534du /* MSCK */
#define STOP_BYTES 512 /* of the definitions' buffer, kept for the reason why tracing stopped */
enum { RUNNING, FINISHED, STOPPED };

struct chunk_header {
    uint32_t magic;
    uint16_t stream, codec; /* codec: 0 as it is, 1 zstd */
    uint64_t raw_bytes, stored_bytes;
};
struct tail_header {
    char magic[8]; /* "MSTAIL1" */
    uint32_t version, state;
    uint64_t flushed_bytes; /* length of the trace file's whole chunks */
    uint64_t used[8], offset[8];
};

static const uint64_t capacities[MS_STREAMS] = {
    [MS_DEFINITIONS] = 1 << 16, [MS_OPERATIONS] = 2400 * sizeof(struct ms_operation), [MS_LISTS] = 1 << 16,
    [MS_EVENTS] = 8192 * sizeof(struct ms_event), [MS_DETAIL] = 0,
    [MS_THREAD_OPERATIONS] = 256 * sizeof(struct ms_operation), [MS_THREAD_LISTS] = 1 << 14, [MS_COUNTS] = 1 << 16,
};

struct ms_state ms;
static struct tail_header *tail;
static int trace_file = -1;
static uint64_t trace_bytes;
static struct stat trace_identity;
static char trace_path[4096], tail_path[4096];
static pid_t owner_process;
static __thread char of_thread __attribute__((tls_model("initial-exec"))); /* its address tells threads apart */
static const char *owner_thread;
static volatile sig_atomic_t is_writing;
static atomic_ullong *budget; /* bytes left for all processes of this node, in a shared file */
static atomic_uint other_threads, num_threads, num_forks;
static pthread_mutex_t mutex = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
static int started;
static int32_t world_rank;

/* The call that a thread other than the traced one is in, and its lists. */
static __thread struct calling {
    struct ms_operation operation;
    int64_t *lists;
    uint32_t capacity, number;
    int depth;
    uint64_t cpu, wall, delay; /* when its last call ended */
} calling __attribute__((tls_model("initial-exec")));

void ms_lock(void) {
    if (MS_UNLIKELY(ms.is_threaded)) pthread_mutex_lock(&mutex);
}
void ms_unlock(void) {
    if (MS_UNLIKELY(ms.is_threaded)) pthread_mutex_unlock(&mutex);
}

/* zstd is looked up at run time: its library is on every machine, its headers are not. */
static void *zstd_context;
static size_t (*zstd_compress2)(void *, void *, size_t, const void *, size_t);
static size_t (*zstd_bound)(size_t);
static unsigned (*zstd_is_error)(size_t);

static void open_zstd(void) {
    void *library = dlopen("libzstd.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!library) return;
    void *(*create)(void) = (void *(*)(void))dlsym(library, "ZSTD_createCCtx");
    size_t (*set)(void *, int, int) = (size_t(*)(void *, int, int))dlsym(library, "ZSTD_CCtx_setParameter");
    zstd_compress2 = (size_t(*)(void *, void *, size_t, const void *, size_t))dlsym(library, "ZSTD_compress2");
    zstd_bound = (size_t(*)(size_t))dlsym(library, "ZSTD_compressBound");
    zstd_is_error = (unsigned (*)(size_t))dlsym(library, "ZSTD_isError");
    if (!create || !set || !zstd_compress2 || !zstd_bound || !zstd_is_error) return;
    zstd_context = create();
    if (zstd_context) {
        set(zstd_context, 100, 1); /* compression level */
        set(zstd_context, 201, 1); /* checksum */
    }
}

static int write_all(const void *data, uint64_t bytes) {
    const char *next = data;
    while (bytes) {
        ssize_t written = write(trace_file, next, bytes);
        if (written < 0 && errno == EINTR) continue;
        if (written <= 0) return -1;
        next += written;
        bytes -= (uint64_t)written;
    }
    return 0;
}

/* Whether the descriptor is still the trace's. Some programs close all descriptors that they do not know, and get its
   number again for a file of their own; then the trace is opened anew. */
static int has_file(void) {
    struct stat now;
    if (fstat(trace_file, &now) == 0 && now.st_dev == trace_identity.st_dev && now.st_ino == trace_identity.st_ino) return 1;
    trace_file = open(trace_path, O_WRONLY | O_CLOEXEC);
    return trace_file >= 0 && lseek(trace_file, (off_t)trace_bytes, SEEK_SET) >= 0;
}

/* The file never keeps half a chunk: what could not be written whole is cut off again. */
static void write_chunk(int stream, const void *data, uint64_t bytes) {
    static unsigned char *packed;
    static uint64_t packed_capacity;
    struct chunk_header header = {CHUNK_MAGIC, (uint16_t)stream, 0, bytes, bytes};
    const void *stored = data;
    if (zstd_context) {
        uint64_t bound = zstd_bound(bytes);
        if (bound > packed_capacity) {
            free(packed);
            packed = malloc(bound);
            packed_capacity = packed ? bound : 0;
        }
        if (packed) {
            size_t size = zstd_compress2(zstd_context, packed, packed_capacity, data, bytes);
            if (!zstd_is_error(size)) {
                header.codec = 1;
                header.stored_bytes = size;
                stored = packed;
            }
        }
    }
    uint64_t total = sizeof header + header.stored_bytes;
    if (!has_file()) {
        ms_stop("the program closed the trace's file");
        return;
    }
    if (budget) {
        uint64_t left = atomic_load(budget);
        do {
            if (left < total) {
                ms_stop("the limit of --disk-gb was reached");
                return;
            }
        } while (!atomic_compare_exchange_weak(budget, (unsigned long long *)&left, left - total));
    }
    if (write_all(&header, sizeof header) || write_all(stored, header.stored_bytes)) {
        int error = errno;
        if (ftruncate(trace_file, (off_t)trace_bytes) == 0) lseek(trace_file, (off_t)trace_bytes, SEEK_SET);
        ms_stop(error == ENOSPC ? "the disk is full" : strerror(error));
        return;
    }
    trace_bytes += total;
    /* In this order, so that a kill in between neither loses the buffer nor counts it twice: a chunk beyond
       flushed_bytes holds if it is whole and its stream's buffer is empty. */
    if (data == ms.streams[stream].data) *ms.streams[stream].used = 0;
    atomic_signal_fence(memory_order_seq_cst);
    tail->flushed_bytes = trace_bytes;
}

/* A handler of a signal that comes meanwhile may end the process: ms_finish writes nothing then. */
void ms_write_chunk(int stream, const void *data, uint64_t bytes) {
    int is_own = ms_own_thread();
    if (is_own) ms_hide();
    ms_lock();
    is_writing = 1;
    write_chunk(stream, data, bytes);
    is_writing = 0;
    ms_unlock();
    if (is_own) ms_show();
}

void ms_flush(int stream) {
    uint64_t used = *ms.streams[stream].used;
    if (used) ms_write_chunk(stream, ms.streams[stream].data, used);
}

void ms_define(const char *format, ...) {
    if (!ms.active) return;
    char line[16384];
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(line, sizeof line - 1, format, arguments);
    va_end(arguments);
    if (length < 0) return;
    if ((size_t)length >= sizeof line - 1) {
        ms_stop("a definition is too long");
        return;
    }
    line[length++] = '\n';
    ms_lock();
    struct ms_stream *stream = &ms.streams[MS_DEFINITIONS];
    if (*stream->used + (uint64_t)length + STOP_BYTES > stream->capacity) ms_flush(MS_DEFINITIONS);
    if (ms.active) {
        memcpy(stream->data + *stream->used, line, (size_t)length);
        *stream->used += (uint64_t)length;
    }
    ms_unlock();
}

/* What was recorded stays in the tail, the reason beside it in its last line of definitions. */
void ms_stop(const char *reason) {
    if (!ms.active) return;
    ms.active = 0;
    ms.detail_on = 0;
    if (ms.is_emulated) MS_TELL(MS_HIDES);
    tail->state = STOPPED;
    struct ms_stream *stream = &ms.streams[MS_DEFINITIONS];
    uint64_t space = stream->capacity - *stream->used;
    int length = snprintf((char *)stream->data + *stream->used, space, "{\"stopped\": \"%s\", \"operations\": %u, \"events\": %u}\n",
                          reason, ms.num_operations, ms.num_events);
    if (length > 0 && (uint64_t)length < space) *stream->used += (uint64_t)length;
    fprintf(stderr, "manyscale: tracing of process %d stopped: %s; the program goes on\n", (int)getpid(), reason);
}

int ms_own_thread(void) { return owner_thread == &of_thread; }

/* ---- windows of the detailed level: "UNIT RANK FIRST END" in positions of operations ("o"), in events ("e") or in
   iteration marks ("i") ---- */
struct window { char unit; int32_t rank; uint32_t first, end; };
static struct window *windows;
static int num_windows;
static uint32_t current_iteration;
static int iteration_seen;
static const char *wanted_regions; /* "solve,halo": windows are open inside these marked regions only; NULL for all */
static int wanted_depth;

static int is_wanted(const char *name) {
    size_t length = strlen(name);
    for (const char *next = wanted_regions; next && *next; next += strcspn(next, ",")) {
        next += *next == ',';
        if (strcspn(next, ",") == length && !strncmp(next, name, length)) return 1;
    }
    return 0;
}

static void read_windows(void) {
    const char *path = getenv("MANYSCALE_TRACE_WINDOWS");
    FILE *file = path ? fopen(path, "r") : NULL;
    if (!file) return;
    struct window window;
    long rank;
    while (fscanf(file, " %c %ld %u %u", &window.unit, &rank, &window.first, &window.end) == 4) {
        window.rank = (int32_t)rank;
        struct window *grown = realloc(windows, sizeof *windows * (size_t)(num_windows + 1));
        if (!grown) break;
        windows = grown;
        windows[num_windows++] = window;
        ms.watches_events |= window.unit == 'e';
    }
    fclose(file);
}

void ms_window(void) {
    if (!num_windows) return;
    int open = 0;
    for (int i = 0; i < num_windows && !open; i++) {
        const struct window *window = &windows[i];
        if (window->rank != world_rank) continue;
        uint32_t now = window->unit == 'o' ? ms.position : window->unit == 'e' ? ms.event_position : current_iteration;
        open = (window->unit != 'i' || iteration_seen) && now >= window->first && now < window->end;
    }
    open = open && ms.active && (!wanted_regions || wanted_depth > 0);
    if (open == ms.detail_on) return;
    if (!open && ms_detail_segment) ms_detail_segment();
    ms.detail_on = open;
    if (ms_detail_window) ms_detail_window(open);
}

/* ---- page faults ---- */
int64_t ms_count_faults(void) {
    struct rusage usage;
    return getrusage(RUSAGE_THREAD, &usage) ? ms.faults : (int64_t)usage.ru_minflt;
}

/* What counting takes: the least of some. From here on they are counted. */
static void measure_faults(void) {
    ms.faults_ns = UINT64_MAX;
    for (int i = 0; i < 20; i++) {
        uint64_t before = ms_wall();
        ms.faults = ms_count_faults();
        uint64_t took = ms_wall() - before;
        if (took < ms.faults_ns) ms.faults_ns = took;
    }
}

void ms_page_faults(void) {
    struct ms_stream *stream = &ms.streams[MS_EVENTS];
    int64_t now = ms_count_faults(), since = now - ms.faults;
    if (!since) return;
    if (*stream->used + sizeof(struct ms_event) > stream->capacity) {
        ms_flush(MS_EVENTS);
        now = ms_count_faults(); /* without those of writing it */
        ms_lap_restart();
    }
    ms.faults = now;
    if (!ms.active) return;
    struct ms_event *record = (struct ms_event *)(stream->data + *stream->used);
    *record = (struct ms_event){.kind = MS_PAGE_FAULTS, .num_operations = ms.num_operations, .task = ms.task, .value = since};
    *stream->used += sizeof *record;
    ms.num_events++;
}

/* ---- operations ---- */
static struct ms_operation *pending;
static const char *pending_frame;

/* Whether the call that was being recorded was left without returning, by longjmp or by an exception of an error
   handler: then a function whose frame is not below its own is called. (Frames far away are of another stack.) */
static int was_left(const char *frame) {
    enum { SAME_STACK = 1 << 20 };
    return frame >= pending_frame && frame - pending_frame < SAME_STACK;
}

/* A call of another thread is recorded when it ends. */
static struct ms_operation *begin_in_thread(unsigned call) {
    if (!ms.is_threaded) {
        atomic_fetch_add(&other_threads, 1);
        return NULL;
    }
    if (calling.depth++) return NULL;
    if (!calling.number) calling.number = atomic_fetch_add(&num_threads, 1) + 1;
    uint64_t cpu = ms_thread_cpu() - calling.cpu, wall = ms_wall(), elapsed = cpu;
    uint64_t passed = calling.wall ? wall - calling.wall : 0;
    if (passed > MS_LAP_NS && passed - passed / 20 > cpu) { /* it waited: for a CPU, or for something else? */
        uint64_t delay = ms_own_delay() - calling.delay;
        if (passed > delay && passed - delay > cpu) elapsed = passed - delay;
    }
    calling.operation = (struct ms_operation){
        .call = (uint16_t)call, .flags = MS_UNFINISHED | MS_OTHER_THREAD, .communicator = -1, .peer = -2, .source = -2,
        .request = -1, .start_ns = wall, .end_ns = wall, .cpu_ns = cpu, .process_ns = cpu, .longest_ns = cpu,
        .elapsed_ns = elapsed, .num_events = calling.number, .region = -1};
    return &calling.operation;
}

void ms_append(int number, const void *data, uint64_t bytes) {
    struct ms_stream *stream = &ms.streams[number];
    if (*stream->used + bytes > stream->capacity) ms_flush(number);
    if (!ms.active) return;
    if (bytes > stream->capacity) {
        ms_write_chunk(number, data, bytes);
        return;
    }
    memcpy(stream->data + *stream->used, data, bytes);
    *stream->used += bytes;
}

/* The lists first: should the process be killed in between, they are too many, not too few. */
static void end_in_thread(void) {
    ms_lock();
    if (ms.active && calling.operation.num_lists)
        ms_append(MS_THREAD_LISTS, calling.lists, calling.operation.num_lists * sizeof *calling.lists);
    if (ms.active) ms_append(MS_THREAD_OPERATIONS, &calling.operation, sizeof calling.operation);
    ms_unlock();
    calling.cpu = ms_thread_cpu();
    if (calling.operation.end_ns - calling.operation.start_ns > MS_LAP_NS || !calling.wall) calling.delay = ms_own_delay();
    calling.wall = ms_wall();
}

void ms_thread_ends(void) {
    if (!calling.number || calling.depth || !ms.active) return;
    if (begin_in_thread(0)) end_in_thread();
    calling.depth = 0;
    free(calling.lists);
    calling.lists = NULL;
    calling.capacity = 0;
}

struct ms_operation *ms_begin_in(unsigned call, const void *frame) {
    if (!ms.active) return NULL;
    if (MS_UNLIKELY(!ms_own_thread())) return begin_in_thread(call);
    if (MS_UNLIKELY(ms.depth > 0) && was_left(frame)) {
        ms.depth = 0;
        ms.burst_ns += pending->cpu_ns;
        ms.hidden -= ms.hidden > 0;
    }
    if (ms.depth++) return NULL;
    ms_hide();
    pending_frame = frame;
    uint64_t lap = ms_lap(), cpu = ms.burst_ns + lap, wall = ms.lap_wall;
    if (lap >= MS_FAULTS_NS && ms.faults_ns) ms_page_faults();
    struct ms_times times = ms_times_of_phase(wall, cpu);
    int64_t counted[MS_MOST_COUNTERS];
    int num_counted = MS_UNLIKELY(ms.num_counters) ? ms_counters_since(counted) : 0;
    if (ms.detail_on && ms_detail_segment) ms_detail_segment();
    struct ms_stream *stream = &ms.streams[MS_OPERATIONS];
    if (*stream->used + sizeof *pending > stream->capacity) ms_flush(MS_OPERATIONS);
    if (!ms.active) return NULL;
    pending = (struct ms_operation *)(stream->data + *stream->used);
    *pending = (struct ms_operation){.call = (uint16_t)call, .flags = MS_UNFINISHED, .communicator = -1, .peer = -2,
                                     .source = -2, .tag = 0, .receive_tag = 0, .request = -1, .start_ns = wall,
                                     .end_ns = wall, .cpu_ns = cpu, .process_ns = times.process_ns,
                                     .longest_ns = times.longest_ns, .elapsed_ns = times.elapsed_ns,
                                     .num_events = ms.num_events, .region = ms.region};
    ms.burst_ns = 0;
    *stream->used += sizeof *pending;
    if (num_counted) pending->flags |= MS_COUNTED;
    for (int i = 0; i < num_counted; i++) ms_list(pending, counted[i]);
    return pending;
}

void ms_list(struct ms_operation *operation, int64_t value) {
    if (MS_UNLIKELY(operation->flags & MS_OTHER_THREAD)) {
        if (operation->num_lists == calling.capacity) {
            int64_t *grown = realloc(calling.lists, (2 * (size_t)calling.capacity + 16) * sizeof *grown);
            if (!grown) return;
            calling.lists = grown;
            calling.capacity = 2 * calling.capacity + 16;
        }
        calling.lists[operation->num_lists++] = value;
        return;
    }
    struct ms_stream *stream = &ms.streams[MS_LISTS];
    if (*stream->used + sizeof value > stream->capacity) ms_flush(MS_LISTS);
    if (!ms.active) return;
    memcpy(stream->data + *stream->used, &value, sizeof value);
    *stream->used += sizeof value;
    operation->num_lists++;
}

void ms_end(struct ms_operation *operation, int repeats) {
    if (!operation) {
        int *depth = ms_own_thread() ? &ms.depth : &calling.depth;
        if (ms.active && *depth > 0) --*depth;
        return;
    }
    if (MS_UNLIKELY(operation->flags & MS_OTHER_THREAD)) {
        calling.depth--;
        operation->flags &= (uint16_t)~MS_UNFINISHED;
        operation->end_ns = ms_wall();
        end_in_thread();
        return;
    }
    ms.depth--;
    if (MS_UNLIKELY(!ms.active)) return; /* stopped meanwhile: its lists may lack values */
    operation->flags &= (uint16_t)~MS_UNFINISHED;
    operation->end_ns = ms_wall();
    ms.num_operations++;
    if (repeats) ms.position++;
    ms_window();
    if (MS_UNLIKELY(ms.num_counters)) ms_counters_restart();
    if (ms.faults_ns) ms.faults = ms_count_faults(); /* those inside MPI are nobody's */
    ms_lap_restart();
    ms_times_restart();
    ms_show();
}

void ms_set_rank(int rank, int size, const char *library) {
    world_rank = rank;
    ms.rank = rank;
    ms.num_ranks = size;
    ms_define("{\"rank\": %d, \"size\": %d, \"library\": \"%s\"}", rank, size, library);
    ms_window();
}

/* ---- marks in the source; manyscale.h finds this function by name ---- */
__attribute__((visibility("default"))) void manyscale_mark(int kind, const char *name, long value) {
    enum { BEGIN = 1, END = 2, ITERATION = 3 };
    static const char *names[256];
    static int32_t stack[256];
    static unsigned char is_counted[256];
    static int num_names, stacked;
    if (!ms_start() || !ms_own_thread()) return;
    if (kind == ITERATION) {
        struct ms_event *event = ms_event(28);
        if (event) event->value = value;
        current_iteration = (uint32_t)value;
        iteration_seen = 1;
        ms_window();
        return;
    }
    if (kind == BEGIN && name) {
        if (stacked == 256) {
            ms_stop("marked regions are nested more than 256 deep");
            return;
        }
        int id = 0;
        while (id < num_names && strcmp(names[id], name)) id++;
        if (id == num_names) {
            if (num_names == 256 || !(names[id] = strdup(name))) {
                ms_stop("more than 256 regions are marked");
                return;
            }
            num_names++;
            char quoted[512];
            size_t length = 0;
            for (const char *c = name; *c && length < sizeof quoted - 8; c++)
                length += (size_t)snprintf(quoted + length, 8, (*c == '"' || *c == '\\' || *c < 32) ? "\\u%04x" : "%c", (unsigned char)*c);
            quoted[length] = 0;
            ms_define("{\"region\": %d, \"name\": \"%s\"}", id, quoted);
        }
        struct ms_event *event = ms_event(26);
        if (event) event->value = id;
        is_counted[stacked] = (unsigned char)is_wanted(name);
        wanted_depth += is_counted[stacked];
        stack[stacked++] = ms.region;
        ms.region = id;
        ms_window();
    } else if (kind == END && stacked) {
        struct ms_event *event = ms_event(27);
        if (event) event->value = ms.region;
        stacked--;
        ms.region = stack[stacked];
        wanted_depth -= is_counted[stacked];
        ms_window();
    }
}

/* ---- start, end, fork ---- */
static int write_module(struct dl_phdr_info *info, size_t size, void *data) {
    (void)size;
    (void)data;
    const char *name = info->dlpi_name;
    char program[4096];
    if (!name || !*name) {
        ssize_t length = readlink("/proc/self/exe", program, sizeof program - 1);
        if (length <= 0) return 0;
        program[length] = 0;
        name = program;
    }
    uint64_t low = UINT64_MAX, high = 0;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *header = &info->dlpi_phdr[i];
        if (header->p_type != PT_LOAD) continue;
        if (header->p_vaddr < low) low = header->p_vaddr;
        if (header->p_vaddr + header->p_memsz > high) high = header->p_vaddr + header->p_memsz;
    }
    if (high && !strpbrk(name, "\"\\"))
        ms_define("{\"module\": \"%s\", \"base\": %llu, \"low\": %llu, \"high\": %llu}", name,
                  (unsigned long long)info->dlpi_addr, (unsigned long long)low, (unsigned long long)high);
    return 0;
}

/* Modules loaded later count, too: the list is written again at the end. */
static void define_modules(void) { dl_iterate_phdr(write_module, NULL); }

static void before_fork(void) { atomic_fetch_add(&num_forks, 1); }
static void in_child(void) {
    ms.active = 0;
    ms.detail_on = 0;
}

static int map_tail(void) {
    uint64_t size = 4096;
    for (int i = 0; i < MS_STREAMS; i++) size += (capacities[i] + 4095) & ~4095ull;
    int file = open(tail_path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
    if (file < 0) return -1;
    int error = posix_fallocate(file, 0, (off_t)size);
    void *mapped = error ? MAP_FAILED : mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    if (mapped == MAP_FAILED) {
        unlink(tail_path);
        errno = error ? error : errno;
        return -1;
    }
    tail = mapped;
    memcpy(tail->magic, "MSTAIL1", 8);
    tail->version = VERSION;
    tail->state = RUNNING;
    uint64_t offset = 4096;
    for (int i = 0; i < MS_STREAMS; i++) {
        tail->offset[i] = offset;
        ms.streams[i] = (struct ms_stream){(unsigned char *)mapped + offset, &tail->used[i], capacities[i]};
        offset += (capacities[i] + 4095) & ~4095ull;
    }
    return 0;
}

/* The rank as the launcher says it, before MPI is initialised. */
static int32_t launched_rank(void) {
    static const char *const names[] = {"OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK", "SLURM_PROCID"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const char *value = getenv(names[i]);
        if (value) return (int32_t)atoi(value);
    }
    return 0;
}

static void map_budget(void) {
    const char *path = getenv("MANYSCALE_TRACE_BUDGET");
    int file = path ? open(path, O_RDWR | O_CLOEXEC) : -1;
    if (file < 0) return;
    void *mapped = mmap(NULL, sizeof *budget, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    if (mapped != MAP_FAILED) budget = mapped;
}

int ms_start(void) {
    if (MS_LIKELY(started)) return ms.active;
    started = 1;
    world_rank = launched_rank();
    const char *folder = getenv("MANYSCALE_TRACE_DIR");
    if (!folder) return 0;
    const char *level = getenv("MANYSCALE_TRACE_LEVEL");
    char host[256] = "host", *path = trace_path;
    gethostname(host, sizeof host - 1);
    for (int attempt = 0; trace_file < 0 && attempt < 1000; attempt++) {
        snprintf(path, sizeof trace_path, "%s/%s.%d.%d.trace", folder, host, (int)getpid(), attempt);
        trace_file = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
        if (trace_file < 0 && errno != EEXIST) break;
    }
    if (trace_file >= 0) snprintf(tail_path, sizeof tail_path, "%.*s.tail", (int)(strlen(path) - 6), path);
    if (trace_file < 0 || fstat(trace_file, &trace_identity) || map_tail()) {
        fprintf(stderr, "manyscale: process %d is not traced: %s: %s\n", (int)getpid(), path, strerror(errno));
        return 0;
    }
    owner_process = getpid();
    owner_thread = &of_thread;
    ms.level = level ? atoi(level) : MS_LEVEL_MPI;
    ms.region = -1;
    ms.active = 1;
    open_zstd();
    map_budget();
    read_windows();
    wanted_regions = getenv("MANYSCALE_TRACE_REGIONS");
    ms.is_emulated = getenv("MANYSCALE_TRACE_EMULATED") != NULL;
    ms_hide();
    pthread_atfork(before_fork, NULL, in_child);
    struct timespec real;
    clock_gettime(CLOCK_REALTIME, &real);
    long long offset = (long long)real.tv_sec * 1000000000ll + real.tv_nsec - (long long)ms_wall();
    ms_define("{\"trace\": %d, \"process\": %d, \"host\": \"%s\", \"level\": %d, \"clock_offset_ns\": %lld, \"operation_bytes\": %zu, \"event_bytes\": %zu}",
              VERSION, (int)owner_process, host, ms.level, offset, sizeof(struct ms_operation), sizeof(struct ms_event));
    define_modules();
    if (ms_counters_start) ms.num_counters = ms_counters_start();
    if (ms.level >= MS_LEVEL_TASKS && !ms.is_emulated) measure_faults(); /* an emulator has faults of its own */
    ms_lap_restart();
    ms_times_start();
    ms_window();
    ms_show();
    return ms.active;
}

int ms_start_thread(void) {
    if (!ms_start()) return 0;
    if (!ms_own_thread() && !ms.num_operations && !ms.num_events && !ms.detail_on) {
        owner_thread = &of_thread;
        int num_counters = ms.num_counters; /* they count the other thread */
        if (num_counters && ms_counters_start() != num_counters) ms.num_counters = ms.counts_events = 0;
        ms.burst_ns = 0;
        if (ms.faults_ns) ms.faults = ms_count_faults(); /* each thread has its own */
        ms_lap_restart();
        ms_times_start();
    }
    return ms.active;
}

void ms_finish(void) {
    if (!tail || getpid() != owner_process || is_writing) return;
    if (ms.active && !ms_own_thread()) {
        /* The traced thread may be recording: what it has recorded stays in the tail. */
        ms.active = 0;
        tail->state = FINISHED;
        return;
    }
    if (ms.active) {
        if (ms.detail_on && ms_detail_segment) ms_detail_segment();
        if (ms_detail_finish) ms_detail_finish();
        if (ms_tasks_finish) ms_tasks_finish();
        if (ms.pauses) ms_resume();
        uint64_t rest = ms.burst_ns + ms_lap();
        struct ms_times times = ms_times_of_phase(ms.lap_wall, rest);
        int64_t counted[MS_MOST_COUNTERS];
        if (ms.counts_events && ms_counters_since(counted) == ms.num_counters)
            for (int i = 0; i < ms.num_counters; i++) ms_define("{\"rest_count\": %lld}", (long long)counted[i]);
        define_modules();
        ms_define("{\"rest_process_ns\": %llu, \"rest_longest_ns\": %llu, \"rest_elapsed_ns\": %llu}",
                  (unsigned long long)times.process_ns, (unsigned long long)times.longest_ns,
                  (unsigned long long)times.elapsed_ns);
        ms_define("{\"end\": true, \"rest_cpu_ns\": %llu, \"rest_region\": %d, \"operations\": %u, \"events\": %u, \"other_threads\": %u, \"forks\": %u, \"end_ns\": %llu}",
                  (unsigned long long)rest, ms.region, ms.num_operations, ms.num_events, atomic_load(&other_threads),
                  atomic_load(&num_forks), (unsigned long long)ms_wall());
        ms_lock();
        for (int i = 0; i < MS_STREAMS && ms.active; i++) ms_flush(i);
        ms_unlock();
    }
    if (ms.active) {
        tail->state = FINISHED;
        unlink(tail_path);
    }
    ms.active = 0;
    ms.detail_on = 0;
    if (has_file()) close(trace_file);
    tail = NULL;
}

/* A program that was named to be traced is traced from its first instruction; one inside a script only once it
   initialises MPI or OpenMP. Programs that it starts itself are not traced. */
__attribute__((constructor)) static void on_load(void) {
    if (!getenv("MANYSCALE_TRACE_ALWAYS")) return;
    ms_start();
    ms_hide();
    const char *preload = getenv("MANYSCALE_TRACE_PRELOAD"); /* what the user preloads */
    if (preload && *preload) setenv("LD_PRELOAD", preload, 1);
    else unsetenv("LD_PRELOAD");
    unsetenv("MANYSCALE_TRACE_PRELOAD");
    unsetenv("MANYSCALE_TRACE_ALWAYS");
    unsetenv("MANYSCALE_TRACE_DIR");
    ms_show();
}
__attribute__((destructor)) static void on_unload(void) { ms_finish(); }

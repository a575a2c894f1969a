// What the command gave (the folder, the device that is shown) and what is recorded of a process: a folder
// process-PID with the text `events` and a file for each launch.
#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "runtime.h"

enum { MOST_NOTES = 256 };

static pthread_mutex_t mutex = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
static Device shown;
static bool is_read;
static char process_folder[4096];
static FILE *events;
static struct {
    char code[48], name[160];
    uint64_t count;
} notes[MOST_NOTES];
static int num_notes;

static _Thread_local int num_locks;

// The tracer of MPI programs, where it is loaded, lets the clocks of the program stand still meanwhile.
extern void manyscale_gpu_enter(void) __attribute__((weak));
extern void manyscale_gpu_leave(void) __attribute__((weak));

int session_lock(void) {
    if (num_locks++ == 0 && manyscale_gpu_enter) manyscale_gpu_enter();
    pthread_mutex_lock(&mutex);
    return 1;
}

void session_unlock(int *locked) {
    (void)locked;
    pthread_mutex_unlock(&mutex);
    if (--num_locks == 0 && manyscale_gpu_leave) manyscale_gpu_leave();
}

int session_yield(void) {
    const int locks = num_locks;
    for (int k = 0; k < locks; k++) session_unlock(NULL);
    return locks;
}

void session_retake(int locks) {
    for (int k = 0; k < locks; k++) session_lock();
}

void session_message(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    fputs("manyscale: ", stderr);
    vfprintf(stderr, format, arguments);
    fputc('\n', stderr);
    va_end(arguments);
}

const char *session_folder(void) {
    const char *folder = getenv("MANYSCALE_CUDA_DIR");
    if (folder == NULL || *folder == 0) {
        session_message("this CUDA runtime runs programs of `manyscale trace --level gpu` alone; start the program by it");
        _exit(2);
    }
    return folder;
}

// Lines "key value" of the file `device`; the name is the rest of its line.
static void read_device(void) {
    const struct {
        const char *key;
        int *value;
    } numbers[] = {
        {"major", &shown.major}, {"minor", &shown.minor}, {"sms", &shown.sms}, {"clock_khz", &shown.clock_khz},
        {"memory_clock_khz", &shown.memory_clock_khz}, {"bus_bits", &shown.bus_bits}, {"warps", &shown.warps},
        {"blocks_per_sm", &shown.blocks_per_sm}, {"threads_per_sm", &shown.threads_per_sm},
        {"registers_per_sm", &shown.registers_per_sm}, {"register_unit", &shown.register_unit},
        {"l2_bytes", &shown.l2_bytes}, {"shared_per_sm", &shown.shared_per_sm},
        {"shared_per_block", &shown.shared_per_block}, {"shared_optin", &shown.shared_optin},
        {"shared_reserved", &shown.shared_reserved}, {"shared_unit", &shown.shared_unit},
        {"gpus", &shown.gpus}, {"checks_memory", &shown.checks_memory}, {"keeps_lanes", &shown.keeps_lanes},
        {"workers", &shown.workers}, {"chunk", &shown.chunk},
    };
    char path[4096], line[512];
    snprintf(path, sizeof path, "%s/device", session_folder());
    FILE *file = fopen(path, "r");
    if (file == NULL) {
        session_message("%s: %s; trace the program again", path, strerror(errno));
        _exit(2);
    }
    while (fgets(line, sizeof line, file)) {
        line[strcspn(line, "\n")] = 0;
        char *value = strchr(line, ' ');
        if (value == NULL) continue;
        *value++ = 0;
        if (!strcmp(line, "name")) snprintf(shown.name, sizeof shown.name, "%.250s", value);
        if (!strcmp(line, "regions")) snprintf(shown.regions, sizeof shown.regions, "%s", value);
        if (!strcmp(line, "memory_bytes")) shown.memory_bytes = strtoull(value, NULL, 10);
        for (size_t k = 0; k < sizeof numbers / sizeof *numbers; k++)
            if (!strcmp(line, numbers[k].key)) *numbers[k].value = atoi(value);
    }
    fclose(file);
    if (shown.gpus < 1) shown.gpus = 1;
    is_read = true;
}

const Device *device(void) {
    if (!is_read) read_device();
    return &shown;
}

static void write_notes(void) {
    for (int k = 0; k < num_notes; k++)
        fprintf(events, "note %s %llu %s\n", notes[k].code, (unsigned long long)notes[k].count, notes[k].name);
    fprintf(events, "end %llu\n", (unsigned long long)launches_made());
    fclose(events);
    events = NULL;
}

static void on_exit_of_process(void) {
    LOCKED;
    if (events) write_notes();
}

static FILE *opened(const char *path, const char *mode) {
    FILE *file = fopen(path, mode);
    if (file == NULL) {
        session_message("%s: %s; name a folder with room by -o", path, strerror(errno));
        _exit(2);
    }
    return file;
}

// What was recorded is the parent's; the child has its own folder, unless CUDA cannot be used in it any more.
static void in_child(void) {
    mutex = (pthread_mutex_t)PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
    if (events) close(fileno(events));
    events = NULL;
    num_notes = 0;
    errors_of_child();
}

__attribute__((constructor)) static void watch_copies(void) { pthread_atfork(NULL, NULL, in_child); }

static void open_events(void) {
    char path[4200];
    struct timespec now;
    snprintf(process_folder, sizeof process_folder, "%.4000s/process-%d", session_folder(), (int)getpid());
    if (mkdir(process_folder, 0777) && errno == EEXIST) {
        session_message("process %d, which used the GPU, runs another program that does; start that as a process of its own",
                        (int)getpid());
        _exit(2);
    }
    if (access(process_folder, W_OK)) {
        session_message("%s: %s; name another folder by -o", process_folder, strerror(errno));
        _exit(2);
    }
    snprintf(path, sizeof path, "%s/events", process_folder);
    events = opened(path, "w");
    setvbuf(events, NULL, _IOLBF, 1 << 16);  // what a program did before it died stands there
    clock_gettime(CLOCK_REALTIME, &now);
    fprintf(events, "begin %lld\n", (long long)now.tv_sec * 1000000000 + now.tv_nsec);
    static bool is_watched;
    if (!is_watched) atexit(on_exit_of_process);
    is_watched = true;
}

void session_event(const char *format, ...) {
    if (events == NULL) open_events();
    va_list arguments;
    va_start(arguments, format);
    vfprintf(events, format, arguments);
    va_end(arguments);
    fputc('\n', events);
}

void session_note(const char *code, const char *name) {
    if (events == NULL) open_events();
    for (int k = 0; k < num_notes; k++)
        if (!strcmp(notes[k].code, code) && !strcmp(notes[k].name, name)) {
            notes[k].count++;
            return;
        }
    if (num_notes == MOST_NOTES) return;
    snprintf(notes[num_notes].code, sizeof notes->code, "%s", code);
    snprintf(notes[num_notes].name, sizeof notes->name, "%s", name);
    notes[num_notes++].count = 1;
}

FILE *session_launch_file(uint64_t launch_id, const char *suffix) {
    char path[4200];
    if (events == NULL) open_events();
    snprintf(path, sizeof path, "%s/launch-%llu%s", process_folder, (unsigned long long)launch_id, suffix);
    FILE *file = opened(path, "wb");
    setvbuf(file, NULL, _IOFBF, 1 << 20);
    return file;
}

FILE *session_arrival_file(unsigned number, char *name, size_t room) {
    char path[4400];
    if (events == NULL) open_events();
    snprintf(name, room, "%.200s/arrived-%u", strrchr(process_folder, '/') + 1, number);
    snprintf(path, sizeof path, "%.4000s/%s", session_folder(), name);
    return opened(path, "wb");
}

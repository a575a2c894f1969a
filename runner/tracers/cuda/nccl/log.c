// Logs: one process writes messages, several read each of them once. A message stands in a file that all map; once all
// readers have taken all of them, the next one begins at the file's begin.
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "nccl.h"

enum { MOST_OPEN = 512, HEADER_BYTES = 1 << 16 };
static const uint64_t MOST_BYTES = 1ull << 36;  // of a file, of which only what was written takes room

typedef struct {
    uint64_t offset;
    About about;
} Message;
typedef struct {
    _Atomic uint32_t posted;
    _Atomic uint32_t taken[MOST_RANKS];
    Message messages[MOST_OPEN];
} Header;
_Static_assert(sizeof(Header) <= HEADER_BYTES, "the header has outgrown its room");

struct Log {
    Header *header;
    char path[4300];
    int num_readers;
    uint64_t next;  // the writer's: offset of what comes next
};

Log *log_open(const char *name, int num_readers) {
    const char *folder = getenv("MANYSCALE_CUDA_DIR");
    Log *log = calloc(1, sizeof *log);
    if (log == NULL || folder == NULL) return NULL;
    snprintf(log->path, sizeof log->path, "%.3900s/nccl", folder);
    mkdir(log->path, 0777);
    snprintf(log->path, sizeof log->path, "%.3900s/nccl/%.300s", folder, name);
    const int file = open(log->path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    void *mapped = MAP_FAILED;
    if (file >= 0 && ftruncate(file, (off_t)MOST_BYTES) == 0)
        mapped = mmap(NULL, MOST_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, file, 0);
    if (mapped == MAP_FAILED) say("%s: cannot be mapped (errno %d); name a folder with room by -o", log->path, errno);
    if (file >= 0) close(file);
    if (mapped == MAP_FAILED) {
        free(log);
        return NULL;
    }
    log->header = mapped;
    log->num_readers = num_readers;
    log->next = HEADER_BYTES;
    return log;
}

void log_close(Log *log, bool is_last) {
    if (log == NULL) return;
    munmap(log->header, MOST_BYTES);
    if (is_last) unlink(log->path);
    free(log);
}

static uint32_t least_taken(const Log *log) {
    const uint32_t posted = atomic_load(&log->header->posted);
    uint32_t most_open = 0;
    for (int k = 0; k < log->num_readers; k++) {
        const uint32_t open_ones = posted - atomic_load(&log->header->taken[k]);
        if (open_ones > most_open) most_open = open_ones;
    }
    return posted - most_open;
}

void *log_reserve(Log *log, uint64_t bytes) {
    uint32_t posted = atomic_load(&log->header->posted);
    while (posted - least_taken(log) >= MOST_OPEN) sched_yield();
    if (least_taken(log) == posted) log->next = HEADER_BYTES;
    if (bytes > MOST_BYTES - log->next) return NULL;
    return (char *)log->header + log->next;
}

void log_post(Log *log, uint64_t bytes, About about) {
    const uint32_t posted = atomic_load(&log->header->posted);
    log->header->messages[posted % MOST_OPEN] = (Message){log->next, about};
    log->next += (bytes + 63) & ~63ull;
    atomic_store(&log->header->posted, posted + 1);
    syscall(SYS_futex, &log->header->posted, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

const void *log_read(Log *log, int reader, About *about, bool (*is_over)(void *), void *user) {
    const uint32_t wanted = atomic_load(&log->header->taken[reader]);
    const struct timespec moment = {0, 20000000};
    uint32_t posted;
    while ((posted = atomic_load(&log->header->posted)) == wanted) {
        syscall(SYS_futex, &log->header->posted, FUTEX_WAIT, posted, &moment, NULL, 0);
        if (atomic_load(&log->header->posted) == wanted && is_over(user) && atomic_load(&log->header->posted) == wanted)
            return NULL;
    }
    const Message message = log->header->messages[wanted % MOST_OPEN];
    *about = message.about;
    return (char *)log->header + message.offset;
}

void log_taken(Log *log, int reader) { atomic_fetch_add(&log->header->taken[reader], 1); }

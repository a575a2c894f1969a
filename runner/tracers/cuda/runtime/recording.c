// Where the record of a launch goes. `manyscale trace` is asked before each launch, over a socket, whether to record it,
// to count it or to leave it out; it reads the record from the same socket while the launch runs, so that neither side
// holds more of it than some blocks, and the disk holds no second copy. With --keep-raw and --keep-addresses records are
// files.
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "runtime.h"

enum { BUFFER_BYTES = 1 << 20, MOST_RANGES = 256 };
enum Mode { OUTSIDE, COUNT, RECORD, RECORD_IN_FILE, LIMIT, COUNT_IN_FILE };  // as collector.py has them
static const char *const mode_names[] = {"outside", "counted", "recorded", "recorded", "limit", "counted"};

typedef struct {
    uint32_t kernel, is_in_region;
    uint64_t id, process;
    uint32_t grid[3], block[3];
    uint64_t dynamic_shared, stream;
} Asked;
typedef struct {
    uint32_t mode, num_ranges;  // that many ranges of blocks follow
} Answer;

static int connection = -1;
static Range ranges[MOST_RANGES];
static char buffer[BUFFER_BYTES];
static enum Mode mode;

static void lost(void) {
    session_message("what is recorded cannot be handed over: %s; trace the program again", strerror(errno));
    _Exit(2);
}

static ssize_t put(void *unused, const char *bytes, size_t size) {
    (void)unused;
    size_t done = 0;
    while (done < size) {
        const ssize_t sent = send(connection, bytes + done, size - done, MSG_NOSIGNAL);
        if (sent < 0 && errno == EINTR) continue;
        if (sent <= 0) return 0;
        done += (size_t)sent;
    }
    return (ssize_t)done;
}

static void get(void *into, size_t size) {
    for (size_t done = 0; done < size;) {
        const ssize_t got = recv(connection, (char *)into + done, size - done, 0);
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) lost();
        done += (size_t)got;
    }
}

static void join(const char *path) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    snprintf(address.sun_path, sizeof address.sun_path, "%s", path);
    connection = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (connection < 0 || connect(connection, (struct sockaddr *)&address, sizeof address)) lost();
}

static FILE *stream(void) {
    FILE *file = fopencookie(NULL, "w", (cookie_io_functions_t){.write = put});
    if (file == NULL) lost();
    setvbuf(file, buffer, _IOFBF, sizeof buffer);
    return file;
}

void recording_begin(Launch *launch, uint64_t id, uint32_t kernel, uint64_t stream_id) {
    const char *path = getenv("MANYSCALE_CUDA_SOCKET");
    mode = RECORD_IN_FILE;
    launch->num_chosen = 0;
    if (path != NULL) {
        if (connection < 0) join(path);
        Asked asked = {.kernel = kernel, .is_in_region = (uint32_t)region_is_open(), .id = id, .process = (uint64_t)getpid(),
                       .dynamic_shared = launch->dynamic_shared_bytes, .stream = stream_id};
        memcpy(asked.grid, launch->grid, sizeof asked.grid);
        memcpy(asked.block, launch->block, sizeof asked.block);
        if (put(NULL, (const char *)&asked, sizeof asked) == 0) lost();
        Answer answer;
        get(&answer, sizeof answer);
        mode = answer.mode <= COUNT_IN_FILE ? (enum Mode)answer.mode : LIMIT;
        launch->num_chosen = answer.num_ranges < MOST_RANGES ? answer.num_ranges : MOST_RANGES;
        get(ranges, launch->num_chosen * sizeof *ranges);
    }
    launch->chosen = ranges;
    const bool is_file = mode == RECORD_IN_FILE || mode == COUNT_IN_FILE;
    launch->counts_only = mode == COUNT || mode == COUNT_IN_FILE;
    launch->record = mode == OUTSIDE || mode == LIMIT ? NULL : is_file ? session_launch_file(id, "") : stream();
    launch->lanes = mode == RECORD_IN_FILE && device()->keeps_lanes ? session_launch_file(id, ".lanes") : NULL;
}

static bool closed(FILE *file) {
    if (file == NULL) return true;
    const bool is_written = !ferror(file);
    return !fclose(file) && is_written;
}

const char *recording_end(Launch *launch, uint64_t id) {
    const bool is_record_written = closed(launch->record), is_written = closed(launch->lanes) && is_record_written;
    if (!is_written) {
        session_message("the record of launch %llu cannot be written; name a folder with room by -o", (unsigned long long)id);
        _Exit(2);
    }
    return mode_names[mode];
}

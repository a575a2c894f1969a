// Device code that arrives while the program runs: a file of it is written, and the session that traces the program makes
// a module file of that (arriving.py says what is asked and answered).
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "runtime.h"

static int fail(Arrival *into, int error, const char *why) {
    into->error = error;
    snprintf(into->told, sizeof into->told, "%s", why);
    return -1;
}

static int exchanged(int connection, const char *request, char *answer, size_t room) {
    size_t done = 0, length = strlen(request);
    while (done < length) {
        const ssize_t written = write(connection, request + done, length - done);
        if (written < 0 && errno == EINTR) continue;
        if (written <= 0) return -1;
        done += (size_t)written;
    }
    for (done = 0; done + 1 < room;) {
        const ssize_t got = read(connection, answer + done, room - 1 - done);
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) break;
        done += (size_t)got;
    }
    answer[done] = 0;
    answer[strcspn(answer, "\n")] = 0;
    return done ? 0 : -1;
}

// 0 and the file that was made, or -1.
static int asked(const char *request, Arrival *into) {
    const char *path = getenv("MANYSCALE_CUDA_CODE");
    struct sockaddr_un place = {.sun_family = AF_UNIX};
    if (path == NULL || strlen(path) >= sizeof place.sun_path)
        return fail(into, cudaErrorNotSupported, "device code cannot be loaded outside of `manyscale trace --level gpu`");
    strcpy(place.sun_path, path);
    const int connection = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    char answer[2048] = "";
    const bool is_answered = connection >= 0 && !connect(connection, (struct sockaddr *)&place, sizeof place) &&
                             !exchanged(connection, request, answer, sizeof answer);
    if (connection >= 0) close(connection);
    if (!is_answered) return fail(into, cudaErrorUnknown, "the session that traces the program does not answer");
    int error = 0, place_of_text = 0;
    if (sscanf(answer, "done %255s %u", into->name, &into->first_kernel) == 2) return 0;
    if (sscanf(answer, "failed %d %n", &error, &place_of_text) == 1) return fail(into, error, answer + place_of_text);
    return fail(into, cudaErrorUnknown, answer);
}

int arriving_write(const void *content, size_t bytes, Arrival *into) {
    static unsigned count;
    FILE *file = session_arrival_file(++count, into->name, sizeof into->name);
    const bool is_written = fwrite(content, 1, bytes, file) == bytes;
    if (fclose(file) || !is_written) return fail(into, cudaErrorOperatingSystem, "the trace's folder has no room");
    return 0;
}

int arriving_load(const void *content, size_t bytes, const char *options, Arrival *into) {
    char request[1024];
    if (arriving_write(content, bytes, into)) return -1;
    snprintf(request, sizeof request, "load %s%s%s\n", into->name, *options ? " " : "", options);
    if (asked(request, into)) return -1;
    into->file = module_file(into->name, into->first_kernel);
    return 0;
}

int arriving_link(const char *files, const char *options, Arrival *into) {
    if (arriving_write("", 0, into)) return -1;
    const size_t room = strlen(files) + strlen(options) + strlen(into->name) + 16;
    char *request = malloc(room);
    if (request == NULL) return fail(into, cudaErrorMemoryAllocation, "out of memory");
    snprintf(request, room, "link %s%s%s%s\n", into->name, *options ? " " : "", options, files);
    const int failed = asked(request, into);
    free(request);
    return failed;
}

size_t fat_binary_bytes(const void *image) {
    const struct {
        uint32_t magic;
        uint16_t version, header;
        uint64_t content;
    } *begin = image;
    return begin->magic == 0xBA55ED50 ? begin->header + begin->content : 0;
}

/* Counters of the traced thread, read at both ends of every MPI call and, where it is asked for, at every event of the
   runtime system: what the program counted between them.

   perf_event_open(2), one group. The variable MANYSCALE_TRACE_COUNTERS lists NAME=TYPE:CONFIG:KERNEL (hexadecimal; see
   runner/tracers/counters.py); MANYSCALE_TRACE_COUNTERS_AT=events reads them at events. Counters of hardware are read by
   an instruction (event_page.h) where the kernel allows it, all others by read(2). One that cannot be opened is left out,
   and the trace says which and why. */
#define _GNU_SOURCE
#include "trace.h"

#include "event_page.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { READINGS = 32 }; /* of nothing, to learn what a reading counts itself */

static int files[MS_MOST_COUNTERS];
static const volatile struct perf_event_mmap_page *pages[MS_MOST_COUNTERS];
static int num_counters, num_defined, has_pages;
static struct reading { uint64_t gap_ns, values[MS_MOST_COUNTERS]; } latest;
static int64_t of_event[MS_MOST_COUNTERS], of_phase[MS_MOST_COUNTERS], cost[MS_MOST_COUNTERS];
static int is_phase_lost;

static int open_counter(unsigned type, unsigned long long config, int with_kernel) {
    struct perf_event_attr wanted;
    memset(&wanted, 0, sizeof wanted);
    wanted.size = sizeof wanted;
    wanted.type = type;
    wanted.config = config;
    wanted.exclude_hv = 1;
    wanted.exclude_kernel = !with_kernel;
    wanted.read_format = PERF_FORMAT_GROUP | PERF_FORMAT_TOTAL_TIME_ENABLED | PERF_FORMAT_TOTAL_TIME_RUNNING;
    return (int)syscall(SYS_perf_event_open, &wanted, 0, -1, num_counters ? files[0] : -1, PERF_FLAG_FD_CLOEXEC);
}

static int read_pages(struct reading *now) {
    uint64_t gap_ns;
    for (int i = 0; i < num_counters; i++)
        if (!ms_read_page(pages[i], &now->values[i], i ? &gap_ns : &now->gap_ns)) return 0;
    return 1;
}

/* Not from a file of the program's own: it may have closed ours and got the descriptor's number. (Pages stay.) */
static int read_files(struct reading *now) {
    struct { uint64_t number, enabled_ns, running_ns, values[MS_MOST_COUNTERS]; } found;
    uint64_t id;
    size_t size = (3 + (size_t)num_counters) * sizeof(uint64_t);
    if (ioctl(files[0], PERF_EVENT_IOC_ID, &id)) return num_counters = 0;
    if (read(files[0], &found, size) != (ssize_t)size) return 0;
    now->gap_ns = found.enabled_ns - found.running_ns;
    memcpy(now->values, found.values, sizeof now->values);
    return 1;
}

static inline int read_all(struct reading *now) {
    return num_counters && ((has_pages && read_pages(now)) || read_files(now));
}

/* What was counted since ``latest``, but for the cost of reading; 0 where the group was not on hardware all the time. */
static int increase_since_latest(int64_t *increase) {
    struct reading now;
    if (!read_all(&now) || now.gap_ns != latest.gap_ns) return 0;
    for (int i = 0; i < num_counters; i++) {
        int64_t since = (int64_t)(now.values[i] - latest.values[i]) - cost[i];
        increase[i] = since > 0 ? since : 0;
    }
    return num_counters;
}

static void measure_cost(void) {
    int64_t least[MS_MOST_COUNTERS], increase[MS_MOST_COUNTERS];
    int found = 0;
    memset(cost, 0, sizeof cost);
    for (int i = 0; i < READINGS; i++) {
        if (!read_all(&latest)) continue;
        ms_wall(); /* as at both ends of what lies between two events */
        ms_wall();
        if (!increase_since_latest(increase)) continue;
        for (int k = 0; k < num_counters; k++)
            if (!found || increase[k] < least[k]) least[k] = increase[k];
        found = 1;
    }
    if (found) memcpy(cost, least, sizeof cost);
}

static void map_pages(void) {
    long size = sysconf(_SC_PAGESIZE);
    has_pages = 1;
    for (int i = 0; i < num_counters; i++) {
        void *page = mmap(NULL, (size_t)size, PROT_READ, MAP_SHARED, files[i], 0);
        pages[i] = page == MAP_FAILED ? NULL : page;
        has_pages &= page != MAP_FAILED;
    }
    struct reading now;
    has_pages = has_pages && read_pages(&now);
}

static void close_counters(void) {
    uint64_t id;
    for (int i = 0; i < num_counters; i++) {
        if (pages[i]) munmap((void *)(uintptr_t)pages[i], (size_t)sysconf(_SC_PAGESIZE));
        if (!ioctl(files[i], PERF_EVENT_IOC_ID, &id)) close(files[i]);
        pages[i] = NULL;
    }
    num_counters = has_pages = 0;
}

int ms_counters_start(void) {
    const char *chosen = getenv("MANYSCALE_TRACE_COUNTERS"), *at = getenv("MANYSCALE_TRACE_COUNTERS_AT");
    int is_asked = at != NULL, is_again = num_defined > 0;
    char names[1024], listed[1024];
    close_counters();
    snprintf(names, sizeof names, "%s", chosen ? chosen : "");
    size_t length = 0;
    for (char *rest, *word = strtok_r(names, ",", &rest); word; word = strtok_r(NULL, ",", &rest)) {
        char name[64];
        unsigned type, with_kernel;
        unsigned long long config;
        if (sscanf(word, "%63[^=]=%x:%llx:%x", name, &type, &config, &with_kernel) != 4) continue;
        int file = num_counters == MS_MOST_COUNTERS ? -1 : open_counter(type, config, (int)with_kernel);
        if (file < 0) {
            int error = num_counters == MS_MOST_COUNTERS ? EINVAL : errno;
            if (is_asked && !is_again) ms_define("{\"uncounted\": \"%s\", \"error\": %d}", name, error);
            continue;
        }
        length += (size_t)snprintf(listed + length, sizeof listed - length, "%s\"%s\"", num_counters ? ", " : "", name);
        files[num_counters++] = file;
    }
    if (!num_counters) return 0;
    map_pages();
    measure_cost();
    if (!read_all(&latest)) return num_counters = 0;
    if (!is_again) {
        num_defined = num_counters;
        ms_define("{\"counters\": [%s], \"counter_reading\": \"%s\"}", listed, has_pages ? "rdpmc" : "read");
    }
    ms.counts_events = at && !strcmp(at, "events");
    return num_counters;
}

int ms_counters_since(int64_t *increase) {
    if (!increase_since_latest(increase) || is_phase_lost) return 0;
    for (int i = 0; i < num_counters; i++) increase[i] += of_phase[i];
    return num_counters;
}

void ms_counters_restart(void) {
    memset(of_phase, 0, sizeof of_phase);
    is_phase_lost = !read_all(&latest);
}

void ms_counters_take(void) {
    if (increase_since_latest(of_event)) {
        for (int i = 0; i < num_counters; i++) of_phase[i] += of_event[i];
        return;
    }
    is_phase_lost = 1;
    for (int i = 0; i < num_defined; i++) of_event[i] = -1;
}

void ms_counters_go_on(void) { read_all(&latest); }

void ms_counters_put(void) {
    if (!ms.active) return;
    ms_append(MS_COUNTS, of_event, (uint64_t)num_defined * sizeof *of_event);
    read_all(&latest);
    uint64_t wall = ms_wall(), own = wall - ms.lap_wall; /* of the readings, and of recording the event */
    ms.lap_pending += own;
    ms.recorded_ns += own;
    ms.lap_wall = wall;
}

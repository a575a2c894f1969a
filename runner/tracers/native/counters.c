/* Hardware counters of the traced thread, read at both ends of every MPI call: what the program counted between them.

   perf_event_open(2), user space only; where it does not work (virtual machines, perf_event_paranoid above 2) nothing is
   counted. The variable MANYSCALE_TRACE_COUNTERS names other counters of the table below, or none. */
#define _GNU_SOURCE
#include "trace.h"

#include <linux/perf_event.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

static const struct known {
    const char *name;
    uint32_t type;
    uint64_t config;
} known[] = {
    {"PAPI_TOT_INS", PERF_TYPE_HARDWARE, PERF_COUNT_HW_INSTRUCTIONS},
    {"PAPI_TOT_CYC", PERF_TYPE_HARDWARE, PERF_COUNT_HW_CPU_CYCLES},
    {"task-clock", PERF_TYPE_SOFTWARE, PERF_COUNT_SW_TASK_CLOCK},
    {"page-faults", PERF_TYPE_SOFTWARE, PERF_COUNT_SW_PAGE_FAULTS},
};

static int files[MS_MOST_COUNTERS] = {-1};
static int num_counters;
static struct reading {
    uint64_t number, enabled_ns, running_ns, values[MS_MOST_COUNTERS];
} latest;

static int open_counter(const struct known *counter) {
    struct perf_event_attr wanted;
    memset(&wanted, 0, sizeof wanted);
    wanted.size = sizeof wanted;
    wanted.type = counter->type;
    wanted.config = counter->config;
    wanted.exclude_kernel = wanted.exclude_hv = 1;
    wanted.read_format = PERF_FORMAT_GROUP | PERF_FORMAT_TOTAL_TIME_ENABLED | PERF_FORMAT_TOTAL_TIME_RUNNING;
    return (int)syscall(SYS_perf_event_open, &wanted, 0, -1, num_counters ? files[0] : -1, PERF_FLAG_FD_CLOEXEC);
}

/* Not from a file of the program's own: it may have closed ours and got the descriptor's number. */
static int read_all(struct reading *now) {
    uint64_t id;
    if (!num_counters || ioctl(files[0], PERF_EVENT_IOC_ID, &id)) return num_counters = 0;
    size_t size = (3 + (size_t)num_counters) * sizeof(uint64_t);
    return read(files[0], now, size) == (ssize_t)size;
}

int ms_counters_start(void) {
    const char *chosen = getenv("MANYSCALE_TRACE_COUNTERS");
    char names[256], listed[256];
    snprintf(names, sizeof names, "%s", chosen ? chosen : "PAPI_TOT_INS,PAPI_TOT_CYC");
    size_t length = 0;
    for (char *rest, *name = strtok_r(names, ",", &rest); name; name = strtok_r(NULL, ",", &rest)) {
        size_t i = 0;
        while (i < sizeof known / sizeof *known && strcmp(known[i].name, name)) i++;
        if (i == sizeof known / sizeof *known || num_counters == MS_MOST_COUNTERS) continue;
        int file = open_counter(&known[i]);
        if (file < 0) continue;
        length += (size_t)snprintf(listed + length, sizeof listed - length, "%s\"%s\"", num_counters ? ", " : "", name);
        files[num_counters++] = file;
    }
    if (!num_counters || !read_all(&latest)) return num_counters = 0;
    ms_define("{\"counters\": [%s]}", listed);
    return num_counters;
}

int ms_counters_since(int64_t *increase) {
    struct reading now;
    if (!read_all(&now)) return 0;
    /* one that shared its hardware with others did not count all the time */
    if (now.running_ns - latest.running_ns != now.enabled_ns - latest.enabled_ns) return 0;
    for (int i = 0; i < num_counters; i++) increase[i] = (int64_t)(now.values[i] - latest.values[i]);
    return num_counters;
}

void ms_counters_restart(void) { read_all(&latest); }

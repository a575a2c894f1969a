// Regions of a program in which launches are recorded: between cudaProfilerStart and cudaProfilerStop (named profiler),
// and NVTX ranges (nvtx.c) by their names. A launch is in a region if the thread that launches it has pushed a range of
// that name, or if a range that belongs to no thread is open.
#include <string.h>

#include "runtime.h"

static int64_t open_everywhere;
static _Thread_local int64_t open_here;

bool region_is_wanted(const char *name) {
    const char *listed = device()->regions;
    const size_t length = strlen(name);
    while (*listed) {
        const size_t end = strcspn(listed, ",");
        if (end == length && !strncmp(listed, name, length)) return true;
        listed += end + (listed[end] == ',');
    }
    return false;
}

void region_of_process(int change) {
    if (open_everywhere + change >= 0) open_everywhere += change;
}

void region_of_thread(int change) { open_here += change; }

bool region_is_open(void) { return device()->regions[0] == 0 || open_everywhere > 0 || open_here > 0; }

static void profile(bool starts) {
    static bool is_profiled;
    session_event("profiler %llu %s", (unsigned long long)launches_made() + 1, starts ? "start" : "stop");
    if (starts != is_profiled && region_is_wanted("profiler")) region_of_process(starts ? 1 : -1);
    is_profiled = starts;
}

cudaError_t cudaProfilerStart(void) {
    LOCKED;
    profile(true);
    return done();
}

cudaError_t cudaProfilerStop(void) {
    LOCKED;
    profile(false);
    return done();
}

/* counter_group: counters.c against a kernel that is made up by perf_event_open(2): what it asks the kernel for, how it
   reads a group by its pages and by read(2), and what it does where the group was not on hardware all the time, where
   a counter does not fit, and where all are forbidden. Fails with the line that finds it wrong. */
#include <stdarg.h>
#include <stdint.h>

static uint64_t hardware[8];
static uint64_t read_counter(uint32_t counter) { return hardware[counter]; }
#define MS_READ_COUNTER read_counter
#include "counters.c"

struct ms_state ms;

enum { FIRST_FILE = 700, PAGE = 4096 };
static struct perf_event_attr asked[8];
static int group_of[8], opened, fits = 8, refuses_with, reads, is_wrong;
static unsigned char memory[8][PAGE] __attribute__((aligned(PAGE)));
static struct { uint64_t number, enabled, running, values[8]; } by_read;
static char defined[1024];
static int64_t appended[8];

static struct perf_event_mmap_page *page_of(int i) { return (struct perf_event_mmap_page *)memory[i]; }

long syscall(long number, ...) {
    va_list list;
    va_start(list, number);
    struct perf_event_attr *wanted = va_arg(list, struct perf_event_attr *);
    int process = va_arg(list, int), processor = va_arg(list, int), group = va_arg(list, int);
    unsigned long flags = va_arg(list, unsigned long);
    va_end(list);
    is_wrong |= number != SYS_perf_event_open || process != 0 || processor != -1 || flags != PERF_FLAG_FD_CLOEXEC;
    if (refuses_with || opened == fits) {
        errno = refuses_with ? refuses_with : EINVAL;
        return -1;
    }
    asked[opened] = *wanted;
    group_of[opened] = group;
    return FIRST_FILE + opened++;
}
int ioctl(int file, unsigned long request, ...) {
    is_wrong |= request != PERF_EVENT_IOC_ID || file < FIRST_FILE;
    return 0;
}
ssize_t read(int file, void *to, size_t bytes) {
    reads++;
    is_wrong |= file != FIRST_FILE || bytes != (3 + (size_t)opened) * 8;
    memcpy(to, &by_read, bytes);
    return (ssize_t)bytes;
}
void *mmap(void *at, size_t length, int protection, int flags, int file, off_t offset) {
    (void)at;
    is_wrong |= length != PAGE || protection != PROT_READ || flags != MAP_SHARED || file < FIRST_FILE || offset;
    return memory[file - FIRST_FILE];
}
int munmap(void *at, size_t length) { (void)at; (void)length; return 0; }
int close(int file) { (void)file; return 0; }

void ms_define(const char *format, ...) {
    va_list list;
    va_start(list, format);
    size_t length = strlen(defined);
    vsnprintf(defined + length, sizeof defined - length, format, list);
    va_end(list);
}
void ms_append(int stream, const void *data, uint64_t bytes) {
    is_wrong |= stream != MS_COUNTS || bytes > sizeof appended;
    memcpy(appended, data, bytes);
}

/* Of ``counters`` that all are on hardware; the first counter of the processor is number 0. */
static int start(const char *counters) {
    opened = reads = num_defined = 0;
    defined[0] = 0;
    memset(memory, 0, sizeof memory);
    for (int i = 0; i < 8; i++) {
        page_of(i)->cap_user_rdpmc = 1;
        page_of(i)->index = (uint32_t)i + 1;
        page_of(i)->pmc_width = 48;
    }
    memset(&by_read, 0, sizeof by_read);
    setenv("MANYSCALE_TRACE_COUNTERS", counters, 1);
    setenv("MANYSCALE_TRACE_COUNTERS_AT", "events", 1);
    return ms_counters_start();
}

#define EXPECT(x) do { if (!(x) || is_wrong) return __LINE__; } while (0)

int main(void) {
    int64_t found[8] = {0};
    /* what is asked for: two of hardware and one of the kernel, which counts inside it, too */
    EXPECT(start("a=0:1:0,b=4:1c2:0,c=1:3:1") == 3 && reads == 0 && ms.counts_events);
    EXPECT(!strcmp(defined, "{\"counters\": [\"a\", \"b\", \"c\"], \"counter_reading\": \"rdpmc\"}"));
    EXPECT(asked[0].size == sizeof asked[0] && asked[0].type == PERF_TYPE_HARDWARE && asked[0].config == 1);
    EXPECT(asked[1].type == PERF_TYPE_RAW && asked[1].config == 0x1c2 && asked[2].type == PERF_TYPE_SOFTWARE);
    EXPECT(asked[0].exclude_kernel && asked[0].exclude_hv && !asked[2].exclude_kernel && !asked[0].disabled);
    EXPECT(asked[0].read_format == (1 | 2 | 8)); /* time enabled, time running, group */
    EXPECT(group_of[0] == -1 && group_of[1] == FIRST_FILE && group_of[2] == FIRST_FILE);
    /* by pages: the page's offset and what the processor's counter holds */
    ms_counters_restart();
    hardware[0] += 1000, hardware[1] += 7, page_of(2)->offset += 2;
    EXPECT(ms_counters_since(found) == 3 && found[0] == 1000 && found[1] == 7 && found[2] == 2 && reads == 0);
    /* two events of a phase, of which the phase has the sum */
    ms_counters_restart();
    ms.active = 1;
    hardware[0] += 30;
    ms_counters_take();
    ms_counters_put();
    EXPECT(appended[0] == 30 && appended[1] == 0);
    hardware[0] += 12;
    EXPECT(ms_counters_since(found) == 3 && found[0] == 42);
    /* the group was off hardware for 5 ns meanwhile: what it counted is no count of all */
    ms_counters_restart();
    hardware[0] += 9;
    page_of(0)->time_enabled += 25, page_of(0)->time_running += 20;
    ms_counters_take();
    ms_counters_put();
    EXPECT(appended[0] == -1 && appended[1] == -1);
    EXPECT(ms_counters_since(found) == 0);
    ms_counters_restart();
    hardware[0] += 4;
    EXPECT(ms_counters_since(found) == 3 && found[0] == 4);
    /* off hardware when it is read: the kernel has the sums, as one record of the group */
    page_of(1)->index = 0;
    by_read.number = 3, by_read.enabled = 100, by_read.running = 60;
    by_read.values[0] = 500, by_read.values[1] = 50, by_read.values[2] = 5;
    ms_counters_restart();
    by_read.values[0] = 511, by_read.values[2] = 6, by_read.enabled = 130, by_read.running = 90;
    EXPECT(ms_counters_since(found) == 3 && found[0] == 11 && found[1] == 0 && found[2] == 1 && reads == 2);
    by_read.enabled = 140; /* waits for hardware */
    EXPECT(ms_counters_since(found) == 0);
    /* more than the processor counts at a time: those that fit, and which did not */
    fits = 2;
    EXPECT(start("a=0:1:0,b=0:0:0,c=0:5:0") == 2);
    EXPECT(!strncmp(defined, "{\"uncounted\": \"c\", \"error\": 22}{\"counters\": [\"a\", \"b\"]", 52));
    /* perf_event_paranoid forbids them: the trace says so, and the program goes on */
    refuses_with = EACCES;
    EXPECT(start("a=0:1:0") == 0);
    EXPECT(!strcmp(defined, "{\"uncounted\": \"a\", \"error\": 13}"));
    EXPECT(ms_counters_since(found) == 0);
    return 0;
}

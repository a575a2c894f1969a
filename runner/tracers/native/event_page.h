/* A counter read without the kernel: the protocol of perf_event_open(2) for the page that it maps.

   The kernel writes the page under a sequence lock: a reader that finds the lock changed reads again. The value is the
   page's offset and what the processor's counter holds, which has ``pmc_width`` bits and a sign. */
#ifndef MANYSCALE_EVENT_PAGE_H
#define MANYSCALE_EVENT_PAGE_H

#include <linux/perf_event.h>
#include <stdint.h>

#ifndef MS_READ_COUNTER /* a test brings its own */
#if defined(__x86_64__)
static inline uint64_t ms_rdpmc(uint32_t counter) {
    uint32_t low, high;
    __asm__ volatile("rdpmc" : "=a"(low), "=d"(high) : "c"(counter));
    return (uint64_t)high << 32 | low;
}
#define MS_READ_COUNTER ms_rdpmc
#endif
#endif

/* Whether the counter is on hardware that this thread may read: then its value, and how long it was enabled without being
   on hardware, ns. */
static inline int ms_read_page(const volatile struct perf_event_mmap_page *page, uint64_t *value, uint64_t *gap_ns) {
#ifdef MS_READ_COUNTER
    uint32_t lock, index;
    int64_t count;
    do {
        lock = page->lock;
        __asm__ volatile("" ::: "memory");
        index = page->cap_user_rdpmc ? page->index : 0;
        *gap_ns = page->time_enabled - page->time_running;
        count = (int64_t)page->offset;
        if (index) {
            unsigned unused = 64u - page->pmc_width;
            uint64_t counter = MS_READ_COUNTER(index - 1);
            count += (int64_t)(counter << unused) >> unused;
        }
        __asm__ volatile("" ::: "memory");
    } while (page->lock != lock || lock & 1);
    *value = (uint64_t)count;
    return index != 0;
#else
    (void)page;
    (void)value;
    (void)gap_ns;
    return 0;
#endif
}

#endif

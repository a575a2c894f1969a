/* event_page: reads pages that are made up by the protocol of event_page.h, and fails with the line that finds it wrong.

   A stand-in for the processor's instruction changes the page while it is read, as the kernel does. */
#include <stdint.h>
#include <stdio.h>
#include <string.h>

static uint64_t read_counter(uint32_t counter);
#define MS_READ_COUNTER read_counter
#include "event_page.h"

static struct perf_event_mmap_page page;
static uint64_t hardware;
static int changes, wrong_counter;

static uint64_t read_counter(uint32_t counter) {
    wrong_counter |= counter != 4;
    if (changes) { /* moved to another counter meanwhile */
        changes--;
        page.lock += 2;
        page.offset += 1000;
        page.time_enabled += 7;
    }
    return hardware;
}

#define EXPECT(x) do { if (!(x)) return __LINE__; } while (0)

int main(void) {
    uint64_t value = 0, gap_ns = 0;
    memset(&page, 0, sizeof page);
    page.index = 5;
    page.pmc_width = 48;
    page.offset = 100;
    page.time_enabled = 50;
    page.time_running = 30;
    page.cap_user_rdpmc = 1;
    hardware = 23;
    EXPECT(ms_read_page(&page, &value, &gap_ns) && value == 123 && gap_ns == 20);
    hardware = 0xffff00000000ffffull; /* of 48 bits, that is 65535 */
    EXPECT(ms_read_page(&page, &value, &gap_ns) && value == 100 + 65535);
    hardware = 0x0000fffffffffff6ull; /* -10: counters begin below 0, to overflow in time */
    EXPECT(ms_read_page(&page, &value, &gap_ns) && value == 90);
    hardware = 1;
    changes = 2;
    EXPECT(ms_read_page(&page, &value, &gap_ns) && value == 2101 && gap_ns == 34 && changes == 0);
    page.index = 0; /* not on hardware */
    EXPECT(!ms_read_page(&page, &value, &gap_ns));
    page.index = 5;
    page.cap_user_rdpmc = 0;
    EXPECT(!ms_read_page(&page, &value, &gap_ns));
    return wrong_counter ? __LINE__ : 0;
}

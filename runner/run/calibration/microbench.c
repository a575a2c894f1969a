/* Times of caches, memory and instructions of one core.
 *
 * usage: microbench CORE LINE MILLISECONDS REQUEST...
 * REQUEST is NAME or NAME:NUMBER, a row of the table `requests`. Each prints "REQUEST best median repetitions", the
 * times in ns per unit (a load, an instruction, a byte), or "REQUEST unsupported". A repetition takes at least 100 us,
 * so that one that nothing interrupts is among them; there are as many as the milliseconds hold, at least five.
 *
 * Loads that wait for each other follow a random cycle through all lines of a working set, which no prefetcher guesses.
 */
#define _GNU_SOURCE
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

enum { MOST_CHAINS = 64, MOST_REPETITIONS = 100000, HUGE_PAGE = 2 << 20 };
static const double SHORTEST_NS = 100e3;
static size_t line = 64; /* bytes of a cache line */

static double now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1e9 + now.tv_nsec;
}

static void fail(const char *what) {
    perror(what);
    exit(1);
}

/* ---- memory ---- */

struct memory {
    char *start;
    size_t bytes;
    int refused;
};
static struct memory small_pages, huge_pages;
static void *chains[MOST_CHAINS];
static long most_units; /* of one request, where a place must not come twice; 0: no limit */

/* At least `bytes`, zeroed, in pages of the usual or of the huge size; NULL where the system gives no huge ones. */
static char *memory_of(struct memory *memory, size_t bytes) {
    int huge = memory == &huge_pages;
    if (memory->refused)
        return NULL;
    if (memory->bytes >= bytes)
        return memory->start;
    if (memory->start)
        munmap(memory->start, memory->bytes + HUGE_PAGE);
    memory->bytes = (bytes + HUGE_PAGE - 1) & ~(size_t)(HUGE_PAGE - 1);
    char *start =
        mmap(NULL, memory->bytes + 2 * HUGE_PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (start == MAP_FAILED)
        fail("mmap");
    memory->start = (char *)(((uintptr_t)start + HUGE_PAGE - 1) & ~(uintptr_t)(HUGE_PAGE - 1));
    int advised = madvise(memory->start, memory->bytes, huge ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
    struct rusage before, after;
    getrusage(RUSAGE_SELF, &before);
    memset(memory->start, 1, memory->bytes);
    getrusage(RUSAGE_SELF, &after);
    long faults = after.ru_minflt - before.ru_minflt; /* one per page that was given */
    if (huge && (advised || faults > (long)(memory->bytes / HUGE_PAGE) * 16 + 16)) {
        munmap(memory->start, memory->bytes);
        memory->start = NULL;
        memory->bytes = 0;
        memory->refused = 1;
    }
    return memory->start;
}

static uint64_t random_state = 88172645463325252u;

static uint64_t random_below(uint64_t bound) { /* xorshift64: the order of a chase needs no better one */
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return random_state % bound;
}

/* 0 to count - 1 in random order; the caller frees it. */
static uint32_t *random_order(size_t count) {
    uint32_t *order = malloc(count * sizeof *order);
    if (!order)
        fail("malloc");
    for (size_t i = 0; i < count; i++)
        order[i] = i;
    for (size_t i = count - 1; i > 0; i--) {
        size_t j = random_below(i + 1);
        uint32_t kept = order[i];
        order[i] = order[j];
        order[j] = kept;
    }
    return order;
}

/* Links `count` places into one random cycle and starts the chains evenly along it. Place i is at `stride` i, for more
 * than a line also moved by some lines, lest all be in one set of a cache. */
static void link_cycle(char *memory, size_t count, size_t stride) {
    uint32_t *order = random_order(count);
#define PLACE(i) (memory + order[i] * stride + (stride > line ? order[i] * line % stride : 0))
    for (size_t i = 0; i < count; i++)
        *(void **)PLACE(i) = PLACE(i + 1 < count ? i + 1 : 0);
    for (size_t k = 0; k < MOST_CHAINS; k++)
        chains[k] = PLACE(k * count / MOST_CHAINS);
#undef PLACE
    free(order);
}

/* ---- loads that wait for each other ---- */

static long chase(long number, long rounds) {
    (void)number;
    void *place = chains[0];
    for (long i = 0; i < rounds; i++) {
#define HOP place = *(void *volatile *)place;
        HOP HOP HOP HOP HOP HOP HOP HOP HOP HOP HOP HOP HOP HOP HOP HOP
#undef HOP
    }
    chains[0] = place;
    return rounds * 16;
}

static struct { struct memory *memory; size_t count, stride; } linked;

static int prepare(struct memory *memory, size_t count, size_t stride) {
    if (count < 2 || !memory_of(memory, count * stride))
        return 0;
    if (linked.memory == memory && linked.count == count && linked.stride == stride)
        return 1;
    link_cycle(memory->start, count, stride);
    linked.memory = memory;
    linked.count = count;
    linked.stride = stride;
    chase(0, (count < (64 << 20) / line ? count : count / 8) / 16 + 1); /* once round, or for what no cache holds less */
    return 1;
}

static int prepare_lines(long bytes) { return prepare(&small_pages, bytes / line, line); }
static int prepare_huge(long bytes) { return prepare(&huge_pages, bytes / line, line); }

/* Lines in their order, in blocks of `block` bytes in random order: what a prefetcher sees that does not leave one. */
static int prepare_blocks(long bytes, size_t block) {
    size_t count = bytes / block, in_block = block / line;
    if (count < 2 || !memory_of(&small_pages, bytes))
        return 0;
    uint32_t *order = random_order(count);
    for (size_t i = 0; i < count; i++)
        for (size_t k = 0; k < in_block; k++) {
            char *next = k + 1 < in_block ? small_pages.start + order[i] * block + (k + 1) * line
                                          : small_pages.start + order[i + 1 < count ? i + 1 : 0] * block;
            *(void **)(small_pages.start + order[i] * block + k * line) = next;
        }
    chains[0] = small_pages.start + order[0] * block;
    free(order);
    linked.memory = NULL;
    most_units = bytes / line; /* once round */
    return 1;
}
static int prepare_ordered(long bytes) { return prepare_blocks(bytes, HUGE_PAGE); }
static int prepare_ordered_pages(long bytes) { return prepare_blocks(bytes, sysconf(_SC_PAGESIZE)); }
static int prepare_pages(long pages) { return prepare(&small_pages, pages, sysconf(_SC_PAGESIZE)); }

/* `number` chains at once. */
static long parallel_bytes;
static int set_parallel(long bytes) { return (parallel_bytes = bytes) > 0; }

static int prepare_parallel(long number) {
    int possible =
        number >= 1 && number <= MOST_CHAINS && (prepare_huge(parallel_bytes) || prepare_lines(parallel_bytes));
    most_units = linked.count / 2; /* what a cache kept of an earlier round would count as a miss that took no time */
    return possible;
}

static long parallel(long number, long rounds) {
    for (long i = 0; i < rounds; i++)
        for (long k = 0; k < number; k++)
            chains[k] = *(void *volatile *)chains[k];
    return rounds * number;
}

/* Lines in their order, eight loads of each, and beside each line `number` loads of places without order: of
 * `other_bytes`, which the first cache does not hold, or of so few that it does. lines_ahead.py counts the instructions,
 * which is why nothing here depends on whether a compiler unrolls. */
enum { FEW_BYTES = 16 << 10, ROUND_LINES = 256 };
static struct memory other_memory;
static long other_bytes;
static size_t beside_at;
static uint64_t beside_sum, beside_place;
static int set_others(long bytes) { return (other_bytes = bytes) > 0; }

static int prepare_beside(long number) {
    return number >= 0 && other_bytes >= FEW_BYTES && memory_of(&other_memory, other_bytes) &&
           (memory_of(&huge_pages, parallel_bytes) || memory_of(&small_pages, parallel_bytes));
}

static long load_beside(long number, long rounds, size_t bytes) {
    char *start = huge_pages.start ? huge_pages.start : small_pages.start;
    const char *others = other_memory.start;
    size_t last = parallel_bytes / line - 1;
    int shift = 64 - __builtin_ctzl(bytes / line);
    uint64_t sum = 0, place = beside_place;
    for (long i = 0; i < rounds * ROUND_LINES; i++) {
        beside_at = beside_at < last ? beside_at + 1 : 0;
        const volatile char *first = start + beside_at * line;
        sum += first[0], sum += first[4], sum += first[8], sum += first[12];
        sum += first[16], sum += first[20], sum += first[24], sum += first[28];
        for (long k = number; k > 0; k--) {
            place += 0x9E3779B97F4A7C15u;
            uint64_t mixed = (place ^ place >> 32) * 0xD6E8FEB86659FD93u;
            sum += *(const volatile char *)(others + (mixed >> shift) * line);
        }
    }
    beside_sum += sum;
    beside_place = place;
    return rounds * ROUND_LINES;
}
static long beside(long number, long rounds) {
    return load_beside(number, rounds, (size_t)1 << (63 - __builtin_clzl(other_bytes)));
}
static long beside_few(long number, long rounds) { return load_beside(number, rounds, FEW_BYTES); }

/* `number` pages of the usual size are got from the system, written, and given back. */
static long touch_pages(long number, long rounds) {
    size_t page = sysconf(_SC_PAGESIZE), bytes = number * page;
    for (long i = 0; i < rounds; i++) {
        char *start = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (start == MAP_FAILED)
            fail("mmap");
        madvise(start, bytes, MADV_NOHUGEPAGE);
        for (size_t at = 0; at < bytes; at += page)
            *(volatile char *)(start + at) = 1;
        munmap(start, bytes);
    }
    return number * rounds;
}

/* ---- streams ---- */

#if defined(__x86_64__)
#define STREAM(isa, kind, bytes, instruction) \
    static void kind##_##isa(char *at, char *end) { \
        for (; at < end; at += 8 * bytes) \
            __asm__ volatile(instruction(0, "0") instruction(1, "1") instruction(2, "2") instruction(3, "3") \
                instruction(4, "4") instruction(5, "5") instruction(6, "6") instruction(7, "7") \
                :: "r"(at), "i"(bytes) : "memory", "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7"); \
    }
#define READ_SSE(i, r) "movaps " #i "*%c1(%0), %%xmm" r "\n"
#define READ_AVX(i, r) "vmovaps " #i "*%c1(%0), %%ymm" r "\n"
#define READ_AVX512(i, r) "vmovaps " #i "*%c1(%0), %%zmm" r "\n"
#define WRITE_SSE(i, r) "movaps %%xmm" r ", " #i "*%c1(%0)\n"
#define WRITE_AVX(i, r) "vmovaps %%ymm" r ", " #i "*%c1(%0)\n"
#define WRITE_AVX512(i, r) "vmovaps %%zmm" r ", " #i "*%c1(%0)\n"
STREAM(sse, read, 16, READ_SSE)
STREAM(avx, read, 32, READ_AVX)
STREAM(avx512, read, 64, READ_AVX512)
STREAM(sse, write, 16, WRITE_SSE)
STREAM(avx, write, 32, WRITE_AVX)
STREAM(avx512, write, 64, WRITE_AVX512)

static int widest(void) {
    return __builtin_cpu_supports("avx512f") ? 64 : __builtin_cpu_supports("avx") ? 32 : 16;
}
static void read_all(char *at, char *end, int width) {
    (width == 64 ? read_avx512 : width == 32 ? read_avx : read_sse)(at, end);
}
static void write_all(char *at, char *end, int width) {
    (width == 64 ? write_avx512 : width == 32 ? write_avx : write_sse)(at, end);
}
#else
typedef uint64_t vector __attribute__((vector_size(16), may_alias));
static int widest(void) { return 16; }
static void read_all(char *at, char *end, int width) {
    (void)width;
    vector a = {0}, b = {0}, c = {0}, d = {0};
    for (vector *v = (vector *)at; v < (vector *)end; v += 4) {
        a |= v[0];
        b |= v[1];
        c |= v[2];
        d |= v[3];
    }
    a |= b | c | d;
    __asm__ volatile("" ::"r"(a[0] | a[1]));
}
static void write_all(char *at, char *end, int width) {
    (void)width;
    vector one = {1, 1};
    for (vector *v = (vector *)at; v < (vector *)end; v += 4) {
        v[0] = v[1] = v[2] = v[3] = one;
        __asm__ volatile("" ::: "memory");
    }
}
#endif

static int stream_width;

static int prepare_stream(long bytes) {
    linked.memory = NULL; /* writing destroys the cycle */
    stream_width = widest();
    return bytes >= 1024 && memory_of(&small_pages, bytes) != NULL;
}
static int prepare_half(long bytes) {
    int possible = prepare_stream(bytes) && stream_width > 16;
    stream_width /= 2;
    return possible;
}
static long read_bytes(long bytes, long rounds) {
    for (long i = 0; i < rounds; i++)
        read_all(small_pages.start, small_pages.start + bytes / 512 * 512, stream_width);
    return rounds * (bytes / 512 * 512);
}
static long write_bytes(long bytes, long rounds) {
    for (long i = 0; i < rounds; i++)
        write_all(small_pages.start, small_pages.start + bytes / 512 * 512, stream_width);
    return rounds * (bytes / 512 * 512);
}
static long copy_bytes(long bytes, long rounds) { /* units: bytes read and bytes written */
    size_t half = bytes / 2;
    for (long i = 0; i < rounds; i++) {
        memcpy(small_pages.start + half, small_pages.start, half);
        __asm__ volatile("" ::: "memory");
    }
    return rounds * half * 2;
}

/* ---- instructions ---- */

/* One addition per cycle on every core there is: the clock. */
static long clock_chain(long number, long rounds) {
    (void)number;
    uint64_t sum = 0, step = rounds;
    for (long i = 0; i < rounds; i++) {
#define ADD sum += step; __asm__ volatile("" : "+r"(sum));
#define ADD8 ADD ADD ADD ADD ADD ADD ADD ADD
        ADD8 ADD8 ADD8 ADD8 ADD8 ADD8 ADD8 ADD8
#undef ADD8
#undef ADD
    }
    return rounds * 64;
}

#if defined(__x86_64__)
#include "instructions.h"
#endif

/* ---- requests ---- */

static int always(long number) {
    (void)number;
    return 1;
}

static const struct {
    const char *name;
    int (*prepare)(long);
    long (*run)(long, long); /* of NUMBER and rounds; returns units */
} requests[] = {
    {"clock", always, clock_chain},
    {"chase", prepare_lines, chase},   /* bytes, in usual pages */
    {"huge", prepare_huge, chase},     /* bytes, in huge pages */
    {"pages", prepare_pages, chase},   /* pages, one line of each */
    {"ordered", prepare_ordered, chase}, /* bytes; lines in their order inside 2 MiB */
    {"ordered_pages", prepare_ordered_pages, chase}, /* and inside a page */
    {"fault", always, touch_pages},    /* pages that are written for the first time */
    {"read", prepare_stream, read_bytes},
    {"read_half", prepare_half, read_bytes}, /* half as wide vectors */
    {"write", prepare_stream, write_bytes},
    {"copy", prepare_stream, copy_bytes},
    {"span", set_parallel, NULL},      /* bytes of those below */
    {"parallel", prepare_parallel, parallel},
    {"others", set_others, NULL},      /* bytes of those below */
    {"beside", prepare_beside, beside},         /* loads beside each line in order */
    {"beside_few", prepare_beside, beside_few}, /* that the first cache holds */
#if defined(__x86_64__)
    {"window", prepare_window, window}, /* instructions between two misses */
    {"vector_window", prepare_vector_window, window},
    {"branch_constant", prepare_constant, branch_on_bits},
    {"branch_random", prepare_random, branch_on_bits},
    {"string_copy", always, string_copy},
#define PLAIN(name) {#name, always, name}
#define CLASS(name) PLAIN(name##_latency), PLAIN(name##_throughput)
    CLASS(int_alu), CLASS(int_mul), CLASS(int_div), CLASS(fp_add), CLASS(fp_mul), CLASS(fp_div), CLASS(fp_sqrt),
    CLASS(fp_other), CLASS(simd_int), CLASS(move),
    CLASS(cross), CLASS(vector_load),
    {"fp_fma_latency", has_fma, fp_fma_latency}, {"fp_fma_throughput", has_fma, fp_fma_throughput},
    PLAIN(branch_taken), PLAIN(branch_not_taken), PLAIN(call_and_return), PLAIN(nop), PLAIN(zero), PLAIN(mixed),
    PLAIN(load_throughput), PLAIN(store_throughput), PLAIN(vector_store_throughput), PLAIN(access_throughput),
    PLAIN(forward_integer), PLAIN(forward_fp), PLAIN(forward_throughput),
#endif
};

static int ascending(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void measure(const char *request, double budget_ns) {
    static double times[MOST_REPETITIONS];
    size_t length = strcspn(request, ":");
    long number = request[length] ? atol(request + length + 1) : 0;
    for (size_t i = 0; i < sizeof requests / sizeof *requests; i++) {
        if (strlen(requests[i].name) != length || strncmp(requests[i].name, request, length))
            continue;
        most_units = 0;
        if (!requests[i].prepare(number))
            break;
        if (!requests[i].run)
            return;
        long rounds = 1, units = 0;
        for (double took = 0; took < SHORTEST_NS; rounds *= took < SHORTEST_NS ? 2 : 1) {
            double start = now_ns();
            requests[i].run(number, rounds);
            took = now_ns() - start;
        }
        int count = 0;
        double begin = now_ns();
        while (count < MOST_REPETITIONS && (count < 5 || now_ns() - begin < budget_ns) &&
               (count < 5 || !most_units || count * units < most_units)) {
            double start = now_ns();
            units = requests[i].run(number, rounds);
            times[count++] = (now_ns() - start) / units;
        }
        qsort(times, count, sizeof *times, ascending);
        printf("%s %.6f %.6f %d\n", request, times[0], times[count / 2], count);
        return;
    }
    printf("%s unsupported\n", request);
}

int main(int argc, char **argv) {
    if (argc < 4 || atol(argv[2]) < 16) {
        fprintf(stderr, "usage: microbench CORE LINE MILLISECONDS REQUEST...\n");
        return 2;
    }
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(atoi(argv[1]), &set);
    if (sched_setaffinity(0, sizeof set, &set))
        fail("sched_setaffinity");
    line = atol(argv[2]);
#if defined(__x86_64__)
    *(char **)(scratch + SELF) = scratch;
#endif
    for (int i = 4; i < argc; i++) {
        measure(argv[i], atof(argv[3]) * 1e6);
        fflush(stdout);
    }
    return 0;
}

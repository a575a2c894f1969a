/* The detailed level: basic blocks and memory accesses of the traced thread while a window is open, as clang's
   SanitizerCoverage reports them (bb, no-prune, trace-pc-guard, trace-loads, trace-stores, pc-table).

   A callback stores one record (its block's number, or where it was called from, and the address) in a buffer that
   stays in the cache. A full buffer is encoded at once, by the method of runner/readers/detail_columns.py, where each
   place that is called from is a "block" with one access and each basic block one without. Chunk, little endian:
   uint32 marks, uint32 sites, the marks (struct mark), the sites (uint64), then the columns. A word of the dictionary is
   a block's number or, with its highest bit, an index of the sites.

   A chunk is written when it holds half a million records: as many are lost if the process is killed. */
#define _GNU_SOURCE
#include "trace.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define BATCH 8192u            /* records: 128 KiB */
#define CHUNK (1u << 19)       /* records */
#define MARKS (1u << 16)
#define MODULES 1024
#define IS_ACCESS (1ull << 63) /* of a record: then bits 56.. are log2(bytes) and whether it stores, the rest the place */
#define IS_SITE 0x80000000u
#define NOBODY UINT32_MAX

struct record { uint64_t value, address; };
struct mark { uint32_t position, kind, num_operations, num_events, task; };
enum { SEGMENT_ENDS, WINDOW_OPENS };
struct place { uint64_t value; int64_t address, stride; uint32_t successors[2]; };

/* Whether this thread records: the traced one, while the window is open. */
static __thread int recording __attribute__((tls_model("initial-exec")));
static unsigned num_records;
static struct record records[BATCH];

/* ---- modules: what the program's constructors tell, maybe before tracing starts ---- */
struct range { uintptr_t start, stop; uint32_t first; };
static struct range guards[MODULES], tables[MODULES];
static unsigned num_guards, num_tables, guards_defined, tables_defined;
static uint32_t num_blocks;

static void define_modules(void) {
    for (; guards_defined < num_guards; guards_defined++)
        ms_define("{\"guards\": %llu, \"first\": %u, \"number\": %u}", (unsigned long long)guards[guards_defined].start,
                  guards[guards_defined].first,
                  (unsigned)((guards[guards_defined].stop - guards[guards_defined].start) / sizeof(uint32_t)));
    for (; tables_defined < num_tables; tables_defined++)
        ms_define("{\"pcs\": %llu, \"number\": %u}", (unsigned long long)tables[tables_defined].start,
                  (unsigned)((tables[tables_defined].stop - tables[tables_defined].start) / (2 * sizeof(uintptr_t))));
}

#define CALLBACK __attribute__((visibility("default")))

/* Called once for each object file, with the whole module's guards each time. */
CALLBACK void __sanitizer_cov_trace_pc_guard_init(uint32_t *start, uint32_t *stop);
CALLBACK void __sanitizer_cov_trace_pc_guard_init(uint32_t *start, uint32_t *stop) {
    if (start == stop || *start || num_guards == MODULES) return;
    guards[num_guards++] = (struct range){(uintptr_t)start, (uintptr_t)stop, num_blocks + 1};
    for (uint32_t *guard = start; guard < stop; guard++) *guard = ++num_blocks;
}

CALLBACK void __sanitizer_cov_pcs_init(const uintptr_t *start, const uintptr_t *stop);
CALLBACK void __sanitizer_cov_pcs_init(const uintptr_t *start, const uintptr_t *stop) {
    if (start == stop || num_tables == MODULES) return;
    for (unsigned i = 0; i < num_tables; i++)
        if (tables[i].start == (uintptr_t)start) return;
    tables[num_tables++] = (struct range){(uintptr_t)start, (uintptr_t)stop, 0};
}

CALLBACK void __sanitizer_cov_8bit_counters_init(char *start, char *stop);
CALLBACK void __sanitizer_cov_8bit_counters_init(char *start, char *stop) {
    (void)start;
    (void)stop;
}

/* ---- the chunk: memory of our own, since the program may be inside its allocator ---- */
struct columns {
    uint8_t block_symbols[CHUNK / 4], access_symbols[CHUNK / 4];
    uint32_t escapes[CHUNK], counts[CHUNK], dictionary[CHUNK];
    int16_t narrow[CHUNK];
    int32_t middle[CHUNK];
    int64_t wide[CHUNK];
    uint64_t sites[CHUNK];
    struct mark marks[MARKS];
    struct place places[CHUNK + 1]; /* the last one stands for the beginning */
    uint32_t slots[2 * CHUNK];      /* of a hash table: index of a place plus 1 */
    unsigned char packed[CHUNK * 24];
};
static struct columns *chunk;
static uint32_t num_places, num_sites, num_events, num_accesses, num_escapes, num_narrow, num_middle, num_wide, num_marks;
static uint32_t previous;
static uint64_t recorded_at_mark, recorded_before; /* records in all: at the last mark, before this chunk */

static void begin_chunk(void) {
    uint32_t mask = 2 * CHUNK - 1;
    for (uint32_t i = 0; i < num_places; i++) {
        uint32_t slot = (uint32_t)((chunk->places[i].value * 0x9e3779b97f4a7c15ull) >> 43) & mask;
        while (chunk->slots[slot]) {
            chunk->slots[slot] = 0;
            slot = (slot + 1) & mask;
        }
    }
    memset(chunk->block_symbols, 0, (num_events + 3) / 4);
    memset(chunk->access_symbols, 0, (num_accesses + 3) / 4);
    recorded_before += num_events;
    num_places = num_sites = num_events = num_accesses = num_escapes = num_narrow = num_middle = num_wide = num_marks = 0;
    previous = CHUNK;
    chunk->places[CHUNK].successors[0] = chunk->places[CHUNK].successors[1] = NOBODY;
}

static uint32_t find_place(uint64_t value) {
    uint32_t mask = 2 * CHUNK - 1, slot = (uint32_t)((value * 0x9e3779b97f4a7c15ull) >> 43) & mask;
    for (; chunk->slots[slot]; slot = (slot + 1) & mask)
        if (chunk->places[chunk->slots[slot] - 1].value == value) return chunk->slots[slot] - 1;
    uint32_t found = num_places++;
    chunk->slots[slot] = found + 1;
    chunk->places[found] = (struct place){value, 0, 0, {NOBODY, NOBODY}};
    chunk->counts[found] = value & IS_ACCESS ? 1 : 0;
    chunk->dictionary[found] = value & IS_ACCESS ? IS_SITE | num_sites : (uint32_t)value;
    if (value & IS_ACCESS) chunk->sites[num_sites++] = value & ~IS_ACCESS;
    return found;
}

static void encode(void) {
    for (unsigned i = 0; i < num_records; i++) {
        const struct record *record = &records[i];
        struct place *before = &chunk->places[previous];
        uint32_t first = before->successors[0], now = first;
        if (MS_UNLIKELY(first == NOBODY || chunk->places[first].value != record->value)) {
            uint32_t second = before->successors[1], symbol = 1;
            now = second;
            if (second == NOBODY || chunk->places[second].value != record->value) {
                now = find_place(record->value);
                chunk->escapes[num_escapes++] = now;
                symbol = 2;
            }
            chunk->block_symbols[num_events >> 2] |= (uint8_t)(symbol << ((num_events & 3) << 1));
            before->successors[1] = first;
            before->successors[0] = now;
        }
        num_events++;
        previous = now;
        if (!(record->value & IS_ACCESS)) continue;
        struct place *place = &chunk->places[now];
        int64_t stride = (int64_t)record->address - place->address;
        place->address = (int64_t)record->address;
        if (stride != place->stride) {
            unsigned symbol;
            place->stride = stride;
            if (stride >= INT16_MIN && stride <= INT16_MAX) symbol = 1, chunk->narrow[num_narrow++] = (int16_t)stride;
            else if (stride >= INT32_MIN && stride <= INT32_MAX) symbol = 2, chunk->middle[num_middle++] = (int32_t)stride;
            else symbol = 3, chunk->wide[num_wide++] = stride;
            chunk->access_symbols[num_accesses >> 2] |= (uint8_t)(symbol << ((num_accesses & 3) << 1));
        }
        num_accesses++;
    }
    num_records = 0;
}

static unsigned char *put(unsigned char *at, const void *data, size_t bytes) {
    memcpy(at, data, bytes);
    return at + bytes;
}

static unsigned char *put_planes(unsigned char *at, const void *data, size_t width, size_t number) {
    const unsigned char *bytes = data;
    for (size_t plane = 0; plane < width; plane++)
        for (size_t i = 0; i < number; i++) *at++ = bytes[i * width + plane];
    return at;
}

static void write_chunk(void) {
    if (!num_events && !num_marks) return;
    uint32_t head[2] = {num_marks, num_sites};
    uint32_t counts[7] = {num_places, num_events, num_accesses, num_escapes, num_narrow, num_middle, num_wide};
    unsigned char *at = put(chunk->packed, head, sizeof head);
    at = put(at, chunk->marks, num_marks * sizeof(struct mark));
    at = put(at, chunk->sites, num_sites * sizeof(uint64_t));
    at = put(at, counts, sizeof counts);
    at = put(at, chunk->block_symbols, (num_events + 3) / 4);
    at = put(at, chunk->access_symbols, (num_accesses + 3) / 4);
    at = put_planes(at, chunk->dictionary, 4, num_places);
    at = put_planes(at, chunk->counts, 4, num_places);
    at = put_planes(at, chunk->escapes, 4, num_escapes);
    at = put_planes(at, chunk->narrow, 2, num_narrow);
    at = put_planes(at, chunk->middle, 4, num_middle);
    at = put_planes(at, chunk->wide, 8, num_wide);
    define_modules();
    if (ms.active) ms_write_chunk(MS_DETAIL, chunk->packed, (uint64_t)(at - chunk->packed));
    begin_chunk();
}

/* Not recording meanwhile: a signal's handler must find no full buffer. */
static __attribute__((noinline)) void flush(void) {
    int error = errno, was = recording;
    recording = 0;
    if (ms.active && chunk) {
        encode();
        if (num_events + BATCH > CHUNK) write_chunk();
    }
    num_records = 0;
    recording = was && ms.active && ms.detail_on;
    errno = error;
}

static void mark(uint32_t kind) {
    uint64_t recorded = recorded_before + num_events + num_records;
    if (kind == SEGMENT_ENDS && recorded == recorded_at_mark) return;
    recorded_at_mark = recorded;
    if (num_marks == MARKS) {
        flush();
        write_chunk();
    }
    chunk->marks[num_marks++] = (struct mark){num_events + num_records, kind, ms.num_operations, ms.num_events, ms.task};
}

void ms_detail_segment(void) {
    if (MS_UNLIKELY(ms.is_emulated)) ms_emulated_segment();
    if (recording) mark(SEGMENT_ENDS);
}

void ms_detail_window(int open) {
    if (ms.is_emulated) {
        ms_emulated_window(open);
        return;
    }
    recording = 0;
    if (!open) {
        flush();
        return;
    }
    if (!chunk) {
        void *memory = mmap(NULL, sizeof *chunk, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (memory == MAP_FAILED) {
            ms_stop("there is no memory for the detailed level");
            return;
        }
        chunk = memory;
        begin_chunk();
    }
    mark(WINDOW_OPENS);
    recording = 1;
}

void ms_detail_finish(void) {
    if (ms.is_emulated) ms_emulated_finish();
    recording = 0;
    if (chunk && ms.active) {
        encode();
        write_chunk();
    }
    define_modules();
}

/* ---- callbacks ---- */
#define RECORD(what, where) \
    do { \
        if (MS_LIKELY(!recording)) return; \
        struct record *record = &records[num_records]; \
        record->value = (what); \
        record->address = (where); \
        if (MS_UNLIKELY(++num_records == BATCH)) flush(); \
    } while (0)

CALLBACK void __sanitizer_cov_trace_pc_guard(uint32_t *guard);
CALLBACK void __sanitizer_cov_trace_pc_guard(uint32_t *guard) { RECORD(*guard, 0); }

#define ACCESS(name, kind) \
    CALLBACK void __sanitizer_cov_##name(const void *address); \
    CALLBACK void __sanitizer_cov_##name(const void *address) { \
        RECORD(IS_ACCESS | (uint64_t)(kind) << 56 | (uint64_t)(uintptr_t)__builtin_return_address(0), (uint64_t)(uintptr_t)address); \
    }
#define BOTH(bytes, log2_bytes) ACCESS(load##bytes, 2 * (log2_bytes)) ACCESS(store##bytes, 2 * (log2_bytes) + 1)
BOTH(1, 0)
BOTH(2, 1)
BOTH(4, 2)
BOTH(8, 3)
BOTH(16, 4)

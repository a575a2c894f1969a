// Copies of blocks of bytes that a thread starts and that hardware does by itself (cp.async.bulk, cp.reduce.async.bulk,
// st.async, red.async). They are done at once, and so is what waits for them: the bytes are counted at the barrier, and a
// group that a program waits for is empty.
#include "bulk.h"
#include "access.h"
#include "barrier.h"
#include "words.h"
#include "halves.h"

// What ``extra`` holds; rules_hopper.py writes it.
enum { REDUCES = 1 << 16, TO_GLOBAL = 1 << 17, FROM_GLOBAL = 1 << 18, MULTICASTS = 1 << 19, PREFETCHES = 1 << 20 };

uint64_t uniform_pair(const Warp *warp, uint32_t number) {
    return (uint64_t)uniform_of(warp, number + 1) << 32 | uniform_of(warp, number);
}

uint32_t bytes_of_type(uint32_t type) {
    switch (type) {
    case TYPE_U64: case TYPE_S64: case TYPE_F64: return 8;
    case TYPE_F16: case TYPE_BF16: return 2;
    default: return 4;
    }
}

static bool reduced_half(uint32_t operation, bool brain, uint16_t a, uint16_t b, uint16_t *into) {
    const float x = brain ? bfloat_value(a) : half_value(a), y = brain ? bfloat_value(b) : half_value(b);
    switch (operation) {
    case ATOMIC_ADD: *into = brain ? bfloat_of((double)x + y) : half_of((double)x + y); return true;
    case ATOMIC_MIN: *into = isnan(x) || y < x ? b : a; return true;
    case ATOMIC_MAX: *into = isnan(x) || y > x ? b : a; return true;
    default: return false;
    }
}

bool reduce_elements(const Context *at, uint32_t operation, uint32_t type, uint8_t *to, const uint8_t *from, uint32_t count) {
    const uint32_t size = bytes_of_type(type);
    const bool is_float = type == TYPE_F32 || type == TYPE_F64;
    for (uint32_t k = 0; k < count; k++, to += size, from += size) {
        if (size == 2) {
            uint16_t a, b, sum = 0;
            memcpy(&a, to, 2), memcpy(&b, from, 2);
            if (!reduced_half(operation, type == TYPE_BF16, a, b, &sum)) break;
            memcpy(to, &sum, 2);
            continue;
        }
        if (is_float && operation != ATOMIC_ADD) break;
        uint64_t old = 0, value = 0;
        memcpy(&old, to, size), memcpy(&value, from, size);
        if (size == 4 && type == TYPE_S32) old = (uint64_t)(int64_t)(int32_t)old, value = (uint64_t)(int64_t)(int32_t)value;
        const uint64_t after = updated_value(at, operation, type, old, value, 0);
        memcpy(to, &after, size);
    }
    if (!((size == 2 && operation > ATOMIC_MAX) || (is_float && operation != ATOMIC_ADD))) return true;
    at->block->launch->error = STOP_INSTRUCTION;
    fail(at, "a reduction (%u) of elements of type %u is not executed", operation, type);
    return false;
}

uint32_t receivers(uint32_t address, bool is_multicast, uint32_t mask) { return is_multicast ? mask : 1u << (address >> 24 & 31); }

uint8_t *shared_bytes_at(const Context *at, uint32_t address, uint32_t size) {
    uint8_t *place = shared_place(at->block, address, size);
    if (place == NULL) {
        at->block->launch->error = STOP_ADDRESS;
        fail(at, "%u bytes at shared address 0x%x of block %u of the cluster are accessed, outside of what is allocated", size,
             address & (WINDOW_BYTES - 1), address >> 24);
    }
    return place;
}

static bool is_aligned(const Context *at, uint64_t to, uint64_t from) {
    if (!((to | from) & 15)) return true;
    at->block->launch->error = STOP_ALIGNMENT;
    fail(at, "a copy of a block of bytes from 0x%llx to 0x%llx is not aligned to 16 bytes", (unsigned long long)from, (unsigned long long)to);
    return false;
}

static bool moved(const Context *at, uint8_t *to, const uint8_t *from, uint32_t size) {
    const uint32_t extra = at->instruction->extra, type = extra >> 8 & 0xff;
    at->block->changes++;
    if (extra & REDUCES) return reduce_elements(at, extra & 0xff, type, to, from, size / bytes_of_type(type));
    memmove(to, from, size);
    return true;
}

// UBLKPF [from], size. UBLKCP, UBLKRED [to], [from], size: the size in pieces of 16 bytes, above it the ranks that are
// served. Behind the register of an address in shared memory that is written stands that of the barrier.
static void copy_block(const Context *at) {
    const Warp *warp = at->warp;
    const uint32_t extra = at->instruction->extra;
    const uint32_t first = at->instruction->operands[0].index, second = at->instruction->operands[1].index;
    const uint32_t counts = uniform_of(warp, at->instruction->operands[2].number), size = (counts & 0xffff) * 16;
    if (extra & PREFETCHES) {  // into L2
        record_copy(at, COPY_PREFETCHES, at->block->rank << 24, size, 0);
        record_run(at, uniform_pair(warp, first), size, 1, 0);
        return;
    }
    const uint64_t to = extra & TO_GLOBAL ? uniform_pair(warp, first) : uniform_of(warp, first);
    const uint64_t from = extra & FROM_GLOBAL ? uniform_pair(warp, second) : uniform_of(warp, second);
    if (!is_aligned(at, to, from)) return;
    const uint8_t *source = extra & FROM_GLOBAL ? global_place(at, from, size) : shared_bytes_at(at, (uint32_t)from, size);
    if (source == NULL) return;
    if (extra & TO_GLOBAL) {
        uint8_t *place = global_place(at, to, size);
        if (place == NULL || !moved(at, place, source, size)) return;
        record_copy(at, extra & REDUCES ? COPY_REDUCES : COPY_STORES, at->block->rank << 24, size, 0);
        record_run(at, to, size, 1, 0);
        return;
    }
    const uint32_t barrier = uniform_of(warp, first + 1), own = (uint32_t)to & (WINDOW_BYTES - 1);
    const bool is_multicast = extra & MULTICASTS;
    uint32_t ranks = receivers((uint32_t)to, is_multicast, counts >> 16);
    record_copy(at, extra & FROM_GLOBAL ? COPY_LOADS : COPY_WITHIN, barrier, size, is_multicast ? ranks : 0);
    if (extra & FROM_GLOBAL) record_run(at, from, size, 1, 0);
    for (; ranks; ranks &= ranks - 1) {
        const uint32_t rank = lowest(ranks) << 24;
        uint8_t *place = shared_bytes_at(at, rank | own, size);
        if (place == NULL || !moved(at, place, source, size)) return;
        if (!complete_transaction(at, is_multicast ? rank | (barrier & (WINDOW_BYTES - 1)) : barrier, size)) return;
    }
}

// STAS, REDAS [address], value: of each lane; the register behind the address's is that of the barrier's.
static void store_asynchronously(const Context *at) {
    const Instruction *instruction = at->instruction;
    const Operand *address = &instruction->operands[0];
    const uint32_t size = instruction->size;
    uint32_t tmp[4][LANES];
    const uint32_t *values[4] = {0};
    for (uint32_t word = 0; word < size / 4; word++) values[word] = plain(at, &instruction->operands[1], (int)word, tmp[word]);
    uint64_t addresses[LANES] = {0}, barriers[LANES] = {0};
    uint32_t arrivals[LANES] = {0};
    int64_t bytes[LANES] = {0};
    EACH_LANE {
        if (!(at->mask >> lane & 1)) continue;
        const uint32_t to = at->warp->registers[address->number][lane] + address->value;
        const uint32_t barrier = at->warp->registers[address->number + 1][lane];
        uint32_t words[4];
        addresses[lane] = to;
        barriers[lane] = barrier;
        bytes[lane] = -(int64_t)size;
        for (uint32_t word = 0; word < size / 4; word++) words[word] = values[word][lane];
        uint8_t *place = shared_bytes_at(at, to, size);
        if (place == NULL || !moved(at, place, (const uint8_t *)words, size)) return;
        if (!complete_transaction(at, barrier, size)) return;
    }
    record_barriers(at, WORD_STORES, barriers, arrivals, bytes);
    record_accesses(at, addresses, SPACE_SHARED);
    record_addresses(at, addresses);
}

bool execute_bulk(const Context *at) {
    switch (at->instruction->op) {
    case OP_BULK_COPY: copy_block(at); return true;
    case OP_STORE_ASYNC: store_asynchronously(at); return true;
    default: return false;
    }
}

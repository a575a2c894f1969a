// Instructions of barriers in shared memory: SYNCS, ATOMS.ARRIVE, ARRIVES.
#include "barrier.h"
#include "access.h"
#include "words.h"

enum { ONE_ARRIVES = 1, REGISTER_ARRIVES = 2, ARRIVES = 3, EXPECTS_ONE = 1 << 2, EXPECTS = 2 << 2, COMPLETES = 3 << 2,
       TRANSACTIONS = 3 << 2, DROPS = 1 << 4 };  // what ``extra`` holds of an arrival; codes.py's rule writes it
enum { MOST_ARRIVALS = 1 << 20, MOST_BYTES = 1 << 20 };
#define WAITS_FOR_EVER (1u << 22)  // fruitless looks at barriers of a block, one after the other

typedef struct {
    uint32_t expected, pending, phase;
    int32_t bytes;
} Barrier;

static Barrier unpacked(uint64_t bits) {
    return (Barrier){
        .expected = (MOST_ARRIVALS - (uint32_t)(bits >> 1 & 0xfffff)) & 0xfffff,
        .pending = (MOST_ARRIVALS - (uint32_t)(bits >> 43 & 0xfffff)) & 0xfffff,
        .phase = (uint32_t)(bits >> 63),
        .bytes = (int32_t)((uint32_t)(bits >> 21 & 0x3fffff) << 10) >> 10,
    };
}

static uint64_t packed(Barrier barrier) {
    return (uint64_t)((MOST_ARRIVALS - barrier.expected) & 0xfffff) << 1 | (uint64_t)((uint32_t)barrier.bytes & 0x3fffff) << 21 |
           (uint64_t)((MOST_ARRIVALS - barrier.pending) & 0xfffff) << 43 | (uint64_t)barrier.phase << 63;
}

static uint8_t *barrier_at(const Context *at, uint32_t address) {
    uint8_t *place = address % 8 ? NULL : shared_place(at->block, address, 8);
    if (place == NULL) {
        at->block->launch->error = address % 8 ? STOP_ALIGNMENT : STOP_ADDRESS;
        fail(at, "a barrier at shared address 0x%x lies outside of what is allocated, or is not aligned", address);
    }
    return place;
}

// Arrivals and bytes change a barrier; where both are there its phase ends. False, and a problem, for what it cannot hold.
static bool changed(const Context *at, uint8_t *place, uint32_t arrivals, int64_t bytes, bool drops) {
    uint64_t bits;
    memcpy(&bits, place, 8);
    Barrier barrier = unpacked(bits);
    const int64_t open = barrier.bytes + bytes;
    if (arrivals > barrier.pending || open >= MOST_BYTES || open <= -MOST_BYTES) {
        fail(at, "a barrier in shared memory expects %u arrivals and %d bytes more; %u arrive, with %lld bytes: it is not "
             "initialized, or more arrive than it has room for", barrier.pending, barrier.bytes, arrivals, (long long)bytes);
        return false;
    }
    barrier.bytes = (int32_t)open;
    barrier.pending -= arrivals;
    if (drops) barrier.expected -= arrivals;
    if (barrier.pending == 0 && barrier.bytes == 0) {
        barrier.phase ^= 1;
        barrier.pending = barrier.expected;
    }
    bits = packed(barrier);
    memcpy(place, &bits, 8);
    at->block->fruitless = 0;
    at->block->changes++;
    return true;
}

bool complete_transaction(const Context *at, uint32_t address, uint32_t bytes) {
    uint8_t *place = barrier_at(at, address);
    return place != NULL && changed(at, place, 0, -(int64_t)bytes, false);
}

static const int64_t no_bytes[LANES];

// SYNCS.EXCH [address], value: a barrier begins.
static void initialize(const Context *at) {
    uint64_t addresses[LANES], values[LANES];
    uint32_t arrivals[LANES];
    addresses_of(at, &at->instruction->operands[0], addresses);
    wide(at, 1, values);
    EACH_LANE {
        if (!(at->mask >> lane & 1)) continue;
        uint8_t *place = barrier_at(at, (uint32_t)addresses[lane]);
        if (place == NULL) return;
        memcpy(place, &values[lane], 8);
        arrivals[lane] = unpacked(values[lane]).expected;
    }
    record_barriers(at, WORD_BEGINS, addresses, arrivals, no_bytes);
    record_accesses(at, addresses, SPACE_SHARED);
    record_addresses(at, addresses);
}

// SYNCS.ARRIVE d, [address], a: d is the state before, lane after lane.
static void arrive(const Context *at) {
    const uint32_t how = at->instruction->extra;
    uint64_t addresses[LANES], before[LANES] = {0};
    uint32_t tmp[LANES], arrivals[LANES];
    int64_t bytes[LANES];
    addresses_of(at, &at->instruction->operands[1], addresses);
    const uint32_t *values = plain(at, &at->instruction->operands[2], 0, tmp);
    EACH_LANE {
        if (!(at->mask >> lane & 1)) continue;
        uint8_t *place = barrier_at(at, (uint32_t)addresses[lane]);
        if (place == NULL) return;
        memcpy(&before[lane], place, 8);
        arrivals[lane] = (how & ARRIVES) == ONE_ARRIVES ? 1 : (how & ARRIVES) == REGISTER_ARRIVES ? values[lane] : 0;
        bytes[lane] = 0;
        if ((how & TRANSACTIONS) == EXPECTS_ONE) bytes[lane] = 1;
        if ((how & TRANSACTIONS) == EXPECTS) bytes[lane] = values[lane];
        if ((how & TRANSACTIONS) == COMPLETES) bytes[lane] = -(int64_t)values[lane];
        if (!changed(at, place, arrivals[lane], bytes[lane], how & DROPS)) return;
    }
    set_wide(at, 0, before);
    record_barriers(at, how & DROPS ? WORD_DROPS : WORD_ARRIVES, addresses, arrivals, bytes);
    record_accesses(at, addresses, SPACE_SHARED);
    record_addresses(at, addresses);
}

// ARRIVES.LDGSTSBAR [address]: arrives when the lane's copies have; they are done at once, so that it does, too.
static void arrive_behind_copies(const Context *at) {
    uint64_t addresses[LANES];
    uint32_t arrivals[LANES];
    int64_t bytes[LANES];
    addresses_of(at, &at->instruction->operands[0], addresses);
    EACH_LANE {
        if (!(at->mask >> lane & 1)) continue;
        uint8_t *place = barrier_at(at, (uint32_t)addresses[lane]);
        if (place == NULL) return;
        arrivals[lane] = at->instruction->extra ? 0 : 1;
        bytes[lane] = at->instruction->extra ? -1 : 0;
        if (!changed(at, place, arrivals[lane], bytes[lane], false)) return;
    }
    record_barriers(at, WORD_FOLLOWS, addresses, arrivals, bytes);
}

// ATOMS.ARRIVE.64 d, [address], and with ``copies`` ARRIVES.LDGSTSBAR.64 [address], of barriers as sm_80 has them.
static void arrive_in_words(const Context *at) {
    const bool copies = at->instruction->op == OP_ARRIVE_WORDS_BEHIND;
    uint64_t addresses[LANES], before[LANES] = {0};
    addresses_of(at, &at->instruction->operands[copies ? 0 : 1], addresses);
    EACH_LANE {
        if (!(at->mask >> lane & 1)) continue;
        uint8_t *place = barrier_at(at, (uint32_t)addresses[lane]);
        if (place == NULL) return;
        uint32_t words[2];
        memcpy(words, place, 8);
        memcpy(&before[lane], place, 8);
        const uint32_t parity = words[1] >> 31;
        words[1]++;
        if (words[1] >> 31 != parity) words[1] = (parity ? 0 : 1u << 31) | ((words[0] + 0x40000000u) & 0x7fffffffu);
        memcpy(place, words, 8);
    }
    if (!copies) set_wide(at, 0, before);
}

// SYNCS.PHASECHK p, [address], a: lanes whose barrier has left the phase of which a's bit 31 is the parity. Where one has
// not, the warp gives its turn away: others have to bring what it waits for.
enum Outcome check_phase(const Context *at, Group *group) {
    uint64_t addresses[LANES];
    uint32_t tmp[LANES], held = 0;
    group->pc++;
    if (!at->mask) return GOES_ON;
    addresses_of(at, &at->instruction->operands[1], addresses);
    const uint32_t *parities = plain(at, &at->instruction->operands[2], 0, tmp);
    EACH_LANE {
        if (!(at->mask >> lane & 1)) continue;
        const uint8_t *place = barrier_at(at, (uint32_t)addresses[lane]);
        if (place == NULL) return FAILED;
        uint64_t bits;
        memcpy(&bits, place, 8);
        held |= (uint32_t)(bits >> 63 != parities[lane] >> 31) << lane;
    }
    set_predicate(at, 0, held);
    record_look(at, addresses, parities, held);
    record_accesses(at, addresses, SPACE_SHARED);
    record_addresses(at, addresses);
    if ((held & at->mask) == at->mask) return GOES_ON;
    at->warp->polls = at->block->num_peers > 1;
    if (++at->block->fruitless < WAITS_FOR_EVER) return WARP_WAITS;
    at->block->launch->error = STOP_WAITS;
    fail(at, "waits for ever at the barrier at shared address 0x%x, whose phase does not end",
         (uint32_t)addresses[lowest(at->mask & ~held)]);
    return FAILED;
}

bool execute_barrier(const Context *at) {
    switch (at->instruction->op) {
    case OP_BARRIER_SET: initialize(at); return true;
    case OP_BARRIER_ARRIVE: arrive(at); return true;
    case OP_BARRIER_ARRIVE_BEHIND: arrive_behind_copies(at); return true;
    case OP_ARRIVE_WORDS:
    case OP_ARRIVE_WORDS_BEHIND: arrive_in_words(at); return true;
    default: return false;
    }
}

// What the lanes of a warp tell each other, and what they are told of themselves.
#include <time.h>

#include "warp.h"

// SHFL p, d, a, b, c: c holds the segments' mask (bits 8 to 12) and the bound of lanes. What a lane gives that does not
// take part is undefined in PTX. It is 0 here: cuda-samples' reduction, which hardware of compute capability 7.5 passes,
// adds what it gets from such lanes.
static void shuffle(const Context *at) {
    uint32_t first[LANES], second[LANES], third[LANES], into[LANES], held = 0;
    const uint32_t *a = integer(at, 2, first), *b = integer(at, 3, second), *c = integer(at, 4, third);
    EACH_LANE {
        int bound = (int)(c[lane] & 31), segment = (int)(c[lane] >> 8 & 31), by = (int)(b[lane] & 31);
        int least = lane & segment, most = least | (bound & ~segment), from;
        bool inside;
        switch (at->instruction->extra) {
        case SHFL_UP: from = lane - by; inside = from >= most; break;
        case SHFL_DOWN: from = lane + by; inside = from <= most; break;
        case SHFL_BFLY: from = lane ^ by; inside = from <= most; break;
        default: from = least | (by & ~segment); inside = from <= most;
        }
        if (!inside) from = lane;
        into[lane] = at->mask >> (from & 31) & 1 ? a[from & 31] : 0;
        held |= (uint32_t)inside << lane;
    }
    set(at, 1, into);
    set_predicate(at, 0, held);
}

// VOTE d, p, with
static void vote(const Context *at) {
    uint32_t held = predicate(at, 2) & at->mask, into[LANES], result;
    switch (at->instruction->extra) {
    case VOTE_ALL: result = held == at->mask; break;
    case VOTE_ANY: result = held != 0; break;
    default: result = held == 0 || held == at->mask;
    }
    set(at, 0, broadcast(held, into));
    set_predicate(at, 1, result ? 0xffffffffu : 0);
}

// MATCH.ANY d, a; MATCH.ALL p, d, a: lanes with the same value.
static void match(const Context *at) {
    bool is_all = at->instruction->extra & MATCH_ALL, is_wide = at->instruction->modifiers & BITS_64;
    uint32_t tmp[LANES], into[LANES];
    uint64_t values[LANES];
    if (is_wide) wide(at, 2, values);
    else {
        const uint32_t *a = integer(at, 2, tmp);
        EACH_LANE values[lane] = a[lane];
    }
    EACH_LANE {
        into[lane] = 0;
        for (int k = 0; k < LANES; k++) into[lane] |= (uint32_t)(at->mask >> k & 1 && values[k] == values[lane]) << k;
    }
    bool same = at->mask && into[lowest(at->mask)] == at->mask;
    if (is_all) EACH_LANE into[lane] = same ? at->mask : 0;
    set(at, 1, into);
    set_predicate(at, 0, same ? 0xffffffffu : 0);
}

static void reduce(const Context *at) {
    uint32_t tmp[LANES], into[LANES], found = 0;
    const uint32_t *a = integer(at, 1, tmp);
    bool begun = false;
    EACH_LANE {
        if (!(at->mask >> lane & 1)) continue;
        uint32_t x = a[lane];
        bool less = at->instruction->modifiers & UNSIGNED ? x < found : (int32_t)x < (int32_t)found;
        if (!begun) found = x;
        else switch (at->instruction->extra) {
        case ATOMIC_ADD: found += x; break;
        case ATOMIC_OR: found |= x; break;
        case ATOMIC_XOR: found ^= x; break;
        case ATOMIC_MIN: found = less ? x : found; break;
        case ATOMIC_MAX: found = less ? found : x; break;
        default: found &= x;
        }
        begun = true;
    }
    set(at, 0, broadcast(found, into));
}

static uint64_t now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

// S2R, CS2R: a special register. Clocks count this block's executed instructions.
static void special(const Context *at) {
    const Block *block = at->block;
    const Warp *warp = at->warp;
    const Launch *launch = block->launch;
    uint32_t into[LANES];
    uint64_t value = 0;
    uint32_t which = at->instruction->operands[1].value;
    switch (which) {
    case SR_TID_X: case SR_TID_Y: case SR_TID_Z:
        set(at, 0, warp->tid[which - SR_TID_X]);
        return;
    case SR_TID:
        EACH_LANE into[lane] = warp->tid[0][lane] | warp->tid[1][lane] << 16 | warp->tid[2][lane] << 26;
        set(at, 0, into);
        return;
    case SR_LANEID:
        EACH_LANE into[lane] = (uint32_t)lane;
        set(at, 0, into);
        return;
    case SR_EQMASK: EACH_LANE into[lane] = 1u << lane; set(at, 0, into); return;
    case SR_LTMASK: EACH_LANE into[lane] = (1u << lane) - 1; set(at, 0, into); return;
    case SR_LEMASK: EACH_LANE into[lane] = (2u << lane) - 1; set(at, 0, into); return;
    case SR_GTMASK: EACH_LANE into[lane] = ~((2u << lane) - 1); set(at, 0, into); return;
    case SR_GEMASK: EACH_LANE into[lane] = ~((1u << lane) - 1); set(at, 0, into); return;
    case SR_CTAID_X: case SR_CTAID_Y: case SR_CTAID_Z: value = block->ctaid[which - SR_CTAID_X]; break;
    case SR_NCTAID_X: case SR_NCTAID_Y: case SR_NCTAID_Z: value = launch->grid[which - SR_NCTAID_X]; break;
    case SR_NTID: value = launch->block[0] | launch->block[1] << 16; break;
    case SR_WARPID: value = warp->index; break;
    case SR_SMID: value = launch->num_sms ? block->number % launch->num_sms : 0; break;
    case SR_NSMID: value = launch->num_sms; break;
    case SR_SWINHI: value = launch->shared_base >> 32; break;
    case SR_LWINHI: value = launch->local_base >> 32; break;
    case SR_CLOCK: value = block->executed - block->begun; break;
    case SR_CLOCK_HIGH: value = (block->executed - block->begun) >> 32; break;
    case SR_RANK: value = block->rank; break;
    case SR_TIMER: value = now(); break;
    case SR_TIMER_HIGH: value = now() >> 32; break;
    default: break;  // SRZ
    }
    if (at->instruction->modifiers & BITS_64) {
        uint64_t both[LANES];
        EACH_LANE both[lane] = value;
        set_wide(at, 0, both);
    } else {
        set(at, 0, broadcast((uint32_t)value, into));
    }
}

bool execute_warp(const Context *at) {
    const Instruction *instruction = at->instruction;
    uint32_t tmp[LANES], into[LANES];
    switch (instruction->op) {
    case OP_SHFL: shuffle(at); return true;
    case OP_VOTE: vote(at); return true;
    case OP_MATCH: match(at); return true;
    case OP_REDUX: reduce(at); return true;
    case OP_S2R: special(at); return true;
    case OP_ELECT: {  // the first of the lanes where the predicate holds
        const uint32_t lanes = at->mask & predicate(at, 2);
        set(at, 1, broadcast(lanes ? lowest(lanes) : 0, into));
        set_predicate(at, 0, lanes & (0u - lanes));
        return true;
    }
    case OP_R2UR: {  // of the first lane; the predicate holds for lanes with another value, whose turn is still to come
        const uint32_t *values = integer(at, 1, tmp);
        uint32_t others = 0;
        if (at->mask) EACH_LANE others |= (uint32_t)(values[lane] != values[lowest(at->mask)]) << lane;
        set(at, 0, values);
        set_predicate(at, 2, at->instruction->modifiers & CARRY ? others | predicate(at, 2) : others);
        return true;
    }
    case OP_SETMAXREG: set_predicate(at, 0, 0xffffffffu); return true;
    case OP_B2R: {  // the result of a barrier's reduction
        const BlockBarrier *barrier = &at->block->barriers[0];
        set(at, 0, broadcast(barrier->result_count, into));
        set_predicate(at, 1, (barrier->result_kind == BAR_AND ? barrier->result_and : barrier->result_or) ? 0xffffffffu : 0);
        return true;
    }
    default: return false;
    }
}

// Atomics and reductions in global and shared memory.
#include "access.h"
#include "halves.h"
#include "track.h"

static uint32_t pair_sum(uint32_t a, uint32_t b, bool brain) {
    uint32_t sum = 0;
    for (int shift = 0; shift < 32; shift += 16) {
        uint16_t x = (uint16_t)(a >> shift), y = (uint16_t)(b >> shift);
        sum |= (uint32_t)(brain ? bfloat_of((double)bfloat_value(x) + bfloat_value(y)) : half_of((double)half_value(x) + half_value(y))) << shift;
    }
    return sum;
}

uint64_t updated_value(const Context *at, uint32_t operation, uint32_t type, uint64_t old, uint64_t value, uint64_t other) {
    bool less;
    switch (type) {
    case TYPE_S32: less = (int32_t)value < (int32_t)old; break;
    case TYPE_S64: less = (int64_t)value < (int64_t)old; break;
    default: less = value < old;
    }
    switch (operation) {
    case ATOMIC_ADD:
        if (type == TYPE_F32) {
            float a, b;
            memcpy(&a, &old, 4), memcpy(&b, &value, 4);
            a += b;
            uint32_t bits;
            memcpy(&bits, &a, 4);
            return bits;
        }
        if (type == TYPE_F64) {
            double a, b;
            memcpy(&a, &old, 8), memcpy(&b, &value, 8);
            a += b;
            memcpy(&old, &a, 8);
            return old;
        }
        if (type == TYPE_F16x2 || type == TYPE_BF16x2) return pair_sum((uint32_t)old, (uint32_t)value, type == TYPE_BF16x2);
        return old + value;
    case ATOMIC_MIN: return less ? value : old;
    case ATOMIC_MAX: return less || value == old ? old : value;
    case ATOMIC_INC: return old >= value ? 0 : old + 1;
    case ATOMIC_DEC: return old == 0 || old > value ? value : old - 1;
    case ATOMIC_AND: return old & value;
    case ATOMIC_OR: return old | value;
    case ATOMIC_XOR: return old ^ value;
    case ATOMIC_EXCH: return value;
    case ATOMIC_CAST:
    case ATOMIC_CAS: return old == value ? other : old;
    case ATOMIC_POPC_INC: return old + 1;  // one for each lane
    default: fail(at, "atomic operation %u is not executed", operation); return old;
    }
}

// Whether it gives the lanes what was there.
static bool has_result(const Instruction *instruction) {
    const Operand *d = &instruction->operands[0];
    return d->kind != OPERAND_NONE && !(d->kind == OPERAND_REGISTER && d->number == NO_ROW);
}

// Whether the order of many such reductions changes nothing.
static bool is_commutative(const Instruction *instruction) {
    const uint32_t operation = instruction->extra & 0xff, type = instruction->extra >> 8 & 0xff;
    const bool is_integer = type == TYPE_U32 || type == TYPE_S32 || type == TYPE_U64 || type == TYPE_S64;
    return is_integer && !has_result(instruction) && operation != ATOMIC_INC && operation != ATOMIC_DEC &&
           operation != ATOMIC_EXCH && operation != ATOMIC_CAS && operation != ATOMIC_CAST;
}

// A reduction of a worker's: others may reduce the same bytes now.
static void reduce_together(const Context *at, uint8_t *place, uint64_t address, uint64_t with) {
    const Instruction *instruction = at->instruction;
    const uint32_t operation = instruction->extra & 0xff, type = instruction->extra >> 8 & 0xff;
    track_reduced(at->block->tracker, address, instruction->size, (uint8_t)(type << 4 | operation));
    if (instruction->size == 8) {
        uint64_t before = __atomic_load_n((uint64_t *)place, __ATOMIC_RELAXED);
        while (!__atomic_compare_exchange_n((uint64_t *)place, &before, updated_value(at, operation, type, before, with, 0), true, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {}
    } else {
        uint32_t before = __atomic_load_n((uint32_t *)place, __ATOMIC_RELAXED);
        while (!__atomic_compare_exchange_n((uint32_t *)place, &before, (uint32_t)updated_value(at, operation, type, before, with, 0), true, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {}
    }
}

// Operands: d, address, value, other; reductions have no d (its kind is none). Lanes in ascending order. A fifth operand is
// a predicate: the lanes whose address is global, which alone are served. CAST gives 1 where it has stored, else 0.
void execute_atomic(const Context *at) {
    const Instruction *instruction = at->instruction;
    uint64_t addresses[LANES], old[LANES] = {0};
    uint32_t tmp[4][LANES], done = 0;
    bool changed = false, is_wide = instruction->size == 8, only_global = instruction->operands[4].kind != OPERAND_NONE;
    addresses_of(at, &instruction->operands[1], addresses);
    int space = space_of(at, addresses);
    const uint32_t *value = plain(at, &instruction->operands[2], 0, tmp[0]), *other = plain(at, &instruction->operands[3], 0, tmp[1]);
    const uint32_t *value_high = is_wide ? plain(at, &instruction->operands[2], 1, tmp[2]) : NULL;
    const uint32_t *other_high = is_wide ? plain(at, &instruction->operands[3], 1, tmp[3]) : NULL;
    EACH_LANE {
        if (!(at->mask >> lane & 1)) continue;
        int own = instruction->modifiers & GENERIC ? window_of(at, addresses[lane]) : space;
        if (only_global && own != SPACE_GLOBAL) continue;
        done |= 1u << lane;
        uint8_t *place = place_of(at, own, addresses[lane], lane);
        if (place == NULL) return;
        uint64_t before = 0, with = is_wide ? (uint64_t)value_high[lane] << 32 | value[lane] : value[lane];
        if (at->block->tracker && own == SPACE_GLOBAL) {
            if (is_commutative(instruction)) {
                reduce_together(at, place, addresses[lane], with);
                continue;
            }
            track_updated(at->block->tracker, addresses[lane], instruction->size);
        }
        memcpy(&before, place, instruction->size);
        uint64_t third = is_wide ? (uint64_t)other_high[lane] << 32 | other[lane] : other[lane];
        uint64_t after = updated_value(at, instruction->extra & 0xff, instruction->extra >> 8 & 0xff, before, with, third);
        memcpy(place, &after, instruction->size);
        changed |= after != before;
        old[lane] = (instruction->extra & 0xff) == ATOMIC_CAST ? before == with : before;
    }
    at->block->changes += changed;
    if (!changed && space == SPACE_GLOBAL && has_result(instruction)) poll(at, addresses[lowest(at->mask)], old[lowest(at->mask)]);
    if (only_global) set_predicate(at, 4, done);
    if (is_wide) {
        set_wide(at, 0, old);
    } else {
        uint32_t low[LANES];
        EACH_LANE low[lane] = (uint32_t)old[lane];
        set(at, 0, low);
    }
    Context served = *at;
    served.mask = done;
    record_accesses(&served, addresses, space);
    record_addresses(at, addresses);
}

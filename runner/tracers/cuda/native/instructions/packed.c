// Integers of 4, 8 and 16 bits that stand packed in a register.
#include "warp.h"

static int64_t part_of(uint32_t word, int place, int bits, bool is_signed) {
    uint32_t part = word >> bits * place << (32 - bits);
    return is_signed ? (int32_t)part >> (32 - bits) : (int64_t)(part >> (32 - bits));
}

// IDP d, a, b, c. ``extra``: 1: a is signed, 2: b is, 4: a's parts have 16 bits, 8: b's upper two bytes.
static void dot(const Context *at) {
    uint32_t first[LANES], second[LANES], third[LANES], into[LANES], extra = at->instruction->extra;
    const uint32_t *a = integer(at, 1, first), *b = integer(at, 2, second), *c = integer(at, 3, third);
    bool is_pair = extra & 4;
    EACH_LANE {
        int64_t sum = c[lane];
        for (int k = 0; k < (is_pair ? 2 : 4); k++)
            sum += part_of(a[lane], k, is_pair ? 16 : 8, extra & 1) * part_of(b[lane], k + (extra & 8 ? 2 : 0), 8, extra & 2);
        into[lane] = (uint32_t)sum;
    }
    set(at, 0, into);
}

// VABSDIFF d, a, b, c: |a - b| + c; with bytes (``extra`` 1) those of each, and with 2 their sum.
static void difference(const Context *at) {
    uint32_t first[LANES], second[LANES], third[LANES], into[LANES], extra = at->instruction->extra;
    const uint32_t *a = integer(at, 1, first), *b = integer(at, 2, second), *c = integer(at, 3, third);
    int bits = extra & 1 ? 8 : 32;
    bool is_signed = !(at->instruction->modifiers & UNSIGNED);
    EACH_LANE {
        uint32_t sum = c[lane], packed = 0;
        for (int k = 0; k < 32 / bits; k++) {
            int64_t between = part_of(a[lane], k, bits, is_signed) - part_of(b[lane], k, bits, is_signed);
            uint32_t size = (uint32_t)(between < 0 ? -between : between);
            sum += size;
            packed |= size << bits * k;
        }
        into[lane] = extra == 1 ? packed : sum;
    }
    set(at, 0, into);
}

// I2IP, F2IP d, a, b, c: a and b, saturated, above each other, and c's lower bits above them. ``extra``: bits of each
// (0 to 7), signed (8), from floats (9), cut off instead of rounded (10).
static void pack(const Context *at) {
    uint32_t first[LANES], second[LANES], third[LANES], into[LANES], extra = at->instruction->extra;
    uint32_t bits = extra & 0xff;
    bool is_signed = extra >> 8 & 1;
    double least = is_signed ? -(double)(1 << (bits - 1)) : 0, most = (double)((1 << (bits - is_signed)) - 1);
    const uint32_t *c = integer(at, 3, third);
    double values[2][LANES];
    for (int place = 0; place < 2; place++) {
        if (extra >> 9 & 1) {
            const float *from = single(at, 2 - place, first);
            EACH_LANE {
                double value = extra >> 10 & 1 ? trunc(from[lane]) : nearbyint(from[lane]);
                values[place][lane] = isnan(value) ? 0 : value;
            }
        } else {
            const uint32_t *from = integer(at, 2 - place, second);
            bool from_signed = !(at->instruction->modifiers & UNSIGNED);
            EACH_LANE values[place][lane] = from_signed ? (double)(int32_t)from[lane] : (double)from[lane];
        }
    }
    EACH_LANE {
        into[lane] = bits < 16 ? c[lane] << 2 * bits : 0;
        for (int place = 0; place < 2; place++) {
            double value = values[place][lane];
            value = value < least ? least : value > most ? most : value;
            into[lane] |= ((uint32_t)(int32_t)value & ((1u << bits) - 1)) << bits * place;
        }
    }
    set(at, 0, into);
}

// VMNMX d, a, b, c, p: the least (p) or greatest of a and b; ``extra`` 1: of a + b and c; 2: of all three; 4: of each
// half by itself.
static void least_or_most(const Context *at) {
    uint32_t first[LANES], second[LANES], third[LANES], into[LANES], extra = at->instruction->extra, least = predicate(at, 4);
    const uint32_t *a = integer(at, 1, first), *b = integer(at, 2, second), *c = integer(at, 3, third);
    int bits = extra & 4 ? 16 : 32;
    bool is_signed = !(at->instruction->modifiers & UNSIGNED);
    EACH_LANE {
        into[lane] = 0;
        for (int k = 0; k < 32 / bits; k++) {
            int64_t x = part_of(a[lane], k, bits, is_signed), y = part_of(b[lane], k, bits, is_signed);
            int64_t z = part_of(c[lane], k, bits, is_signed);
            bool takes_least = least >> lane & 1;
            if (extra & 1) x = part_of((uint32_t)(x + y), 0, bits, is_signed), y = z;
            int64_t kept = (x < y) == takes_least ? x : y;
            if (extra & 2) kept = (kept < z) == takes_least ? kept : z;
            if (at->instruction->modifiers & RELU && kept < 0) kept = 0;
            into[lane] |= ((uint32_t)kept & (bits == 16 ? 0xffffu : 0xffffffffu)) << bits % 32 * k;
        }
    }
    set(at, 0, into);
}

// ADD_HALVES d, a, b: sums of integers of 16 bits, each with the operand's sign.
static void add_halves(const Context *at) {
    uint32_t first[LANES], second[LANES], into[LANES];
    const Operand *operands = at->instruction->operands;
    const uint32_t *a = plain(at, &operands[1], 0, first), *b = plain(at, &operands[2], 0, second);
    EACH_LANE {
        into[lane] = 0;
        for (int shift = 0; shift < 32; shift += 16) {
            uint32_t x = a[lane] >> shift, y = b[lane] >> shift;
            if (operands[1].flags & FLAG_NEGATED) x = 0u - x;
            if (operands[2].flags & FLAG_NEGATED) y = 0u - y;
            into[lane] |= ((x + y) & 0xffffu) << shift;
        }
    }
    set(at, 0, into);
}

bool execute_packed(const Context *at) {
    switch (at->instruction->op) {
    case OP_IDP: dot(at); return true;
    case OP_VABSDIFF: difference(at); return true;
    case OP_PACK_INTEGERS: pack(at); return true;
    case OP_ADD_HALVES: add_halves(at); return true;
    case OP_VMNMX: least_or_most(at); return true;
    default: return false;
    }
}

// Integer and logic instructions, moves, selections, predicates.
#include "warp.h"

static uint32_t compared(const Context *at, const uint32_t *a, const uint32_t *b) {
    uint32_t modifiers = at->instruction->modifiers, held = 0;
    bool is_unsigned = modifiers & UNSIGNED;
#define COMPARE(sign) EACH_LANE held |= (uint32_t)(is_unsigned ? a[lane] sign b[lane] : (int32_t)a[lane] sign (int32_t)b[lane]) << lane
    switch (modifiers & COMPARISON) {
    case IS_LT: COMPARE(<); break;
    case IS_EQ: COMPARE(==); break;
    case IS_LE: COMPARE(<=); break;
    case IS_GT: COMPARE(>); break;
    case IS_NE: COMPARE(!=); break;
    case IS_GE: COMPARE(>=); break;
    case IS_T: held = 0xffffffffu; break;
    default: break;
    }
#undef COMPARE
    return held;
}

uint32_t combined(const Context *at, uint32_t held, uint32_t with) {
    switch (at->instruction->modifiers & BOOLEAN) {
    case BOOLEAN_AND: return held & with;
    case BOOLEAN_OR: return held | with;
    default: return held ^ with;
    }
}

void set_compared(const Context *at, uint32_t held, uint32_t with) {
    uint32_t first = combined(at, held, with), second = combined(at, ~held, with);
    set_predicate(at, 0, first);
    set_predicate(at, 1, second);
}

// ISETP p, q, a, b, with [, low]: with EX the low words' result decides where the high ones are equal.
static void isetp(const Context *at) {
    uint32_t first[LANES], second[LANES];
    if (at->instruction->modifiers & BITS_64) {
        set_compared(at, compared_wide(at), predicate(at, 4));
        return;
    }
    const uint32_t *a = integer(at, 2, first), *b = integer(at, 3, second);
    uint32_t held = compared(at, a, b);
    if (at->instruction->modifiers & CARRY) {
        uint32_t equal = 0;
        EACH_LANE equal |= (uint32_t)(a[lane] == b[lane]) << lane;
        held = (held & ~equal) | (predicate(at, 5) & equal);
    }
    set_compared(at, held, predicate(at, 4));
}

// IADD3 d, p, q, a, b, c, ci, cj: up to two carries out. A negated source is its complement plus one; under X, where
// carries come in, it is the complement alone.
static void iadd3(const Context *at) {
    const Instruction *instruction = at->instruction;
    uint32_t tmp[LANES], into[LANES], low = 0, high = 0;
    uint64_t sum[LANES] = {0};
    bool carries = instruction->modifiers & CARRY;
    for (int place = 3; place < 6; place++) {
        const Operand *operand = &instruction->operands[place];
        const uint32_t *values = plain(at, operand, 0, tmp);
        if (operand->flags & (FLAG_NEGATED | FLAG_INVERTED)) {
            uint64_t one = operand->flags & FLAG_NEGATED && !carries;
            EACH_LANE sum[lane] += (uint64_t)(uint32_t)~values[lane] + one;
        } else {
            EACH_LANE sum[lane] += values[lane];
        }
    }
    if (carries) {
        uint32_t one = predicate(at, 6), two = predicate(at, 7);
        EACH_LANE sum[lane] += (one >> lane & 1) + (two >> lane & 1);
    }
    EACH_LANE into[lane] = (uint32_t)sum[lane];
    EACH_LANE low |= (uint32_t)(sum[lane] >> 32 & 3) >= 1 ? 1u << lane : 0;
    EACH_LANE high |= (uint32_t)(sum[lane] >> 32 & 3) >= 2 ? 1u << lane : 0;
    set(at, 0, into);
    set_predicate(at, 1, low);
    set_predicate(at, 2, high);
}

// LEA d, p, a, b, c, shift, ci: (a << shift) + b, or (HI) the upper word of ((c:a) << shift) + b; SX32: c is a's sign.
static void lea(const Context *at) {
    const Instruction *instruction = at->instruction;
    uint32_t modifiers = instruction->modifiers, shift = instruction->extra & 31;
    uint32_t first[LANES], second[LANES], third[LANES], into[LANES], out = 0;
    const uint32_t *a = plain(at, &instruction->operands[2], 0, first), *b = plain(at, &instruction->operands[3], 0, second);
    const uint32_t *c = plain(at, &instruction->operands[4], 0, third);
    bool carries = modifiers & CARRY;
    bool negates_a = instruction->operands[2].flags & FLAG_NEGATED, negates_b = instruction->operands[3].flags & (FLAG_NEGATED | FLAG_INVERTED);
    uint32_t in = carries ? predicate(at, 6) : 0;
    EACH_LANE {
        uint64_t sum;
        if (modifiers & HIGH_WORD) {
            uint64_t pair = modifiers & SIGN_EXTENDED ? (uint64_t)(int64_t)(int32_t)a[lane] : (uint64_t)c[lane] << 32 | a[lane];
            if (negates_a) pair = carries ? ~pair : 0 - pair;
            sum = (uint32_t)((pair << shift) >> 32);
        } else {  // what is shifted is negated as IADD3 negates: without a borrow there is a carry
            sum = negates_a ? (uint64_t)(uint32_t)~(a[lane] << shift) + !carries : a[lane] << shift;
        }
        sum += negates_b ? (uint64_t)(uint32_t)~b[lane] + !carries : b[lane];
        sum += in >> lane & 1;
        into[lane] = (uint32_t)sum;
        out |= (uint32_t)(sum >> 32 & 1) << lane;
    }
    set(at, 0, into);
    set_predicate(at, 1, out);
}

// IMAD d, p, a, b, c, ci
static void imad(const Context *at) {
    const Instruction *instruction = at->instruction;
    uint32_t modifiers = instruction->modifiers;
    uint32_t first[LANES], second[LANES], third[LANES], into[LANES];
    const uint32_t *a = integer(at, 2, first), *b = integer(at, 3, second);
    bool is_unsigned = modifiers & UNSIGNED;
    uint32_t in = modifiers & CARRY ? predicate(at, 5) : 0;
    if (modifiers & (WIDE | HIGH_WORD)) {
        uint64_t addend[LANES], sum[LANES];
        uint32_t out = 0;
        wide(at, 4, addend);
        if (instruction->operands[4].kind == OPERAND_IMMEDIATE)
            EACH_LANE addend[lane] = is_unsigned ? (uint32_t)addend[lane] : addend[lane];
        EACH_LANE {
            uint64_t product = is_unsigned ? (uint64_t)a[lane] * b[lane] : (uint64_t)((int64_t)(int32_t)a[lane] * (int32_t)b[lane]);
            unsigned __int128 whole = (unsigned __int128)product + addend[lane] + (in >> lane & 1);
            sum[lane] = (uint64_t)whole;
            out |= (uint32_t)(whole >> 64 & 1) << lane;
        }
        if (modifiers & WIDE) set_wide(at, 0, sum);
        else {
            EACH_LANE into[lane] = (uint32_t)(sum[lane] >> 32);
            set(at, 0, into);
        }
        set_predicate(at, 1, out);
        return;
    }
    const Operand *last = &instruction->operands[4];
    const uint32_t *c = plain(at, last, 0, third);
    if (last->flags & (FLAG_NEGATED | FLAG_INVERTED)) {
        uint32_t one = last->flags & FLAG_NEGATED && !(modifiers & CARRY);
        EACH_LANE third[lane] = ~c[lane] + one;
        c = third;
    }
    EACH_LANE into[lane] = a[lane] * b[lane] + c[lane] + (in >> lane & 1);
    uint32_t out = 0;
    if (instruction->operands[1].number != PT)
        EACH_LANE out |= (uint32_t)(((uint64_t)(uint32_t)(a[lane] * b[lane]) + c[lane] + (in >> lane & 1)) >> 32 & 1) << lane;
    set(at, 0, into);
    set_predicate(at, 1, out);
}

static uint32_t looked_up(uint32_t table, uint32_t a, uint32_t b, uint32_t c) {
    uint32_t found = 0;
    for (uint32_t k = 0; k < 8; k++)
        if (table >> k & 1) found |= (k & 4 ? a : ~a) & (k & 2 ? b : ~b) & (k & 1 ? c : ~c);
    return found;
}

// LOP3 p, d, a, b, c, with: p holds where the result is not 0, or the input does.
static void lop3(const Context *at) {
    const Instruction *instruction = at->instruction;
    uint32_t first[LANES], second[LANES], third[LANES], into[LANES], held = 0;
    const uint32_t *a = integer(at, 2, first), *b = integer(at, 3, second), *c = integer(at, 4, third);
    switch (instruction->extra) {
    case 0xc0: EACH_LANE into[lane] = a[lane] & b[lane]; break;
    case 0xfc: EACH_LANE into[lane] = a[lane] | b[lane]; break;
    case 0x3c: EACH_LANE into[lane] = a[lane] ^ b[lane]; break;
    case 0x33: EACH_LANE into[lane] = ~b[lane]; break;
    default: EACH_LANE into[lane] = looked_up(instruction->extra, a[lane], b[lane], c[lane]);
    }
    if (instruction->operands[0].number != PT) {
        EACH_LANE held |= (uint32_t)(into[lane] != 0) << lane;
        set_predicate(at, 0, held | predicate(at, 5));
    }
    set(at, 1, into);
}

// SHF d, a, b, c: shifts the pair c:a by b. L: the upper word with HI, else the lower; R: the lower, with HI the upper.
// Shifts beyond the width give what is shifted in, unless W wraps.
static void shf(const Context *at) {
    uint32_t modifiers = at->instruction->modifiers;
    uint32_t first[LANES], second[LANES], third[LANES], into[LANES];
    const uint32_t *a = integer(at, 1, first), *b = integer(at, 2, second), *c = integer(at, 3, third);
    bool is_64 = modifiers & BITS_64, is_signed = modifiers & IS_SIGNED;
    uint32_t most = is_64 ? 63 : 32, wrap = is_64 ? 63 : 31;
    EACH_LANE {
        uint32_t by = modifiers & WRAPS ? b[lane] & wrap : b[lane] > most ? most + (is_64 && b[lane] > 63) : b[lane];
        uint64_t pair = (uint64_t)c[lane] << 32 | a[lane], shifted;
        if (modifiers & RIGHT) {
            if (is_signed) shifted = (uint64_t)((int64_t)pair >> (by > 63 ? 63 : by));
            else shifted = by > 63 ? 0 : pair >> by;
        } else {
            shifted = by > 63 ? 0 : pair << by;
        }
        into[lane] = (uint32_t)(modifiers & HIGH_WORD ? shifted >> 32 : shifted);
    }
    set(at, 0, into);
}

// PRMT d, a, b, c: bytes of the pair c:a chosen by b's nibbles.
static void prmt(const Context *at) {
    uint32_t first[LANES], second[LANES], third[LANES], into[LANES];
    const uint32_t *a = integer(at, 1, first), *b = integer(at, 2, second), *c = integer(at, 3, third);
    uint32_t mode = at->instruction->extra;
    EACH_LANE {
        uint64_t pair = (uint64_t)c[lane] << 32 | a[lane];
        uint32_t found = 0, sel = b[lane] & 3;
        for (uint32_t k = 0; k < 4; k++) {
            uint32_t from;
            bool sign = false;
            switch (mode) {
            case PRMT_F4E: from = sel + k; break;
            case PRMT_B4E: from = (sel + 8 - k) & 7; break;
            case PRMT_RC8: from = sel; break;
            case PRMT_ECL: from = k > sel ? k : sel; break;
            case PRMT_ECR: from = k < sel ? k : sel; break;
            case PRMT_RC16: from = (sel & 1) * 2 + (k & 1); break;
            default: from = b[lane] >> 4 * k & 7; sign = b[lane] >> 4 * k & 8;
            }
            uint32_t byte = (uint32_t)(pair >> 8 * from) & 0xff;
            found |= (sign ? byte & 0x80 ? 0xffu : 0 : byte) << 8 * k;
        }
        into[lane] = found;
    }
    set(at, 0, into);
}

static void minimum(const Context *at, const uint32_t *a, const uint32_t *b, uint32_t least, uint32_t *into) {
    bool is_unsigned = at->instruction->modifiers & UNSIGNED;
    EACH_LANE {
        bool smaller = is_unsigned ? a[lane] < b[lane] : (int32_t)a[lane] < (int32_t)b[lane];
        into[lane] = smaller == (least >> lane & 1) ? a[lane] : b[lane];
    }
}

static uint32_t leading(uint32_t value, bool is_signed) {
    if (is_signed && (int32_t)value < 0) value = ~value;
    return value ? 31 - (uint32_t)__builtin_clz(value) : 0xffffffffu;
}

static uint32_t mirrored(uint32_t value) {
    value = (value >> 1 & 0x55555555u) | (value & 0x55555555u) << 1;
    value = (value >> 2 & 0x33333333u) | (value & 0x33333333u) << 2;
    value = (value >> 4 & 0x0f0f0f0fu) | (value & 0x0f0f0f0fu) << 4;
    return __builtin_bswap32(value);
}

// P2R d, PR, a, mask: bits of a that the mask leaves, and the predicates; R2P PR, a, mask: back.
static void p2r(const Context *at) {
    uint32_t first[LANES], second[LANES], into[LANES], shift = at->instruction->extra;
    const uint32_t *a = integer(at, 2, first), *mask = integer(at, 3, second);
    EACH_LANE {
        uint32_t bits = 0;
        for (uint32_t k = 0; k < 7; k++) bits |= (at->warp->predicates[k] >> lane & 1) << k;
        into[lane] = (a[lane] & ~(mask[lane] << shift)) | (bits & mask[lane]) << shift;
    }
    set(at, 0, into);
}

static void r2p(const Context *at) {
    uint32_t first[LANES], second[LANES], shift = at->instruction->extra;
    const uint32_t *a = integer(at, 1, first), *mask = integer(at, 2, second);
    for (uint32_t k = 0; k < 7; k++) {
        uint32_t *bits = &at->warp->predicates[k];
        EACH_LANE {
            if (!(at->mask >> lane & 1) || !(mask[lane] >> k & 1)) continue;
            *bits = (*bits & ~(1u << lane)) | (a[lane] >> (shift + k) & 1) << lane;
        }
    }
}

// A predicate, or of a register whether its highest bit is set (R4.SIGN).
static uint32_t predicate_or_sign(const Context *at, int place) {
    const Operand *operand = &at->instruction->operands[place];
    if (operand->kind != OPERAND_REGISTER) return predicate(at, place);
    uint32_t tmp[LANES], held = 0;
    const uint32_t *values = plain(at, operand, 0, tmp);
    EACH_LANE held |= (values[lane] >> 31) << lane;
    return operand->flags & FLAG_INVERTED ? ~held : held;
}

bool execute_integer(const Context *at) {
    const Instruction *instruction = at->instruction;
    uint32_t first[LANES], second[LANES], third[LANES], into[LANES], held;
    const uint32_t *a, *b, *c;
    switch (instruction->op) {
    case OP_NOP: return true;
    case OP_MOV: set(at, 0, integer(at, 1, first)); return true;
    case OP_MOV_PAIR: {
        uint64_t pair[LANES];
        wide(at, 1, pair);
        set_wide(at, 0, pair);
        return true;
    }
    case OP_IADD3: iadd3(at); return true;
    case OP_IADD_PAIR: {
        uint64_t sum[LANES], more[LANES];
        wide(at, 1, sum);
        for (int place = 2; place < instruction->num_operands; place++) {
            wide(at, place, more);
            EACH_LANE sum[lane] += more[lane];
        }
        set_wide(at, 0, sum);
        return true;
    }
    case OP_VIADD:
        a = integer(at, 1, first), b = integer(at, 2, second);
        EACH_LANE into[lane] = a[lane] + b[lane];
        set(at, 0, into);
        return true;
    case OP_LEA: lea(at); return true;
    case OP_IMAD: imad(at); return true;
    case OP_LOP3: lop3(at); return true;
    case OP_SHF: shf(at); return true;
    case OP_PRMT: prmt(at); return true;
    case OP_ISETP: isetp(at); return true;
    case OP_SEL:
        a = integer(at, 1, first), b = integer(at, 2, second), held = predicate(at, 3);
        EACH_LANE into[lane] = held >> lane & 1 ? a[lane] : b[lane];
        set(at, 0, into);
        return true;
    case OP_IMNMX:
        a = integer(at, 1, first), b = integer(at, 2, second);
        minimum(at, a, b, predicate(at, 3), into);
        set(at, 0, into);
        return true;
    case OP_VIADDMNMX: {  // min or max of a + b and c
        a = integer(at, 1, first), b = integer(at, 2, second), c = integer(at, 3, third);
        uint32_t sum[LANES];
        EACH_LANE sum[lane] = a[lane] + b[lane];
        minimum(at, sum, c, predicate(at, 4), into);
        set(at, 0, into);
        return true;
    }
    case OP_VIMNMX3:
        a = integer(at, 1, first), b = integer(at, 2, second), c = integer(at, 3, third);
        held = predicate(at, 4);
        minimum(at, a, b, held, into);
        memcpy(first, into, sizeof first);
        minimum(at, first, c, held, into);
        set(at, 0, into);
        return true;
    case OP_IABS:
        a = integer(at, 1, first);
        EACH_LANE into[lane] = (int32_t)a[lane] < 0 ? 0u - a[lane] : a[lane];
        set(at, 0, into);
        return true;
    case OP_POPC:
        a = integer(at, 1, first);
        EACH_LANE into[lane] = (uint32_t)__builtin_popcount(a[lane]);
        set(at, 0, into);
        return true;
    case OP_FLO:  // SH: how far it has to be shifted to stand first
        a = integer(at, 1, first);
        EACH_LANE {
            uint32_t found = leading(a[lane], !(instruction->modifiers & UNSIGNED));
            into[lane] = instruction->modifiers & SHIFTED && found != 0xffffffffu ? 31 - found : found;
        }
        set(at, 0, into);
        return true;
    case OP_BREV:
        a = integer(at, 1, first);
        EACH_LANE into[lane] = mirrored(a[lane]);
        set(at, 0, into);
        return true;
    case OP_BMSK:  // d = ((1 << b) - 1) << a
        a = integer(at, 1, first), b = integer(at, 2, second);
        EACH_LANE {
            uint32_t from = a[lane], width = b[lane];
            if (instruction->modifiers & WRAPS) from &= 31, width &= 31;
            uint32_t ones = width >= 32 ? 0xffffffffu : (1u << width) - 1;
            into[lane] = from >= 32 ? 0 : ones << from;
        }
        set(at, 0, into);
        return true;
    case OP_SGXT:  // the lowest b bits of a, with their sign
        a = integer(at, 1, first), b = integer(at, 2, second);
        EACH_LANE {
            uint32_t width = b[lane] > 32 ? 32 : b[lane];
            if (!width) into[lane] = 0;
            else if (instruction->modifiers & UNSIGNED) into[lane] = width == 32 ? a[lane] : a[lane] & ((1u << width) - 1);
            else into[lane] = (uint32_t)((int32_t)(a[lane] << (32 - width)) >> (32 - width));
        }
        set(at, 0, into);
        return true;
    case OP_PLOP3: {  // p, q, a, b, c and two tables
        uint32_t x = predicate_or_sign(at, 2), y = predicate_or_sign(at, 3), z = predicate_or_sign(at, 4);
        set_predicate(at, 0, looked_up(instruction->extra & 0xff, x, y, z));
        set_predicate(at, 1, looked_up(instruction->extra >> 8 & 0xff, x, y, z));
        return true;
    }
    case OP_P2R: p2r(at); return true;
    case OP_R2P: r2p(at); return true;
    default: return false;
    }
}

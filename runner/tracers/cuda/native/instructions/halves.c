// Packed halves and bfloat16s, and what their bits mean.
#include "halves.h"
#include "warp.h"

const Format HALF = {5, 10, true}, BFLOAT16 = {8, 7, true}, E4M3 = {4, 3, false}, E5M2 = {5, 2, true};

double small_value(uint32_t bits, const Format *format) {
    int fraction_bits = format->fraction_bits, bias = (1 << (format->exponent_bits - 1)) - 1, top = (1 << format->exponent_bits) - 1;
    int exponent = (int)(bits >> fraction_bits) & top;
    uint32_t all = (1u << fraction_bits) - 1, fraction = bits & all;
    double size;
    if (exponent == top && (format->has_infinity || fraction == all)) size = format->has_infinity && !fraction ? INFINITY : NAN;
    else size = ldexp(exponent ? fraction + all + 1 : fraction, (exponent ? exponent : 1) - bias - fraction_bits);
    return bits >> (format->exponent_bits + fraction_bits) & 1 ? -size : size;
}

uint32_t small_of(double value, const Format *format, int rounding, bool saturates) {
    int fraction_bits = format->fraction_bits, bias = (1 << (format->exponent_bits - 1)) - 1, exponent;
    uint32_t sign = (uint32_t)(signbit(value) != 0) << (format->exponent_bits + fraction_bits);
    uint32_t infinite = ((1u << format->exponent_bits) - 1) << fraction_bits, bits;
    uint32_t most = format->has_infinity ? infinite - 1 : infinite + (1u << fraction_bits) - 2;
    double size = fabs(value);
    if (isnan(value)) return (1u << (format->exponent_bits + fraction_bits)) - 1;
    bool up = rounding == (sign ? 1 : 2), down = rounding == 3 || (!up && rounding);
    if (size == 0) return sign;
    if (isinf(value)) {
        bits = most + 1;
    } else {
        frexp(size, &exponent);
        exponent = exponent - 1 < 1 - bias ? 1 - bias : exponent - 1;
        double units = ldexp(size, fraction_bits - exponent);
        units = up ? ceil(units) : down ? floor(units) : nearbyint(units);
        if (exponent > bias + 1) bits = down ? most : most + 1;
        else bits = ((uint32_t)(exponent + bias - 1) << fraction_bits) + (uint32_t)units;
        if (bits > most) bits = down ? most : most + 1;
    }
    return sign | (bits > most && saturates ? most : bits);
}

void unpack_halves(const Context *at, int place, float into[2][LANES]) {
    const Operand *operand = &at->instruction->operands[place];
    uint32_t tmp[LANES], modifiers = at->instruction->modifiers;
    const uint32_t *values = plain(at, operand, 0, tmp);
    if (operand->kind != OPERAND_IMMEDIATE && operand->flags & FLAG_WIDE) {  // a single for both, rounded to zero
        const float *singles = single(at, place, tmp);
        EACH_LANE into[0][lane] = into[1][lane] = (float)small_value(small_of(singles[lane], &HALF, 3, false), &HALF);
        return;
    }
    for (int part = 0; part < 2; part++) {
        int from = operand->flags & FLAG_LOW ? 0 : operand->flags & FLAG_HIGH ? 1 : operand->flags & FLAG_SWAPPED ? !part : part;
        EACH_LANE {
            uint16_t bits = (uint16_t)(values[lane] >> 16 * from);
            if (operand->flags & FLAG_ABSOLUTE) bits &= 0x7fff;
            if (operand->flags & FLAG_NEGATED) bits ^= 0x8000;
            if (modifiers & FLUSHES && !(bits & (modifiers & BFLOAT ? 0x7f80 : 0x7c00))) bits &= 0x8000;
            into[part][lane] = modifiers & BFLOAT ? bfloat_value(bits) : half_value(bits);
        }
    }
}

static uint16_t result_of(uint32_t modifiers, double exact) {
    if (modifiers & SATURATES) exact = exact > 0 ? exact < 1 ? exact : 1 : 0;
    if (modifiers & RELU && exact <= 0) exact = 0;  // NaN stays
    uint16_t bits = modifiers & BFLOAT ? bfloat_of(exact) : half_of(exact);
    return modifiers & FLUSHES && !(bits & (modifiers & BFLOAT ? 0x7f80 : 0x7c00)) ? bits & 0x8000 : bits;
}

// x y + c, or where it is not exact the neighbour with an odd last bit, so that what follows rounds but once. Products of
// halves and of bfloat16s are exact in a double; a bfloat16 may lie farther below one than a double has bits.
static double fused(double x, double y, double c) {
    double product = x * y, sum = product + c, part = sum - product;
    double rest = (product - (sum - part)) + (c - part);
    uint64_t bits;
    memcpy(&bits, &sum, 8);
    if (!isfinite(sum) || rest == 0 || bits & 1) return sum;
    return nextafter(sum, rest > 0 ? INFINITY : -INFINITY);
}

// HADD2, HMUL2, HFMA2. With F32 the sum or product of the first halves is a single.
static void arithmetic(const Context *at) {
    const Instruction *instruction = at->instruction;
    float a[2][LANES], b[2][LANES], c[2][LANES];
    uint32_t into[LANES] = {0};
    bool adds = instruction->op == OP_HADD2, fuses = instruction->op == OP_HFMA2;
    unpack_halves(at, 1, a);
    unpack_halves(at, 2, b);
    if (fuses) unpack_halves(at, 3, c);
    if (instruction->extra) {
        EACH_LANE {
            float sum = adds ? a[0][lane] + b[0][lane] : a[0][lane] * b[0][lane];
            if (instruction->modifiers & SATURATES) sum = sum > 0 ? sum < 1 ? sum : 1 : 0;
            memcpy(&into[lane], &sum, 4);
            if (isnan(sum)) into[lane] = 0x7fffffffu;
        }
        set(at, 0, into);
        return;
    }
    for (int part = 0; part < 2; part++)
        EACH_LANE {
            double x = a[part][lane], y = b[part][lane];
            double exact = adds ? x + y : fuses ? fused(x, y, c[part][lane]) : x * y;
            into[lane] |= (uint32_t)result_of(instruction->modifiers, exact) << 16 * part;
        }
    set(at, 0, into);
}

// HMNMX2 d, a, b, p: a NaN gives way to a number, unless NAN says that it stays; -0 is smaller than 0.
static void least_or_most(const Context *at) {
    uint32_t modifiers = at->instruction->modifiers, least = predicate(at, 3), into[LANES] = {0};
    float a[2][LANES], b[2][LANES];
    unpack_halves(at, 1, a);
    unpack_halves(at, 2, b);
    for (int part = 0; part < 2; part++)
        EACH_LANE {
            float x = a[part][lane], y = b[part][lane], kept;
            bool first = x == y ? signbit(x) != 0 : x < y;
            if (isnan(x) || isnan(y)) kept = modifiers & KEEPS_NAN || (isnan(x) && isnan(y)) ? NAN : isnan(x) ? y : x;
            else kept = first == (bool)(least >> lane & 1) ? x : y;
            into[lane] |= (uint32_t)result_of(modifiers, kept) << 16 * part;
        }
    set(at, 0, into);
}

// HSETP2 p, q, a, b, with: of the first halves and of the second; HSET2 d, a, b, with: 1 or all bits of each.
static void compare(const Context *at) {
    const Instruction *instruction = at->instruction;
    bool sets_predicates = instruction->op == OP_HSETP2;
    float a[2][LANES], b[2][LANES];
    uint32_t held[2], with = predicate(at, sets_predicates ? 4 : 3), into[LANES] = {0};
    unpack_halves(at, sets_predicates ? 2 : 1, a);
    unpack_halves(at, sets_predicates ? 3 : 2, b);
    for (int part = 0; part < 2; part++) held[part] = combined(at, compared_float(at, a[part], b[part]), with);
    if (sets_predicates) {
        set_predicate(at, 0, held[0]);
        set_predicate(at, 1, held[1]);
        return;
    }
    uint32_t one = !instruction->extra ? 0xffff : instruction->modifiers & BFLOAT ? 0x3f80 : 0x3c00;
    for (int part = 0; part < 2; part++) EACH_LANE into[lane] |= (held[part] >> lane & 1 ? one : 0) << 16 * part;
    set(at, 0, into);
}

bool execute_halves(const Context *at) {
    switch (at->instruction->op) {
    case OP_HADD2:
    case OP_HMUL2:
    case OP_HFMA2: arithmetic(at); return true;
    case OP_HMNMX2: least_or_most(at); return true;
    case OP_HSET2:
    case OP_HSETP2: compare(at); return true;
    default: return false;
    }
}

// Floating-point arithmetic in 32 and 64 bits.
#include <fenv.h>

#include "halves.h"
#include "warp.h"

// Rounding other than to nearest: the host's, out of line so that nothing is moved past fesetround.
static int rounding_of(uint32_t modifiers) {
    switch (modifiers & ROUNDING) {
    case ROUNDS_DOWN: return FE_DOWNWARD;
    case ROUNDS_UP: return FE_UPWARD;
    case ROUNDS_TO_ZERO: return FE_TOWARDZERO;
    default: return FE_TONEAREST;
    }
}

__attribute__((noinline)) static void fused(const float *a, const float *b, const float *c, float *into) {
    EACH_LANE into[lane] = fmaf(a[lane], b[lane], c[lane]);
}
__attribute__((noinline)) static void added(const float *a, const float *b, float *into) {
    EACH_LANE into[lane] = a[lane] + b[lane];
}
__attribute__((noinline)) static void multiplied(const float *a, const float *b, float *into) {
    EACH_LANE into[lane] = a[lane] * b[lane];
}
// The product of two floats is exact in a double, so that it rounds once.
__attribute__((noinline)) static void multiplied_scaled(const float *a, const float *b, double scale, float *into) {
    EACH_LANE into[lane] = (float)((double)a[lane] * b[lane] * scale);
}
__attribute__((noinline)) static void fused_twice(const double *a, const double *b, const double *c, double *into) {
    EACH_LANE into[lane] = fma(a[lane], b[lane], c[lane]);
}
__attribute__((noinline)) static void added_twice(const double *a, const double *b, double *into) {
    EACH_LANE into[lane] = a[lane] + b[lane];
}
__attribute__((noinline)) static void multiplied_twice(const double *a, const double *b, double *into) {
    EACH_LANE into[lane] = a[lane] * b[lane];
}

static void flushed(float *values) {
    uint32_t bits[LANES];
    memcpy(bits, values, sizeof bits);
    EACH_LANE bits[lane] = bits[lane] & 0x7f800000u ? bits[lane] : bits[lane] & 0x80000000u;
    memcpy(values, bits, sizeof bits);
}

static const float *input(const Context *at, int place, uint32_t *into) {
    const float *values = single(at, place, into);
    if (!(at->instruction->modifiers & FLUSHES)) return values;
    if ((const uint32_t *)values != into) memcpy(into, values, LANES * sizeof *into);
    flushed((float *)into);
    return (const float *)into;
}

// NaN is one value on this hardware.
static void output(const Context *at, float *values) {
    uint32_t modifiers = at->instruction->modifiers;
    if (modifiers & SATURATES) EACH_LANE values[lane] = values[lane] > 0.0f ? values[lane] < 1.0f ? values[lane] : 1.0f : 0.0f;
    if (modifiers & FLUSHES) flushed(values);
    uint32_t bits[LANES];
    memcpy(bits, values, sizeof bits);
    EACH_LANE bits[lane] = (bits[lane] & 0x7fffffffu) > 0x7f800000u ? 0x7fffffffu : bits[lane];
    set(at, 0, bits);
}

static void output_twice(const Context *at, const double *values) {
    uint64_t bits[LANES];
    memcpy(bits, values, sizeof bits);
    EACH_LANE bits[lane] = (bits[lane] << 1) > 0xffe0000000000000ull ? 0xfff8000000000000ull : bits[lane];
    set_wide(at, 0, bits);
}

#define COMPARED(type)                                                                             \
    uint32_t compared_##type(const Context *at, const type *a, const type *b) {                    \
        uint32_t held = 0, unordered = 0, code = at->instruction->modifiers & COMPARISON;          \
        EACH_LANE unordered |= (uint32_t)(isnan(a[lane]) || isnan(b[lane])) << lane;               \
        switch (code & 7) {                                                                        \
        case IS_LT: EACH_LANE held |= (uint32_t)(a[lane] < b[lane]) << lane; break;                \
        case IS_EQ: EACH_LANE held |= (uint32_t)(a[lane] == b[lane]) << lane; break;               \
        case IS_LE: EACH_LANE held |= (uint32_t)(a[lane] <= b[lane]) << lane; break;               \
        case IS_GT: EACH_LANE held |= (uint32_t)(a[lane] > b[lane]) << lane; break;                \
        case IS_NE: EACH_LANE held |= (uint32_t)(a[lane] != b[lane]) << lane; break;               \
        case IS_GE: EACH_LANE held |= (uint32_t)(a[lane] >= b[lane]) << lane; break;               \
        case IS_NUM: held = code == IS_T ? 0xffffffffu : ~unordered; break;                        \
        default: held = code == IS_NAN ? unordered : 0;                                            \
        }                                                                                          \
        if (code == IS_NUM || code == IS_NAN || code == IS_T || code == IS_F) return held;         \
        return code >= IS_LTU ? held | unordered : held & ~unordered;                              \
    }
COMPARED(float)
COMPARED(double)

static void arithmetic(const Context *at) {
    const Instruction *instruction = at->instruction;
    uint32_t first[LANES], second[LANES], third[LANES];
    float into[LANES];
    int rounding = rounding_of(instruction->modifiers);
    const float *a = input(at, 1, first), *b = input(at, 2, second);
    const float *c = instruction->op == OP_FFMA ? input(at, 3, third) : NULL;
    if (rounding != FE_TONEAREST) fesetround(rounding);
    if (instruction->op == OP_FFMA) fused(a, b, c, into);
    else if (instruction->op == OP_FADD) added(a, b, into);
    else if (instruction->extra) multiplied_scaled(a, b, ldexp(1.0, (int32_t)instruction->extra), into);
    else multiplied(a, b, into);
    if (rounding != FE_TONEAREST) fesetround(FE_TONEAREST);
    output(at, into);
}

static void arithmetic_twice(const Context *at) {
    const Instruction *instruction = at->instruction;
    double a[LANES], b[LANES], c[LANES], into[LANES];
    int rounding = rounding_of(instruction->modifiers);
    twice(at, 1, a);
    twice(at, 2, b);
    if (instruction->op == OP_DFMA) twice(at, 3, c);
    if (rounding != FE_TONEAREST) fesetround(rounding);
    if (instruction->op == OP_DFMA) fused_twice(a, b, c, into);
    else if (instruction->op == OP_DADD) added_twice(a, b, into);
    else multiplied_twice(a, b, into);
    if (rounding != FE_TONEAREST) fesetround(FE_TONEAREST);
    output_twice(at, into);
}

// The special functions: within the error that NVIDIA's programming guide states, not bit for bit.
static void mufu(const Context *at) {
    const Instruction *instruction = at->instruction;
    uint32_t first[LANES];
    float into[LANES];
    if (instruction->extra == MUFU_RCP64H || instruction->extra == MUFU_RSQ64H) {  // of a double's upper word
        const Operand *source = &instruction->operands[1];
        const uint32_t *high = plain(at, source, 0, first);
        uint32_t found[LANES];
        EACH_LANE {
            uint64_t bits = (uint64_t)high[lane] << 32;
            if (source->flags & FLAG_ABSOLUTE) bits &= ~(1ull << 63);
            if (source->flags & FLAG_NEGATED) bits ^= 1ull << 63;
            double value;
            memcpy(&value, &bits, 8);
            value = instruction->extra == MUFU_RCP64H ? 1.0 / value : 1.0 / sqrt(value);
            memcpy(&bits, &value, 8);
            found[lane] = isnan(value) ? 0x7fffffffu : (uint32_t)(bits >> 32);
        }
        set(at, 0, found);
        return;
    }
    const float *a = single(at, 1, first);
    EACH_LANE {
        double x = a[lane], y = 0;
        switch (instruction->extra) {
        case MUFU_RCP: y = 1.0 / x; break;
        case MUFU_RSQ: y = 1.0 / sqrt(x); break;
        case MUFU_SQRT: y = sqrt(x); break;
        case MUFU_EX2: y = exp2(x); break;
        case MUFU_LG2: y = log2(x); break;
        case MUFU_SIN: y = sin(x * 6.283185307179586); break;  // RRO'd argument: in turns
        case MUFU_COS: y = cos(x * 6.283185307179586); break;
        case MUFU_TANH: y = tanh(x); break;
        default: fail(at, "special function %u is not executed", instruction->extra);
        }
        into[lane] = (float)y;
    }
    if (instruction->extra != MUFU_RCP && instruction->extra != MUFU_RSQ && instruction->extra != MUFU_SQRT) {
        output(at, into);
        return;
    }
    output(at, into);
}

// Whether a / b needs more than the short sequence: operands that are no normal numbers, or a quotient that is none.
static uint32_t needs_care(const float *a, const float *b) {
    uint32_t held = 0;
    EACH_LANE {
        uint32_t x, y;
        memcpy(&x, &a[lane], 4);
        memcpy(&y, &b[lane], 4);
        int above = (int)(x >> 23 & 0xff), below = (int)(y >> 23 & 0xff);
        bool care = above == 255 || below == 255 || below == 0 || below >= 253 || above - below > 125 || above - below < -125;
        care |= above < 24 && (x & 0x7fffffffu);
        held |= (uint32_t)care << lane;
    }
    return held;
}

// DSETP.MIN (``extra`` 1) and MAX p, q, a, b, with: whether a is to be taken, b being greater (less) or no number; and
// whether both are none. -0 is smaller than 0.
static void double_chosen(const Context *at, const double *a, const double *b) {
    uint32_t first = 0, none = 0, with = predicate(at, 4);
    bool least = at->instruction->extra == 1;
    EACH_LANE {
        double x = a[lane], y = b[lane];
        bool less = x == y ? signbit(x) && !signbit(y) : x < y, greater = x == y ? !signbit(x) && signbit(y) : x > y;
        if (isnan(y) ? !isnan(x) : least ? less : greater) first |= 1u << lane;
        if (isnan(x) && isnan(y)) none |= 1u << lane;
    }
    set_predicate(at, 0, combined(at, first, with));
    set_predicate(at, 1, combined(at, none, with));
}

bool execute_float(const Context *at) {
    const Instruction *instruction = at->instruction;
    uint32_t first[LANES], second[LANES], held;
    switch (instruction->op) {
    case OP_FADD:
    case OP_FMUL:
    case OP_FFMA: arithmetic(at); return true;
    case OP_DADD:
    case OP_DMUL:
    case OP_DFMA: arithmetic_twice(at); return true;
    case OP_FSETP:
        set_compared(at, compared_float(at, input(at, 2, first), input(at, 3, second)), predicate(at, 4));
        return true;
    case OP_FSET:  // 1, or all bits
        held = combined(at, compared_float(at, input(at, 1, first), input(at, 2, second)), predicate(at, 3));
        EACH_LANE first[lane] = held >> lane & 1 ? at->instruction->extra ? 0x3f800000u : 0xffffffffu : 0;
        set(at, 0, first);
        return true;
    case OP_DSETP: {
        double a[LANES], b[LANES];
        twice(at, 2, a);
        twice(at, 3, b);
        if (at->instruction->extra) double_chosen(at, a, b);
        else set_compared(at, compared_double(at, a, b), predicate(at, 4));
        return true;
    }
    case OP_FSEL: {
        const float *a = single(at, 1, first), *b = single(at, 2, second);
        float into[LANES];
        held = predicate(at, 3);
        EACH_LANE into[lane] = held >> lane & 1 ? a[lane] : b[lane];
        set_single(at, 0, into);
        return true;
    }
    case OP_FMNMX: {  // a NaN gives way to a number, unless NAN says that it stays
        const float *a = input(at, 1, first), *b = input(at, 2, second);
        float into[LANES];
        held = predicate(at, 3);
        EACH_LANE {
            float x = a[lane], y = b[lane];
            if (isnan(x) || isnan(y)) {
                into[lane] = instruction->modifiers & KEEPS_NAN || (isnan(x) && isnan(y)) ? NAN : isnan(x) ? y : x;
            } else if (x == y) {  // -0 is smaller than 0
                into[lane] = (held >> lane & 1) == (uint32_t)(signbit(x) != 0) ? x : y;
            } else {
                into[lane] = (x < y) == (bool)(held >> lane & 1) ? x : y;
            }
        }
        output(at, into);
        return true;
    }
    case OP_MUFU: mufu(at); return true;
    case OP_FCHK: set_predicate(at, 0, needs_care(single(at, 1, first), single(at, 2, second))); return true;
    default: return false;
    }
}

// Conversions between types, and halves.
#include <fenv.h>

#include "halves.h"
#include "warp.h"

float half_value(uint16_t bits) {
    uint32_t sign = (uint32_t)(bits & 0x8000) << 16, exponent = bits >> 10 & 31, fraction = bits & 0x3ff, whole;
    if (exponent == 31) whole = sign | 0x7f800000u | fraction << 13;
    else if (exponent) whole = sign | (exponent + 112) << 23 | fraction << 13;
    else {
        float small = (float)fraction * 0x1p-24f;
        return sign ? -small : small;
    }
    float value;
    memcpy(&value, &whole, 4);
    return value;
}

uint16_t half_of(double value) {
    uint16_t sign = signbit(value) ? 0x8000 : 0;
    double size = fabs(value);
    if (isnan(value)) return 0x7fff;
    if (size >= 65520.0) return sign | 0x7c00;
    if (size < 0x1p-14) return sign | (uint16_t)nearbyint(size * 0x1p24);  // subnormal, or the first that is not
    int exponent;
    double fraction = frexp(size, &exponent);                            // 0.5 to 1
    uint32_t rounded = (uint32_t)nearbyint(fraction * 2048);             // 1024 to 2048
    return sign | (uint16_t)(((uint32_t)(exponent + 14) << 10) + rounded - 1024);
}

uint16_t bfloat_of(double value) {
    if (isnan(value)) return 0x7fff;
    float near = (float)value;  // to odd, so that the second rounding is that of ``value``
    uint32_t bits;
    memcpy(&bits, &near, 4);
    if ((double)near != value) {
        if ((fabs((double)near) > fabs(value))) bits--;
        bits |= 1;
    }
    if ((bits & 0x7f800000u) == 0x7f800000u) return (uint16_t)(bits >> 16);
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

static bool is_wide(uint32_t type) { return type == TYPE_U64 || type == TYPE_S64 || type == TYPE_F64; }

static void read_float(const Context *at, int place, uint32_t type, double *into) {
    uint32_t tmp[LANES];
    if (type == TYPE_F64) {
        twice(at, place, into);
        return;
    }
    if (type == TYPE_F32) {
        const float *values = single(at, place, tmp);
        if (at->instruction->modifiers & FLUSHES) EACH_LANE into[lane] = fabsf(values[lane]) < 0x1p-126f ? copysign(0.0, values[lane]) : values[lane];
        else EACH_LANE into[lane] = values[lane];
        return;
    }
    const Operand *operand = &at->instruction->operands[place];
    const uint32_t *values = plain(at, operand, 0, tmp);
    int shift = operand->flags & FLAG_HIGH || operand->index == 2 ? 16 : 0;
    EACH_LANE {
        uint16_t bits = (uint16_t)(values[lane] >> shift);
        double value = type == TYPE_BF16 ? bfloat_value(bits) : half_value(bits);
        if (operand->flags & FLAG_ABSOLUTE) value = fabs(value);
        into[lane] = operand->flags & FLAG_NEGATED ? -value : value;
    }
}

// An integer source: its value, signed or not, in 65 bits of a double-wide pair (value, is it unsigned).
static void read_integer(const Context *at, int place, uint32_t type, int64_t *into) {
    uint32_t tmp[LANES];
    if (type == TYPE_U64 || type == TYPE_S64) {
        wide(at, place, (uint64_t *)into);
        return;
    }
    const Operand *operand = &at->instruction->operands[place];
    const uint32_t *values = integer(at, place, tmp);
    int shift = 8 * operand->index;  // .B1, .B2, .B3, .H1
    EACH_LANE {
        uint32_t bits = values[lane] >> shift;
        switch (type) {
        case TYPE_U8: into[lane] = bits & 0xff; break;
        case TYPE_S8: into[lane] = (int8_t)bits; break;
        case TYPE_U16: into[lane] = bits & 0xffff; break;
        case TYPE_S16: into[lane] = (int16_t)bits; break;
        case TYPE_U32: into[lane] = bits; break;
        default: into[lane] = (int32_t)bits;
        }
    }
}

__attribute__((noinline)) static float narrowed(double value) { return (float)value; }
__attribute__((noinline)) static float single_of(int64_t value) { return (float)value; }
__attribute__((noinline)) static float single_of_unsigned(uint64_t value) { return (float)value; }
__attribute__((noinline)) static double double_of(int64_t value) { return (double)value; }
__attribute__((noinline)) static double double_of_unsigned(uint64_t value) { return (double)value; }

static int host_rounding(uint32_t extra) {
    switch (extra >> 16 & 3) {
    case 1: return FE_DOWNWARD;
    case 2: return FE_UPWARD;
    case 3: return FE_TOWARDZERO;
    default: return FE_TONEAREST;
    }
}

static void write_float(const Context *at, uint32_t type, const double *values, int rounding) {
    uint32_t into[LANES];
    if (type == TYPE_F64) {
        uint64_t bits[LANES];
        memcpy(bits, values, sizeof bits);
        EACH_LANE if (isnan(values[lane])) bits[lane] = 0xfff8000000000000ull;
        set_wide(at, 0, bits);
        return;
    }
    EACH_LANE {
        if (type == TYPE_F32) {
            fesetround(rounding);
            float value = narrowed(values[lane]);
            fesetround(FE_TONEAREST);
            if (at->instruction->modifiers & FLUSHES && fabsf(value) < 0x1p-126f) value = copysignf(0, value);
            memcpy(&into[lane], &value, 4);
            if (isnan(value)) into[lane] = 0x7fffffffu;
        } else {
            into[lane] = small_of(values[lane], type == TYPE_BF16 ? &BFLOAT16 : &HALF, at->instruction->extra >> 16 & 3, false);
        }
    }
    set(at, 0, into);
}

static double rounded(double value, uint32_t extra) {
    switch (extra >> 16 & 3) {
    case 1: return floor(value);
    case 2: return ceil(value);
    case 3: return trunc(value);
    default: return nearbyint(value);
    }
}

// Saturates; NaN is 0, of a double the least number.
static void float_to_integer(const Context *at) {
    uint32_t extra = at->instruction->extra, to = extra & 0xff, from = extra >> 8 & 0xff;
    static const double least[] = {0, -128, 0, -32768, 0, -0x1p31, 0, -0x1p63};
    static const double most[] = {255, 127, 65535, 32767, 0xffffffffp0, 0x7fffffffp0, 0x1p64, 0x1p63};
    double values[LANES];
    uint64_t into[LANES];
    read_float(at, 1, from, values);
    EACH_LANE {
        double value = rounded(values[lane], extra);
        bool is_signed = to & 1;
        if (isnan(value)) into[lane] = from == TYPE_F64 || is_wide(to) ? is_wide(to) ? 1ull << 63 : 0x80000000u : 0;
        else if (value <= least[to]) into[lane] = is_signed ? (uint64_t)(int64_t)least[to] : 0;
        else if (value >= most[to]) into[lane] = to == TYPE_U64 ? ~0ull : to == TYPE_S64 ? ~0ull >> 1 : (uint64_t)most[to];
        else into[lane] = is_signed ? (uint64_t)(int64_t)value : (uint64_t)value;
    }
    if (is_wide(to)) {
        set_wide(at, 0, into);
    } else {
        uint32_t low[LANES];
        EACH_LANE low[lane] = (uint32_t)into[lane];
        set(at, 0, low);
    }
}

static void integer_to_float(const Context *at) {
    uint32_t extra = at->instruction->extra, to = extra & 0xff, from = extra >> 8 & 0xff, bits[LANES];
    int64_t values[LANES];
    int rounding = host_rounding(extra);
    read_integer(at, 1, from, values);
    bool is_unsigned = from == TYPE_U64;
    if (to == TYPE_F32) {
        fesetround(rounding);
        EACH_LANE {
            float value = is_unsigned ? single_of_unsigned((uint64_t)values[lane]) : single_of(values[lane]);
            memcpy(&bits[lane], &value, 4);
        }
        fesetround(FE_TONEAREST);
        set(at, 0, bits);
        return;
    }
    double wide_values[LANES];
    fesetround(rounding);
    EACH_LANE wide_values[lane] = is_unsigned ? double_of_unsigned((uint64_t)values[lane]) : double_of(values[lane]);
    fesetround(FE_TONEAREST);
    write_float(at, to, wide_values, rounding);
}

static const Format *format_of(uint32_t type) {
    switch (type) {
    case TYPE_BF16: return &BFLOAT16;
    case TYPE_E4M3: return &E4M3;
    case TYPE_E5M2: return &E5M2;
    default: return &HALF;
    }
}

// F2FP.PACK_AB d, a, b: a in the upper half, b in the lower; numbers of 8 bits fill the lower half, and the upper one
// is c's lower. F2FP.UNPACK_B d, b: both numbers of b, which are c's kind or d's.
static void pack(const Context *at) {
    const Instruction *instruction = at->instruction;
    const Format *to = format_of(instruction->extra & 0xff), *from = format_of(instruction->extra >> 8 & 0xff);
    int width = 1 + to->exponent_bits + to->fraction_bits, source = 1 + from->exponent_bits + from->fraction_bits;
    int rounding = instruction->extra >> 16 & 3;
    bool saturates = instruction->modifiers & SATURATES;
    uint32_t into[LANES], tmp[LANES], rest[LANES];
    double high[LANES], low[LANES];
    if (instruction->extra >> 18 & 1) {
        const Operand *operand = &instruction->operands[2];
        const uint32_t *values = plain(at, operand, 0, tmp);
        EACH_LANE {
            uint32_t pair = operand->flags & FLAG_HIGH ? values[lane] >> 16 : values[lane];
            low[lane] = small_value(pair & ((1u << source) - 1), from);
            high[lane] = small_value(pair >> source & ((1u << source) - 1), from);
        }
    } else {
        read_float(at, 1, TYPE_F32, high);
        read_float(at, 2, TYPE_F32, low);
    }
    const uint32_t *merged = plain(at, &instruction->operands[3], 0, rest);
    EACH_LANE {
        double a = high[lane], b = low[lane];
        if (instruction->modifiers & RELU) a = a <= 0 ? 0 : a, b = b <= 0 ? 0 : b;
        into[lane] = small_of(a, to, rounding, saturates) << width | small_of(b, to, rounding, saturates);
        if (width == 8) into[lane] |= merged[lane] << 16;
    }
    set(at, 0, into);
}

// I2I with saturation, as I2IP and the like are not met in code for sm_70 and later without it.
static void integer_to_integer(const Context *at) {
    uint32_t to = at->instruction->extra & 0xff, from = at->instruction->extra >> 8 & 0xff, into[LANES];
    static const int64_t least[] = {0, -128, 0, -32768, 0, INT32_MIN}, most[] = {255, 127, 65535, 32767, UINT32_MAX, INT32_MAX};
    int64_t values[LANES];
    read_integer(at, 1, from, values);
    EACH_LANE {
        int64_t value = values[lane];
        if (at->instruction->modifiers & SATURATES) value = value < least[to] ? least[to] : value > most[to] ? most[to] : value;
        into[lane] = (uint32_t)value;
    }
    set(at, 0, into);
}

bool execute_conversion(const Context *at) {
    uint32_t extra = at->instruction->extra;
    double values[LANES];
    switch (at->instruction->op) {
    case OP_F2I: float_to_integer(at); return true;
    case OP_I2F: integer_to_float(at); return true;
    case OP_I2I: integer_to_integer(at); return true;
    case OP_F2F:
        read_float(at, 1, extra >> 8 & 0xff, values);
        write_float(at, extra & 0xff, values, host_rounding(extra));
        return true;
    case OP_FRND:
        read_float(at, 1, extra >> 8 & 0xff, values);
        EACH_LANE values[lane] = rounded(values[lane], extra);
        write_float(at, extra & 0xff, values, FE_TONEAREST);
        return true;
    case OP_F2FP: pack(at); return true;
    default: return false;
    }
}

// What came with compute capability 10.0: two singles at once, the least or greatest of three, comparisons of 64 bits.
#include "warp.h"

// ISETP with U64 or S64.
uint32_t compared_wide(const Context *at) {
    const uint32_t modifiers = at->instruction->modifiers;
    uint64_t a[LANES], b[LANES];
    uint32_t held = 0;
    wide(at, 2, a);
    wide(at, 3, b);
    EACH_LANE {
        const bool less = modifiers & UNSIGNED ? a[lane] < b[lane] : (int64_t)a[lane] < (int64_t)b[lane], equal = a[lane] == b[lane];
        bool holds = false;
        switch (modifiers & COMPARISON) {
        case IS_LT: holds = less; break;
        case IS_EQ: holds = equal; break;
        case IS_LE: holds = less || equal; break;
        case IS_GT: holds = !less && !equal; break;
        case IS_NE: holds = !equal; break;
        case IS_GE: holds = !less; break;
        case IS_T: holds = true; break;
        default: break;
        }
        held |= (uint32_t)holds << lane;
    }
    return held;
}

static inline float flushed(const Instruction *instruction, float value) {
    return instruction->modifiers & FLUSHES && fabsf(value) < 0x1p-126f ? copysignf(0, value) : value;
}

// FADD2, FMUL2, FFMA2 d, a, b [, c]: ``extra`` is 0, 1 or 2.
static void pair(const Context *at) {
    const Instruction *instruction = at->instruction;
    float values[3][2][LANES], results[2][LANES];
    for (int place = 1; place < instruction->num_operands; place++)
        for (int word = 0; word < 2; word++) {
            uint32_t tmp[LANES];
            const Operand *operand = &instruction->operands[place];
            memcpy(values[place - 1][word], plain(at, operand, word, tmp), sizeof values[0][0]);
            EACH_LANE {
                float value = flushed(instruction, values[place - 1][word][lane]);
                if (operand->flags & FLAG_ABSOLUTE) value = fabsf(value);
                values[place - 1][word][lane] = operand->flags & FLAG_NEGATED ? -value : value;
            }
        }
    for (int word = 0; word < 2; word++) {
        EACH_LANE {
            const float a = values[0][word][lane], b = values[1][word][lane];
            const float value = instruction->extra == 0 ? a + b : instruction->extra == 1 ? a * b : fmaf(a, b, values[2][word][lane]);
            results[word][lane] = flushed(instruction, isnan(value) ? NAN : value);
        }
        uint32_t bits[LANES];
        memcpy(bits, results[word], sizeof bits);
        EACH_LANE if (isnan(results[word][lane])) bits[lane] = 0x7fffffffu;
        set_word(at, &instruction->operands[0], word, bits);
    }
}

static inline float kept(float x, float y, bool least) {
    if (isnan(x) || isnan(y)) return isnan(x) ? y : x;
    const bool first = x == y ? (bool)signbit(x) == least || signbit(x) == signbit(y) : (x < y) == least;
    return first ? x : y;
}

// FMNMX3 d, a, b, c, p: the least (p) or greatest; a NaN gives way to a number.
static void of_three(const Context *at) {
    const Instruction *instruction = at->instruction;
    uint32_t first[LANES], second[LANES], third[LANES], into[LANES], least = predicate(at, 4);
    const float *a = single(at, 1, first), *b = single(at, 2, second), *c = single(at, 3, third);
    EACH_LANE {
        const bool takes_least = least >> lane & 1;
        const float value = kept(kept(flushed(instruction, a[lane]), flushed(instruction, b[lane]), takes_least), flushed(instruction, c[lane]), takes_least);
        memcpy(&into[lane], &value, 4);
        if (isnan(value)) into[lane] = 0x7fffffffu;
    }
    set(at, 0, into);
}

bool execute_pairs(const Context *at) {
    switch (at->instruction->op) {
    case OP_PAIR_FLOAT: pair(at); return true;
    case OP_FMNMX3: of_three(at); return true;
    default: return false;
    }
}

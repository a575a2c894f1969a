// Elements of matrices: how many bits each has, and the numbers that words of 32 bits hold.
#ifndef MANYSCALE_ELEMENTS_H
#define MANYSCALE_ELEMENTS_H

#include "halves.h"
#include "warp.h"

static inline int bits_of(uint32_t element) {
    switch (element) {
    case ELEMENT_B1: return 1;
    case ELEMENT_S4: case ELEMENT_U4: return 4;
    case ELEMENT_S8: case ELEMENT_U8: case ELEMENT_E4M3: case ELEMENT_E5M2: return 8;
    case ELEMENT_TF32: return 32;
    case ELEMENT_F64: return 64;
    default: return 16;
    }
}

// As half_value, without branches: a loop of it is compiled to vectors.
static inline float quick_half(uint32_t bits) {
    uint32_t whole = (bits & 0x7fff) << 13, sign = (bits & 0x8000) << 16;
    float value;
    memcpy(&value, &whole, 4);
    value *= 0x1p112f;
    memcpy(&whole, &value, 4);
    whole |= sign | ((bits & 0x7c00) == 0x7c00 ? 0x7f800000u : 0);
    memcpy(&value, &whole, 4);
    return value;
}

// A number of 8 bits: E4M3 without infinities, or E5M2, which is the upper half of a half.
static inline float byte_value(uint32_t bits, bool is_e4m3) {
    if (!is_e4m3) return quick_half(bits << 8);
    if ((bits & 0x7f) == 0x7f) return NAN;
    uint32_t whole = (bits & 0x7f) << 20, sign = (bits & 0x80) << 24;
    float value;
    memcpy(&value, &whole, 4);
    value *= 0x1p120f;
    memcpy(&whole, &value, 4);
    whole |= sign;
    memcpy(&value, &whole, 4);
    return value;
}

// The numbers of a row's words.
static inline void numbers_of(const uint32_t *words, int count, uint32_t element, double *into) {
    switch (element) {
    case ELEMENT_F16:
        for (int k = 0; k < count; k++) {
            into[2 * k] = quick_half(words[k]);
            into[2 * k + 1] = quick_half(words[k] >> 16);
        }
        break;
    case ELEMENT_BF16:
        for (int k = 0; k < count; k++) {
            into[2 * k] = bfloat_value((uint16_t)words[k]);
            into[2 * k + 1] = bfloat_value((uint16_t)(words[k] >> 16));
        }
        break;
    case ELEMENT_E4M3:
    case ELEMENT_E5M2:
        for (int k = 0; k < 4 * count; k++)
            into[k] = byte_value(words[k / 4] >> 8 * (k % 4) & 0xff, element == ELEMENT_E4M3);
        break;
    default:
        for (int k = 0; k < count; k++) {
            uint32_t word = words[k] & 0xffffe000u;  // TF32 has 19 bits
            float value;
            memcpy(&value, &word, 4);
            into[k] = value;
        }
    }
}

static inline void integers_of(const uint32_t *words, int count, uint32_t element, int32_t *into) {
    bool is_signed = element == ELEMENT_S8 || element == ELEMENT_S4;
    int bits = bits_of(element), up = 32 - bits, each = 32 / bits;
    for (int k = 0; k < count; k++)
        for (int place = 0; place < each; place++) {
            uint32_t part = words[k] >> bits * place << up;
            into[each * k + place] = is_signed ? (int32_t)part >> up : (int32_t)(part >> up);
        }
}

static inline uint32_t single_bits(double value) {
    float narrow = (float)value;
    uint32_t bits;
    memcpy(&bits, &narrow, 4);
    return isnan(narrow) ? 0x7fffffffu : bits;
}
#endif

// Numbers of 16 bits, half precision and bfloat16, and of 8 bits.
#ifndef MANYSCALE_HALVES_H
#define MANYSCALE_HALVES_H

#include "warp.h"

float half_value(uint16_t bits);
uint16_t half_of(double value);    // rounded to nearest, ties to even, once
uint16_t bfloat_of(double value);

// A format with a sign. ``has_infinity``: else the greatest exponent holds numbers, and NaN is all ones.
typedef struct {
    int exponent_bits, fraction_bits;
    bool has_infinity;
} Format;
extern const Format HALF, BFLOAT16, E4M3, E5M2;
double small_value(uint32_t bits, const Format *format);
// Rounded once, by a value of ``extra``'s bits 16 and 17 (0: to nearest, 1: down, 2: up, 3: to zero). ``saturates``: to
// the greatest number, where it were infinite.
uint32_t small_of(double value, const Format *format, int rounding, bool saturates);
static inline float bfloat_value(uint16_t bits) {
    uint32_t whole = (uint32_t)bits << 16;
    float value;
    memcpy(&value, &whole, 4);
    return value;
}

// Both halves of a source, with its flags.
void unpack_halves(const Context *at, int place, float into[2][LANES]);

#endif

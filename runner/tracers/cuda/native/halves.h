// Numbers of 16 bits: half precision and bfloat16.
#ifndef MANYSCALE_HALVES_H
#define MANYSCALE_HALVES_H

#include "warp.h"

float half_value(uint16_t bits);
uint16_t half_of(double value);    // rounded to nearest, ties to even, once
uint16_t bfloat_of(double value);
static inline float bfloat_value(uint16_t bits) {
    uint32_t whole = (uint32_t)bits << 16;
    float value;
    memcpy(&value, &whole, 4);
    return value;
}

// Both halves of a source, with its flags; the bits of results stand in the lower half of each float.
void unpack_halves(const Context *at, int place, float into[2][LANES]);
void pack_halves(const Context *at, int place, float from[2][LANES]);
#endif

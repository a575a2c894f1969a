// Arithmetic of reductions: each sum, product and so on of two numbers is rounded to their type. Halves and bfloat16s
// are computed as floats and rounded back, which is the same for one operation. Largest and smallest leave NaN out.
#include <math.h>
#include <string.h>

#include "nccl.h"

static const size_t sizes[NUM_TYPES] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1};

size_t type_bytes(ncclDataType_t type) { return (unsigned)type < NUM_TYPES ? sizes[type] : 0; }

bool type_is_reduced(ncclDataType_t type) { return type != TYPE_E4M3 && type != TYPE_E5M2; }

static float of_bits(uint32_t bits) {
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static uint32_t bits_of(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static float from_bfloat16(uint16_t bits) { return of_bits((uint32_t)bits << 16); }

static uint16_t to_bfloat16(float value) {
    const uint32_t bits = bits_of(value);
    if (value != value) return (uint16_t)(bits >> 16 | 0x40);
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

static float from_half(uint16_t bits) {
    const uint32_t sign = (uint32_t)(bits & 0x8000) << 16, exponent = bits >> 10 & 31, fraction = bits & 0x3ff;
    if (exponent == 31) return of_bits(sign | 0x7f800000 | fraction << 13);
    if (exponent == 0) return sign ? -ldexpf((float)fraction, -24) : ldexpf((float)fraction, -24);
    return of_bits(sign | (exponent + 112) << 23 | fraction << 13);
}

static uint16_t to_half(float value) {
    const uint32_t bits = bits_of(value), sign = bits >> 16 & 0x8000, size = bits & 0x7fffffff;
    if (size > 0x7f800000) return (uint16_t)(sign | 0x7e00);
    if (size >= 0x477ff000) return (uint16_t)(sign | 0x7c00);  // from 65520 on
    if (size < 0x38800000)  // below 2^-14: a multiple of 2^-24
        return (uint16_t)(sign | (uint32_t)nearbyintf(ldexpf(of_bits(size), 24)));
    return (uint16_t)(sign | ((size - (112u << 23) + 0xfff + (size >> 13 & 1)) >> 13));
}

static float larger(float a, float b) { return fmaxf(a, b); }
static float smaller(float a, float b) { return fminf(a, b); }

#define COMBINE(type, load, store, most, least)                                            \
    {                                                                                      \
        type *a = into;                                                                    \
        const type *b = from;                                                              \
        switch (operation) {                                                               \
            case OP_PROD: for (size_t k = 0; k < count; k++) a[k] = store(load(a[k]) * load(b[k])); break; \
            case OP_MAX: for (size_t k = 0; k < count; k++) a[k] = store(most(load(a[k]), load(b[k]))); break; \
            case OP_MIN: for (size_t k = 0; k < count; k++) a[k] = store(least(load(a[k]), load(b[k]))); break; \
            default: for (size_t k = 0; k < count; k++) a[k] = store(load(a[k]) + load(b[k]));             \
        }                                                                                  \
    }                                                                                      \
    break
#define MOST(a, b) ((a) > (b) ? (a) : (b))
#define LEAST(a, b) ((a) < (b) ? (a) : (b))

void reduce(void *into, const void *from, size_t count, ncclDataType_t type, ncclRedOp_t operation) {
    switch (type) {
        case TYPE_INT8: COMBINE(int8_t, , (int8_t), MOST, LEAST);
        case TYPE_UINT8: COMBINE(uint8_t, , (uint8_t), MOST, LEAST);
        case TYPE_INT32: COMBINE(int32_t, , , MOST, LEAST);
        case TYPE_UINT32: COMBINE(uint32_t, , , MOST, LEAST);
        case TYPE_INT64: COMBINE(int64_t, , , MOST, LEAST);
        case TYPE_UINT64: COMBINE(uint64_t, , , MOST, LEAST);
        case TYPE_FLOAT: COMBINE(float, , , larger, smaller);
        case TYPE_DOUBLE: COMBINE(double, , , fmax, fmin);
        case TYPE_HALF: COMBINE(uint16_t, from_half, to_half, larger, smaller);
        case TYPE_BFLOAT16: COMBINE(uint16_t, from_bfloat16, to_bfloat16, larger, smaller);
        default: break;
    }
}

#define EACH(type, expression)                                                  \
    {                                                                           \
        type *a = values;                                                       \
        for (size_t k = 0; k < count; k++) a[k] = (type)(expression);           \
    }                                                                           \
    break

void divide(void *values, size_t count, ncclDataType_t type, int by) {
    switch (type) {
        case TYPE_INT8: EACH(int8_t, a[k] / by);
        case TYPE_UINT8: EACH(uint8_t, a[k] / by);
        case TYPE_INT32: EACH(int32_t, a[k] / by);
        case TYPE_UINT32: EACH(uint32_t, a[k] / (uint32_t)by);
        case TYPE_INT64: EACH(int64_t, a[k] / by);
        case TYPE_UINT64: EACH(uint64_t, a[k] / (uint64_t)by);
        case TYPE_FLOAT: EACH(float, a[k] / (float)by);
        case TYPE_DOUBLE: EACH(double, a[k] / by);
        case TYPE_HALF: EACH(uint16_t, to_half(from_half(a[k]) / (float)by));
        case TYPE_BFLOAT16: EACH(uint16_t, to_bfloat16(from_bfloat16(a[k]) / (float)by));
        default: break;
    }
}

#define BY(type) (*(const type *)by)

void multiply(void *values, size_t count, ncclDataType_t type, const void *by) {
    switch (type) {
        case TYPE_INT8: EACH(int8_t, a[k] * BY(int8_t));
        case TYPE_UINT8: EACH(uint8_t, a[k] * BY(uint8_t));
        case TYPE_INT32: EACH(int32_t, a[k] * BY(int32_t));
        case TYPE_UINT32: EACH(uint32_t, a[k] * BY(uint32_t));
        case TYPE_INT64: EACH(int64_t, a[k] * BY(int64_t));
        case TYPE_UINT64: EACH(uint64_t, a[k] * BY(uint64_t));
        case TYPE_FLOAT: EACH(float, a[k] * BY(float));
        case TYPE_DOUBLE: EACH(double, a[k] * BY(double));
        case TYPE_HALF: EACH(uint16_t, to_half(from_half(a[k]) * from_half(BY(uint16_t))));
        case TYPE_BFLOAT16: EACH(uint16_t, to_bfloat16(from_bfloat16(a[k]) * from_bfloat16(BY(uint16_t))));
        default: break;
    }
}

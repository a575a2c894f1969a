// What the 128 bytes of a CUtensorMap hold here. NVIDIA does not publish its own content; a program only copies it, so
// that the driver API's cuTensorMapEncodeTiled and the interpreter's copies of tensors need to agree on it alone. A
// program may change one on the device (PTX's tensormap.replace); that changes other bytes than these mean, and is told
// by the sum over them.
#ifndef MANYSCALE_TENSOR_MAP_H
#define MANYSCALE_TENSOR_MAP_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

enum { TENSOR_MOST_DIMENSIONS = 5 };
#define TENSOR_MAP_NAME 0x70616d2d6d736e74ull  // "tnsm-map"

enum TensorKind { TENSOR_TILED, TENSOR_IM2COL };

// Numbers of types, interleaves, swizzles, promotions and fills are those of cuda.h's enumerations.
typedef struct {
    uint64_t name;             // TENSOR_MAP_NAME
    uint64_t sum;              // of the bytes behind
    uint64_t address;          // of the tensor in global memory
    uint64_t strides[4];       // bytes from an element to the next along dimensions 1, 2, ...; of dimension 0: its size
    uint32_t last[5];          // elements along dimensions 0, 1, ..., less one (there may be 2^32)
    uint16_t box[5];           // elements of a box along each dimension (tiled: 1 to 256)
    uint8_t element_strides[5];  // 1 to 8: of how many elements along each dimension one is taken
    uint8_t kind, rank;
    uint8_t type, interleave, swizzle, promotion, fill;
    int16_t lower[3], upper[3];  // im2col alone: corners of the box of pixels, and what is taken of it
    uint16_t channels, pixels;
    uint8_t unused[14];
} TensorMap;
_Static_assert(sizeof(TensorMap) == 128, "a CUtensorMap has 128 bytes");

static inline uint64_t tensor_map_sum(const TensorMap *map) {
    const uint8_t *bytes = (const uint8_t *)map;
    uint64_t sum = 0xcbf29ce484222325ull;  // FNV-1a
    for (unsigned k = 16; k < sizeof *map; k++) sum = (sum ^ bytes[k]) * 0x100000001b3ull;
    return sum;
}

// The last step of an encoder, which has filled the other fields.
static inline void tensor_map_seal(TensorMap *map) {
    map->name = TENSOR_MAP_NAME;
    map->sum = tensor_map_sum(map);
}

static inline bool tensor_map_is_whole(const TensorMap *map) {
    return map->name == TENSOR_MAP_NAME && map->sum == tensor_map_sum(map);
}

// Bytes of an element of a CUtensorMapDataType.
static inline unsigned tensor_element_bytes(unsigned type) {
    static const uint8_t bytes[] = {1, 2, 4, 4, 8, 8, 2, 4, 8, 2, 4, 4, 4};
    return type < sizeof bytes ? bytes[type] : 0;  // 0: packed numbers of 4 and 6 bits
}
#endif

// A texture or surface object, as the runtime describes it: where its texels stand and how they are read.
#ifndef MANYSCALE_TEXTURE_H
#define MANYSCALE_TEXTURE_H

#include <stdint.h>

enum TextureAddress { TEXTURE_WRAPS, TEXTURE_CLAMPS, TEXTURE_MIRRORS, TEXTURE_BORDERS };  // as cudaTextureAddressMode
enum TexelKind { TEXEL_SIGNED, TEXEL_UNSIGNED, TEXEL_FLOAT };                               // as cudaChannelFormatKind
enum { GOB_WIDTH = 64, GOB_HEIGHT = 8, GOB_BYTES = 512 };

typedef struct Texture {
    uint64_t base;
    uint64_t pitch, slice;         // bytes of a row, and of a layer or a slice of three dimensions
    uint32_t width, height, depth; // texels; 1 where it has fewer dimensions
    uint32_t layers;               // 0: it is not layered
    uint8_t dimensions;            // 1 to 3, without the layers
    uint8_t channels, bits;        // of a texel: their number and size
    uint8_t kind;
    uint8_t address[3];            // TextureAddress of x, y, z
    uint8_t is_linear_memory;      // of cudaResourceTypeLinear: what lies outside is 0
    uint8_t is_array;              // its texels stand in blocks of 64 bytes by 8 rows
    uint8_t is_filtered, is_normalised, reads_normalised;
    float border[4];
} Texture;

// Where the bytes of a row stand from the begin of its slice on. In an array, blocks of 512 bytes hold 64 bytes of 8 rows,
// and in them each 32 bytes hold 16 bytes of two rows (NVIDIA, Tegra X1 Technical Reference Manual, "Block linear": the
// layout of a "group of bytes"), so that what lies near in two dimensions shares sectors.
static inline uint64_t texel_offset(const Texture *texture, uint64_t x, uint64_t y) {
    if (!texture->is_array || texture->dimensions == 1) return y * texture->pitch + x;
    const uint64_t block = y / GOB_HEIGHT * (texture->pitch / GOB_WIDTH) + x / GOB_WIDTH;
    return block * GOB_BYTES + x % 64 / 32 * 256 + y % 8 / 2 * 64 + x % 32 / 16 * 32 + y % 2 * 16 + x % 16;
}

#endif

// CUDA arrays: memory of texels, which copies, textures and surfaces reach by their places alone.
#ifndef MANYSCALE_CUDA_ARRAYS_H
#define MANYSCALE_CUDA_ARRAYS_H

#include "runtime.h"
#include "texture.h"

struct cudaArray {
    struct cudaArray *next;
    struct cudaChannelFormatDesc format;
    struct cudaExtent extent;  // texels; height and depth 0 where it has none
    unsigned flags;
    Texture texture;           // where its texels stand
};

cudaError_t format_of(const struct cudaChannelFormatDesc *given, Texture *into);  // channels, bits, kind
bool array_is_there(const struct cudaArray *array);
const struct Texture *find_texture(uint32_t handle);

#endif

// CUDA arrays and copies from and to them.
#include <stdlib.h>
#include <string.h>

#include "arrays.h"

static struct cudaArray *arrays;

bool array_is_there(const struct cudaArray *array) {
    for (const struct cudaArray *one = arrays; one; one = one->next)
        if (one == array) return true;
    return false;
}

cudaError_t format_of(const struct cudaChannelFormatDesc *given, Texture *into) {
    const int bits[4] = {given->x, given->y, given->z, given->w};
    int channels = 0;
    if (given->f > cudaChannelFormatKindFloat) return not_supported("cudaChannelFormatDesc of a packed or normalised kind");
    while (channels < 4 && bits[channels]) channels++;
    for (int k = 0; k < 4; k++)
        if (bits[k] != (k < channels ? bits[0] : 0)) return cudaErrorInvalidChannelDescriptor;
    const bool is_size = bits[0] == 8 || bits[0] == 16 || bits[0] == 32;
    if (channels == 0 || channels == 3 || !is_size || (given->f == cudaChannelFormatKindFloat && bits[0] == 8))
        return cudaErrorInvalidChannelDescriptor;
    into->channels = (uint8_t)channels;
    into->bits = (uint8_t)bits[0];
    into->kind = (uint8_t)given->f;
    return cudaSuccess;
}

static size_t texel_bytes(const Texture *texture) { return (size_t)texture->channels * texture->bits / 8; }

static size_t at_least_one(size_t size) { return size ? size : 1; }

cudaError_t cudaMalloc3DArray(cudaArray_t *into, const struct cudaChannelFormatDesc *format, struct cudaExtent extent,
                              unsigned flags) {
    LOCKED;
    const unsigned known = cudaArrayLayered | cudaArraySurfaceLoadStore | cudaArrayTextureGather;
    Texture texture = {0};
    if (into == NULL || format == NULL || extent.width == 0) return failed(cudaErrorInvalidValue);
    if (flags & cudaArrayCubemap) return not_supported("cudaMalloc3DArray with cudaArrayCubemap");
    if (flags & ~known) return not_supported("cudaMalloc3DArray with sparse or deferred memory");
    const cudaError_t error = format_of(format, &texture);
    if (error != cudaSuccess) return failed(error);
    const bool is_layered = flags & cudaArrayLayered;
    const bool is_gathered = flags & cudaArrayTextureGather;
    if ((is_layered && extent.depth == 0) || (!is_layered && extent.depth && extent.height == 0) ||
        (is_gathered && (extent.height == 0 || extent.depth)) || extent.width > 131072 || extent.height > 65536 ||
        extent.depth > 16384)
        return failed(cudaErrorInvalidValue);
    texture.dimensions = extent.height == 0 ? 1 : is_layered || extent.depth == 0 ? 2 : 3;
    texture.width = (uint32_t)extent.width;
    texture.height = (uint32_t)at_least_one(extent.height);
    texture.depth = is_layered ? 1 : (uint32_t)at_least_one(extent.depth);
    texture.layers = is_layered ? (uint32_t)extent.depth : 0;
    texture.is_array = 1;
    texture.pitch = (extent.width * texel_bytes(&texture) + GOB_WIDTH - 1) / GOB_WIDTH * GOB_WIDTH;
    const uint64_t rows = texture.dimensions == 1 ? 1 : (texture.height + GOB_HEIGHT - 1u) / GOB_HEIGHT * GOB_HEIGHT;
    texture.slice = texture.pitch * rows;
    texture.base = memory_allocate(texture.slice * at_least_one(extent.depth), MEMORY_DEVICE, 0);
    struct cudaArray *made = texture.base ? calloc(1, sizeof *made) : NULL;
    if (made == NULL) return failed(cudaErrorMemoryAllocation);
    *made = (struct cudaArray){arrays, *format, extent, flags, texture};
    arrays = made;
    *into = made;
    return done();
}

cudaError_t cudaMallocArray(cudaArray_t *into, const struct cudaChannelFormatDesc *format, size_t width, size_t height,
                            unsigned flags) {
    return cudaMalloc3DArray(into, format, (struct cudaExtent){width, height, 0}, flags & ~(unsigned)cudaArrayLayered);
}

cudaError_t cudaFreeArray(cudaArray_t array) {
    LOCKED;
    if (array == NULL) return done();
    for (struct cudaArray **place = &arrays; *place; place = &(*place)->next)
        if (*place == array) {
            *place = array->next;
            memory_free(array->texture.base, MEMORY_DEVICE);
            free(array);
            return done();
        }
    return failed(cudaErrorContextIsDestroyed);
}

cudaError_t cudaArrayGetInfo(struct cudaChannelFormatDesc *format, struct cudaExtent *extent, unsigned *flags,
                             cudaArray_t array) {
    LOCKED;
    if (!array_is_there(array)) return failed(cudaErrorInvalidResourceHandle);
    if (format) *format = array->format;
    if (extent) *extent = array->extent;
    if (flags) *flags = array->flags;
    return done();
}

cudaError_t cudaGetChannelDesc(struct cudaChannelFormatDesc *format, cudaArray_const_t array) {
    return format ? cudaArrayGetInfo(format, NULL, NULL, (cudaArray_t)array) : failed(cudaErrorInvalidValue);
}

// Copies

bool array_holds(const ArrayPlace *place, const Operation *operation) {
    const Texture *texture = &place->array->texture;
    return array_is_there(place->array) && place->x + operation->width <= texture->width * texel_bytes(texture) &&
           place->y + operation->height <= texture->height &&
           place->z + operation->depth <= (texture->layers ? texture->layers : texture->depth);
}

uint64_t array_address(const ArrayPlace *place) { return place->array->texture.base; }

// A row of an array to memory or from there: what stands together is at least 16 bytes.
static void move_row(const ArrayPlace *place, size_t y, size_t z, char *memory, size_t bytes, bool is_read) {
    const Texture *texture = &place->array->texture;
    const uint64_t begin = texture->base + (place->z + z) * texture->slice;
    for (size_t x = 0; x < bytes;) {
        const size_t at = place->x + x, rest = 16 - at % 16, piece = rest < bytes - x ? rest : bytes - x;
        char *own = (char *)(uintptr_t)(begin + texel_offset(texture, at, place->y + y));
        if (is_read) memcpy(memory + x, own, piece);
        else memcpy(own, memory + x, piece);
        x += piece;
    }
}

cudaError_t run_array_copy(const Operation *operation) {
    char *row = malloc(operation->width + 1);
    if (row == NULL) return cudaErrorMemoryAllocation;
    for (size_t z = 0; z < operation->depth; z++)
        for (size_t y = 0; y < operation->height; y++) {
            const char *from = operation->from + z * operation->from_slice + y * operation->from_pitch;
            char *to = operation->to + z * operation->to_slice + y * operation->to_pitch;
            if (operation->from_place.array) move_row(&operation->from_place, y, z, row, operation->width, true);
            else memcpy(row, from, operation->width);
            if (operation->to_place.array) move_row(&operation->to_place, y, z, row, operation->width, false);
            else memcpy(to, row, operation->width);
        }
    free(row);
    return cudaSuccess;
}

// Places and sizes are in texels of the array where one takes part, in bytes of other memory.
cudaError_t box_copy_of(Operation *into, const struct cudaMemcpy3DParms *given) {
    if (given == NULL) return cudaErrorInvalidValue;
    const struct cudaArray *arrays_of[2] = {given->dstArray, given->srcArray};
    size_t unit = 1;
    for (int k = 0; k < 2; k++) {
        if (arrays_of[k] == NULL) continue;
        if (!array_is_there(arrays_of[k])) return cudaErrorInvalidResourceHandle;
        const size_t own = texel_bytes(&arrays_of[k]->texture);
        if (unit != 1 && own != unit) return cudaErrorInvalidValue;
        unit = own;
    }
    const struct cudaPitchedPtr to = given->dstPtr, from = given->srcPtr;
    const struct cudaPos into_at = given->dstPos, out_of = given->srcPos;
    *into = (Operation){.kind = OP_COPY, .width = given->extent.width * unit, .height = given->extent.height,
                        .depth = given->extent.depth, .direction = given->kind};
    if (given->dstArray) {
        into->to_place = (ArrayPlace){given->dstArray, into_at.x * unit, into_at.y, into_at.z};
    } else {
        into->to = (char *)to.ptr + (into_at.z * to.ysize + into_at.y) * to.pitch + into_at.x;
        into->to_pitch = to.pitch, into->to_slice = to.pitch * to.ysize;
    }
    if (given->srcArray) {
        into->from_place = (ArrayPlace){given->srcArray, out_of.x * unit, out_of.y, out_of.z};
    } else {
        into->from = (const char *)from.ptr + (out_of.z * from.ysize + out_of.y) * from.pitch + out_of.x;
        into->from_pitch = from.pitch, into->from_slice = from.pitch * from.ysize;
    }
    if ((!given->dstArray && into->width > to.pitch) || (!given->srcArray && into->width > from.pitch))
        return cudaErrorInvalidPitchValue;
    return cudaSuccess;
}

static cudaError_t copy(Operation operation, cudaStream_t stream) {
    LOCKED;
    operation.kind = OP_COPY;
    operation.depth = 1;
    const bool is_wrong = (operation.to_place.array && !array_is_there(operation.to_place.array)) ||
                          (operation.from_place.array && !array_is_there(operation.from_place.array));
    return is_wrong ? failed(cudaErrorInvalidResourceHandle) : submit(stream, &operation);
}

cudaError_t cudaMemcpy2DToArrayAsync(cudaArray_t to, size_t x, size_t y, const void *from, size_t pitch, size_t width,
                                     size_t height, enum cudaMemcpyKind kind, cudaStream_t stream) {
    if (to == NULL) return failed(cudaErrorInvalidResourceHandle);
    if (height > 1 && width > pitch) return failed(cudaErrorInvalidPitchValue);
    return copy((Operation){.to_place = {to, x, y, 0}, .from = from, .from_pitch = pitch, .width = width, .height = height,
                            .direction = kind}, stream);
}

cudaError_t cudaMemcpy2DToArray(cudaArray_t to, size_t x, size_t y, const void *from, size_t pitch, size_t width,
                                size_t height, enum cudaMemcpyKind kind) {
    HOST_WAITS;
    return cudaMemcpy2DToArrayAsync(to, x, y, from, pitch, width, height, kind, NULL);
}

cudaError_t cudaMemcpy2DFromArrayAsync(void *to, size_t pitch, cudaArray_const_t from, size_t x, size_t y, size_t width,
                                       size_t height, enum cudaMemcpyKind kind, cudaStream_t stream) {
    if (from == NULL) return failed(cudaErrorInvalidResourceHandle);
    if (height > 1 && width > pitch) return failed(cudaErrorInvalidPitchValue);
    return copy((Operation){.from_place = {from, x, y, 0}, .to = to, .to_pitch = pitch, .width = width, .height = height,
                            .direction = kind}, stream);
}

cudaError_t cudaMemcpy2DFromArray(void *to, size_t pitch, cudaArray_const_t from, size_t x, size_t y, size_t width,
                                  size_t height, enum cudaMemcpyKind kind) {
    HOST_WAITS;
    return cudaMemcpy2DFromArrayAsync(to, pitch, from, x, y, width, height, kind, NULL);
}

cudaError_t cudaMemcpy2DArrayToArray(cudaArray_t to, size_t to_x, size_t to_y, cudaArray_const_t from, size_t x, size_t y,
                                     size_t width, size_t height, enum cudaMemcpyKind kind) {
    if (to == NULL || from == NULL) return failed(cudaErrorInvalidResourceHandle);
    return copy((Operation){.to_place = {to, to_x, to_y, 0}, .from_place = {from, x, y, 0}, .width = width, .height = height,
                            .direction = kind}, NULL);
}

// Bytes one behind the other, row by row of the array.
static cudaError_t copy_rows(ArrayPlace place, void *memory, size_t bytes, bool is_read, enum cudaMemcpyKind kind,
                             cudaStream_t stream) {
    LOCKED;
    if (!array_is_there(place.array)) return failed(cudaErrorInvalidResourceHandle);
    const size_t row = place.array->texture.width * texel_bytes(&place.array->texture);
    if (place.x >= row) return failed(cudaErrorInvalidValue);
    for (char *at = memory; bytes;) {
        const size_t rest = row - place.x, rows = place.x || bytes < row ? 1 : bytes / row, width = rest < bytes ? rest : bytes;
        const cudaError_t error =
            is_read ? cudaMemcpy2DFromArrayAsync(at, width, place.array, place.x, place.y, width, rows, kind, stream)
                    : cudaMemcpy2DToArrayAsync((cudaArray_t)place.array, place.x, place.y, at, width, width, rows, kind, stream);
        if (error != cudaSuccess) return error;
        at += width * rows, bytes -= width * rows;
        place.x = 0, place.y += rows;
    }
    return done();
}

cudaError_t cudaMemcpyToArrayAsync(cudaArray_t to, size_t x, size_t y, const void *from, size_t bytes,
                                   enum cudaMemcpyKind kind, cudaStream_t stream) {
    return copy_rows((ArrayPlace){to, x, y, 0}, (void *)from, bytes, false, kind, stream);
}

cudaError_t cudaMemcpyToArray(cudaArray_t to, size_t x, size_t y, const void *from, size_t bytes, enum cudaMemcpyKind kind) {
    HOST_WAITS;
    return cudaMemcpyToArrayAsync(to, x, y, from, bytes, kind, NULL);
}

cudaError_t cudaMemcpyFromArrayAsync(void *to, cudaArray_const_t from, size_t x, size_t y, size_t bytes,
                                     enum cudaMemcpyKind kind, cudaStream_t stream) {
    return copy_rows((ArrayPlace){from, x, y, 0}, to, bytes, true, kind, stream);
}

cudaError_t cudaMemcpyFromArray(void *to, cudaArray_const_t from, size_t x, size_t y, size_t bytes,
                                enum cudaMemcpyKind kind) {
    HOST_WAITS;
    return cudaMemcpyFromArrayAsync(to, from, x, y, bytes, kind, NULL);
}

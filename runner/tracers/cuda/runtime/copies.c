// Copies and sets: the calls. Copies that are asynchronous on hardware are done when the call returns.
#include <string.h>

#include "runtime.h"

static cudaError_t copy(void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width, size_t height,
                        enum cudaMemcpyKind direction, cudaStream_t stream) {
    LOCKED;
    Operation operation;
    const cudaError_t error = copy_of(&operation, to, to_pitch, from, from_pitch, width, height, direction);
    return error == cudaSuccess ? submit(stream, &operation) : failed(error);
}

cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind, cudaStream_t stream) {
    return copy(to, bytes, from, bytes, bytes, 1, kind, stream);
}

cudaError_t cudaMemcpy(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind) {
    HOST_WAITS;
    return cudaMemcpyAsync(to, from, bytes, kind, NULL);
}

cudaError_t cudaMemcpy2DAsync(void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width, size_t height,
                              enum cudaMemcpyKind kind, cudaStream_t stream) {
    if (width > to_pitch || width > from_pitch) return failed(cudaErrorInvalidPitchValue);
    return copy(to, to_pitch, from, from_pitch, width, height, kind, stream);
}

cudaError_t cudaMemcpy2D(void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width, size_t height,
                         enum cudaMemcpyKind kind) {
    HOST_WAITS;
    return cudaMemcpy2DAsync(to, to_pitch, from, from_pitch, width, height, kind, NULL);
}

cudaError_t cudaMemcpy3DAsync(const struct cudaMemcpy3DParms *given, cudaStream_t stream) {
    LOCKED;
    Operation operation;
    const cudaError_t error = box_copy_of(&operation, given);
    return error == cudaSuccess ? submit(stream, &operation) : failed(error);
}

cudaError_t cudaMemcpy3D(const struct cudaMemcpy3DParms *given) {
    HOST_WAITS;
    return cudaMemcpy3DAsync(given, NULL);
}

// Variables of the device

static cudaError_t place_in(const void *symbol, size_t bytes, size_t offset, char **place) {
    const Variable *variable = variable_of(symbol);
    if (variable == NULL) return cudaErrorInvalidSymbol;
    if (offset > variable->bytes || bytes > variable->bytes - offset) return cudaErrorInvalidValue;
    *place = (char *)variable->device + offset;
    return cudaSuccess;
}

cudaError_t cudaMemcpyToSymbolAsync(const void *symbol, const void *from, size_t bytes, size_t offset,
                                    enum cudaMemcpyKind kind, cudaStream_t stream) {
    LOCKED;
    char *place;
    const cudaError_t error = place_in(symbol, bytes, offset, &place);
    if (error != cudaSuccess) return failed(error);
    if (kind != cudaMemcpyHostToDevice && kind != cudaMemcpyDeviceToDevice && kind != cudaMemcpyDefault)
        return failed(cudaErrorInvalidMemcpyDirection);
    return cudaMemcpyAsync(place, from, bytes, kind, stream);
}

cudaError_t cudaMemcpyToSymbol(const void *symbol, const void *from, size_t bytes, size_t offset, enum cudaMemcpyKind kind) {
    HOST_WAITS;
    return cudaMemcpyToSymbolAsync(symbol, from, bytes, offset, kind, NULL);
}

cudaError_t cudaMemcpyFromSymbolAsync(void *to, const void *symbol, size_t bytes, size_t offset, enum cudaMemcpyKind kind,
                                      cudaStream_t stream) {
    LOCKED;
    char *place;
    const cudaError_t error = place_in(symbol, bytes, offset, &place);
    if (error != cudaSuccess) return failed(error);
    if (kind != cudaMemcpyDeviceToHost && kind != cudaMemcpyDeviceToDevice && kind != cudaMemcpyDefault)
        return failed(cudaErrorInvalidMemcpyDirection);
    return cudaMemcpyAsync(to, place, bytes, kind, stream);
}

cudaError_t cudaMemcpyFromSymbol(void *to, const void *symbol, size_t bytes, size_t offset, enum cudaMemcpyKind kind) {
    HOST_WAITS;
    return cudaMemcpyFromSymbolAsync(to, symbol, bytes, offset, kind, NULL);
}

cudaError_t cudaGetSymbolAddress(void **into, const void *symbol) {
    LOCKED;
    char *place;
    if (place_in(symbol, 0, 0, &place) != cudaSuccess) return failed(cudaErrorInvalidSymbol);
    *into = place;
    return done();
}

cudaError_t cudaGetSymbolSize(size_t *bytes, const void *symbol) {
    LOCKED;
    const Variable *variable = variable_of(symbol);
    if (variable == NULL) return failed(cudaErrorInvalidSymbol);
    *bytes = variable->bytes;
    return done();
}

// Sets

static cudaError_t set(void *to, size_t pitch, size_t slice, int value, struct cudaExtent extent, cudaStream_t stream) {
    LOCKED;
    Operation operation = {.kind = OP_SET, .to = to, .to_pitch = pitch, .to_slice = slice, .width = extent.width,
                           .height = extent.height, .depth = extent.depth, .value = (unsigned)value, .element = 1};
    return submit(stream, &operation);
}

cudaError_t cudaMemsetAsync(void *to, int value, size_t bytes, cudaStream_t stream) {
    return set(to, bytes, bytes, value, (struct cudaExtent){bytes, 1, 1}, stream);
}

cudaError_t cudaMemset(void *to, int value, size_t bytes) { return cudaMemsetAsync(to, value, bytes, NULL); }

cudaError_t cudaMemset2DAsync(void *to, size_t pitch, int value, size_t width, size_t height, cudaStream_t stream) {
    if (width > pitch) return failed(cudaErrorInvalidValue);
    return set(to, pitch, pitch * height, value, (struct cudaExtent){width, height, 1}, stream);
}

cudaError_t cudaMemset2D(void *to, size_t pitch, int value, size_t width, size_t height) {
    return cudaMemset2DAsync(to, pitch, value, width, height, NULL);
}

cudaError_t cudaMemset3DAsync(struct cudaPitchedPtr to, int value, struct cudaExtent extent, cudaStream_t stream) {
    return set(to.ptr, to.pitch, to.pitch * to.ysize, value, extent, stream);
}

cudaError_t cudaMemset3D(struct cudaPitchedPtr to, int value, struct cudaExtent extent) {
    return cudaMemset3DAsync(to, value, extent, NULL);
}

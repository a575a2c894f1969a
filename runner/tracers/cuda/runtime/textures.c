// Texture and surface objects: their handles are numbers from 1 on, which code that is interpreted asks for.
#include <stdlib.h>
#include <string.h>

#include "arrays.h"

typedef struct {
    bool is_used, is_surface;
    Texture texture;
    struct cudaResourceDesc resource;
    struct cudaTextureDesc how;
} Object;

enum { ALIGNMENT = 512, PITCH_ALIGNMENT = 32 };
static Object *objects;
static uint32_t num_objects;

const Texture *find_texture(uint32_t handle) {
    return handle && handle <= num_objects && objects[handle - 1].is_used ? &objects[handle - 1].texture : NULL;
}

static Object *object_of(unsigned long long handle, bool is_surface) {
    const bool is_one = handle && handle <= num_objects && objects[handle - 1].is_used;
    return is_one && objects[handle - 1].is_surface == is_surface ? &objects[handle - 1] : NULL;
}

static cudaError_t add(Object made, unsigned long long *into) {
    uint32_t place = 0;
    while (place < num_objects && objects[place].is_used) place++;
    if (place == num_objects) {
        Object *more = realloc(objects, (num_objects + 1) * sizeof *more);
        if (more == NULL) return failed(cudaErrorMemoryAllocation);
        objects = more;
        num_objects++;
    }
    made.is_used = true;
    objects[place] = made;
    *into = place + 1;
    return done();
}

// Where the texels stand.
static cudaError_t texels_of(const struct cudaResourceDesc *given, Texture *into) {
    cudaError_t error;
    switch (given->resType) {
        case cudaResourceTypeArray:
            if (!array_is_there(given->res.array.array)) return cudaErrorInvalidResourceHandle;
            *into = given->res.array.array->texture;
            return cudaSuccess;
        case cudaResourceTypeLinear:
            error = format_of(&given->res.linear.desc, into);
            if (error != cudaSuccess) return error;
            into->base = (uint64_t)given->res.linear.devPtr;
            into->width = (uint32_t)(given->res.linear.sizeInBytes / ((size_t)into->channels * into->bits / 8));
            into->height = into->depth = into->dimensions = 1;
            into->is_linear_memory = 1;
            if (into->base % ALIGNMENT || into->width == 0 || into->width > 1u << 28 ||
                !memory_is_allocated(into->base, given->res.linear.sizeInBytes))
                return cudaErrorInvalidValue;
            return cudaSuccess;
        case cudaResourceTypePitch2D:
            error = format_of(&given->res.pitch2D.desc, into);
            if (error != cudaSuccess) return error;
            into->base = (uint64_t)given->res.pitch2D.devPtr;
            into->width = (uint32_t)given->res.pitch2D.width;
            into->height = (uint32_t)given->res.pitch2D.height;
            into->depth = 1;
            into->dimensions = 2;
            into->pitch = given->res.pitch2D.pitchInBytes;
            if (into->base % ALIGNMENT || into->pitch % PITCH_ALIGNMENT || into->width == 0 || into->height == 0 ||
                into->pitch < (uint64_t)into->width * into->channels * into->bits / 8 ||
                !memory_is_allocated(into->base, (into->height - 1) * into->pitch +
                                                     (uint64_t)into->width * into->channels * into->bits / 8))
                return cudaErrorInvalidValue;
            return cudaSuccess;
        case cudaResourceTypeMipmappedArray: return not_supported("cudaCreateTextureObject of mipmapped arrays");
        default: return cudaErrorInvalidValue;
    }
}

static uint8_t mode_of(enum cudaTextureAddressMode mode, const struct cudaTextureDesc *how) {
    const bool turns = mode == cudaAddressModeWrap || mode == cudaAddressModeMirror;  // of normalised coordinates alone
    return turns && !how->normalizedCoords ? TEXTURE_CLAMPS : (uint8_t)mode;
}

cudaError_t cudaCreateTextureObject(cudaTextureObject_t *into, const struct cudaResourceDesc *resource,
                                    const struct cudaTextureDesc *how, const struct cudaResourceViewDesc *view) {
    LOCKED;
    if (into == NULL || resource == NULL || how == NULL) return failed(cudaErrorInvalidValue);
    if (view) return not_supported("cudaCreateTextureObject with a resource view");
    if (how->sRGB) return not_supported("cudaCreateTextureObject with sRGB");
    if (how->maxAnisotropy > 1) return not_supported("cudaCreateTextureObject with anisotropic filtering");
    Object made = {.resource = *resource, .how = *how};
    const cudaError_t error = texels_of(resource, &made.texture);
    if (error != cudaSuccess) return failed(error);
    Texture *texture = &made.texture;
    const bool is_float = texture->kind == TEXEL_FLOAT;
    texture->reads_normalised = how->readMode == cudaReadModeNormalizedFloat && !is_float && texture->bits < 32;
    if (texture->is_linear_memory) {
        for (int k = 0; k < 3; k++) texture->address[k] = TEXTURE_BORDERS;
        return add(made, into);
    }
    if (how->filterMode == cudaFilterModeLinear && !is_float && !texture->reads_normalised)
        return failed(cudaErrorInvalidFilterSetting);
    for (int k = 0; k < 3; k++) texture->address[k] = mode_of(how->addressMode[k], how);
    memcpy(texture->border, how->borderColor, sizeof texture->border);
    texture->is_filtered = how->filterMode == cudaFilterModeLinear;
    texture->is_normalised = how->normalizedCoords != 0;
    return add(made, into);
}

cudaError_t cudaCreateSurfaceObject(cudaSurfaceObject_t *into, const struct cudaResourceDesc *resource) {
    LOCKED;
    if (into == NULL || resource == NULL || resource->resType != cudaResourceTypeArray) return failed(cudaErrorInvalidValue);
    Object made = {.resource = *resource, .is_surface = true};
    const cudaError_t error = texels_of(resource, &made.texture);
    if (error != cudaSuccess) return failed(error);
    if (!(resource->res.array.array->flags & cudaArraySurfaceLoadStore)) return failed(cudaErrorInvalidValue);
    return add(made, into);
}

static cudaError_t destroy(unsigned long long handle, bool is_surface) {
    LOCKED;
    Object *object = object_of(handle, is_surface);
    if (handle == 0) return done();
    if (object == NULL) return failed(cudaErrorInvalidValue);
    object->is_used = false;
    return done();
}

cudaError_t cudaDestroyTextureObject(cudaTextureObject_t handle) { return destroy(handle, false); }

cudaError_t cudaDestroySurfaceObject(cudaSurfaceObject_t handle) { return destroy(handle, true); }

cudaError_t cudaGetTextureObjectResourceDesc(struct cudaResourceDesc *into, cudaTextureObject_t handle) {
    LOCKED;
    const Object *object = object_of(handle, false);
    if (into == NULL || object == NULL) return failed(cudaErrorInvalidValue);
    *into = object->resource;
    return done();
}

cudaError_t cudaGetTextureObjectTextureDesc(struct cudaTextureDesc *into, cudaTextureObject_t handle) {
    LOCKED;
    const Object *object = object_of(handle, false);
    if (into == NULL || object == NULL) return failed(cudaErrorInvalidValue);
    *into = object->how;
    return done();
}

cudaError_t cudaGetSurfaceObjectResourceDesc(struct cudaResourceDesc *into, cudaSurfaceObject_t handle) {
    LOCKED;
    const Object *object = object_of(handle, true);
    if (into == NULL || object == NULL) return failed(cudaErrorInvalidValue);
    *into = object->resource;
    return done();
}

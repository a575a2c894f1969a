// Memory that a program asks for: the calls.
#include <stdlib.h>
#include <string.h>

#include "runtime.h"

enum { PITCH = 512 };  // rows of cudaMallocPitch begin at its multiples

struct CUmemPoolHandle_st {
    uint64_t threshold;
};
static struct CUmemPoolHandle_st default_pools[MOST_DEVICES];
static cudaMemPool_t current_pools[MOST_DEVICES];  // NULL: the default one

static cudaError_t allocate(void **into, size_t bytes, MemoryKind kind, unsigned flags) {
    LOCKED;
    if (into == NULL) return failed(cudaErrorInvalidValue);
    *into = NULL;
    if (bytes == 0) return done();
    const uint64_t place = memory_allocate(bytes, kind, flags);
    if (place == 0) return failed(cudaErrorMemoryAllocation);
    *into = (void *)place;
    return done();
}

cudaError_t cudaMalloc(void **into, size_t bytes) { return allocate(into, bytes, MEMORY_DEVICE, 0); }

cudaError_t cudaMallocManaged(void **into, size_t bytes, unsigned flags) {
    if (bytes == 0 || (flags != cudaMemAttachGlobal && flags != cudaMemAttachHost)) return failed(cudaErrorInvalidValue);
    {
        LOCKED;
        session_note("cuda-managed-memory", "cudaMallocManaged");
    }
    return allocate(into, bytes, MEMORY_MANAGED, flags);
}

cudaError_t cudaMallocHost(void **into, size_t bytes) { return allocate(into, bytes, MEMORY_HOST, 0); }

cudaError_t cudaHostAlloc(void **into, size_t bytes, unsigned flags) { return allocate(into, bytes, MEMORY_HOST, flags); }

cudaError_t cudaMallocPitch(void **into, size_t *pitch, size_t width, size_t height) {
    if (pitch == NULL || width == 0 || height == 0) return failed(cudaErrorInvalidValue);
    *pitch = (width + PITCH - 1) / PITCH * PITCH;
    return allocate(into, *pitch * height, MEMORY_DEVICE, 0);
}

cudaError_t cudaMalloc3D(struct cudaPitchedPtr *into, struct cudaExtent extent) {
    if (into == NULL) return failed(cudaErrorInvalidValue);
    void *place = NULL;
    size_t pitch = 0;
    const cudaError_t error = cudaMallocPitch(&place, &pitch, extent.width, extent.height * extent.depth);
    if (error == cudaSuccess) *into = (struct cudaPitchedPtr){place, pitch, extent.width, extent.height};
    return error;
}

// What a graph allocates keeps its address and its room, though the graph frees it.
cudaError_t cudaGraphAddMemAllocNode(cudaGraphNode_t *into, cudaGraph_t graph, const cudaGraphNode_t *before,
                                     size_t num_before, struct cudaMemAllocNodeParams *given) {
    LOCKED;
    if (given == NULL) return failed(cudaErrorInvalidValue);
    const cudaError_t error = allocate(&given->dptr, given->bytesize, MEMORY_DEVICE, 0);
    Operation again = {.kind = OP_ALLOCATE, .to = given->dptr, .width = given->bytesize};
    return error == cudaSuccess ? graph_add_after(into, graph, before, num_before, &again) : error;
}

cudaError_t cudaGraphAddMemFreeNode(cudaGraphNode_t *into, cudaGraph_t graph, const cudaGraphNode_t *before,
                                    size_t num_before, void *place) {
    LOCKED;
    if (place == NULL) return failed(cudaErrorInvalidValue);
    Operation nothing = {.kind = OP_EMPTY};
    return graph_add_after(into, graph, before, num_before, &nothing);
}

cudaError_t cudaDeviceGraphMemTrim(int number) { return is_device(number) ? done() : failed(cudaErrorInvalidDevice); }

cudaError_t cudaMallocAsync(void **into, size_t bytes, cudaStream_t stream) {
    if (stream_of(stream) == NULL) return failed(cudaErrorInvalidResourceHandle);
    const cudaError_t error = allocate(into, bytes, MEMORY_DEVICE, 0);
    Operation again = {.kind = OP_ALLOCATE, .to = into ? *into : NULL, .width = bytes};
    return error == cudaSuccess && stream_of(stream)->capture ? submit(stream, &again) : error;
}

cudaError_t cudaMallocFromPoolAsync(void **into, size_t bytes, cudaMemPool_t pool, cudaStream_t stream) {
    return pool == NULL ? failed(cudaErrorInvalidValue) : cudaMallocAsync(into, bytes, stream);
}

cudaError_t cudaFree(void *place) {
    LOCKED;
    if (place && !memory_free((uint64_t)place, MEMORY_DEVICE)) return failed(cudaErrorInvalidValue);
    return done();
}

cudaError_t cudaFreeAsync(void *place, cudaStream_t stream) {
    if (stream_of(stream) == NULL) return failed(cudaErrorInvalidResourceHandle);
    Operation nothing = {.kind = OP_EMPTY};
    return stream_of(stream)->capture ? submit(stream, &nothing) : cudaFree(place);
}

cudaError_t cudaFreeHost(void *place) {
    LOCKED;
    if (place && !memory_free((uint64_t)place, MEMORY_HOST)) return failed(cudaErrorInvalidValue);
    return done();
}

cudaError_t cudaHostGetDevicePointer(void **into, void *place, unsigned flags) {
    LOCKED;
    const Allocation *found = memory_find((uint64_t)place);
    if (into == NULL || flags || found == NULL || found->kind == MEMORY_DEVICE || found->kind == MEMORY_MODULE)
        return failed(cudaErrorInvalidValue);
    *into = place;
    return done();
}

cudaError_t cudaHostGetFlags(unsigned *flags, void *place) {
    LOCKED;
    const Allocation *found = memory_find((uint64_t)place);
    if (flags == NULL || found == NULL || found->kind != MEMORY_HOST) return failed(cudaErrorInvalidValue);
    *flags = found->flags | cudaHostAllocMapped;
    return done();
}

cudaError_t cudaMemGetInfo(size_t *left, size_t *total) {
    LOCKED;
    if (left == NULL || total == NULL) return failed(cudaErrorInvalidValue);
    *total = device()->memory_bytes;
    *left = *total - memory_in_use(current_device());
    return done();
}

cudaError_t cudaPointerGetAttributes(struct cudaPointerAttributes *into, const void *place) {
    LOCKED;
    if (into == NULL) return failed(cudaErrorInvalidValue);
    memset(into, 0, sizeof *into);
    const Allocation *found = memory_find((uint64_t)place);
    if (found == NULL) {
        into->type = cudaMemoryTypeUnregistered;
        into->device = -2;  // as the documentation's cudaInvalidDeviceId
        into->hostPointer = (void *)place;
        return done();
    }
    const bool is_host = found->kind == MEMORY_HOST || found->kind == MEMORY_REGISTERED;
    into->type = is_host ? cudaMemoryTypeHost : found->kind == MEMORY_MANAGED ? cudaMemoryTypeManaged : cudaMemoryTypeDevice;
    into->device = found->device;
    into->devicePointer = (void *)place;
    into->hostPointer = into->type == cudaMemoryTypeDevice ? NULL : (void *)place;
    return done();
}

// Hints on where memory should be: it is where it is.
cudaError_t cudaMemAdvise(const void *place, size_t bytes, enum cudaMemoryAdvise advice,
#if CUDART_VERSION >= 13000
                          struct cudaMemLocation location) {
#else
                          int location) {
#endif
    LOCKED;
    (void)advice, (void)location;
    return memory_is_allocated((uint64_t)place, bytes) ? done() : failed(cudaErrorInvalidValue);
}

#if CUDART_VERSION >= 13000
cudaError_t cudaMemPrefetchAsync(const void *place, size_t bytes, struct cudaMemLocation location, unsigned flags,
                                 cudaStream_t stream) {
    (void)flags;
#else
cudaError_t cudaMemPrefetchAsync(const void *place, size_t bytes, int location, cudaStream_t stream) {
#endif
    LOCKED;
    (void)location;
    if (stream_of(stream) == NULL) return failed(cudaErrorInvalidResourceHandle);
    return memory_is_allocated((uint64_t)place, bytes) ? done() : failed(cudaErrorInvalidValue);
}

cudaError_t cudaStreamAttachMemAsync(cudaStream_t stream, void *place, size_t bytes, unsigned flags) {
    LOCKED;
    (void)bytes, (void)flags;
    if (stream_of(stream) == NULL) return failed(cudaErrorInvalidResourceHandle);
    const Allocation *found = memory_find((uint64_t)place);
    return found && found->kind == MEMORY_MANAGED ? done() : failed(cudaErrorInvalidValue);
}

// Pools: all memory is of one, whatever pool it is asked of.
cudaError_t cudaDeviceGetDefaultMemPool(cudaMemPool_t *into, int number) {
    if (!is_device(number)) return failed(cudaErrorInvalidDevice);
    *into = &default_pools[number];
    return done();
}

cudaError_t cudaDeviceGetMemPool(cudaMemPool_t *into, int number) {
    if (!is_device(number)) return failed(cudaErrorInvalidDevice);
    *into = current_pools[number] ? current_pools[number] : &default_pools[number];
    return done();
}

cudaError_t cudaDeviceSetMemPool(int number, cudaMemPool_t pool) {
    if (!is_device(number)) return failed(cudaErrorInvalidDevice);
    current_pools[number] = pool;
    return done();
}

cudaError_t cudaMemPoolCreate(cudaMemPool_t *into, const struct cudaMemPoolProps *wanted) {
    if (into == NULL || wanted == NULL) return failed(cudaErrorInvalidValue);
    *into = calloc(1, sizeof **into);
    return *into ? done() : failed(cudaErrorMemoryAllocation);
}

cudaError_t cudaMemPoolDestroy(cudaMemPool_t pool) {
    if (pool == NULL || (pool >= default_pools && pool < default_pools + MOST_DEVICES)) return failed(cudaErrorInvalidValue);
    for (int k = 0; k < MOST_DEVICES; k++)
        if (current_pools[k] == pool) current_pools[k] = NULL;
    free(pool);
    return done();
}

cudaError_t cudaMemPoolTrimTo(cudaMemPool_t pool, size_t bytes) {
    (void)bytes;
    return pool ? done() : failed(cudaErrorInvalidValue);
}

cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t pool, enum cudaMemPoolAttr attribute, void *value) {
    if (pool == NULL || value == NULL) return failed(cudaErrorInvalidValue);
    if (attribute == cudaMemPoolAttrReleaseThreshold) pool->threshold = *(uint64_t *)value;
    return done();
}

cudaError_t cudaMemPoolGetAttribute(cudaMemPool_t pool, enum cudaMemPoolAttr attribute, void *value) {
    LOCKED;
    if (pool == NULL || value == NULL) return failed(cudaErrorInvalidValue);
    switch (attribute) {
        case cudaMemPoolAttrReleaseThreshold: *(uint64_t *)value = pool->threshold; break;
        case cudaMemPoolAttrReservedMemCurrent:
        case cudaMemPoolAttrReservedMemHigh:
        case cudaMemPoolAttrUsedMemCurrent:
        case cudaMemPoolAttrUsedMemHigh: *(uint64_t *)value = memory_in_use(current_device()); break;
        default: *(int *)value = 1;
    }
    return done();
}

// Memory that a program asks the driver for, and what is known of an address.
#include <stdlib.h>
#include <string.h>

#include "driver/driver.h"

CUresult cuMemGetInfo_v2(size_t *left, size_t *total) {
    IN_CONTEXT;
    return result_of(cudaMemGetInfo(left, total));
}

static CUresult given(CUdeviceptr *into, void *place, cudaError_t error) {
    *into = (CUdeviceptr)place;
    return result_of(error);
}

CUresult cuMemAlloc_v2(CUdeviceptr *into, size_t bytes) {
    IN_CONTEXT;
    void *place = NULL;
    if (into == NULL || bytes == 0) return CUDA_ERROR_INVALID_VALUE;
    const cudaError_t error = cudaMalloc(&place, bytes);
    return given(into, place, error);
}

CUresult cuMemAllocPitch_v2(CUdeviceptr *into, size_t *pitch, size_t width, size_t height, unsigned element) {
    IN_CONTEXT;
    void *place = NULL;
    if (into == NULL || (element != 4 && element != 8 && element != 16)) return CUDA_ERROR_INVALID_VALUE;
    const cudaError_t error = cudaMallocPitch(&place, pitch, width, height);
    return given(into, place, error);
}

CUresult cuMemAllocManaged(CUdeviceptr *into, size_t bytes, unsigned flags) {
    IN_CONTEXT;
    void *place = NULL;
    if (into == NULL) return CUDA_ERROR_INVALID_VALUE;
    const cudaError_t error = cudaMallocManaged(&place, bytes, flags);
    return given(into, place, error);
}

CUresult cuMemFree_v2(CUdeviceptr place) {
    IN_CONTEXT;
    return result_of(cudaFree((void *)place));
}

CUresult cuMemAllocHost_v2(void **into, size_t bytes) {
    IN_CONTEXT;
    return bytes ? result_of(cudaMallocHost(into, bytes)) : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuMemHostAlloc(void **into, size_t bytes, unsigned flags) {
    IN_CONTEXT;
    return bytes ? result_of(cudaHostAlloc(into, bytes, flags)) : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuMemFreeHost(void *place) {
    IN_CONTEXT;
    return place ? result_of(cudaFreeHost(place)) : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuMemHostRegister_v2(void *start, size_t bytes, unsigned flags) {
    IN_CONTEXT;
    return result_of(cudaHostRegister(start, bytes, flags));
}

CUresult cuMemHostUnregister(void *start) {
    IN_CONTEXT;
    return result_of(cudaHostUnregister(start));
}

CUresult cuMemHostGetDevicePointer_v2(CUdeviceptr *into, void *place, unsigned flags) {
    IN_CONTEXT;
    void *found = NULL;
    if (into == NULL) return CUDA_ERROR_INVALID_VALUE;
    const cudaError_t error = cudaHostGetDevicePointer(&found, place, flags);
    return given(into, found, error);
}

CUresult cuMemHostGetFlags(unsigned *flags, void *place) {
    IN_CONTEXT;
    return result_of(cudaHostGetFlags(flags, place));
}

// In the order of streams

CUresult cuMemAllocAsync(CUdeviceptr *into, size_t bytes, CUstream stream) {
    IN_CONTEXT;
    void *place = NULL;
    if (into == NULL || bytes == 0) return CUDA_ERROR_INVALID_VALUE;
    const cudaError_t error = cudaMallocAsync(&place, bytes, stream);
    return given(into, place, error);
}

CUresult cuMemAllocFromPoolAsync(CUdeviceptr *into, size_t bytes, CUmemoryPool pool, CUstream stream) {
    IN_CONTEXT;
    void *place = NULL;
    if (into == NULL || bytes == 0) return CUDA_ERROR_INVALID_VALUE;
    const cudaError_t error = cudaMallocFromPoolAsync(&place, bytes, pool, stream);
    return given(into, place, error);
}

CUresult cuMemFreeAsync(CUdeviceptr place, CUstream stream) {
    IN_CONTEXT;
    return result_of(cudaFreeAsync((void *)place, stream));
}

CUresult cuMemPoolCreate(CUmemoryPool *into, const CUmemPoolProps *wanted) {
    IN_CONTEXT;
    return result_of(cudaMemPoolCreate(into, (const struct cudaMemPoolProps *)wanted));
}

CUresult cuMemPoolDestroy(CUmemoryPool pool) {
    IN_CONTEXT;
    return result_of(cudaMemPoolDestroy(pool));
}

CUresult cuMemPoolTrimTo(CUmemoryPool pool, size_t bytes) {
    IN_CONTEXT;
    return result_of(cudaMemPoolTrimTo(pool, bytes));
}

CUresult cuMemPoolSetAttribute(CUmemoryPool pool, CUmemPool_attribute attribute, void *value) {
    IN_CONTEXT;
    return result_of(cudaMemPoolSetAttribute(pool, (enum cudaMemPoolAttr)attribute, value));
}

CUresult cuMemPoolGetAttribute(CUmemoryPool pool, CUmemPool_attribute attribute, void *value) {
    IN_CONTEXT;
    return result_of(cudaMemPoolGetAttribute(pool, (enum cudaMemPoolAttr)attribute, value));
}

// What is known of an address

CUresult cuMemGetAddressRange_v2(CUdeviceptr *start, size_t *bytes, CUdeviceptr place) {
    IN_CONTEXT;
    const Allocation *found = memory_find(place);
    if (found == NULL) return CUDA_ERROR_NOT_FOUND;
    if (start) *start = found->start;
    if (bytes) *bytes = found->bytes;
    return CUDA_SUCCESS;
}

static CUresult attribute_of(void *into, CUpointer_attribute attribute, CUdeviceptr place) {
    const Allocation *found = memory_find(place);
    struct cudaPointerAttributes known = {0};
    if (attribute == CU_POINTER_ATTRIBUTE_MAPPED) {
        *(int *)into = found != NULL;
        return CUDA_SUCCESS;
    }
    if (found == NULL || cudaPointerGetAttributes(&known, (void *)place)) return CUDA_ERROR_INVALID_VALUE;
    const bool is_host = known.type == cudaMemoryTypeHost;
    switch (attribute) {
        case CU_POINTER_ATTRIBUTE_CONTEXT: *(CUcontext *)into = context_current(); break;
        case CU_POINTER_ATTRIBUTE_MEMORY_TYPE: *(unsigned *)into = is_host ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE; break;
        case CU_POINTER_ATTRIBUTE_DEVICE_POINTER: *(CUdeviceptr *)into = (CUdeviceptr)known.devicePointer; break;
        case CU_POINTER_ATTRIBUTE_HOST_POINTER:
            if (known.hostPointer == NULL) return CUDA_ERROR_INVALID_VALUE;
            *(void **)into = known.hostPointer;
            break;
        case CU_POINTER_ATTRIBUTE_BUFFER_ID: *(unsigned long long *)into = found->start; break;
        case CU_POINTER_ATTRIBUTE_IS_MANAGED: *(int *)into = found->kind == MEMORY_MANAGED; break;
        case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL: *(int *)into = known.device; break;
        case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR: *(CUdeviceptr *)into = found->start; break;
        case CU_POINTER_ATTRIBUTE_RANGE_SIZE: *(size_t *)into = found->bytes; break;
        case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
        case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
        case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE: *(int *)into = 0; break;
        case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES: *(uint64_t *)into = 0; break;
        case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS: *(int *)into = CU_POINTER_ATTRIBUTE_ACCESS_FLAG_READWRITE; break;
        case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE: *(CUmemoryPool *)into = NULL; break;
        default: return refused("cuPointerGetAttribute of tokens and mappings");
    }
    return CUDA_SUCCESS;
}

CUresult cuPointerGetAttribute(void *into, CUpointer_attribute attribute, CUdeviceptr place) {
    IN_CONTEXT;
    return into ? attribute_of(into, attribute, place) : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuPointerGetAttributes(unsigned count, CUpointer_attribute *attributes, void **into, CUdeviceptr place) {
    IN_CONTEXT;
    if (count == 0 || attributes == NULL || into == NULL) return CUDA_ERROR_INVALID_VALUE;
    for (unsigned k = 0; k < count; k++)
        if (attribute_of(into[k], attributes[k], place)) memset(into[k], 0, sizeof(int));  // as documented: no error
    return CUDA_SUCCESS;
}

CUresult cuPointerSetAttribute(const void *value, CUpointer_attribute attribute, CUdeviceptr place) {
    IN_CONTEXT;
    if (value == NULL || attribute != CU_POINTER_ATTRIBUTE_SYNC_MEMOPS || memory_find(place) == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    return CUDA_SUCCESS;  // every copy is done when its call returns
}

// Hints on where memory should be: it is where it is.

static CUresult hinted(CUdeviceptr place, size_t bytes) {
    return memory_is_allocated(place, bytes) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

#if CUDA_VERSION >= 12020
CUresult cuMemAdvise_v2(CUdeviceptr place, size_t bytes, CUmem_advise advice, CUmemLocation location) {
    IN_CONTEXT;
    (void)advice, (void)location;
    return hinted(place, bytes);
}

CUresult cuMemPrefetchAsync_v2(CUdeviceptr place, size_t bytes, CUmemLocation location, unsigned flags, CUstream stream) {
    IN_CONTEXT;
    (void)location, (void)flags;
    return stream_of(stream) ? hinted(place, bytes) : CUDA_ERROR_INVALID_HANDLE;
}
#endif

#undef cuMemAdvise
#undef cuMemPrefetchAsync
CUresult cuMemAdvise(CUdeviceptr place, size_t bytes, CUmem_advise advice, CUdevice device);
CUresult cuMemPrefetchAsync(CUdeviceptr place, size_t bytes, CUdevice device, CUstream stream);

CUresult cuMemAdvise(CUdeviceptr place, size_t bytes, CUmem_advise advice, CUdevice device) {
    IN_CONTEXT;
    (void)advice, (void)device;
    return hinted(place, bytes);
}

CUresult cuMemPrefetchAsync(CUdeviceptr place, size_t bytes, CUdevice device, CUstream stream) {
    IN_CONTEXT;
    (void)device;
    return stream_of(stream) ? hinted(place, bytes) : CUDA_ERROR_INVALID_HANDLE;
}

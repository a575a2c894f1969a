// The devices that are shown, as the driver tells of them.
#include <cuda_profiler_api.h>
#include <string.h>

#include "driver/driver.h"

CUresult cuDeviceGetCount(int *count) {
    ENTERED;
    return result_of(cudaGetDeviceCount(count));
}

static CUresult check(CUdevice number) {
    int count = 0;
    cudaGetDeviceCount(&count);
    return number >= 0 && number < count ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

CUresult cuDeviceGet(CUdevice *into, int ordinal) {
    ENTERED;
    if (into == NULL) return CUDA_ERROR_INVALID_VALUE;
    *into = ordinal;
    return check(ordinal);
}

CUresult cuDeviceGetName(char *into, int room, CUdevice number) {
    ENTERED;
    if (into == NULL || room <= 0) return CUDA_ERROR_INVALID_VALUE;
    if (check(number)) return check(number);
    snprintf(into, (size_t)room, "%s", device()->name);
    return CUDA_SUCCESS;
}

CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice number) {
    ENTERED;
    if (bytes == NULL) return CUDA_ERROR_INVALID_VALUE;
    *bytes = device()->memory_bytes;
    return check(number);
}

CUresult cuDeviceGetAttribute(int *value, CUdevice_attribute attribute, CUdevice number) {
    ENTERED;
    if (value == NULL || (int)attribute <= 0 || attribute >= CU_DEVICE_ATTRIBUTE_MAX) return CUDA_ERROR_INVALID_VALUE;
    if (check(number)) return check(number);
    *value = 0;  // of those that the driver alone has
    if ((int)attribute >= (int)cudaDevAttrMax) return CUDA_SUCCESS;
    return result_of(cudaDeviceGetAttribute(value, (enum cudaDeviceAttr)attribute, number));
}

CUresult cuDeviceComputeCapability(int *major, int *minor, CUdevice number) {
    ENTERED;
    if (major == NULL || minor == NULL) return CUDA_ERROR_INVALID_VALUE;
    *major = device()->major;
    *minor = device()->minor;
    return check(number);
}

CUresult cuDeviceGetProperties(CUdevprop *into, CUdevice number) {
    ENTERED;
    if (into == NULL) return CUDA_ERROR_INVALID_VALUE;
    const Device *shown = device();
    *into = (CUdevprop){.maxThreadsPerBlock = 1024, .maxThreadsDim = {1024, 1024, 64},
                        .maxGridSize = {0x7fffffff, 65535, 65535}, .sharedMemPerBlock = shown->shared_per_block,
                        .totalConstantMemory = 65536, .SIMDWidth = LANES, .memPitch = 0x7fffffff,
                        .regsPerBlock = shown->registers_per_sm, .clockRate = shown->clock_khz, .textureAlign = 512};
    return check(number);
}

static CUresult identifier(CUuuid *into, CUdevice number) {
    ENTERED;
    if (into == NULL) return CUDA_ERROR_INVALID_VALUE;
    memset(into, 0, sizeof *into);
    snprintf(into->bytes, sizeof into->bytes, "manyscale-%d", number);  // the same in each run
    return check(number);
}

CUresult cuDeviceGetUuid_v2(CUuuid *into, CUdevice number) { return identifier(into, number); }

CUresult cuDeviceGetPCIBusId(char *into, int room, CUdevice number) {
    ENTERED;
    return result_of(cudaDeviceGetPCIBusId(into, room, number));
}

CUresult cuDeviceGetByPCIBusId(CUdevice *into, const char *name) {
    ENTERED;
    return result_of(cudaDeviceGetByPCIBusId(into, name));
}

CUresult cuDeviceCanAccessPeer(int *can, CUdevice number, CUdevice peer) {
    ENTERED;
    if (can == NULL) return CUDA_ERROR_INVALID_VALUE;
    return result_of(cudaDeviceCanAccessPeer(can, number, peer));
}

CUresult cuDeviceGetP2PAttribute(int *value, CUdevice_P2PAttribute attribute, CUdevice from, CUdevice to) {
    ENTERED;
    return result_of(cudaDeviceGetP2PAttribute(value, (enum cudaDeviceP2PAttr)attribute, from, to));
}

CUresult cuDeviceGetDefaultMemPool(CUmemoryPool *into, CUdevice number) {
    ENTERED;
    return result_of(cudaDeviceGetDefaultMemPool(into, number));
}

CUresult cuDeviceGetMemPool(CUmemoryPool *into, CUdevice number) {
    ENTERED;
    return result_of(cudaDeviceGetMemPool(into, number));
}

CUresult cuDeviceSetMemPool(CUdevice number, CUmemoryPool pool) {
    ENTERED;
    return result_of(cudaDeviceSetMemPool(number, pool));
}

CUresult cuProfilerStart(void) {
    IN_CONTEXT;
    return result_of(cudaProfilerStart());
}

CUresult cuProfilerStop(void) {
    IN_CONTEXT;
    return result_of(cudaProfilerStop());
}

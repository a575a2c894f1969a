// The devices that are shown, all alike: what the target's description says, and limits that all devices of its compute capability
// have (NVIDIA, CUDA C++ Programming Guide, Compute Capabilities: technical specifications).
#include <string.h>

#include "runtime.h"

enum { CONSTANT_BYTES = 65536, MOST_THREADS = 1024, PITCH_LIMIT = 0x7fffffff, MOST_STACK = 512 * 1024 - 1024 };

static unsigned device_flags;
static size_t limits[8] = {
    [cudaLimitStackSize] = 1024, [cudaLimitPrintfFifoSize] = 7340032, [cudaLimitMallocHeapSize] = 8388608,
    [cudaLimitDevRuntimeSyncDepth] = 0, [cudaLimitDevRuntimePendingLaunchCount] = 2048,
    [cudaLimitMaxL2FetchGranularity] = 64,
};

static _Thread_local int current;

int current_device(void) { return current; }

bool is_device(int number) { return number >= 0 && number < device()->gpus; }

cudaError_t cudaGetDeviceCount(int *count) {
    LOCKED;
    if (count == NULL) return failed(cudaErrorInvalidValue);
    *count = device()->gpus;
    return done();
}

cudaError_t cudaSetDevice(int number) {
    LOCKED;
    if (!is_device(number)) return failed(cudaErrorInvalidDevice);
    current = number;
    return done();
}

cudaError_t cudaGetDevice(int *number) {
    if (number == NULL) return failed(cudaErrorInvalidValue);
    *number = current;
    return done();
}

cudaError_t cudaInitDevice(int number, unsigned flags, unsigned more) {
    (void)flags, (void)more;
    LOCKED;
    return is_device(number) ? done() : failed(cudaErrorInvalidDevice);
}

cudaError_t cudaChooseDevice(int *number, const struct cudaDeviceProp *wanted) {
    if (number == NULL || wanted == NULL) return failed(cudaErrorInvalidValue);
    *number = 0;
    return done();
}

cudaError_t cudaSetValidDevices(int *numbers, int count) {
    LOCKED;
    for (int k = 0; k < count; k++)
        if (numbers == NULL || !is_device(numbers[k])) return failed(cudaErrorInvalidDevice);
    return done();
}

cudaError_t cudaSetDeviceFlags(unsigned flags) {
    device_flags = flags;
    return done();
}

cudaError_t cudaGetDeviceFlags(unsigned *flags) {
    if (flags == NULL) return failed(cudaErrorInvalidValue);
    *flags = device_flags | cudaDeviceMapHost;
    return done();
}

cudaError_t cudaDeviceSynchronize(void) {
    LOCKED;
    call_made(CALL_SYNCHRONIZE_DEVICE, NULL, 0, 0);
    return done();
}

cudaError_t cudaDeviceReset(void) {
    LOCKED;
    memory_free_all(current);
    peers_forget(current);
    return done();
}

cudaError_t cudaDriverGetVersion(int *version) {
    if (version == NULL) return failed(cudaErrorInvalidValue);
    *version = CUDART_VERSION;
    return done();
}

cudaError_t cudaRuntimeGetVersion(int *version) { return cudaDriverGetVersion(version); }

cudaError_t cudaDeviceGetLimit(size_t *value, enum cudaLimit limit) {
    if (value == NULL || (int)limit < 0 || limit > cudaLimitMaxL2FetchGranularity) return failed(cudaErrorInvalidValue);
    *value = limits[limit];
    return done();
}

uint32_t stack_limit(void) { return (uint32_t)(limits[cudaLimitStackSize] + 15) & ~15u; }

cudaError_t cudaDeviceSetLimit(enum cudaLimit limit, size_t value) {
    if ((int)limit < 0 || limit > cudaLimitMaxL2FetchGranularity) return failed(cudaErrorInvalidValue);
    if (limit == cudaLimitStackSize && value > MOST_STACK) return failed(cudaErrorInvalidValue);
    limits[limit] = value;
    return done();
}

cudaError_t cudaDeviceGetCacheConfig(enum cudaFuncCache *config) {
    if (config == NULL) return failed(cudaErrorInvalidValue);
    *config = cudaFuncCachePreferNone;
    return done();
}

cudaError_t cudaDeviceSetCacheConfig(enum cudaFuncCache config) {
    (void)config;
    return done();
}

cudaError_t cudaDeviceGetSharedMemConfig(enum cudaSharedMemConfig *config) {
    if (config == NULL) return failed(cudaErrorInvalidValue);
    *config = cudaSharedMemBankSizeFourByte;
    return done();
}

cudaError_t cudaDeviceSetSharedMemConfig(enum cudaSharedMemConfig config) {
    (void)config;
    return done();
}

cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest) {
    if (least) *least = 0;
    if (greatest) *greatest = -5;
    return done();
}

cudaError_t cudaDeviceGetPCIBusId(char *into, int bytes, int number) {
    LOCKED;
    if (into == NULL || !is_device(number)) return failed(into ? cudaErrorInvalidDevice : cudaErrorInvalidValue);
    snprintf(into, (size_t)bytes, "0000:%02x:00.0", number + 1);
    return done();
}

cudaError_t cudaDeviceGetByPCIBusId(int *number, const char *name) {
    LOCKED;
    unsigned domain = 0, bus = 0;
    if (number == NULL || name == NULL) return failed(cudaErrorInvalidValue);
    if (sscanf(name, "%x:%x:", &domain, &bus) != 2) sscanf(name, "%x:", &bus);
    if (domain || !is_device((int)bus - 1)) return failed(cudaErrorInvalidDevice);
    *number = (int)bus - 1;
    return done();
}

struct cudaChannelFormatDesc cudaCreateChannelDesc(int x, int y, int z, int w, enum cudaChannelFormatKind kind) {
    return (struct cudaChannelFormatDesc){x, y, z, w, kind};
}

cudaError_t cudaCtxResetPersistingL2Cache(void) { return done(); }

// What every device of compute capability 5.0 and later has; 0 for what is not there, or not supported here.
static int common_attribute(enum cudaDeviceAttr attribute) {
    switch (attribute) {
        case cudaDevAttrMaxThreadsPerBlock:
        case cudaDevAttrMaxBlockDimX:
        case cudaDevAttrMaxBlockDimY: return MOST_THREADS;
        case cudaDevAttrMaxBlockDimZ: return 64;
        case cudaDevAttrMaxGridDimX: return 0x7fffffff;
        case cudaDevAttrMaxGridDimY:
        case cudaDevAttrMaxGridDimZ: return 65535;
        case cudaDevAttrTotalConstantMemory: return CONSTANT_BYTES;
        case cudaDevAttrWarpSize: return LANES;
        case cudaDevAttrMaxPitch: return PITCH_LIMIT;
        case cudaDevAttrTextureAlignment:
        case cudaDevAttrSurfaceAlignment: return 512;
        case cudaDevAttrTexturePitchAlignment: return 32;
        case cudaDevAttrMaxTexture1DWidth: return 131072;
        case cudaDevAttrMaxTexture2DWidth: return 131072;
        case cudaDevAttrMaxTexture2DHeight: return 65536;
        case cudaDevAttrMaxTexture3DWidth:
        case cudaDevAttrMaxTexture3DHeight:
        case cudaDevAttrMaxTexture3DDepth: return 16384;
        case cudaDevAttrGpuOverlap:
        case cudaDevAttrCanMapHostMemory:
        case cudaDevAttrConcurrentKernels:
        case cudaDevAttrCooperativeLaunch:
        case cudaDevAttrUnifiedAddressing:
        case cudaDevAttrStreamPrioritiesSupported:
        case cudaDevAttrGlobalL1CacheSupported:
        case cudaDevAttrLocalL1CacheSupported:
        case cudaDevAttrManagedMemory:
        case cudaDevAttrConcurrentManagedAccess:
        case cudaDevAttrComputePreemptionSupported:
        case cudaDevAttrCanUseHostPointerForRegisteredMem:
        case cudaDevAttrHostRegisterSupported:
        case cudaDevAttrMemoryPoolsSupported: return 1;
        case cudaDevAttrAsyncEngineCount: return 2;
        default: return 0;
    }
}

cudaError_t cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr attribute, int number) {
    LOCKED;
    if (value == NULL || (int)attribute <= 0 || attribute >= cudaDevAttrMax) return failed(cudaErrorInvalidValue);
    if (!is_device(number)) return failed(cudaErrorInvalidDevice);
    const Device *shown = device();
    switch (attribute) {
        case cudaDevAttrPciBusId: *value = number + 1; break;
        case cudaDevAttrComputeCapabilityMajor: *value = shown->major; break;
        case cudaDevAttrComputeCapabilityMinor: *value = shown->minor; break;
        case cudaDevAttrMultiProcessorCount: *value = shown->sms; break;
        case cudaDevAttrClockRate: *value = shown->clock_khz; break;
        case cudaDevAttrMemoryClockRate: *value = shown->memory_clock_khz; break;
        case cudaDevAttrGlobalMemoryBusWidth: *value = shown->bus_bits; break;
        case cudaDevAttrL2CacheSize: *value = shown->l2_bytes; break;
        case cudaDevAttrMaxSharedMemoryPerBlock: *value = shown->shared_per_block; break;
        case cudaDevAttrMaxSharedMemoryPerBlockOptin: *value = shown->shared_optin; break;
        case cudaDevAttrMaxSharedMemoryPerMultiprocessor: *value = shown->shared_per_sm; break;
        case cudaDevAttrReservedSharedMemoryPerBlock: *value = shown->shared_reserved; break;
        case cudaDevAttrMaxRegistersPerBlock:
        case cudaDevAttrMaxRegistersPerMultiprocessor: *value = shown->registers_per_sm; break;
        case cudaDevAttrMaxThreadsPerMultiProcessor: *value = shown->threads_per_sm; break;
        case cudaDevAttrMaxBlocksPerMultiprocessor: *value = shown->blocks_per_sm; break;
        case cudaDevAttrSingleToDoublePrecisionPerfRatio: *value = shown->minor ? 64 : 2; break;
#if CUDART_VERSION >= 11080
        case cudaDevAttrClusterLaunch: *value = shown->major >= 9; break;
#endif
        default: *value = common_attribute(attribute);
    }
    return done();
}

cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *into, int number) {
    LOCKED;
    if (into == NULL) return failed(cudaErrorInvalidValue);
    if (!is_device(number)) return failed(cudaErrorInvalidDevice);
    const Device *shown = device();
    memset(into, 0, sizeof *into);
    memcpy(into->name, shown->name, sizeof into->name);
    into->totalGlobalMem = shown->memory_bytes;
    into->sharedMemPerBlock = (size_t)shown->shared_per_block;
    into->sharedMemPerBlockOptin = (size_t)shown->shared_optin;
    into->sharedMemPerMultiprocessor = (size_t)shown->shared_per_sm;
    into->reservedSharedMemPerBlock = (size_t)shown->shared_reserved;
    into->regsPerBlock = into->regsPerMultiprocessor = shown->registers_per_sm;
    into->warpSize = LANES;
    into->memPitch = PITCH_LIMIT;
    into->maxThreadsPerBlock = MOST_THREADS;
    into->maxThreadsPerMultiProcessor = shown->threads_per_sm;
    into->maxBlocksPerMultiProcessor = shown->blocks_per_sm;
    into->maxThreadsDim[0] = into->maxThreadsDim[1] = MOST_THREADS;
    into->maxThreadsDim[2] = 64;
    into->maxGridSize[0] = 0x7fffffff;
    into->maxGridSize[1] = into->maxGridSize[2] = 65535;
    into->totalConstMem = CONSTANT_BYTES;
    into->major = shown->major;
    into->minor = shown->minor;
    into->textureAlignment = into->surfaceAlignment = 512;
    into->texturePitchAlignment = 32;
    into->maxTexture1D = into->maxTexture2D[0] = 131072;
    into->maxTexture2D[1] = 65536;
    for (int k = 0; k < 3; k++) into->maxTexture3D[k] = 16384;
    into->multiProcessorCount = shown->sms;
    into->memoryBusWidth = shown->bus_bits;
    into->l2CacheSize = shown->l2_bytes;
    into->asyncEngineCount = 2;
    into->pciBusID = number + 1;
    into->canMapHostMemory = into->concurrentKernels = into->unifiedAddressing = into->streamPrioritiesSupported = 1;
    into->globalL1CacheSupported = into->localL1CacheSupported = into->managedMemory = 1;
    into->cooperativeLaunch = 1;
    into->concurrentManagedAccess = into->computePreemptionSupported = into->canUseHostPointerForRegisteredMem = 1;
#if CUDART_VERSION >= 12000
    into->hostRegisterSupported = into->memoryPoolsSupported = 1;
    into->clusterLaunch = shown->major >= 9;
#endif
#if CUDART_VERSION < 13000  // the fields went with CUDA 13
    into->clockRate = shown->clock_khz;
    into->memoryClockRate = shown->memory_clock_khz;
    into->deviceOverlap = 1;
    into->singleToDoublePrecisionPerfRatio = shown->minor ? 64 : 2;
#endif
    return done();
}

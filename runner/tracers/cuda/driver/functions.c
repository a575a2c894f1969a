// What a program asks of its kernels, and how many of their blocks an SM holds. A CUkernel is its CUfunction here.
#include "driver/driver.h"

static CUresult attribute_of(int *value, CUfunction_attribute attribute, const void *handle) {
    struct cudaFuncAttributes known;
    if (value == NULL) return CUDA_ERROR_INVALID_VALUE;
    const cudaError_t error = cudaFuncGetAttributes(&known, handle);
    if (error) return result_of(error);
    switch (attribute) {
        case CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK: *value = known.maxThreadsPerBlock; break;
        case CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES: *value = (int)known.sharedSizeBytes; break;
        case CU_FUNC_ATTRIBUTE_CONST_SIZE_BYTES: *value = (int)known.constSizeBytes; break;
        case CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES: *value = (int)known.localSizeBytes; break;
        case CU_FUNC_ATTRIBUTE_NUM_REGS: *value = known.numRegs; break;
        case CU_FUNC_ATTRIBUTE_PTX_VERSION: *value = known.ptxVersion; break;
        case CU_FUNC_ATTRIBUTE_BINARY_VERSION: *value = known.binaryVersion; break;
        case CU_FUNC_ATTRIBUTE_CACHE_MODE_CA: *value = known.cacheModeCA; break;
        case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES: *value = known.maxDynamicSharedSizeBytes; break;
        case CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT: *value = known.preferredShmemCarveout; break;
#if CUDA_VERSION >= 12000
        case CU_FUNC_ATTRIBUTE_CLUSTER_SIZE_MUST_BE_SET: *value = known.clusterDimMustBeSet; break;
        case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH: *value = known.requiredClusterWidth; break;
        case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_HEIGHT: *value = known.requiredClusterHeight; break;
        case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_DEPTH: *value = known.requiredClusterDepth; break;
        case CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED: *value = known.nonPortableClusterSizeAllowed; break;
        case CU_FUNC_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE: *value = known.clusterSchedulingPolicyPreference; break;
#endif
        default: return CUDA_ERROR_INVALID_VALUE;
    }
    return CUDA_SUCCESS;
}

CUresult cuFuncGetAttribute(int *value, CUfunction_attribute attribute, CUfunction function) {
    IN_CONTEXT;
    return attribute_of(value, attribute, function);
}

CUresult cuFuncSetAttribute(CUfunction function, CUfunction_attribute attribute, int value) {
    IN_CONTEXT;
    return result_of(cudaFuncSetAttribute((const void *)function, (enum cudaFuncAttribute)attribute, value));
}

CUresult cuFuncSetCacheConfig(CUfunction function, CUfunc_cache config) {
    IN_CONTEXT;
    return result_of(cudaFuncSetCacheConfig((const void *)function, (enum cudaFuncCache)config));
}

CUresult cuFuncSetSharedMemConfig(CUfunction function, CUsharedconfig config) {
    IN_CONTEXT;
    (void)config;
    return function_of(function) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

CUresult cuFuncGetModule(CUmodule *into, CUfunction given) {
    IN_CONTEXT;
    const Function *function = function_of(given);
    if (into == NULL) return CUDA_ERROR_INVALID_VALUE;
    *into = function ? module_of_function(function) : NULL;
    return *into ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

static CUresult name_of(const char **name, const void *handle) {
    const Function *function = function_of(handle);
    if (name == NULL) return CUDA_ERROR_INVALID_VALUE;
    if (function == NULL) return CUDA_ERROR_INVALID_HANDLE;
    *name = function->kernel.name;
    return CUDA_SUCCESS;
}

static CUresult parameter_of(const void *handle, size_t index, size_t *offset, size_t *bytes) {
    const Function *function = function_of(handle);
    if (offset == NULL) return CUDA_ERROR_INVALID_VALUE;
    if (function == NULL) return CUDA_ERROR_INVALID_HANDLE;
    if (index >= function->stored->num_parameters) return CUDA_ERROR_INVALID_VALUE;
    *offset = function->parameters[index].offset;
    if (bytes) *bytes = function->parameters[index].bytes;
    return CUDA_SUCCESS;
}

#if CUDA_VERSION >= 12030
CUresult cuFuncGetName(const char **name, CUfunction function) {
    IN_CONTEXT;
    return name_of(name, function);
}

CUresult cuKernelGetName(const char **name, CUkernel kernel) {
    ENTERED;
    return name_of(name, kernel);
}
#endif

#if CUDA_VERSION >= 12040
CUresult cuFuncGetParamInfo(CUfunction function, size_t index, size_t *offset, size_t *bytes) {
    IN_CONTEXT;
    return parameter_of(function, index, offset, bytes);
}

CUresult cuKernelGetParamInfo(CUkernel kernel, size_t index, size_t *offset, size_t *bytes) {
    ENTERED;
    return parameter_of(kernel, index, offset, bytes);
}

CUresult cuFuncIsLoaded(CUfunctionLoadingState *state, CUfunction function) {
    IN_CONTEXT;
    if (state == NULL) return CUDA_ERROR_INVALID_VALUE;
    *state = CU_FUNCTION_LOADING_STATE_LOADED;
    return function_of(function) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

CUresult cuFuncLoad(CUfunction function) {
    IN_CONTEXT;
    return function_of(function) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}
#endif

#if CUDA_VERSION >= 13000
static CUresult count_of(const void *handle, size_t *count) {
    const Function *function = function_of(handle);
    if (count == NULL) return CUDA_ERROR_INVALID_VALUE;
    if (function == NULL) return CUDA_ERROR_INVALID_HANDLE;
    *count = function->stored->num_parameters;
    return CUDA_SUCCESS;
}

CUresult cuFuncGetParamCount(CUfunction function, size_t *count) {
    IN_CONTEXT;
    return count_of(function, count);
}

CUresult cuKernelGetParamCount(CUkernel kernel, size_t *count) {
    ENTERED;
    return count_of(kernel, count);
}
#endif

#if CUDA_VERSION >= 12000
CUresult cuKernelGetFunction(CUfunction *into, CUkernel kernel) {
    IN_CONTEXT;
    if (into == NULL) return CUDA_ERROR_INVALID_VALUE;
    *into = (CUfunction)kernel;
    return function_of(kernel) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

CUresult cuKernelGetAttribute(int *value, CUfunction_attribute attribute, CUkernel kernel, CUdevice number) {
    ENTERED;
    (void)number;
    return attribute_of(value, attribute, kernel);
}

CUresult cuKernelSetAttribute(CUfunction_attribute attribute, int value, CUkernel kernel, CUdevice number) {
    ENTERED;
    (void)number;
    return result_of(cudaFuncSetAttribute((const void *)kernel, (enum cudaFuncAttribute)attribute, value));
}

CUresult cuKernelSetCacheConfig(CUkernel kernel, CUfunc_cache config, CUdevice number) {
    ENTERED;
    (void)config, (void)number;
    return function_of(kernel) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}
#endif

// Occupancy

CUresult cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *blocks, CUfunction function, int threads, size_t shared,
                                                              unsigned flags) {
    IN_CONTEXT;
    return result_of(cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(blocks, function, threads, shared, flags));
}

CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, CUfunction function, int threads, size_t shared) {
    return cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(blocks, function, threads, shared, 0);
}

CUresult cuOccupancyAvailableDynamicSMemPerBlock(size_t *bytes, CUfunction function, int blocks, int threads) {
    IN_CONTEXT;
    return result_of(cudaOccupancyAvailableDynamicSMemPerBlock(bytes, (const void *)function, blocks, threads));
}

// The block with which most threads are on an SM, and of several the largest; the grid with which all SMs have them.
CUresult cuOccupancyMaxPotentialBlockSizeWithFlags(int *grid, int *block, CUfunction given, CUoccupancyB2DSize shared_of,
                                                   size_t shared, int limit, unsigned flags) {
    IN_CONTEXT;
    int most = 0, best = 0;
    const CUresult result = attribute_of(&most, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, given);
    if (grid == NULL || block == NULL) return CUDA_ERROR_INVALID_VALUE;
    if (result) return result;
    if (limit > 0 && limit < most) most = limit;
    *grid = *block = 0;
    for (int threads = most; threads > 0; threads = (threads - 1) / LANES * LANES) {
        int blocks = 0;
        cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(&blocks, given, threads, shared_of ? shared_of(threads) : shared,
                                                             flags);
        if (blocks * threads <= best) continue;
        best = blocks * threads;
        *block = threads;
        *grid = blocks * device()->sms;
    }
    return CUDA_SUCCESS;
}

CUresult cuOccupancyMaxPotentialBlockSize(int *grid, int *block, CUfunction function, CUoccupancyB2DSize shared_of,
                                          size_t shared, int limit) {
    return cuOccupancyMaxPotentialBlockSizeWithFlags(grid, block, function, shared_of, shared, limit, 0);
}

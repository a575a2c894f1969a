// What a program asks of its kernels, and how many of their blocks an SM holds.
#include <string.h>

#include "runtime.h"

cudaError_t cudaFuncGetAttributes(struct cudaFuncAttributes *into, const void *host) {
    LOCKED;
    const Function *function = function_of(host);
    if (into == NULL) return failed(cudaErrorInvalidValue);
    if (function == NULL) return failed(cudaErrorInvalidDeviceFunction);
    memset(into, 0, sizeof *into);
    into->sharedSizeBytes = function->kernel.shared_bytes - function->stored->shared_reserved;
    into->constSizeBytes = function->kernel.bank_bytes[3];
    into->localSizeBytes = function->kernel.local_bytes;
    const int unit = device()->register_unit;
    const int of_warp = ((int)function->kernel.num_registers * LANES + unit - 1) / unit * unit;
    const int fitting = of_warp ? device()->registers_per_sm / of_warp / 4 * 4 * 32 : 1024;
    const int most = (int)function->stored->max_threads;
    into->maxThreadsPerBlock = fitting < most ? fitting : most;
    into->numRegs = (int)function->kernel.num_registers;
    into->ptxVersion = (int)function->kernel.architecture;
    into->binaryVersion = (int)function->kernel.architecture;
    into->maxDynamicSharedSizeBytes = shared_limit(function);
    into->preferredShmemCarveout = function->carveout;
#if CUDART_VERSION >= 12000
    into->requiredClusterWidth = (int)(function->cluster[0] | function->kernel.cluster[0]);
    into->requiredClusterHeight = (int)(function->cluster[1] | function->kernel.cluster[1]);
    into->requiredClusterDepth = (int)(function->cluster[2] | function->kernel.cluster[2]);
    into->nonPortableClusterSizeAllowed = function->has_large_clusters;
#endif
    return done();
}

#if CUDART_VERSION >= 11080
static cudaError_t require_cluster(Function *function, int dimension, int blocks) {
    if (blocks < 0 || function->kernel.cluster[0]) return failed(cudaErrorInvalidValue);
    function->cluster[dimension] = (uint32_t)blocks;
    return done();
}
#endif

cudaError_t cudaFuncSetAttribute(const void *host, enum cudaFuncAttribute attribute, int value) {
    LOCKED;
    Function *function = function_of(host);
    if (function == NULL) return failed(cudaErrorInvalidDeviceFunction);
    const int fixed = (int)(function->kernel.shared_bytes - function->stored->shared_reserved);
    switch (attribute) {
        case cudaFuncAttributeMaxDynamicSharedMemorySize:
            if (value < 0 || value > device()->shared_optin - fixed) return failed(cudaErrorInvalidValue);
            function->max_dynamic_shared = value;
            return done();
        case cudaFuncAttributePreferredSharedMemoryCarveout:
            if (value < -1 || value > 100) return failed(cudaErrorInvalidValue);
            function->carveout = value;
            return done();
#if CUDART_VERSION >= 11080
        case cudaFuncAttributeNonPortableClusterSizeAllowed: function->has_large_clusters = value != 0; return done();
        case cudaFuncAttributeRequiredClusterWidth: return require_cluster(function, 0, value);
        case cudaFuncAttributeRequiredClusterHeight: return require_cluster(function, 1, value);
        case cudaFuncAttributeRequiredClusterDepth: return require_cluster(function, 2, value);
        case cudaFuncAttributeClusterSchedulingPolicyPreference: return done();
#endif
        default: return failed(cudaErrorInvalidValue);
    }
}

cudaError_t cudaFuncSetCacheConfig(const void *host, enum cudaFuncCache config) {
    LOCKED;
    (void)config;
    return function_of(host) ? done() : failed(cudaErrorInvalidDeviceFunction);
}

cudaError_t cudaFuncSetSharedMemConfig(const void *host, enum cudaSharedMemConfig config) {
    LOCKED;
    (void)config;
    return function_of(host) ? done() : failed(cudaErrorInvalidDeviceFunction);
}

#if CUDART_VERSION >= 11000
cudaError_t cudaGetFuncBySymbol(cudaFunction_t *into, const void *host) {
    LOCKED;
    Function *function = function_of(host);
    if (into == NULL) return failed(cudaErrorInvalidValue);
    if (function == NULL) return failed(cudaErrorInvalidDeviceFunction);
    *into = (cudaFunction_t)function;
    return done();
}
#endif

#if CUDART_VERSION >= 12000
cudaError_t cudaFuncGetName(const char **name, const void *host) {
    LOCKED;
    const Function *function = function_of(host);
    if (name == NULL || function == NULL) return failed(cudaErrorInvalidValue);
    *name = function->kernel.name;
    return done();
}

cudaError_t cudaFuncGetParamInfo(const void *host, size_t index, size_t *offset, size_t *bytes) {
    LOCKED;
    const Function *function = function_of(host);
    if (function == NULL || offset == NULL || index >= function->stored->num_parameters)
        return failed(cudaErrorInvalidValue);
    *offset = function->parameters[index].offset;
    if (bytes) *bytes = function->parameters[index].bytes;
    return done();
}
#endif

// Occupancy: the rules of NVIDIA's cuda_occupancy.h as its documentation tells them. Registers are given to a warp and
// shared memory to a block in the target's units; warps go round the four parts of an SM.

static int least(int a, int b) { return a < b ? a : b; }

static int blocks_of_sm(const Function *function, int threads, size_t dynamic_shared) {
    const Device *shown = device();
    const int warps = (threads + 31) / 32;
    int blocks = least(shown->blocks_per_sm, shown->warps / warps);
    const int of_warp = ((int)function->kernel.num_registers * 32 + shown->register_unit - 1) / shown->register_unit *
                        shown->register_unit;
    if (of_warp) {
        const int of_part = shown->registers_per_sm / 4 / of_warp;  // warps
        blocks = least(blocks, 4 * of_part / warps);
    }
    const int64_t asked = (int64_t)function->kernel.shared_bytes - function->stored->shared_reserved +
                          (int64_t)dynamic_shared + shown->shared_reserved;
    const int64_t taken = (asked + shown->shared_unit - 1) / shown->shared_unit * shown->shared_unit;
    if (taken) blocks = least(blocks, (int)(shown->shared_per_sm / taken));
    return blocks;
}

uint64_t blocks_of_device(const Function *function, dim3 block, size_t dynamic_shared) {
    const int of_sm = blocks_of_sm(function, (int)(block.x * block.y * block.z), dynamic_shared);
    return (uint64_t)(of_sm < 0 ? 0 : of_sm) * (uint64_t)device()->sms;
}

#if CUDART_VERSION >= 11080
cudaError_t cudaOccupancyMaxPotentialClusterSize(int *blocks, const void *host, const cudaLaunchConfig_t *config) {
    LOCKED;
    const Function *function = function_of(host);
    if (blocks == NULL || config == NULL) return failed(cudaErrorInvalidValue);
    if (function == NULL) return failed(cudaErrorInvalidDeviceFunction);
    if (device()->major < 9) return not_supported("cudaOccupancyMaxPotentialClusterSize before compute capability 9.0");
    *blocks = function->has_large_clusters ? 16 : 8;
    return done();
}
#endif

cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *blocks, const void *host, int threads,
                                                                   size_t dynamic_shared, unsigned flags) {
    LOCKED;
    (void)flags;
    const Function *function = function_of(host);
    if (blocks == NULL || threads <= 0) return failed(cudaErrorInvalidValue);
    if (function == NULL) return failed(cudaErrorInvalidDeviceFunction);
    const bool fits = threads <= (int)function->stored->max_threads &&
                      (int64_t)dynamic_shared <= device()->shared_optin;
    *blocks = fits ? blocks_of_sm(function, threads, dynamic_shared) : 0;
    return done();
}

cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, const void *host, int threads, size_t dynamic_shared) {
    return cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(blocks, host, threads, dynamic_shared, 0);
}

#if CUDART_VERSION >= 11080
// As many as all SMs hold: that a cluster lies inside one of hardware's groups of SMs (GPC), whose sizes NVIDIA does not
// publish for each GPU, is left out, which a note tells.
cudaError_t cudaOccupancyMaxActiveClusters(int *clusters, const void *host, const cudaLaunchConfig_t *given) {
    LOCKED;
    const Function *function = function_of(host);
    if (clusters == NULL || given == NULL) return failed(cudaErrorInvalidValue);
    if (function == NULL) return failed(cudaErrorInvalidDeviceFunction);
    const unsigned threads = given->blockDim.x * given->blockDim.y * given->blockDim.z;
    uint32_t size = function->kernel.cluster[0] * function->kernel.cluster[1] * function->kernel.cluster[2];
    for (unsigned k = 0; k < given->numAttrs; k++)
        if (given->attrs[k].id == cudaLaunchAttributeClusterDimension)
            size = given->attrs[k].val.clusterDim.x * given->attrs[k].val.clusterDim.y * given->attrs[k].val.clusterDim.z;
    if (threads == 0) return failed(cudaErrorInvalidValue);
    const bool fits = threads <= function->stored->max_threads && (int64_t)given->dynamicSmemBytes <= device()->shared_optin;
    *clusters = fits ? blocks_of_sm(function, (int)threads, given->dynamicSmemBytes) * device()->sms / (int)(size ? size : 1) : 0;
    session_note("cuda-active-clusters", function->kernel.name);
    return done();
}
#endif

cudaError_t cudaOccupancyAvailableDynamicSMemPerBlock(size_t *bytes, const void *host, int blocks, int threads) {
    LOCKED;
    const Function *function = function_of(host);
    if (bytes == NULL || blocks <= 0 || threads <= 0) return failed(cudaErrorInvalidValue);
    if (function == NULL) return failed(cudaErrorInvalidDeviceFunction);
    const Device *shown = device();
    const int share = shown->shared_per_sm / blocks / shown->shared_unit * shown->shared_unit - shown->shared_reserved -
                      (int)(function->kernel.shared_bytes - function->stored->shared_reserved);
    const int most = shared_limit(function);
    *bytes = (size_t)(share < 0 ? 0 : least(share, most < 0 ? 0 : most));
    return done();
}

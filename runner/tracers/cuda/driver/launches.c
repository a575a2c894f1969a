// Kernel launches.
#include <stdlib.h>

#include "driver/driver.h"

// Pointers to the arguments of a launch, which may also be given as one block of them; own where it is not `given`.
CUresult arguments_of(const void *handle, void **given, void **extra, void ***into) {
    *into = given;
    if (extra == NULL) return CUDA_SUCCESS;
    if (given) return CUDA_ERROR_INVALID_VALUE;
    const Function *function = function_of(handle);
    char *block = NULL;
    size_t bytes = 0;
    if (function == NULL) return CUDA_ERROR_INVALID_HANDLE;
    for (void **each = extra; *each != CU_LAUNCH_PARAM_END; each += 2) {
        if (each[0] == CU_LAUNCH_PARAM_BUFFER_POINTER)
            block = each[1];
        else if (each[0] == CU_LAUNCH_PARAM_BUFFER_SIZE)
            bytes = *(size_t *)each[1];
        else
            return CUDA_ERROR_INVALID_VALUE;
    }
    const uint32_t count = function->stored->num_parameters;
    void **pointers = calloc(count + 1, sizeof *pointers);
    if (pointers == NULL) return CUDA_ERROR_OUT_OF_MEMORY;
    for (uint32_t k = 0; k < count; k++) {
        if (block == NULL || function->parameters[k].offset + (size_t)function->parameters[k].bytes > bytes) {
            free(pointers);
            return CUDA_ERROR_INVALID_VALUE;
        }
        pointers[k] = block + function->parameters[k].offset;
    }
    *into = pointers;
    return CUDA_SUCCESS;
}

CUresult cuLaunchKernel(CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
                        unsigned block_y, unsigned block_z, unsigned shared, CUstream stream, void **parameters,
                        void **extra) {
    IN_CONTEXT;
    void **arguments;
    CUresult result = arguments_of(function, parameters, extra, &arguments);
    if (result) return result;
    const dim3 grid = {grid_x, grid_y, grid_z}, block = {block_x, block_y, block_z};
    result = result_of(cudaLaunchKernel(function, grid, block, arguments, shared, stream));
    if (arguments != parameters) free(arguments);
    return result;
}

CUresult cuLaunchCooperativeKernel(CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                                   unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared, CUstream stream,
                                   void **parameters) {
    IN_CONTEXT;
    const dim3 grid = {grid_x, grid_y, grid_z}, block = {block_x, block_y, block_z};
    return result_of(cudaLaunchCooperativeKernel((const void *)function, grid, block, parameters, shared, stream));
}

#if CUDA_VERSION >= 11080
// The attributes of the two interfaces are the same, by number and by layout.
_Static_assert(sizeof(CUlaunchAttribute) == sizeof(cudaLaunchAttribute), "attributes of launches differ");

CUresult cuLaunchKernelEx(const CUlaunchConfig *given, CUfunction function, void **parameters, void **extra) {
    IN_CONTEXT;
    void **arguments;
    if (given == NULL) return CUDA_ERROR_INVALID_VALUE;
    CUresult result = arguments_of(function, parameters, extra, &arguments);
    if (result) return result;
    const cudaLaunchConfig_t config = {
        .gridDim = {given->gridDimX, given->gridDimY, given->gridDimZ},
        .blockDim = {given->blockDimX, given->blockDimY, given->blockDimZ}, .dynamicSmemBytes = given->sharedMemBytes,
        .stream = given->hStream, .attrs = (cudaLaunchAttribute *)given->attrs, .numAttrs = given->numAttrs};
    result = result_of(cudaLaunchKernelExC(&config, function, arguments));
    if (arguments != parameters) free(arguments);
    return result;
}
#endif

CUresult cuLaunchHostFunc(CUstream stream, CUhostFn function, void *user) {
    IN_CONTEXT;
    return result_of(cudaLaunchHostFunc(stream, function, user));
}

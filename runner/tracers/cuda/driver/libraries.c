// Libraries: modules that belong to no context. All contexts have one memory here, so that a library is a module.
#include <stdlib.h>

#include "driver/driver.h"

#if CUDA_VERSION >= 12000
static CUresult load(CUlibrary *into, const void *image, size_t bytes, unsigned count, CUjit_option *options, void **values) {
    struct CUmod_st *made = NULL;
    if (into == NULL) return CUDA_ERROR_INVALID_VALUE;
    const CUresult result = module_load(&made, image, bytes, count, options, values);
    *into = (CUlibrary)made;
    return result;
}

// Whether the program keeps the image's bytes, and when it is loaded, plays no part: it is copied at once.
CUresult cuLibraryLoadData(CUlibrary *into, const void *image, CUjit_option *options, void **values, unsigned count,
                           CUlibraryOption *ways, void **way_values, unsigned num_ways) {
    ENTERED;
    (void)ways, (void)way_values, (void)num_ways;
    return load(into, image, image ? image_bytes(image) : 0, count, options, values);
}

CUresult cuLibraryLoadFromFile(CUlibrary *into, const char *path, CUjit_option *options, void **values, unsigned count,
                               CUlibraryOption *ways, void **way_values, unsigned num_ways) {
    ENTERED;
    (void)ways, (void)way_values, (void)num_ways;
    size_t bytes = 0;
    if (path == NULL) return CUDA_ERROR_INVALID_VALUE;
    void *content = file_content(path, &bytes);
    if (content == NULL) return CUDA_ERROR_FILE_NOT_FOUND;
    const CUresult result = load(into, content, bytes, count, options, values);
    free(content);
    return result;
}

CUresult cuLibraryUnload(CUlibrary library) {
    ENTERED;
    struct CUmod_st *module = module_of(library);
    return module ? module_unload(module) : CUDA_ERROR_INVALID_HANDLE;
}

CUresult cuLibraryGetKernel(CUkernel *into, CUlibrary library, const char *name) {
    ENTERED;
    const struct CUmod_st *module = module_of(library);
    if (into == NULL || name == NULL) return CUDA_ERROR_INVALID_VALUE;
    if (module == NULL) return CUDA_ERROR_INVALID_HANDLE;
    *into = (CUkernel)module_function(module, name);
    return *into ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

CUresult cuLibraryGetModule(CUmodule *into, CUlibrary library) {
    IN_CONTEXT;
    if (into == NULL) return CUDA_ERROR_INVALID_VALUE;
    *into = module_of(library);
    return *into ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

CUresult cuLibraryGetGlobal(CUdeviceptr *place, size_t *bytes, CUlibrary library, const char *name) {
    IN_CONTEXT;
    const struct CUmod_st *module = module_of(library);
    if (name == NULL) return CUDA_ERROR_INVALID_VALUE;
    return module ? module_variable(module, name, place, bytes) : CUDA_ERROR_INVALID_HANDLE;
}

CUresult cuLibraryGetManaged(CUdeviceptr *place, size_t *bytes, CUlibrary library, const char *name) {
    ENTERED;
    const struct CUmod_st *module = module_of(library);
    if (name == NULL) return CUDA_ERROR_INVALID_VALUE;
    return module ? module_variable(module, name, place, bytes) : CUDA_ERROR_INVALID_HANDLE;
}
#endif

#if CUDA_VERSION >= 12040
CUresult cuLibraryGetKernelCount(unsigned *count, CUlibrary library) {
    ENTERED;
    const struct CUmod_st *module = module_of(library);
    if (count == NULL) return CUDA_ERROR_INVALID_VALUE;
    *count = module ? module->num_functions : 0;
    return module ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

CUresult cuLibraryEnumerateKernels(CUkernel *into, unsigned count, CUlibrary library) {
    ENTERED;
    const struct CUmod_st *module = module_of(library);
    if (into == NULL) return CUDA_ERROR_INVALID_VALUE;
    if (module == NULL) return CUDA_ERROR_INVALID_HANDLE;
    for (unsigned k = 0; k < count && k < module->num_functions; k++) into[k] = (CUkernel)module->functions[k];
    return CUDA_SUCCESS;
}
#endif

#if CUDA_VERSION >= 12050
CUresult cuKernelGetLibrary(CUlibrary *into, CUkernel kernel) {
    ENTERED;
    const Function *function = function_of(kernel);
    if (into == NULL) return CUDA_ERROR_INVALID_VALUE;
    *into = function ? (CUlibrary)module_of_function(function) : NULL;
    return *into ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}
#endif

// Modules and libraries: machine code, fat binaries and PTX that a program loads.
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "driver/driver.h"

static struct CUmod_st *modules;

struct CUmod_st *module_of(const void *handle) {
    for (struct CUmod_st *one = modules; one; one = one->next)
        if (one == handle) return one;
    return NULL;
}

struct CUmod_st *module_of_function(const Function *function) {
    for (struct CUmod_st *one = modules; one; one = one->next)
        if (one->file == function->file) return one;
    return NULL;
}

static struct CUmod_st *added(const ModuleFile *file) {
    struct CUmod_st *made = calloc(1, sizeof *made);
    Function **functions = calloc(file->header->num_kernels + 1, sizeof *functions);
    if (made == NULL || functions == NULL) abort();
    *made = (struct CUmod_st){modules, file, functions, file->header->num_kernels};
    const StoredModule *stored = MODULE_TABLE(file, StoredModule, modules);
    for (uint32_t k = 0; k < file->header->num_modules; k++) {
        if (stored[k].bytes) memory_add(stored[k].address, stored[k].bytes, MEMORY_MODULE, 0);
        for (uint32_t i = 0; i < stored[k].num_kernels; i++)
            functions[stored[k].first_kernel + i] = function_new(file, k, stored[k].first_kernel + i, NULL);
    }
    return modules = made;
}

CUresult module_load(struct CUmod_st **into, const void *image, size_t bytes, unsigned num_options,
                     const CUjit_option *options, void *const *values) {
    char words[256];
    Arrival arrival;
    if (into == NULL || image == NULL) return CUDA_ERROR_INVALID_VALUE;
    if (bytes == 0) return CUDA_ERROR_INVALID_IMAGE;
    options_words(words, sizeof words, num_options, options, values);
    if (arriving_load(image, bytes, words, &arrival)) {
        session_message("a module cannot be loaded: %s", arrival.told);
        options_tell(arrival.told, num_options, options, values);
        return (CUresult)arrival.error;
    }
    options_tell("", num_options, options, values);
    *into = added(arrival.file);
    return CUDA_SUCCESS;
}

CUresult module_unload(struct CUmod_st *module) {
    for (struct CUmod_st **place = &modules; *place; place = &(*place)->next) {
        if (*place != module) continue;
        *place = module->next;
        const StoredModule *stored = MODULE_TABLE(module->file, StoredModule, modules);
        for (uint32_t k = 0; k < module->file->header->num_modules; k++)
            if (stored[k].bytes) memory_free(stored[k].address, MEMORY_MODULE);
        for (unsigned k = 0; k < module->num_functions; k++) function_forget(module->functions[k]);
        free(module->functions);
        free(module);
        return CUDA_SUCCESS;  // the file stays: graphs may hold its kernels
    }
    return CUDA_ERROR_INVALID_HANDLE;
}

Function *module_function(const struct CUmod_st *module, const char *name) {
    for (unsigned k = 0; k < module->num_functions; k++)
        if (!strcmp(module->functions[k]->kernel.name, name)) return module->functions[k];
    return NULL;
}

CUresult module_variable(const struct CUmod_st *module, const char *name, CUdeviceptr *place, size_t *bytes) {
    const StoredVariable *stored = MODULE_TABLE(module->file, StoredVariable, variables);
    for (uint32_t k = 0; k < module->file->header->num_variables; k++) {
        if (strcmp(module_text(module->file, stored[k].name), name)) continue;
        if (place) *place = stored[k].address;
        if (bytes) *bytes = stored[k].bytes;
        return CUDA_SUCCESS;
    }
    return CUDA_ERROR_NOT_FOUND;
}

CUresult cuModuleLoadDataEx(CUmodule *into, const void *image, unsigned count, CUjit_option *options, void **values) {
    IN_CONTEXT;
    return module_load(into, image, image ? image_bytes(image) : 0, count, options, values);
}

CUresult cuModuleLoadData(CUmodule *into, const void *image) { return cuModuleLoadDataEx(into, image, 0, NULL, NULL); }

CUresult cuModuleLoadFatBinary(CUmodule *into, const void *image) { return cuModuleLoadData(into, image); }

CUresult cuModuleLoad(CUmodule *into, const char *path) {
    IN_CONTEXT;
    size_t bytes = 0;
    if (path == NULL) return CUDA_ERROR_INVALID_VALUE;
    void *content = file_content(path, &bytes);
    if (content == NULL) return CUDA_ERROR_FILE_NOT_FOUND;
    const CUresult result = module_load(into, content, bytes, 0, NULL, NULL);
    free(content);
    return result;
}

CUresult cuModuleUnload(CUmodule module) {
    IN_CONTEXT;
    return module_unload(module);
}

CUresult cuModuleGetFunction(CUfunction *into, CUmodule module, const char *name) {
    IN_CONTEXT;
    if (into == NULL || name == NULL) return CUDA_ERROR_INVALID_VALUE;
    if (module_of(module) == NULL) return CUDA_ERROR_INVALID_HANDLE;
    *into = (CUfunction)module_function(module, name);
    return *into ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

CUresult cuModuleGetGlobal_v2(CUdeviceptr *place, size_t *bytes, CUmodule module, const char *name) {
    IN_CONTEXT;
    if (name == NULL) return CUDA_ERROR_INVALID_VALUE;
    return module_of(module) ? module_variable(module, name, place, bytes) : CUDA_ERROR_INVALID_HANDLE;
}

#if CUDA_VERSION >= 11070
CUresult cuModuleGetLoadingMode(CUmoduleLoadingMode *mode) {
    ENTERED;
    if (mode == NULL) return CUDA_ERROR_INVALID_VALUE;
    *mode = CU_MODULE_EAGER_LOADING;
    return CUDA_SUCCESS;
}
#endif

#if CUDA_VERSION >= 12040
CUresult cuModuleGetFunctionCount(unsigned *count, CUmodule module) {
    IN_CONTEXT;
    if (count == NULL) return CUDA_ERROR_INVALID_VALUE;
    if (module_of(module) == NULL) return CUDA_ERROR_INVALID_HANDLE;
    *count = module->num_functions;
    return CUDA_SUCCESS;
}

CUresult cuModuleEnumerateFunctions(CUfunction *into, unsigned count, CUmodule module) {
    IN_CONTEXT;
    if (into == NULL) return CUDA_ERROR_INVALID_VALUE;
    if (module_of(module) == NULL) return CUDA_ERROR_INVALID_HANDLE;
    for (unsigned k = 0; k < count && k < module->num_functions; k++) into[k] = (CUfunction)module->functions[k];
    return CUDA_SUCCESS;
}
#endif

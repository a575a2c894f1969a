// What the files of the replacement of the CUDA driver share. It stands on the replacement of the runtime, with which it
// shares memory, streams, events, graphs and kernels: handles of one are handles of the other. Symbols are written out as
// the driver exports them (cuMemAlloc_v2), so that no version of cuda.h renames them.
#ifndef MANYSCALE_CUDA_DRIVER_H
#define MANYSCALE_CUDA_DRIVER_H

#include <cuda.h>

#include "runtime.h"

#if CUDA_VERSION < 12000  // which has no such result yet
typedef enum {
    CU_GET_PROC_ADDRESS_SUCCESS,
    CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND,
    CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT
} CUdriverProcAddressQueryResult;
CUresult cuGetProcAddress_v2(const char *name, void **into, int version, cuuint64_t flags,
                             CUdriverProcAddressQueryResult *found);
#endif

// ---- results.c
CUresult result_of(cudaError_t error);  // the driver's name of what the runtime gives
CUresult refused(const char *name);     // a call, or a way to use one, that is not there
const char *result_name(int result);     // generated from cuda.h; NULL: unknown

// ---- contexts.c
bool driver_is_initialised(void);
void driver_initialise(void);
CUcontext context_current(void);        // NULL: none
CUresult context_device(CUdevice *device);

// At the begin of an entry point: what the runtime does from here on leaves its own last error as it is.
#define ENTERED                                                                                             \
    LOCKED;                                                                                                 \
    int depth_here __attribute__((cleanup(errors_leave_driver), unused)) = errors_enter_driver();           \
    if (!driver_is_initialised()) return CUDA_ERROR_NOT_INITIALIZED
#define IN_CONTEXT                                                                                          \
    ENTERED;                                                                                                \
    if (context_current() == NULL) return CUDA_ERROR_INVALID_CONTEXT

// ---- modules.c: CUmodule and CUlibrary are the same
struct CUmod_st {
    struct CUmod_st *next;
    const ModuleFile *file;
    Function **functions;
    unsigned num_functions;
};
CUresult module_load(struct CUmod_st **into, const void *image, size_t bytes, unsigned num_options,
                     const CUjit_option *options, void *const *values);
CUresult module_unload(struct CUmod_st *module);
struct CUmod_st *module_of(const void *handle);              // NULL: none
struct CUmod_st *module_of_function(const Function *function);
Function *module_function(const struct CUmod_st *module, const char *name);
CUresult module_variable(const struct CUmod_st *module, const char *name, CUdeviceptr *place, size_t *bytes);
size_t image_bytes(const void *image);                       // 0: it is nothing that is known
void *file_content(const char *path, size_t *bytes);         // own; NULL: it cannot be read. A zero byte follows

// ---- copies.c
CUresult box_of(struct cudaMemcpy3DParms *into, const CUDA_MEMCPY3D *given);

// ---- launches.c
CUresult arguments_of(const void *handle, void **given, void **extra, void ***into);  // own where it is not `given`

// ---- options.c: of what compiles PTX
void options_words(char *words, size_t room, unsigned count, const CUjit_option *options, void *const *values);
void options_tell(const char *told, unsigned count, const CUjit_option *options, void *const *values);

#endif

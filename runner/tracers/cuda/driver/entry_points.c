// How a program finds the driver's calls.
#include <string.h>

#include "driver/driver.h"
#include "driver/generated.h"

CUresult cuInit(unsigned flags) {
    LOCKED;
    if (flags) return CUDA_ERROR_INVALID_VALUE;
    device();
    driver_initialise();
    return CUDA_SUCCESS;
}

CUresult cuDriverGetVersion(int *version) {
    if (version == NULL) return CUDA_ERROR_INVALID_VALUE;
    *version = CUDA_VERSION;
    return CUDA_SUCCESS;
}

// The newest form of a call that a program of CUDA `version` knows. Those with a default stream for each thread are the
// same here.
static CUresult look_for(const char *name, void **into, int version, CUdriverProcAddressQueryResult *found) {
    const ProcAddress *best = NULL;
    bool is_known = false;
    for (const ProcAddress *each = proc_addresses; each->name; each++) {
        if (strcmp(each->name, name)) continue;
        is_known = true;
        if (each->version <= version && (best == NULL || each->version > best->version)) best = each;
    }
    *into = best ? best->address : NULL;
    if (found)
        *found = best ? CU_GET_PROC_ADDRESS_SUCCESS
                      : is_known ? CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
    return best ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

CUresult cuGetProcAddress_v2(const char *name, void **into, int version, cuuint64_t flags,
                             CUdriverProcAddressQueryResult *found) {
    if (name == NULL || into == NULL || flags > CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM)
        return CUDA_ERROR_INVALID_VALUE;
    const CUresult result = look_for(name, into, version, found);
    return found && *found != CU_GET_PROC_ADDRESS_SUCCESS ? CUDA_SUCCESS : result;
}

// Tables that NVIDIA does not document: NVRTC does without, a runtime that is linked statically into a library does not.
CUresult cuGetExportTable(const void **into, const CUuuid *name) {
    LOCKED;
    (void)name;
    if (into) *into = NULL;
    session_note("cuda-undocumented-tables", "cuGetExportTable");
    return CUDA_ERROR_NOT_FOUND;
}

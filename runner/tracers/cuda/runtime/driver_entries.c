// The driver's calls as the runtime hands them out by their names.
#include <cuda.h>

#include "runtime.h"

#if CUDART_VERSION >= 12000
cudaError_t cudaGetDriverEntryPointByVersion(const char *name, void **into, unsigned version, unsigned long long flags,
                                             enum cudaDriverEntryPointQueryResult *status);

cudaError_t cudaGetDriverEntryPointByVersion(const char *name, void **into, unsigned version, unsigned long long flags,
                                             enum cudaDriverEntryPointQueryResult *status) {
    LOCKED;
    CUdriverProcAddressQueryResult found = CU_GET_PROC_ADDRESS_SUCCESS;
    if (cuInit(0)) return failed(cudaErrorInitializationError);
    const CUresult result = cuGetProcAddress_v2(name, into, (int)version, flags, &found);
    if (status) *status = (enum cudaDriverEntryPointQueryResult)found;
    if (result) return failed(cudaErrorInvalidValue);
    if (status == NULL && found != CU_GET_PROC_ADDRESS_SUCCESS) return failed(cudaErrorSymbolNotFound);
    return done();
}

#undef cudaGetDriverEntryPoint
cudaError_t cudaGetDriverEntryPoint(const char *name, void **into, unsigned long long flags,
                                    enum cudaDriverEntryPointQueryResult *status);
cudaError_t cudaGetDriverEntryPoint(const char *name, void **into, unsigned long long flags,
                                    enum cudaDriverEntryPointQueryResult *status) {
    return cudaGetDriverEntryPointByVersion(name, into, CUDART_VERSION, flags, status);
}
#else
#undef cudaGetDriverEntryPoint
cudaError_t cudaGetDriverEntryPoint(const char *name, void **into, unsigned long long flags);
cudaError_t cudaGetDriverEntryPoint(const char *name, void **into, unsigned long long flags) {
    LOCKED;
    if (cuInit(0)) return failed(cudaErrorInitializationError);
    return cuGetProcAddress(name, into, CUDART_VERSION, flags) ? failed(cudaErrorSymbolNotFound) : done();
}
#endif

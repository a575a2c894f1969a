// Results as the driver gives them: by their numbers most are those of the runtime.
#include "driver/driver.h"

CUresult result_of(cudaError_t error) {
    switch (error) {
        case cudaErrorInvalidConfiguration:
        case cudaErrorInvalidPitchValue:
        case cudaErrorInvalidHostPointer:
        case cudaErrorInvalidDevicePointer:
        case cudaErrorInvalidMemcpyDirection:
        case cudaErrorMissingConfiguration: return CUDA_ERROR_INVALID_VALUE;
        case cudaErrorInvalidSymbol: return CUDA_ERROR_NOT_FOUND;
        case cudaErrorInvalidDeviceFunction: return CUDA_ERROR_INVALID_HANDLE;
        default: return (CUresult)error;
    }
}

CUresult refused(const char *name) {
    int depth_here __attribute__((cleanup(errors_leave_driver), unused)) = errors_enter_driver();
    return result_of(not_supported(name));
}

CUresult cuGetErrorName(CUresult error, const char **name) {
    if (name == NULL) return CUDA_ERROR_INVALID_VALUE;
    *name = result_name((int)error);
    return *name ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuGetErrorString(CUresult error, const char **text) {
    if (text == NULL) return CUDA_ERROR_INVALID_VALUE;
    *text = result_name((int)error) ? cudaGetErrorString((cudaError_t)error) : NULL;
    return *text ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

// Errors as CUDA reports them: the last one of each thread, and the one that a launch leaves for good.
#include <string.h>

#include "runtime.h"

static _Thread_local cudaError_t last = cudaSuccess;
static cudaError_t for_good = cudaSuccess;  // of the process: what a kernel did cannot be undone

static _Thread_local int depth_in_driver;  // calls of the driver's interface that run
static _Thread_local bool is_used;

int errors_enter_driver(void) { return depth_in_driver++; }

void errors_leave_driver(int *before) { depth_in_driver = *before; }

bool errors_runtime_was_used(void) {
    const bool was_used = is_used;
    is_used = false;
    return was_used;
}

static bool is_used_by_process;

void errors_of_child(void) {
    if (is_used_by_process) for_good = cudaErrorInitializationError;
}

bool errors_runtime_is_used(void) { return is_used_by_process; }

cudaError_t failed(cudaError_t error) {
    is_used_by_process = true;
    if (depth_in_driver) return error;
    is_used = true;
    if (error != cudaSuccess) last = error;
    return error;
}

cudaError_t done(void) { return failed(for_good); }

void stop_for_good(cudaError_t error) {
    if (for_good == cudaSuccess) for_good = error;
}

cudaError_t cudaGetLastError(void) {
    const cudaError_t error = for_good != cudaSuccess ? for_good : last;
    last = cudaSuccess;
    return error;
}

cudaError_t cudaPeekAtLastError(void) { return for_good != cudaSuccess ? for_good : last; }

const char *cudaGetErrorName(cudaError_t error) {
    const char *name = error_name(error);
    return name ? name : "unrecognized error code";
}

// The texts of the errors that programs print; of the others the words of their names.
const char *cudaGetErrorString(cudaError_t error) {
    static const struct {
        int error;
        const char *text;
    } texts[] = {
        {cudaSuccess, "no error"},
        {cudaErrorInvalidValue, "invalid argument"},
        {cudaErrorMemoryAllocation, "out of memory"},
        {cudaErrorInitializationError, "initialization error"},
        {cudaErrorInvalidConfiguration, "invalid configuration argument"},
        {cudaErrorInvalidPitchValue, "invalid pitch argument"},
        {cudaErrorInvalidSymbol, "invalid device symbol"},
        {cudaErrorInvalidHostPointer, "invalid host pointer"},
        {cudaErrorInvalidDevicePointer, "invalid device pointer"},
        {cudaErrorInvalidMemcpyDirection, "invalid copy direction for memcpy"},
        {cudaErrorInsufficientDriver, "CUDA driver version is insufficient for CUDA runtime version"},
        {cudaErrorMissingConfiguration, "__global__ function call is not configured"},
        {cudaErrorInvalidDeviceFunction, "invalid device function"},
        {cudaErrorNoDevice, "no CUDA-capable device is detected"},
        {cudaErrorInvalidDevice, "invalid device ordinal"},
        {cudaErrorInvalidKernelImage, "device kernel image is invalid"},
        {cudaErrorNoKernelImageForDevice, "no kernel image is available for execution on the device"},
        {cudaErrorInvalidPtx, "a PTX JIT compilation failed"},
        {cudaErrorInvalidResourceHandle, "invalid resource handle"},
        {cudaErrorIllegalState, "the operation cannot be performed in the present state"},
        {cudaErrorSymbolNotFound, "named symbol not found"},
        {cudaErrorNotReady, "device not ready"},
        {cudaErrorIllegalAddress, "an illegal memory access was encountered"},
        {cudaErrorLaunchOutOfResources, "too many resources requested for launch"},
        {cudaErrorLaunchTimeout, "the launch timed out and was terminated"},
        {cudaErrorPeerAccessAlreadyEnabled, "peer access is already enabled"},
        {cudaErrorPeerAccessNotEnabled, "peer access has not been enabled"},
        {cudaErrorAssert, "device-side assert triggered"},
        {cudaErrorHostMemoryAlreadyRegistered, "part or all of the requested memory range is already mapped"},
        {cudaErrorHostMemoryNotRegistered, "pointer does not correspond to a registered memory region"},
        {cudaErrorIllegalInstruction, "an illegal instruction was encountered"},
        {cudaErrorMisalignedAddress, "misaligned address"},
        {cudaErrorInvalidAddressSpace, "operation not supported on global/shared address space"},
        {cudaErrorLaunchFailure, "unspecified launch failure"},
        {cudaErrorCooperativeLaunchTooLarge, "too many blocks in cooperative launch"},
        {cudaErrorNotPermitted, "operation not permitted"},
        {cudaErrorNotSupported, "operation not supported"},
        {cudaErrorStreamCaptureUnsupported, "operation not permitted when stream is capturing"},
        {cudaErrorStreamCaptureInvalidated, "operation failed due to a previous error during capture"},
        {cudaErrorGraphExecUpdateFailure,
         "the graph update was not performed because it included changes which violated constraints specific to "
         "instantiated graph update"},
        {cudaErrorUnknown, "unknown error"},
    };
    for (size_t k = 0; k < sizeof texts / sizeof *texts; k++)
        if (texts[k].error == (int)error) return texts[k].text;
    const char *words = error_words(error);
    return words ? words : "unrecognized error code";
}

// A call of the documented interface that is not there: told once for each name, counted, and never taken for done.
cudaError_t not_supported(const char *name) {
    static const char *told[64];
    static int num_told;
    LOCKED;
    session_note("cuda-not-supported", name);
    for (int k = 0; k < num_told; k++)
        if (told[k] == name) return failed(cudaErrorNotSupported);
    session_message("%s is not supported", name);
    if (num_told < 64) told[num_told++] = name;
    return failed(cudaErrorNotSupported);
}

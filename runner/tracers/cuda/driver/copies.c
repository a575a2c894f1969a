// Copies and sets.
#include <string.h>

#include "driver/driver.h"

#define COPIES(name, To, to, From, from, direction)                                                    \
    CUresult name##_v2(To to, From from, size_t bytes) {                                               \
        IN_CONTEXT;                                                                                    \
        return result_of(cudaMemcpy((void *)to, (const void *)from, bytes, direction));                \
    }                                                                                                  \
    CUresult name##Async_v2(To to, From from, size_t bytes, CUstream stream) {                         \
        IN_CONTEXT;                                                                                    \
        return result_of(cudaMemcpyAsync((void *)to, (const void *)from, bytes, direction, stream));   \
    }
COPIES(cuMemcpyHtoD, CUdeviceptr, to, const void *, from, cudaMemcpyHostToDevice)
COPIES(cuMemcpyDtoH, void *, to, CUdeviceptr, from, cudaMemcpyDeviceToHost)
COPIES(cuMemcpyDtoD, CUdeviceptr, to, CUdeviceptr, from, cudaMemcpyDeviceToDevice)

CUresult cuMemcpy(CUdeviceptr to, CUdeviceptr from, size_t bytes) {
    IN_CONTEXT;
    return result_of(cudaMemcpy((void *)to, (const void *)from, bytes, cudaMemcpyDefault));
}

CUresult cuMemcpyAsync(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream) {
    IN_CONTEXT;
    return result_of(cudaMemcpyAsync((void *)to, (const void *)from, bytes, cudaMemcpyDefault, stream));
}

static CUresult peer_copy(CUdeviceptr to, CUcontext into, CUdeviceptr from, CUcontext out_of, size_t bytes, CUstream stream) {
    CUdevice to_device = 0, from_device = 0;
    if (cuCtxPushCurrent_v2(into)) return CUDA_ERROR_INVALID_CONTEXT;
    context_device(&to_device);
    cuCtxPopCurrent_v2(NULL);
    if (cuCtxPushCurrent_v2(out_of)) return CUDA_ERROR_INVALID_CONTEXT;
    context_device(&from_device);
    cuCtxPopCurrent_v2(NULL);
    return result_of(cudaMemcpyPeerAsync((void *)to, to_device, (const void *)from, from_device, bytes, stream));
}

CUresult cuMemcpyPeerAsync(CUdeviceptr to, CUcontext into, CUdeviceptr from, CUcontext out_of, size_t bytes, CUstream stream) {
    IN_CONTEXT;
    return peer_copy(to, into, from, out_of, bytes, stream);
}

CUresult cuMemcpyPeer(CUdeviceptr to, CUcontext into, CUdeviceptr from, CUcontext out_of, size_t bytes) {
    IN_CONTEXT;
    return peer_copy(to, into, from, out_of, bytes, NULL);
}

// Boxes, as the runtime's copies of boxes are given. A side's memory is the host's, the device's, or either.

static enum cudaMemcpyKind direction_of(CUmemorytype from, CUmemorytype to) {
    if (from == CU_MEMORYTYPE_UNIFIED || to == CU_MEMORYTYPE_UNIFIED) return cudaMemcpyDefault;
    if (from == CU_MEMORYTYPE_HOST) return to == CU_MEMORYTYPE_HOST ? cudaMemcpyHostToHost : cudaMemcpyHostToDevice;
    return to == CU_MEMORYTYPE_HOST ? cudaMemcpyDeviceToHost : cudaMemcpyDeviceToDevice;
}

static bool is_kind(CUmemorytype kind) { return kind >= CU_MEMORYTYPE_HOST && kind <= CU_MEMORYTYPE_UNIFIED; }

static struct cudaPitchedPtr side(CUmemorytype kind, const void *host, CUdeviceptr place, size_t pitch, size_t height,
                                  size_t width) {
    void *start = kind == CU_MEMORYTYPE_HOST ? (void *)host : (void *)place;
    return (struct cudaPitchedPtr){start, pitch ? pitch : width, width, height};
}

CUresult box_of(struct cudaMemcpy3DParms *into, const CUDA_MEMCPY3D *given) {
    if (given == NULL || !is_kind(given->srcMemoryType) || !is_kind(given->dstMemoryType) || given->srcLOD || given->dstLOD)
        return CUDA_ERROR_INVALID_VALUE;
    *into = (struct cudaMemcpy3DParms){.srcPos = {given->srcXInBytes, given->srcY, given->srcZ},
                                       .dstPos = {given->dstXInBytes, given->dstY, given->dstZ},
                                       .extent = {given->WidthInBytes, given->Height, given->Depth},
                                       .kind = direction_of(given->srcMemoryType, given->dstMemoryType)};
    if (given->srcMemoryType == CU_MEMORYTYPE_ARRAY || given->dstMemoryType == CU_MEMORYTYPE_ARRAY)
        return refused("cuMemcpy of boxes from and to arrays");  // whose positions and widths count elements
    const size_t width = given->WidthInBytes, height = given->Height;
    into->srcPtr = side(given->srcMemoryType, given->srcHost, given->srcDevice, given->srcPitch,
                        given->srcHeight ? given->srcHeight : height, width);
    into->dstPtr = side(given->dstMemoryType, given->dstHost, given->dstDevice, given->dstPitch,
                        given->dstHeight ? given->dstHeight : height, width);
    return CUDA_SUCCESS;
}

static CUresult copy_box(const CUDA_MEMCPY3D *given, CUstream stream) {
    struct cudaMemcpy3DParms box;
    const CUresult result = box_of(&box, given);
    return result ? result : result_of(cudaMemcpy3DAsync(&box, stream));
}

CUresult cuMemcpy3DAsync_v2(const CUDA_MEMCPY3D *given, CUstream stream) {
    IN_CONTEXT;
    return copy_box(given, stream);
}

CUresult cuMemcpy3D_v2(const CUDA_MEMCPY3D *given) {
    IN_CONTEXT;
    return copy_box(given, NULL);
}

static CUresult copy_rectangle(const CUDA_MEMCPY2D *given, CUstream stream) {
    if (given == NULL) return CUDA_ERROR_INVALID_VALUE;
    const CUDA_MEMCPY3D box = {
        .srcXInBytes = given->srcXInBytes, .srcY = given->srcY, .srcMemoryType = given->srcMemoryType,
        .srcHost = given->srcHost, .srcDevice = given->srcDevice, .srcArray = given->srcArray, .srcPitch = given->srcPitch,
        .dstXInBytes = given->dstXInBytes, .dstY = given->dstY, .dstMemoryType = given->dstMemoryType,
        .dstHost = given->dstHost, .dstDevice = given->dstDevice, .dstArray = given->dstArray, .dstPitch = given->dstPitch,
        .WidthInBytes = given->WidthInBytes, .Height = given->Height, .Depth = 1};
    return copy_box(&box, stream);
}

CUresult cuMemcpy2DAsync_v2(const CUDA_MEMCPY2D *given, CUstream stream) {
    IN_CONTEXT;
    return copy_rectangle(given, stream);
}

CUresult cuMemcpy2D_v2(const CUDA_MEMCPY2D *given) {
    IN_CONTEXT;
    return copy_rectangle(given, NULL);
}

CUresult cuMemcpy2DUnaligned_v2(const CUDA_MEMCPY2D *given) { return cuMemcpy2D_v2(given); }

// Sets: of elements of 1, 2 or 4 bytes

static CUresult set(CUdeviceptr to, size_t pitch, unsigned value, unsigned element, size_t width, size_t height,
                    CUstream stream) {
    if (to % element) return CUDA_ERROR_INVALID_VALUE;
    Operation operation = {.kind = OP_SET, .to = (char *)to, .to_pitch = pitch, .to_slice = pitch * height,
                           .width = width * element, .height = height, .depth = 1, .value = value, .element = element};
    return result_of(submit(stream, &operation));
}

#define ADDS_SETS(bits, Value)                                                                                           \
    CUresult cuMemsetD##bits##_v2(CUdeviceptr to, Value value, size_t count) {                                           \
        IN_CONTEXT;                                                                                                      \
        return set(to, count * (bits / 8), value, bits / 8, count, 1, NULL);                                             \
    }                                                                                                                    \
    CUresult cuMemsetD##bits##Async(CUdeviceptr to, Value value, size_t count, CUstream stream) {                        \
        IN_CONTEXT;                                                                                                      \
        return set(to, count * (bits / 8), value, bits / 8, count, 1, stream);                                           \
    }                                                                                                                    \
    CUresult cuMemsetD2D##bits##_v2(CUdeviceptr to, size_t pitch, Value value, size_t width, size_t height) {            \
        IN_CONTEXT;                                                                                                      \
        return set(to, pitch, value, bits / 8, width, height, NULL);                                                     \
    }                                                                                                                    \
    CUresult cuMemsetD2D##bits##Async(CUdeviceptr to, size_t pitch, Value value, size_t width, size_t height, CUstream stream) { \
        IN_CONTEXT;                                                                                                      \
        return set(to, pitch, value, bits / 8, width, height, stream);                                                   \
    }
ADDS_SETS(8, unsigned char)
ADDS_SETS(16, unsigned short)
ADDS_SETS(32, unsigned int)

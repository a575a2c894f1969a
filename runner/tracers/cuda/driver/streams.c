// Streams and events, which are the runtime's.
#include "driver/driver.h"

CUresult cuStreamCreate(CUstream *into, unsigned flags) {
    IN_CONTEXT;
    return result_of(cudaStreamCreateWithFlags(into, flags));
}

CUresult cuStreamCreateWithPriority(CUstream *into, unsigned flags, int priority) {
    IN_CONTEXT;
    return result_of(cudaStreamCreateWithPriority(into, flags, priority));
}

CUresult cuStreamDestroy_v2(CUstream stream) {
    IN_CONTEXT;
    return result_of(cudaStreamDestroy(stream));
}

CUresult cuStreamSynchronize(CUstream stream) {
    IN_CONTEXT;
    return result_of(cudaStreamSynchronize(stream));
}

CUresult cuStreamQuery(CUstream stream) {
    IN_CONTEXT;
    return result_of(cudaStreamQuery(stream));
}

CUresult cuStreamWaitEvent(CUstream stream, CUevent event, unsigned flags) {
    IN_CONTEXT;
    return result_of(cudaStreamWaitEvent(stream, event, flags));
}

CUresult cuStreamGetPriority(CUstream stream, int *priority) {
    IN_CONTEXT;
    return priority ? result_of(cudaStreamGetPriority(stream, priority)) : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuStreamGetFlags(CUstream stream, unsigned *flags) {
    IN_CONTEXT;
    return flags ? result_of(cudaStreamGetFlags(stream, flags)) : CUDA_ERROR_INVALID_VALUE;
}

#if CUDA_VERSION >= 12000
CUresult cuStreamGetId(CUstream stream, unsigned long long *id) {
    IN_CONTEXT;
    return id ? result_of(cudaStreamGetId(stream, id)) : CUDA_ERROR_INVALID_VALUE;
}
#endif

CUresult cuStreamGetCtx(CUstream stream, CUcontext *into) {
    IN_CONTEXT;
    if (into == NULL) return CUDA_ERROR_INVALID_VALUE;
    if (stream_of(stream) == NULL) return CUDA_ERROR_INVALID_HANDLE;
    *into = context_current();
    return CUDA_SUCCESS;
}

#if CUDA_VERSION >= 13000
CUresult cuStreamGetDevice(CUstream stream, CUdevice *into) {
    IN_CONTEXT;
    if (into == NULL) return CUDA_ERROR_INVALID_VALUE;
    return stream_of(stream) ? context_device(into) : CUDA_ERROR_INVALID_HANDLE;
}
#endif

CUresult cuStreamAttachMemAsync(CUstream stream, CUdeviceptr place, size_t bytes, unsigned flags) {
    IN_CONTEXT;
    return result_of(cudaStreamAttachMemAsync(stream, (void *)place, bytes, flags));
}

CUresult cuStreamAddCallback(CUstream stream, CUstreamCallback callback, void *user, unsigned flags) {
    IN_CONTEXT;
    return result_of(cudaStreamAddCallback(stream, (cudaStreamCallback_t)callback, user, flags));
}

// Capture

CUresult cuStreamBeginCapture_v2(CUstream stream, CUstreamCaptureMode mode) {
    IN_CONTEXT;
    return result_of(cudaStreamBeginCapture(stream, (enum cudaStreamCaptureMode)mode));
}

CUresult cuStreamEndCapture(CUstream stream, CUgraph *into) {
    IN_CONTEXT;
    return into ? result_of(cudaStreamEndCapture(stream, into)) : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuStreamIsCapturing(CUstream stream, CUstreamCaptureStatus *into) {
    IN_CONTEXT;
    enum cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    if (into == NULL) return CUDA_ERROR_INVALID_VALUE;
    const cudaError_t error = cudaStreamIsCapturing(stream, &status);
    *into = (CUstreamCaptureStatus)status;
    return result_of(error);
}

// What a capture adds runs in the order in which it was added, so that the next node depends on the last one.
static CUresult capture_of(CUstream given, CUstreamCaptureStatus *status, cuuint64_t *id, CUgraph *graph,
                           const CUgraphNode **before, size_t *count) {
    const Stream *stream = stream_of(given);
    if (status == NULL) return CUDA_ERROR_INVALID_VALUE;
    if (stream == NULL) return CUDA_ERROR_INVALID_HANDLE;
    const CUgraphNode *last = stream->capture ? graph_last(stream->capture) : NULL;
    *status = stream->capture ? CU_STREAM_CAPTURE_STATUS_ACTIVE : CU_STREAM_CAPTURE_STATUS_NONE;
    if (stream->capture == NULL) return CUDA_SUCCESS;
    if (id) *id = (cuuint64_t)(uintptr_t)stream->capture;
    if (graph) *graph = (CUgraph)stream->capture;
    if (before) *before = last;
    if (count) *count = last != NULL;
    return CUDA_SUCCESS;
}

#if CUDA_VERSION >= 11030
CUresult cuStreamGetCaptureInfo_v2(CUstream stream, CUstreamCaptureStatus *status, cuuint64_t *id, CUgraph *graph,
                                   const CUgraphNode **before, size_t *count);
CUresult cuStreamGetCaptureInfo_v2(CUstream stream, CUstreamCaptureStatus *status, cuuint64_t *id, CUgraph *graph,
                                   const CUgraphNode **before, size_t *count) {
    IN_CONTEXT;
    return capture_of(stream, status, id, graph, before, count);
}
#endif

#if CUDA_VERSION >= 12030
CUresult cuStreamGetCaptureInfo_v3(CUstream stream, CUstreamCaptureStatus *status, cuuint64_t *id, CUgraph *graph,
                                   const CUgraphNode **before, const CUgraphEdgeData **edges, size_t *count) {
    IN_CONTEXT;
    if (edges) *edges = NULL;
    return capture_of(stream, status, id, graph, before, count);
}
#endif

CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode *mode) {
    ENTERED;
    return mode ? result_of(cudaThreadExchangeStreamCaptureMode((enum cudaStreamCaptureMode *)mode))
                : CUDA_ERROR_INVALID_VALUE;
}

// Events

CUresult cuEventCreate(CUevent *into, unsigned flags) {
    IN_CONTEXT;
    return into ? result_of(cudaEventCreateWithFlags(into, flags)) : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuEventDestroy_v2(CUevent event) {
    IN_CONTEXT;
    return result_of(cudaEventDestroy(event));
}

CUresult cuEventRecord(CUevent event, CUstream stream) {
    IN_CONTEXT;
    return result_of(cudaEventRecord(event, stream));
}

CUresult cuEventRecordWithFlags(CUevent event, CUstream stream, unsigned flags) {
    IN_CONTEXT;
    return result_of(cudaEventRecordWithFlags(event, stream, flags));
}

CUresult cuEventSynchronize(CUevent event) {
    IN_CONTEXT;
    return result_of(cudaEventSynchronize(event));
}

CUresult cuEventQuery(CUevent event) {
    IN_CONTEXT;
    return result_of(cudaEventQuery(event));
}

#undef cuEventElapsedTime
CUresult cuEventElapsedTime(float *milliseconds, CUevent from, CUevent to);
CUresult cuEventElapsedTime_v2(float *milliseconds, CUevent from, CUevent to);

CUresult cuEventElapsedTime(float *milliseconds, CUevent from, CUevent to) {
    IN_CONTEXT;
    return result_of(cudaEventElapsedTime(milliseconds, from, to));
}

CUresult cuEventElapsedTime_v2(float *milliseconds, CUevent from, CUevent to) {
    return cuEventElapsedTime(milliseconds, from, to);
}

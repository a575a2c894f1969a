// Streams and events. A stream's work is done when a call returns, so that all waiting is over at once; events hold the
// host's time at which they were recorded, which is the time that the emulation took.
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "runtime.h"

struct CUevent_st {
    struct CUevent_st *next;
    unsigned flags;
    bool is_recorded;
    int number, device;
    struct timespec at;
    Graph *capture;  // in which it was recorded
};

static Stream default_streams[MOST_DEVICES];
static Stream *streams;
static struct CUevent_st *all_events;
static unsigned long long num_made;
static int num_events;

Stream *stream_of(cudaStream_t given) {
    if (given == NULL || given == cudaStreamLegacy || given == cudaStreamPerThread) {
        Stream *own = &default_streams[current_device()];
        own->device = current_device();
        if (own->device && own->id == 0) own->id = ++num_made;  // that of the first device is 0
        return own;
    }
    for (Stream *one = streams; one; one = one->next)
        if (one == given) return one;
    return NULL;
}

bool stream_is_default(const Stream *stream) {
    return stream >= default_streams && stream < default_streams + MOST_DEVICES;
}

void streams_end_capture(const Graph *graph) {
    for (Stream *one = streams; one; one = one->next)
        if (one->capture == graph) one->capture = NULL, one->is_capture_origin = false;
    for (struct CUevent_st *one = all_events; one; one = one->next)
        if (one->capture == graph) one->capture = NULL;
}

cudaError_t cudaStreamCreateWithPriority(cudaStream_t *into, unsigned flags, int priority) {
    LOCKED;
    if (into == NULL || flags > cudaStreamNonBlocking) return failed(cudaErrorInvalidValue);
    Stream *made = calloc(1, sizeof *made);
    if (made == NULL) return failed(cudaErrorMemoryAllocation);
    *made = (Stream){.next = streams, .flags = flags, .priority = priority < -5 ? -5 : priority > 0 ? 0 : priority,
                     .device = current_device(), .id = ++num_made};
    streams = made;
    *into = made;
    return done();
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *into, unsigned flags) {
    return cudaStreamCreateWithPriority(into, flags, 0);
}

cudaError_t cudaStreamCreate(cudaStream_t *into) { return cudaStreamCreateWithPriority(into, 0, 0); }

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
    LOCKED;
    for (Stream **place = &streams; *place; place = &(*place)->next)
        if (*place == stream) {
            *place = stream->next;
            free(stream);
            return done();
        }
    return failed(cudaErrorInvalidResourceHandle);
}

static cudaError_t waited(cudaStream_t given) {
    LOCKED;
    const Stream *stream = stream_of(given);
    if (stream == NULL) return failed(cudaErrorInvalidResourceHandle);
    return stream->capture ? failed(cudaErrorStreamCaptureUnsupported) : done();
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
    LOCKED;
    const cudaError_t error = waited(stream);
    if (error == cudaSuccess) call_made(CALL_SYNCHRONIZE_STREAM, stream_of(stream), 0, 0);
    return error;
}

cudaError_t cudaStreamQuery(cudaStream_t stream) { return waited(stream); }

cudaError_t cudaStreamGetPriority(cudaStream_t given, int *priority) {
    const Stream *stream = stream_of(given);
    if (stream == NULL) return failed(cudaErrorInvalidResourceHandle);
    *priority = stream->priority;
    return done();
}

cudaError_t cudaStreamGetFlags(cudaStream_t given, unsigned *flags) {
    const Stream *stream = stream_of(given);
    if (stream == NULL) return failed(cudaErrorInvalidResourceHandle);
    *flags = stream->flags;
    return done();
}

#if CUDART_VERSION >= 12000
cudaError_t cudaStreamGetId(cudaStream_t given, unsigned long long *id) {
    const Stream *stream = stream_of(given);
    if (stream == NULL) return failed(cudaErrorInvalidResourceHandle);
    *id = stream->id;
    return done();
}
#endif

cudaError_t cudaStreamAddCallback(cudaStream_t given, cudaStreamCallback_t callback, void *user, unsigned flags) {
    {
        LOCKED;
        const Stream *stream = stream_of(given);
        if (callback == NULL || flags) return failed(cudaErrorInvalidValue);
        if (stream == NULL) return failed(cudaErrorInvalidResourceHandle);
        if (stream->capture) return failed(cudaErrorStreamCaptureUnsupported);
    }
    callback(given, done(), user);
    return done();
}

// Events

static struct CUevent_st *event_of(cudaEvent_t given) {
    for (struct CUevent_st *one = all_events; one; one = one->next)
        if (one == given) return one;
    return NULL;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *into, unsigned flags) {
    LOCKED;
    if (into == NULL) return failed(cudaErrorInvalidValue);
    if (flags & cudaEventInterprocess) return not_supported("cudaEventCreateWithFlags between processes");
    struct CUevent_st *made = calloc(1, sizeof *made);
    if (made == NULL) return failed(cudaErrorMemoryAllocation);
    *made = (struct CUevent_st){.next = all_events, .flags = flags, .number = ++num_events, .device = current_device()};
    all_events = made;
    *into = made;
    return done();
}

cudaError_t cudaEventCreate(cudaEvent_t *into) { return cudaEventCreateWithFlags(into, 0); }

cudaError_t cudaEventDestroy(cudaEvent_t event) {
    LOCKED;
    for (struct CUevent_st **place = &all_events; *place; place = &(*place)->next)
        if (*place == event) {
            *place = event->next;
            free(event);
            return done();
        }
    return failed(cudaErrorInvalidResourceHandle);
}

cudaError_t cudaEventRecordWithFlags(cudaEvent_t given, cudaStream_t on, unsigned flags) {
    LOCKED;
    struct CUevent_st *event = event_of(given);
    const Stream *stream = stream_of(on);
    if (event == NULL || stream == NULL) return failed(cudaErrorInvalidResourceHandle);
    if (event->device != stream->device) return failed(cudaErrorInvalidResourceHandle);
    if (stream->capture && flags == cudaEventRecordExternal) {
        Operation operation = {.kind = OP_EVENT, .event = given};
        return submit(on, &operation);
    }
    event->capture = stream->capture;
    event->is_recorded = stream->capture == NULL;
    clock_gettime(CLOCK_MONOTONIC, &event->at);
    if (event->is_recorded) call_made(CALL_RECORD_EVENT, stream, 0, event->number);
    return done();
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) { return cudaEventRecordWithFlags(event, stream, 0); }

// A stream that waits for an event of a capture belongs to it from then on.
cudaError_t cudaStreamWaitEvent(cudaStream_t on, cudaEvent_t given, unsigned flags) {
    LOCKED;
    (void)flags;
    struct CUevent_st *event = event_of(given);
    Stream *stream = stream_of(on);
    if (event == NULL || stream == NULL) return failed(cudaErrorInvalidResourceHandle);
    if (event->capture && stream->capture == NULL && !stream_is_default(stream)) stream->capture = event->capture;
    if (event->is_recorded && !stream->capture) call_made(CALL_WAIT_EVENT, stream, 0, event->number);
    return done();
}

static cudaError_t event_waited(cudaEvent_t given) {
    LOCKED;
    const struct CUevent_st *event = event_of(given);
    if (event == NULL) return failed(cudaErrorInvalidResourceHandle);
    return event->capture ? failed(cudaErrorCapturedEvent) : done();
}

cudaError_t cudaEventSynchronize(cudaEvent_t given) {
    LOCKED;
    const cudaError_t error = event_waited(given);
    if (error == cudaSuccess) call_made(CALL_SYNCHRONIZE_EVENT, NULL, 0, event_of(given)->number);
    return error;
}

cudaError_t cudaEventQuery(cudaEvent_t event) { return event_waited(event); }

cudaError_t cudaEventElapsedTime(float *milliseconds, cudaEvent_t from, cudaEvent_t to) {
    LOCKED;
    const struct CUevent_st *start = event_of(from), *end = event_of(to);
    if (milliseconds == NULL || start == NULL || end == NULL || start->device != end->device || !start->is_recorded || !end->is_recorded ||
        (start->flags | end->flags) & cudaEventDisableTiming)
        return failed(cudaErrorInvalidResourceHandle);
    session_note("cuda-host-times", "cudaEventElapsedTime");
    *milliseconds = (float)((double)(end->at.tv_sec - start->at.tv_sec) * 1e3 +
                            (double)(end->at.tv_nsec - start->at.tv_nsec) * 1e-6);
    return done();
}

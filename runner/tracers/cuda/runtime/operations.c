// What streams are given, one form for all: run at once, or kept in a graph and run when that is launched.
#include <stdlib.h>
#include <string.h>

#include "runtime.h"

static bool is_inside(const void *start, size_t pitch, size_t slice, const Operation *operation) {
    if (operation->width == 0 || operation->height == 0 || operation->depth == 0) return true;
    const uint64_t last = (operation->depth - 1) * slice + (operation->height - 1) * pitch + operation->width;
    return memory_is_allocated((uint64_t)start, last);
}

// Which side of a copy has to be memory of the device; what the host has is not known.
static cudaError_t check_copy(const Operation *operation) {
    const enum cudaMemcpyKind kind = operation->direction;
    if (kind < cudaMemcpyHostToHost || kind > cudaMemcpyDefault) return cudaErrorInvalidMemcpyDirection;
    const ArrayPlace *to = &operation->to_place, *from = &operation->from_place;
    if ((to->array && !array_holds(to, operation)) || (from->array && !array_holds(from, operation)))
        return cudaErrorInvalidValue;
    const bool writes = kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice ||
                        (kind == cudaMemcpyDefault && memory_find((uint64_t)operation->to));
    const bool reads = kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice ||
                       (kind == cudaMemcpyDefault && memory_find((uint64_t)operation->from));
    if (writes && !to->array && !is_inside(operation->to, operation->to_pitch, operation->to_slice, operation))
        return cudaErrorInvalidValue;
    if (reads && !from->array && !is_inside(operation->from, operation->from_pitch, operation->from_slice, operation))
        return cudaErrorInvalidValue;
    const bool has_both = (operation->to || to->array) && (operation->from || from->array);
    if (operation->width && operation->height && operation->depth && !has_both) return cudaErrorInvalidValue;
    return cudaSuccess;
}

cudaError_t operation_check(const Operation *operation) {
    if (operation->kind == OP_COPY) return check_copy(operation);
    if (operation->kind == OP_SET && !is_inside(operation->to, operation->to_pitch, operation->to_slice, operation))
        return cudaErrorInvalidValue;
    return cudaSuccess;
}

static bool is_of_host(const void *address, const ArrayPlace *place) {
    if (place->array) return false;
    const Allocation *found = memory_find((uint64_t)address);
    return found == NULL || found->kind == MEMORY_HOST || found->kind == MEMORY_REGISTERED;
}

// As enum cudaMemcpyKind has it, by where the two places are.
static int direction_of(const Operation *operation) {
    const bool from_host = is_of_host(operation->from, &operation->from_place);
    return (from_host ? 0 : 2) + (is_of_host(operation->to, &operation->to_place) ? 0 : 1);
}

// Whether the host waits for a copy, and whether memory of the host is pageable. A copy that the program does not wait
// for, from or to pageable memory, goes through a buffer of the driver's, for which the call waits.
static unsigned flags_of_copy(const Operation *operation) {
    const bool from_host = is_of_host(operation->from, &operation->from_place);
    const bool to_host = is_of_host(operation->to, &operation->to_place);
    const bool is_pageable = (from_host && memory_find((uint64_t)operation->from) == NULL) ||
                             (to_host && memory_find((uint64_t)operation->to) == NULL);
    if (!from_host && !to_host) return 0;
    return (copy_is_waited_for() || is_pageable ? FLAG_WAITS : 0) | (is_pageable ? FLAG_PAGEABLE : 0);
}

static int device_of(const void *address, const ArrayPlace *place, int otherwise) {
    const Allocation *found = place->array ? NULL : memory_find((uint64_t)address);
    return found && found->kind == MEMORY_DEVICE ? found->device : otherwise;
}

// The other device of a copy between two, -1 for none; ``flags`` say whether it comes from there.
static int peer_of_copy(const Operation *operation, const Stream *stream, unsigned *flags) {
    const int own = stream ? stream->device : current_device();
    if (direction_of(operation) != cudaMemcpyDeviceToDevice) return -1;
    const int from = device_of(operation->from, &operation->from_place, own);
    const int to = device_of(operation->to, &operation->to_place, own);
    if (from == to) return -1;
    if (from != own) *flags |= FLAG_FROM_PEER;
    return from == own ? to : from;
}

static uint64_t place_of(const Operation *operation) {
    return operation->to_place.array ? array_address(&operation->to_place) : (uint64_t)operation->to;
}

// Rows that follow each other without a gap are one.
static cudaError_t run_copy(const Operation *operation) {
    size_t width = operation->width, height = operation->height, depth = operation->depth;
    if (width == 0 || height == 0 || depth == 0) return cudaSuccess;
    if (is_of_host(operation->from, &operation->from_place) && !is_of_host(operation->to, &operation->to_place))
        session_event("copy %llu %llu %llu", (unsigned long long)launches_made() + 1, (unsigned long long)place_of(operation),
                      (unsigned long long)(width * height * depth));
    if (operation->to_place.array || operation->from_place.array) return run_array_copy(operation);
    if (height > 1 && operation->to_pitch == width && operation->from_pitch == width) width *= height, height = 1;
    for (size_t z = 0; z < depth; z++)
        for (size_t y = 0; y < height; y++)
            memmove(operation->to + z * operation->to_slice + y * operation->to_pitch,
                    operation->from + z * operation->from_slice + y * operation->from_pitch, width);
    return cudaSuccess;
}

// The program's own code, which runs beside the stream: on its clocks, and without the lock.
static void run_host_function(const Operation *operation, const Stream *stream) {
    if (operation->own_function == NULL) call_made(CALL_HOST_FUNCTION, stream, 0, 0);
    const int locks = session_yield();
    if (operation->own_function)
        operation->own_function(operation->user, stream ? stream->id : 0);
    else
        operation->host_function(operation->user);
    session_retake(locks);
}

// For stand-ins of other libraries: their work in a stream, captured and run as any other.
cudaError_t manyscale_stream_call(cudaStream_t stream, void (*function)(void *, unsigned long long), void *user) {
    LOCKED;
    Operation operation = {.kind = OP_HOST, .own_function = function, .user = user};
    return submit(stream, &operation);
}

void manyscale_note(const char *code, const char *name) {
    LOCKED;
    session_note(code, name);
}

static void run_set(const Operation *operation) {
    for (size_t z = 0; z < operation->depth; z++)
        for (size_t y = 0; y < operation->height; y++) {
            char *row = operation->to + z * operation->to_slice + y * operation->to_pitch;
            if (operation->element <= 1) {
                memset(row, (int)operation->value, operation->width);
                continue;
            }
            for (size_t x = 0; x < operation->width; x += operation->element)
                memcpy(row + x, &operation->value, operation->element);
        }
}

cudaError_t run_operation(const Operation *operation, const Stream *stream) {
    const cudaError_t error = operation_check(operation);
    if (error != cudaSuccess) return error;
    if (device()->gpus > 1) modules_of_device(operation->kind == OP_KERNEL && stream ? stream->device : current_device());
    switch (operation->kind) {
        case OP_KERNEL: return run_kernel(operation, stream);
        case OP_COPY: {
            void *record = call_begins(CALL_COPY);
            const cudaError_t copied = run_copy(operation);
            unsigned flags = flags_of_copy(operation);
            const int peer = peer_of_copy(operation, stream, &flags);
            copy_ends(record, stream, operation->width * operation->height * operation->depth, direction_of(operation), flags,
                      peer);
            return copied;
        }
        case OP_SET: {
            void *record = call_begins(CALL_SET);
            run_set(operation);
            call_ends(record, stream, operation->width * operation->height * operation->depth, 0);
            break;
        }
        case OP_HOST: run_host_function(operation, stream); break;
        case OP_EVENT: return cudaEventRecord(operation->event, NULL);
        case OP_GRAPH: return graph_run(operation->child, stream);
        case OP_EMPTY: break;
        case OP_ALLOCATE:  // again, where the program freed it
            if (memory_find((uint64_t)operation->to) == NULL &&
                !memory_add((uint64_t)operation->to, operation->width, MEMORY_DEVICE, 0))
                return cudaErrorMemoryAllocation;
            break;
    }
    return cudaSuccess;
}

cudaError_t submit(cudaStream_t given, Operation *operation) {
    Stream *stream = stream_of(given);
    cudaError_t error = stream ? done() : failed(cudaErrorInvalidResourceHandle);
    if (error == cudaSuccess && stream->capture) {
        error = failed(operation_check(operation));
        if (error == cudaSuccess) {
            graph_add(stream->capture, operation);
            return cudaSuccess;
        }
    } else if (error == cudaSuccess) {
        error = failed(run_operation(operation, stream));
    }
    operation_free(operation);
    return error;
}

Operation operation_copy_of(const Operation *operation) {
    Operation copy = *operation;
    if (operation->parameters) {
        const size_t bytes = operation->function->kernel.parameter_bytes;
        copy.parameters = malloc(bytes ? bytes : 1);
        if (copy.parameters) memcpy(copy.parameters, operation->parameters, bytes);
    }
    if (operation->child) copy.child = graph_clone(operation->child);
    return copy;
}

void operation_free(Operation *operation) {
    free(operation->parameters);
    if (operation->child) graph_free(operation->child);
    operation->parameters = NULL;
    operation->child = NULL;
}

cudaError_t copy_of(Operation *into, void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width,
                    size_t height, enum cudaMemcpyKind direction) {
    if (height > 1 && (to_pitch < width || from_pitch < width)) return cudaErrorInvalidPitchValue;
    *into = (Operation){.kind = OP_COPY, .to = to, .from = from, .to_pitch = to_pitch, .from_pitch = from_pitch,
                        .width = width, .height = height, .depth = 1, .direction = direction};
    return cudaSuccess;
}

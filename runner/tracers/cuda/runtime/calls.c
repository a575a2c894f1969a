// Records for the tracer of MPI programs, which stands beside this runtime where a program of several ranks is traced:
// so that what a rank gives its GPU stands between its MPI calls. Found by name; without it nothing is recorded here.
#include "runtime.h"

extern void *manyscale_gpu_begin(int call) __attribute__((weak));
extern void manyscale_gpu_end(void *record, int64_t bytes, int64_t receive_bytes, int32_t tag, int32_t receive_tag,
                              int32_t communicator, int32_t peer) __attribute__((weak));

void *call_begins(Call call) { return manyscale_gpu_begin ? manyscale_gpu_begin((int)call) : NULL; }

// In one number: five bits of flags, three of the stream's priority (from 0 down), eight of the device, eight of the
// peer, from 1.
static int32_t packed(const Stream *stream, unsigned flags, int peer) {
    const int on = stream ? stream->device : current_device();
    if (stream == NULL || stream_is_default(stream)) flags |= FLAG_DEFAULT_STREAM;
    else if (stream->flags & cudaStreamNonBlocking) flags |= FLAG_NON_BLOCKING;
    const unsigned priority = stream ? (unsigned)-stream->priority : 0;
    return (int32_t)(flags | priority << 5 | (unsigned)on << 8 | (unsigned)(peer + 1) << 16);
}

void copy_ends(void *record, const Stream *stream, uint64_t bytes, int direction, unsigned flags, int peer) {
    if (record)
        manyscale_gpu_end(record, (int64_t)bytes, stream ? (int64_t)stream->id : 0, direction,
                          packed(stream, flags, peer), -1, -2);
}

void call_ends(void *record, const Stream *stream, uint64_t bytes, int tag) {
    copy_ends(record, stream, bytes, tag, 0, -1);
}

static _Thread_local int num_waits;

int copies_wait(void) { return num_waits++; }

void copies_waited(int *before) { num_waits = *before; }

bool copy_is_waited_for(void) { return num_waits > 0; }

void call_made(Call call, const Stream *stream, uint64_t bytes, int tag) {
    call_ends(call_begins(call), stream, bytes, tag);
}

// Whether an address is in device memory: MPI calls on it are marked.
int manyscale_gpu_owns(const void *address) {
    LOCKED;
    const Allocation *found = memory_find((uint64_t)address);
    return found && found->kind != MEMORY_HOST && found->kind != MEMORY_REGISTERED;
}

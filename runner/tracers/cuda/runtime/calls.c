// Records for the tracer of MPI programs, which stands beside this runtime where a program of several ranks is traced:
// so that what a rank gives its GPU stands between its MPI calls. Found by name; without it nothing is recorded here.
#include "runtime.h"

extern void *manyscale_gpu_begin(int call) __attribute__((weak));
extern void manyscale_gpu_end(void *record, int64_t bytes, int64_t receive_bytes, int32_t tag, int32_t receive_tag,
                              int32_t communicator, int32_t peer) __attribute__((weak));

void *call_begins(Call call) { return manyscale_gpu_begin ? manyscale_gpu_begin((int)call) : NULL; }

void call_ends(void *record, const Stream *stream, uint64_t bytes, int tag) {
    if (record) manyscale_gpu_end(record, (int64_t)bytes, stream ? (int64_t)stream->id : 0, tag, 0, -1, -2);
}

void call_made(Call call, const Stream *stream, uint64_t bytes, int tag) {
    call_ends(call_begins(call), stream, bytes, tag);
}

// Whether an address is in device memory: MPI calls on it are marked.
int manyscale_gpu_owns(const void *address) {
    LOCKED;
    const Allocation *found = memory_find((uint64_t)address);
    return found && found->kind != MEMORY_HOST && found->kind != MEMORY_REGISTERED;
}

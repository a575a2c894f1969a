/* What stand-ins for GPU libraries call, finding it by name: their work is not the program's, and what they did becomes
   records between those of MPI calls. The numbers of the calls are those of readers/raw_trace/gpu_calls.py, counted
   from 0 there. */
#define _GNU_SOURCE
#include "trace.h"

#include <stdio.h>

#define EXPORTED __attribute__((visibility("default")))

extern const unsigned ms_first_gpu_call MS_HIDDEN; /* generated */
void ms_define_calls(void) MS_HIDDEN;
/* of the MPI parts, where they are built */
void ms_open_key(struct ms_operation *operation, uint64_t key) MS_HIDDEN __attribute__((weak));
void ms_complete_key(struct ms_operation *operation, uint64_t key) MS_HIDDEN __attribute__((weak));
int32_t ms_number_members(const int32_t *world, int size) MS_HIDDEN __attribute__((weak));

/* The calling thread enters a stand-in and leaves it; in between its clocks stand still. */
EXPORTED void manyscale_gpu_enter(void) {
    if (ms.active && ms_own_thread() && !ms.depth && !ms.pauses++) ms_pause();
}

EXPORTED void manyscale_gpu_leave(void) {
    if (ms.active && ms_own_thread() && !ms.depth && ms.pauses && !--ms.pauses) ms_resume();
}

/* A record begins: what the program did before belongs to it. NULL where nothing is recorded. */
EXPORTED struct ms_operation *manyscale_gpu_begin(int call) {
    if (!ms_start()) return NULL;
    ms_define_calls();
    if (ms_own_thread() && ms.pauses) ms_resume();
    struct ms_operation *operation = ms_begin(ms_first_gpu_call + (unsigned)call);
    if (!operation) ms_end(NULL, 1);
    return operation;
}

EXPORTED void manyscale_gpu_end(struct ms_operation *operation, int64_t bytes, int64_t receive_bytes, int32_t tag,
                                int32_t receive_tag, int32_t communicator, int32_t peer) {
    if (!operation) return;
    operation->bytes = bytes;
    operation->receive_bytes = receive_bytes;
    operation->tag = tag;
    operation->receive_tag = receive_tag;
    operation->communicator = communicator;
    operation->peer = peer;
    ms_end(operation, 1);
    if (ms_own_thread() && ms.pauses) ms_pause();
}

/* Of messages: what ``key`` stands for opens, and is complete. */
static uint64_t first_key;
static int32_t num_opened; /* where no MPI numbers requests */

EXPORTED void manyscale_gpu_open(struct ms_operation *operation, uint64_t key) {
    if (!operation) return;
    if (ms_open_key) {
        ms_open_key(operation, key);
        return;
    }
    if (!num_opened) first_key = key;
    operation->request = (int32_t)(key - first_key);
    num_opened++;
}

EXPORTED void manyscale_gpu_complete(struct ms_operation *operation, uint64_t key) {
    if (!operation) return;
    if (ms_complete_key) {
        ms_complete_key(operation, key);
        return;
    }
    ms_list(operation, (int64_t)(key - first_key));
    ms_list(operation, -2);
    ms_list(operation, 0);
    ms_list(operation, 0);
}

EXPORTED void manyscale_gpu_list(struct ms_operation *operation, int64_t value) {
    if (operation) ms_list(operation, value);
}

/* The rank and the number of ranks of this process; false where MPI has not told them. */
EXPORTED int manyscale_gpu_rank(int *rank, int *size) {
    if (!ms_start() || ms.num_ranks == 0) return 0;
    *rank = ms.rank;
    *size = ms.num_ranks;
    return 1;
}

/* The same said by a library that is not MPI, to which these processes are all. */
EXPORTED void manyscale_gpu_set_rank(int rank, int size, const char *library) {
    if (!ms_start() || ms.num_ranks) return;
    ms_set_rank(rank, size, library);
}

/* A communicator of these ranks: its number. */
EXPORTED int32_t manyscale_gpu_communicator(const int32_t *world, int size) {
    static int32_t next = 2;
    if (!ms_start()) return -1;
    if (ms_number_members) return ms_number_members(world, size);
    char text[12 * 1000 + 1];
    size_t length = 0;
    for (int i = 0; i < size && i < 1000; i++)
        length += (size_t)sprintf(text + length, "%s%d", i ? "," : "", world[i]);
    ms_define("{\"communicator\": %d, \"parent\": -1, \"members\": [%s]}", next, text);
    return next++;
}

// What the files of the replacement of NCCL share: the public interface, as NVIDIA's documentation describes it ("NCCL
// User Guide", API), and the messages between the ranks of a communicator.
//
// A rank writes what it gives into logs: files in the folder of the session, mapped by all processes. Of each
// communicator it has one that all its ranks read, for collectives, and one for each rank that it sends messages to.
// Nobody waits to write; who reads waits until it is there. Every rank of a collective reads what all have written and
// combines it itself, in the order of the ranks, so that all have the same result to the last bit.
#ifndef MANYSCALE_NCCL_H
#define MANYSCALE_NCCL_H

#include <cuda_runtime_api.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { MOST_RANKS = 1024, UNIQUE_ID_BYTES = 128, VERSION = 22809 };

typedef enum {
    ncclSuccess, ncclUnhandledCudaError, ncclSystemError, ncclInternalError, ncclInvalidArgument, ncclInvalidUsage,
    ncclRemoteError, ncclInProgress
} ncclResult_t;
typedef enum {
    TYPE_INT8, TYPE_UINT8, TYPE_INT32, TYPE_UINT32, TYPE_INT64, TYPE_UINT64, TYPE_HALF, TYPE_FLOAT, TYPE_DOUBLE,
    TYPE_BFLOAT16, TYPE_E4M3, TYPE_E5M2, NUM_TYPES
} ncclDataType_t;
typedef enum { OP_SUM, OP_PROD, OP_MAX, OP_MIN, OP_AVG, NUM_OPS } ncclRedOp_t;  // those above are made by programs
typedef struct {
    char internal[UNIQUE_ID_BYTES];
} ncclUniqueId;
typedef struct ncclComm *ncclComm_t;
ncclResult_t ncclGetUniqueId(ncclUniqueId *id);
ncclResult_t ncclGroupStart(void);
ncclResult_t ncclGroupEnd(void);

// ---- log.c
typedef struct {  // what a message is; of ranks that do not agree the call is refused
    uint32_t kind, type, operation, root;
    uint64_t count;
} About;
typedef struct Log Log;
Log *log_open(const char *name, int num_readers);  // NULL: it cannot be made
void log_close(Log *log, bool is_last);
void *log_reserve(Log *log, uint64_t bytes);       // room for the next message; NULL: there is none
void log_post(Log *log, uint64_t bytes, About about);
// The next message for a reader, once it is there; NULL where ``is_over`` said so meanwhile.
const void *log_read(Log *log, int reader, About *about, bool (*is_over)(void *), void *user);
void log_taken(Log *log, int reader);

// ---- reduce.c
size_t type_bytes(ncclDataType_t type);  // 0: no type
bool type_is_reduced(ncclDataType_t type);
void reduce(void *into, const void *from, size_t count, ncclDataType_t type, ncclRedOp_t operation);
void divide(void *values, size_t count, ncclDataType_t type, int by);
void multiply(void *values, size_t count, ncclDataType_t type, const void *by);

// ---- communicators.c
typedef struct Control Control;
struct ncclComm {
    char name[96];
    int rank, num_ranks, device;
    int32_t number;        // in the trace, -1: there is none
    bool is_in_process;    // several of its ranks are in one process
    bool is_ready;
    int num_splits;
    int32_t *world;        // of each rank
    ncclResult_t failed;
    Control *control;
    Log **logs;            // of each rank, for collectives
    Log **sent, **received;  // to and from each rank; opened when they are used
    struct ncclComm *next_pending;
};
ncclResult_t comm_begin(ncclComm_t *into, const char *name, int num_ranks, int rank);
ncclResult_t comm_complete(ncclComm_t comm);  // waits for all ranks
typedef struct {
    ncclComm_t comm;
    int rank;     // that is waited for
    int moments;  // of 20 ms
    const char *call;
} Waiting;
bool comm_is_over(void *waiting);             // that rank has gone, or somebody has given up
ncclResult_t comm_check(ncclComm_t comm);
Log *comm_pair(ncclComm_t comm, int from, int to);
void say(const char *format, ...) __attribute__((format(printf, 1, 2)));
ncclResult_t refuse(ncclResult_t result, const char *format, ...) __attribute__((format(printf, 2, 3)));

// ---- groups.c
typedef enum {
    TASK_ALL_REDUCE, TASK_BROADCAST, TASK_REDUCE, TASK_ALL_GATHER, TASK_REDUCE_SCATTER, TASK_SEND, TASK_RECEIVE,
    TASK_SPLIT
} TaskKind;  // as far as TASK_RECEIVE in the order of readers/raw_trace/gpu_calls.py
typedef struct Task {
    TaskKind kind;
    ncclComm_t comm;
    const void *send;
    void *receive;
    size_t count;
    ncclDataType_t type;
    int operation, root;   // of messages: the other rank
    cudaStream_t stream;
    int color, key;        // of splits
    ncclComm_t *into;
    bool is_captured;
    uint64_t request;
    struct Task *next;     // of its group
} Task;
ncclResult_t group_add(Task task);
void group_await(ncclComm_t comm);  // its ranks, when the group ends
bool group_is_open(void);

// ---- rounds.c: the parts of tasks, run by streams
void task_post(void *task, unsigned long long stream);
void task_complete(void *task, unsigned long long stream);
void messages_end(void *first, unsigned long long stream);  // of tasks linked by ``next``
ncclResult_t split(Task *task, int part);
bool operation_is_known(int operation);

// ---- the runtime and the tracer of MPI programs
extern cudaError_t manyscale_stream_call(cudaStream_t stream, void (*function)(void *, unsigned long long), void *user)
    __attribute__((weak));
extern void manyscale_note(const char *code, const char *name) __attribute__((weak));
extern void manyscale_gpu_enter(void) __attribute__((weak));
extern void manyscale_gpu_leave(void) __attribute__((weak));
extern void *manyscale_gpu_begin(int call) __attribute__((weak));
extern void manyscale_gpu_end(void *record, int64_t bytes, int64_t receive_bytes, int32_t tag, int32_t receive_tag,
                              int32_t communicator, int32_t peer) __attribute__((weak));
extern void manyscale_gpu_open(void *record, uint64_t key) __attribute__((weak));
extern void manyscale_gpu_complete(void *record, uint64_t key) __attribute__((weak));
extern void manyscale_gpu_list(void *record, int64_t value) __attribute__((weak));
extern int manyscale_gpu_rank(int *rank, int *size) __attribute__((weak));
extern void manyscale_gpu_set_rank(int rank, int size, const char *library) __attribute__((weak));
extern int32_t manyscale_gpu_communicator(const int32_t *world, int size) __attribute__((weak));

enum { CALL_FIRST = 9, CALL_GROUP_END = 16, CALL_COMM_INIT = 17, CALL_IN_PROCESS = 18 };  // gpu_calls.py

static inline int stands_in(void) {
    if (manyscale_gpu_enter) manyscale_gpu_enter();
    return 1;
}
static inline void stood_in(int *unused) {
    (void)unused;
    if (manyscale_gpu_leave) manyscale_gpu_leave();
}
#define STANDS_IN int standing_in __attribute__((cleanup(stood_in), unused)) = stands_in()

#endif

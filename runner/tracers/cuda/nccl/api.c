// The calls of the interface. Those that are not here fail with their name.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "nccl.h"

ncclResult_t ncclGetVersion(int *version) {
    if (version == NULL) return ncclInvalidArgument;
    *version = VERSION;
    return ncclSuccess;
}

const char *ncclGetErrorString(ncclResult_t result) {
    static const char *const words[] = {
        "no error", "unhandled cuda error", "unhandled system error", "internal error", "invalid argument",
        "invalid usage", "remote process exited or there was a network error", "NCCL operation in progress"};
    return (unsigned)result < sizeof words / sizeof *words ? words[result] : "unknown result code";
}

// Communicators

ncclResult_t ncclCommInitRankConfig(ncclComm_t *into, int num_ranks, ncclUniqueId id, int rank, void *config) {
    STANDS_IN;
    (void)config;  // how the work is done, and that calls need not wait
    char name[UNIQUE_ID_BYTES + 1] = {0};
    memcpy(name, id.internal, UNIQUE_ID_BYTES);
    const ncclResult_t result = comm_begin(into, name, num_ranks, rank);
    if (result) return result;
    if (!group_is_open()) return comm_complete(*into);
    group_await(*into);
    return ncclSuccess;
}

ncclResult_t ncclCommInitRank(ncclComm_t *into, int num_ranks, ncclUniqueId id, int rank) {
    return ncclCommInitRankConfig(into, num_ranks, id, rank, NULL);
}

ncclResult_t ncclCommInitRankScalable(ncclComm_t *into, int num_ranks, int rank, int num_ids, ncclUniqueId *ids, void *config) {
    if (num_ids < 1 || ids == NULL) return ncclInvalidArgument;
    return ncclCommInitRankConfig(into, num_ranks, ids[0], rank, config);
}

ncclResult_t ncclCommInitAll(ncclComm_t *into, int num_devices, const int *devices) {
    STANDS_IN;
    ncclUniqueId id;
    ncclResult_t result = ncclGetUniqueId(&id);
    int before;
    cudaGetDevice(&before);
    for (int k = 0; k < num_devices && !result; k++) {
        if (cudaSetDevice(devices ? devices[k] : k) != cudaSuccess)
            result = refuse(ncclInvalidArgument, "ncclCommInitAll: there is no device %d", devices ? devices[k] : k);
        else
            result = comm_begin(&into[k], id.internal, num_devices, k);
    }
    cudaSetDevice(before);
    for (int k = 0; k < num_devices && !result; k++) result = comm_complete(into[k]);
    return result;
}

ncclResult_t ncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t *into, void *config) {
    STANDS_IN;
    (void)config;
    const ncclResult_t result = comm_check(comm);
    if (result) return result;
    return group_add((Task){.kind = TASK_SPLIT, .comm = comm, .color = color, .key = key, .into = into});
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *error) {
    if (comm == NULL || error == NULL) return ncclInvalidArgument;
    *error = comm->failed;
    return ncclSuccess;
}

#define TELLS(name, member)                                              \
    ncclResult_t name(const ncclComm_t comm, int *into) {                \
        if (comm == NULL || into == NULL) return ncclInvalidArgument;    \
        *into = comm->member;                                            \
        return ncclSuccess;                                              \
    }
TELLS(ncclCommCount, num_ranks)
TELLS(ncclCommCuDevice, device)
TELLS(ncclCommUserRank, rank)

// Memory

ncclResult_t ncclMemAlloc(void **into, size_t bytes) { return cudaMalloc(into, bytes) == cudaSuccess ? ncclSuccess : ncclUnhandledCudaError; }

ncclResult_t ncclMemFree(void *memory) { return cudaFree(memory) == cudaSuccess ? ncclSuccess : ncclUnhandledCudaError; }

ncclResult_t ncclCommRegister(const ncclComm_t comm, void *buffer, size_t bytes, void **handle) {
    (void)bytes;
    if (handle) *handle = buffer;  // it makes calls on it faster, and changes nothing else
    return comm_check(comm);
}

ncclResult_t ncclCommDeregister(const ncclComm_t comm, void *handle) {
    (void)handle;
    return comm_check(comm);
}

// Collectives and messages

static Task task_of(TaskKind kind, ncclComm_t comm, const void *send, void *receive, size_t count, ncclDataType_t type,
                    int operation, int root, cudaStream_t stream) {
    return (Task){.kind = kind, .comm = comm, .send = send, .receive = receive, .count = count, .type = type,
                  .operation = operation, .root = root, .stream = stream};
}

static ncclResult_t add(Task task, const char *name, bool reduces) {
    STANDS_IN;
    const ncclResult_t result = comm_check(task.comm);
    if (result) return result;
    if (!type_bytes(task.type)) return refuse(ncclInvalidArgument, "%s: no type of data", name);
    if (reduces && !type_is_reduced(task.type)) {
        manyscale_note("cuda-not-supported", name);
        return refuse(ncclInvalidArgument, "%s of 8-bit floats is not supported by manyscale's NCCL", name);
    }
    if (!operation_is_known(task.operation)) return refuse(ncclInvalidArgument, "%s: no operation", name);
    if (task.root < 0 || task.root >= task.comm->num_ranks)
        return refuse(ncclInvalidArgument, "%s: rank %d is none of %d", name, task.root, task.comm->num_ranks);
    const bool gives = task.kind != TASK_RECEIVE && (task.kind != TASK_BROADCAST || task.comm->rank == task.root);
    const bool takes = task.kind != TASK_SEND && (task.kind != TASK_REDUCE || task.comm->rank == task.root);
    if (task.count && ((gives && !task.send) || (takes && !task.receive)))
        return refuse(ncclInvalidArgument, "%s: a buffer is NULL", name);
    return group_add(task);
}

ncclResult_t ncclAllReduce(const void *send, void *receive, size_t count, ncclDataType_t type, ncclRedOp_t operation,
                           ncclComm_t comm, cudaStream_t stream) {
    return add(task_of(TASK_ALL_REDUCE, comm, send, receive, count, type, (int)operation, 0, stream), "ncclAllReduce", true);
}

ncclResult_t ncclReduce(const void *send, void *receive, size_t count, ncclDataType_t type, ncclRedOp_t operation, int root,
                        ncclComm_t comm, cudaStream_t stream) {
    return add(task_of(TASK_REDUCE, comm, send, receive, count, type, (int)operation, root, stream), "ncclReduce", true);
}

ncclResult_t ncclReduceScatter(const void *send, void *receive, size_t count, ncclDataType_t type, ncclRedOp_t operation,
                               ncclComm_t comm, cudaStream_t stream) {
    return add(task_of(TASK_REDUCE_SCATTER, comm, send, receive, count, type, (int)operation, 0, stream), "ncclReduceScatter", true);
}

ncclResult_t ncclBroadcast(const void *send, void *receive, size_t count, ncclDataType_t type, int root, ncclComm_t comm,
                           cudaStream_t stream) {
    return add(task_of(TASK_BROADCAST, comm, send, receive, count, type, 0, root, stream), "ncclBroadcast", false);
}

ncclResult_t ncclBcast(void *buffer, size_t count, ncclDataType_t type, int root, ncclComm_t comm, cudaStream_t stream) {
    return ncclBroadcast(buffer, buffer, count, type, root, comm, stream);
}

ncclResult_t ncclAllGather(const void *send, void *receive, size_t count, ncclDataType_t type, ncclComm_t comm,
                           cudaStream_t stream) {
    return add(task_of(TASK_ALL_GATHER, comm, send, receive, count, type, 0, 0, stream), "ncclAllGather", false);
}

ncclResult_t ncclSend(const void *send, size_t count, ncclDataType_t type, int peer, ncclComm_t comm, cudaStream_t stream) {
    return add(task_of(TASK_SEND, comm, send, NULL, count, type, 0, peer, stream), "ncclSend", false);
}

ncclResult_t ncclRecv(void *receive, size_t count, ncclDataType_t type, int peer, ncclComm_t comm, cudaStream_t stream) {
    return add(task_of(TASK_RECEIVE, comm, NULL, receive, count, type, 0, peer, stream), "ncclRecv", false);
}

// The three that are messages in a group, as the user guide writes them

static char *at(const void *buffer, size_t index, size_t count, ncclDataType_t type) {
    return buffer ? (char *)buffer + index * count * type_bytes(type) : NULL;
}

ncclResult_t ncclAlltoAll(const void *send, void *receive, size_t count, ncclDataType_t type, ncclComm_t comm,
                          cudaStream_t stream) {
    ncclResult_t result = comm_check(comm);
    ncclGroupStart();
    for (int k = 0; !result && k < comm->num_ranks; k++) {
        result = ncclSend(at(send, (size_t)k, count, type), count, type, k, comm, stream);
        if (!result) result = ncclRecv(at(receive, (size_t)k, count, type), count, type, k, comm, stream);
    }
    const ncclResult_t ended = ncclGroupEnd();
    return result ? result : ended;
}

ncclResult_t ncclGather(const void *send, void *receive, size_t count, ncclDataType_t type, int root, ncclComm_t comm,
                        cudaStream_t stream) {
    ncclResult_t result = comm_check(comm);
    ncclGroupStart();
    if (!result) result = ncclSend(send, count, type, root, comm, stream);
    for (int k = 0; !result && comm->rank == root && k < comm->num_ranks; k++)
        result = ncclRecv(at(receive, (size_t)k, count, type), count, type, k, comm, stream);
    const ncclResult_t ended = ncclGroupEnd();
    return result ? result : ended;
}

ncclResult_t ncclScatter(const void *send, void *receive, size_t count, ncclDataType_t type, int root, ncclComm_t comm,
                         cudaStream_t stream) {
    ncclResult_t result = comm_check(comm);
    ncclGroupStart();
    for (int k = 0; !result && comm->rank == root && k < comm->num_ranks; k++)
        result = ncclSend(at(send, (size_t)k, count, type), count, type, k, comm, stream);
    if (!result) result = ncclRecv(receive, count, type, root, comm, stream);
    const ncclResult_t ended = ncclGroupEnd();
    return result ? result : ended;
}

void ncclResetDebugInit(void) {}

#define REFUSED(name)                                                                   \
    ncclResult_t name(void) {                                                           \
        manyscale_note("cuda-not-supported", #name);                                    \
        return refuse(ncclInvalidUsage, #name " is not supported by manyscale's NCCL"); \
    }
REFUSED(ncclCommShrink)
REFUSED(ncclCommGrow)
REFUSED(ncclCommRevoke)
REFUSED(ncclCommSuspend)
REFUSED(ncclCommResume)
REFUSED(ncclCommWindowRegister)
REFUSED(ncclCommWindowDeregister)
REFUSED(ncclGroupSimulateEnd)
REFUSED(ncclDevCommCreate)
REFUSED(ncclDevCommDestroy)
REFUSED(ncclPutSignal)
REFUSED(ncclSignal)
REFUSED(ncclWaitSignal)

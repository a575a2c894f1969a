// Groups: what a thread gives between ncclGroupStart and ncclGroupEnd is given to the streams when the group ends. The
// k-th collectives of all its communicators go together: first all give, then all take. So do all messages.
#include <stdlib.h>

#include "nccl.h"

static _Thread_local int depth;
static _Thread_local Task *tasks, *last;
static _Thread_local ncclComm_t pending;

bool group_is_open(void) { return depth > 0; }

void group_await(ncclComm_t comm) {
    comm->next_pending = pending;
    pending = comm;
}

static ncclResult_t meet(void) {
    ncclResult_t result = ncclSuccess;
    while (pending) {
        ncclComm_t comm = pending;
        pending = comm->next_pending;
        const ncclResult_t own = comm_complete(comm);
        if (own) result = own;
    }
    return result;
}

static ncclResult_t put(Task *task, void (*part)(void *, unsigned long long)) {
    int device;
    cudaGetDevice(&device);
    if (device != task->comm->device) cudaSetDevice(task->comm->device);
    const cudaError_t error = manyscale_stream_call(task->stream, part, task);
    if (device != task->comm->device) cudaSetDevice(device);
    return error == cudaSuccess ? task->comm->failed : ncclUnhandledCudaError;
}

static bool is_message(const Task *task) { return task->kind == TASK_SEND || task->kind == TASK_RECEIVE; }

// The first of a communicator in a list, which it leaves.
static Task *taken_of(Task **list, ncclComm_t comm) {
    for (Task **at = list; *at; at = &(*at)->next)
        if (comm == NULL || (*at)->comm == comm) {
            Task *found = *at;
            *at = found->next;
            found->next = NULL;
            return found;
        }
    return NULL;
}

// Takes from ``list`` one task of each communicator: the first of each.
static Task *round_of(Task **list) {
    Task *round = NULL, **end = &round;
    for (Task **at = list; *at;) {
        bool is_there = false;
        for (const Task *one = round; one; one = one->next) is_there |= one->comm == (*at)->comm;
        if (is_there) {
            at = &(*at)->next;
            continue;
        }
        *end = *at;
        *at = (*at)->next;
        end = &(*end)->next;
        *end = NULL;
    }
    return round;
}

static ncclResult_t worse(ncclResult_t one, ncclResult_t other) { return one ? one : other; }

// What graphs keep is theirs.
static void release(Task *list) {
    while (list) {
        Task *next = list->next;
        if (!list->is_captured) free(list);
        list = next;
    }
}

static ncclResult_t run_collectives(Task *list) {
    ncclResult_t result = ncclSuccess;
    while (list) {
        Task *round = round_of(&list);
        for (Task *task = round; task; task = task->next) result = worse(result, put(task, task_post));
        for (Task *task = round; task; task = task->next) result = worse(result, put(task, task_complete));
        release(round);
    }
    return result;
}

static ncclResult_t run_splits(Task *list) {
    ncclResult_t result = ncclSuccess;
    while (list) {
        Task *round = round_of(&list);
        for (int part = 0; part < 3; part++)
            for (Task *task = round; task; task = task->next)
                if (!result) result = split(task, part);
        release(round);
    }
    return result;
}

static ncclResult_t run_messages(Task *list) {
    ncclResult_t result = ncclSuccess;
    for (Task *task = list; task; task = task->next) result = worse(result, put(task, task_post));
    for (Task *task = list; task; task = task->next)
        if (task->kind == TASK_RECEIVE) result = worse(result, put(task, task_complete));
    while (list) {
        Task *first = taken_of(&list, NULL), **end = &first->next;
        while ((*end = taken_of(&list, first->comm))) end = &(*end)->next;
        result = worse(result, put(first, messages_end));
        release(first);
    }
    return result;
}

static ncclResult_t run_group(void) {
    Task *collectives = NULL, **of_collectives = &collectives, *messages = NULL, **of_messages = &messages;
    Task *splits = NULL, **of_splits = &splits;
    for (Task *task = tasks; task;) {
        Task *next = task->next, ***end = is_message(task) ? &of_messages : task->kind == TASK_SPLIT ? &of_splits : &of_collectives;
        task->next = NULL;
        **end = task;
        *end = &task->next;
        task = next;
    }
    tasks = last = NULL;
    ncclResult_t result = meet();
    result = worse(result, run_splits(splits));
    result = worse(result, run_collectives(collectives));
    return worse(result, run_messages(messages));
}

ncclResult_t group_add(Task given) {
    enum cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    if (given.kind != TASK_SPLIT && cudaStreamIsCapturing(given.stream, &status) != cudaSuccess)
        return refuse(ncclInvalidArgument, "a call on no stream");
    Task *task = malloc(sizeof *task);
    if (task == NULL) return ncclSystemError;
    *task = given;
    task->is_captured = status != cudaStreamCaptureStatusNone;
    task->next = NULL;
    if (last)
        last->next = task;
    else
        tasks = task;
    last = task;
    return depth ? ncclSuccess : run_group();
}

ncclResult_t ncclGroupStart(void) {
    depth++;
    return ncclSuccess;
}

ncclResult_t ncclGroupEnd(void) {
    STANDS_IN;
    if (depth == 0) return refuse(ncclInvalidUsage, "ncclGroupEnd without ncclGroupStart");
    return --depth ? ncclSuccess : run_group();
}

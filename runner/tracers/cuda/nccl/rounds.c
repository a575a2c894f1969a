// Collectives and messages themselves. A part of a task gives what the rank has, another takes what the others gave:
// so that one thread may do the tasks of several ranks. Streams run the parts, in their order.
#include <stdio.h>
#include <string.h>

#include "nccl.h"

enum { MADE_OPERATIONS = 256 };
static struct {
    bool is_used, is_on_device;
    const void *place;
    unsigned char value[8];
    ncclDataType_t type;
} made[MADE_OPERATIONS];

static uint64_t num_requests;

static const char *const names[] = {"ncclAllReduce", "ncclBroadcast", "ncclReduce", "ncclAllGather",
                                    "ncclReduceScatter", "ncclSend", "ncclRecv", "ncclCommSplit"};

ncclResult_t ncclRedOpCreatePreMulSum(ncclRedOp_t *into, void *scalar, ncclDataType_t type, int residence, ncclComm_t comm) {
    STANDS_IN;
    if (comm_check(comm) || into == NULL || scalar == NULL || !type_bytes(type) || !type_is_reduced(type))
        return refuse(ncclInvalidArgument, "ncclRedOpCreatePreMulSum: an argument is missing");
    int k = 0;
    while (k < MADE_OPERATIONS && made[k].is_used) k++;
    if (k == MADE_OPERATIONS) return refuse(ncclInvalidUsage, "more than %d operations are made", MADE_OPERATIONS);
    made[k].is_used = true;
    made[k].is_on_device = residence == 0;
    made[k].place = scalar;
    made[k].type = type;
    if (residence) memcpy(made[k].value, scalar, type_bytes(type));
    *into = (ncclRedOp_t)(NUM_OPS + k);
    return ncclSuccess;
}

ncclResult_t ncclRedOpDestroy(ncclRedOp_t operation, ncclComm_t comm) {
    STANDS_IN;
    (void)comm;
    const int k = (int)operation - NUM_OPS;
    if (k < 0 || k >= MADE_OPERATIONS || !made[k].is_used)
        return refuse(ncclInvalidArgument, "ncclRedOpDestroy: no operation that a program made");
    made[k].is_used = false;
    return ncclSuccess;
}

bool operation_is_known(int operation) {
    const int k = operation - NUM_OPS;
    return operation >= 0 && (k < 0 || (k < MADE_OPERATIONS && made[k].is_used));
}

static void fail(ncclComm_t comm, ncclResult_t result) { comm->failed = result; }

// Bytes that a rank gives to a collective, and where they are.
static size_t given_bytes(const Task *task) {
    const size_t bytes = task->count * type_bytes(task->type);
    if (task->kind == TASK_BROADCAST) return task->comm->rank == task->root ? bytes : 0;
    return task->kind == TASK_REDUCE_SCATTER ? bytes * (size_t)task->comm->num_ranks : bytes;
}

static void give(Task *task, Log *log, size_t bytes) {
    const int own = task->operation - NUM_OPS;
    void *room = log_reserve(log, bytes);
    if (room == NULL) {
        say("%s: a message of %zu bytes has no room", names[task->kind], bytes);
        fail(task->comm, ncclSystemError);
        return;
    }
    if (bytes) memcpy(room, task->send, bytes);
    if (own >= 0 && task->kind != TASK_SEND)
        multiply(room, bytes / type_bytes(task->type), task->type, made[own].is_on_device ? made[own].place : made[own].value);
    log_post(log, bytes, (About){(uint32_t)task->kind, (uint32_t)task->type, (uint32_t)(own >= 0 ? NUM_OPS : task->operation),
                                 (uint32_t)(task->kind == TASK_SEND ? 0 : task->root), task->count});
}

static void record_message(Task *task, unsigned long long stream) {
    ncclComm_t comm = task->comm;
    if (comm->number < 0 || manyscale_gpu_begin == NULL) return;
    const int64_t bytes = (int64_t)(task->count * type_bytes(task->type));
    void *record = manyscale_gpu_begin(CALL_FIRST + (int)task->kind);
    task->request = ++num_requests;
    manyscale_gpu_open(record, task->request);
    if (task->kind == TASK_SEND)
        manyscale_gpu_end(record, bytes, 0, 0, (int32_t)stream, comm->number, comm->world[task->root]);
    else
        manyscale_gpu_end(record, 0, bytes, 0, (int32_t)stream, comm->number, comm->world[task->root]);
}

static void record_in_process(const Task *task, unsigned long long stream) {
    if (!task->comm->is_in_process) return;
    manyscale_note("nccl-in-process", names[task->kind]);
    void *record = manyscale_gpu_begin ? manyscale_gpu_begin(CALL_IN_PROCESS) : NULL;
    if (record) manyscale_gpu_end(record, 0, 0, 0, (int32_t)stream, -1, -2);
}

void task_post(void *given, unsigned long long stream) {
    STANDS_IN;
    Task *task = given;
    ncclComm_t comm = task->comm;
    if (comm->failed) return;
    record_in_process(task, stream);
    if (task->kind == TASK_SEND || task->kind == TASK_RECEIVE) record_message(task, stream);
    if (task->kind == TASK_RECEIVE) return;
    Log *log = task->kind == TASK_SEND ? comm_pair(comm, comm->rank, task->root) : comm->logs[comm->rank];
    if (log == NULL)
        fail(comm, ncclSystemError);
    else
        give(task, log, task->kind == TASK_SEND ? task->count * type_bytes(task->type) : given_bytes(task));
}

// Whether what a rank gave belongs to the same call.
static bool agrees(const Task *task, About other, int rank) {
    const uint32_t operation = task->operation >= NUM_OPS ? NUM_OPS : (uint32_t)task->operation;
    if (other.kind == (uint32_t)task->kind && other.count == task->count && other.type == (uint32_t)task->type &&
        other.operation == operation && other.root == (uint32_t)task->root)
        return true;
    say("rank %d calls %s for %zu elements of type %d, and rank %d %s for %llu of type %u; all ranks make the same calls",
        task->comm->rank, names[task->kind], task->count, (int)task->type, rank, names[other.kind % 8],
        (unsigned long long)other.count, other.type);
    return false;
}

// Takes from ``rank`` what it gave to this collective.
static void take(Task *task, const void *from, int rank) {
    ncclComm_t comm = task->comm;
    const size_t bytes = task->count * type_bytes(task->type);
    const ncclRedOp_t operation = task->operation >= NUM_OPS || task->operation == OP_AVG ? OP_SUM : (ncclRedOp_t)task->operation;
    switch (task->kind) {
        case TASK_BROADCAST:
            if (rank == task->root && bytes) memmove(task->receive, from, bytes);
            return;
        case TASK_ALL_GATHER:
            if (bytes) memcpy((char *)task->receive + (size_t)rank * bytes, from, bytes);
            return;
        case TASK_REDUCE_SCATTER: from = (const char *)from + (size_t)comm->rank * bytes; break;
        case TASK_REDUCE:
            if (comm->rank != task->root) return;
            break;
        default: break;
    }
    if (rank == 0)
        memcpy(task->receive, from, bytes);
    else
        reduce(task->receive, from, task->count, task->type, operation);
}

static void record_end(void *record, const Task *task, unsigned long long stream) {
    if (record == NULL) return;
    const int64_t element = (int64_t)type_bytes(task->type), bytes = (int64_t)task->count * element;
    const bool is_rooted = task->kind == TASK_BROADCAST || task->kind == TASK_REDUCE;
    if (task->kind == TASK_REDUCE_SCATTER)
        for (int k = 0; k < task->comm->num_ranks; k++) manyscale_gpu_list(record, bytes);
    manyscale_gpu_end(record, task->kind == TASK_REDUCE_SCATTER ? element : bytes, 0, 0, (int32_t)stream, task->comm->number,
                      is_rooted ? task->root : -2);
}

static void receive(Task *task) {
    ncclComm_t comm = task->comm;
    About about;
    Log *log = comm_pair(comm, task->root, comm->rank);
    Waiting waiting = {comm, task->root, 0, names[task->kind]};
    const void *from = log ? log_read(log, 0, &about, comm_is_over, &waiting) : NULL;
    if (from == NULL) {
        fail(comm, ncclRemoteError);
        return;
    }
    const size_t bytes = task->count * type_bytes(task->type);
    if (about.count * type_bytes((ncclDataType_t)about.type) != bytes) {
        say("rank %d receives %zu bytes, and rank %d sends it %llu elements of type %u", comm->rank, bytes, task->root,
            (unsigned long long)about.count, about.type);
        fail(comm, ncclInvalidUsage);
    } else if (bytes) {
        memcpy(task->receive, from, bytes);
    }
    log_taken(log, 0);
}

static void combine(Task *task) {
    ncclComm_t comm = task->comm;
    About about;
    for (int rank = 0; rank < comm->num_ranks && !comm->failed; rank++) {
        Waiting waiting = {comm, rank, 0, names[task->kind]};
        const void *from = log_read(comm->logs[rank], comm->rank, &about, comm_is_over, &waiting);
        if (from == NULL)
            fail(comm, ncclRemoteError);
        else if (!agrees(task, about, rank))
            fail(comm, ncclInvalidUsage);
        else
            take(task, from, rank);
        if (from) log_taken(comm->logs[rank], comm->rank);
    }
    if (task->operation == OP_AVG && task->kind != TASK_BROADCAST && task->kind != TASK_ALL_GATHER &&
        (task->kind != TASK_REDUCE || comm->rank == task->root))
        divide(task->receive, task->count, task->type, comm->num_ranks);
}

void task_complete(void *given, unsigned long long stream) {
    STANDS_IN;
    Task *task = given;
    if (task->comm->failed) return;
    if (task->kind == TASK_RECEIVE) {
        receive(task);
    } else {
        void *record = task->comm->number >= 0 && manyscale_gpu_begin ? manyscale_gpu_begin(CALL_FIRST + (int)task->kind) : NULL;
        combine(task);
        record_end(record, task, stream);
    }
}

void messages_end(void *first, unsigned long long stream) {
    STANDS_IN;
    (void)stream;
    const Task *begin = first;
    if (begin->comm->number < 0 || manyscale_gpu_begin == NULL) return;
    void *record = manyscale_gpu_begin(CALL_GROUP_END);
    for (const Task *task = begin; task; task = task->next) manyscale_gpu_complete(record, task->request);
    if (record) manyscale_gpu_end(record, 0, 0, 0, 0, -1, -2);
}

// Splits in three parts: colour and key are told; those of a colour, by key and rank, begin a communicator; they meet.
ncclResult_t split(Task *task, int part) {
    ncclComm_t comm = task->comm;
    const int mine[2] = {task->color, task->key};
    if (part == 0) {
        int *room = log_reserve(comm->logs[comm->rank], sizeof mine);
        if (room == NULL) return ncclSystemError;
        memcpy(room, mine, sizeof mine);
        log_post(comm->logs[comm->rank], sizeof mine, (About){.kind = TASK_SPLIT});
        return ncclSuccess;
    }
    if (part == 2) return *task->into ? comm_complete(*task->into) : ncclSuccess;
    int rank = 0, num_ranks = 0;
    for (int k = 0; k < comm->num_ranks; k++) {
        About about;
        Waiting waiting = {comm, k, 0, names[TASK_SPLIT]};
        const int *other = log_read(comm->logs[k], comm->rank, &about, comm_is_over, &waiting);
        if (other == NULL) return comm->failed = ncclRemoteError;
        if (about.kind != TASK_SPLIT) return comm->failed = refuse(ncclInvalidUsage, "not all ranks call ncclCommSplit");
        num_ranks += other[0] == task->color;
        rank += other[0] == task->color && (other[1] < task->key || (other[1] == task->key && k < comm->rank));
        log_taken(comm->logs[k], comm->rank);
    }
    char name[160];
    *task->into = NULL;
    comm->num_splits++;
    if (task->color < 0) return ncclSuccess;  // NCCL_SPLIT_NOCOLOR
    snprintf(name, sizeof name, "%.64s-%d-%d", comm->name, comm->num_splits, task->color);
    return comm_begin(task->into, name, num_ranks, rank);
}

// Communicators: their ranks meet in a file of the session's folder, whose name is the unique id.
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "nccl.h"

struct Control {
    _Atomic int is_over;       // somebody has given up
    _Atomic int num_there, num_gone;
    struct {
        _Atomic int is_there;
        int process, world;
    } members[MOST_RANKS];
};
static const char NAMED[] = "manyscale-";
static char last_error[1024];
static int num_ids;

void say(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(last_error, sizeof last_error, format, arguments);
    va_end(arguments);
    fprintf(stderr, "manyscale: NCCL: %s\n", last_error);
}

ncclResult_t refuse(ncclResult_t result, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(last_error, sizeof last_error, format, arguments);
    va_end(arguments);
    fprintf(stderr, "manyscale: NCCL: %s\n", last_error);
    return result;
}

const char *ncclGetLastError(ncclComm_t comm) {
    (void)comm;
    return last_error;
}

static Control *control_of(const char *name) {
    char path[4300];
    const char *folder = getenv("MANYSCALE_CUDA_DIR");
    if (folder == NULL) {
        say("this library runs programs of `manyscale trace --level gpu` alone; start the program by it");
        return NULL;
    }
    snprintf(path, sizeof path, "%.3900s/nccl", folder);
    mkdir(path, 0777);
    snprintf(path, sizeof path, "%.3900s/nccl/%.300s", folder, name);
    const int file = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    void *mapped = MAP_FAILED;
    if (file >= 0 && ftruncate(file, sizeof(Control)) == 0)
        mapped = mmap(NULL, sizeof(Control), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (mapped == MAP_FAILED) say("%s: %s; name a folder with room by -o", path, strerror(errno));
    if (file >= 0) close(file);
    return mapped == MAP_FAILED ? NULL : mapped;
}

ncclResult_t ncclGetUniqueId(ncclUniqueId *id) {
    uint64_t drawn[2];
    if (id == NULL) return refuse(ncclInvalidArgument, "ncclGetUniqueId: no place for the id");
    if (getrandom(drawn, sizeof drawn, 0) != sizeof drawn) drawn[0] = (uint64_t)time(NULL), drawn[1] = (uint64_t)getpid();
    memset(id, 0, sizeof *id);
    snprintf(id->internal, sizeof id->internal, "%s%016llx%016llx-%d", NAMED, (unsigned long long)drawn[0],
             (unsigned long long)drawn[1], ++num_ids);
    return ncclSuccess;
}

ncclResult_t comm_begin(ncclComm_t *into, const char *name, int num_ranks, int rank) {
    if (into == NULL || rank < 0 || rank >= num_ranks || num_ranks > MOST_RANKS)
        return refuse(ncclInvalidArgument, "rank %d of %d: cannot be (at most %d ranks)", rank, num_ranks, MOST_RANKS);
    if (strncmp(name, NAMED, sizeof NAMED - 1) || strchr(name, '/'))
        return refuse(ncclInvalidArgument, "the unique id is none of ncclGetUniqueId's");
    ncclComm_t comm = calloc(1, sizeof *comm);
    if (comm == NULL) return ncclSystemError;
    *comm = (struct ncclComm){.rank = rank, .num_ranks = num_ranks, .number = -1,
                              .world = calloc((size_t)num_ranks, sizeof *comm->world),
                              .logs = calloc((size_t)num_ranks, sizeof *comm->logs),
                              .sent = calloc((size_t)num_ranks, sizeof *comm->sent),
                              .received = calloc((size_t)num_ranks, sizeof *comm->received)};
    snprintf(comm->name, sizeof comm->name, "%.90s", name);
    comm->control = control_of(comm->name);
    if (comm->control == NULL) return ncclSystemError;
    cudaGetDevice(&comm->device);
    int world = rank, size;
    if (manyscale_gpu_rank && !manyscale_gpu_rank(&world, &size)) world = rank;
    comm->control->members[rank].process = (int)getpid();
    comm->control->members[rank].world = world;
    if (atomic_exchange(&comm->control->members[rank].is_there, 1))
        return refuse(ncclInvalidUsage, "two ranks %d of one communicator", rank);
    *into = comm;
    return ncclSuccess;
}

bool comm_is_over(void *given) {
    Waiting *waiting = given;
    const Control *control = waiting->comm->control;
    if (atomic_load(&control->is_over)) return true;
    if (++waiting->moments == 1500)
        say("rank %d has waited 30 s in %s for rank %d: calls are done when they are given, so that all ranks must make "
            "them in the same order between their other communication", waiting->comm->rank, waiting->call, waiting->rank);
    if (!atomic_load(&control->members[waiting->rank].is_there)) return false;
    if (kill(control->members[waiting->rank].process, 0) == 0 || errno != ESRCH) return false;
    say("rank %d has ended, and rank %d waits for it in %s", waiting->rank, waiting->comm->rank, waiting->call);
    return true;
}

static void describe(ncclComm_t comm) {
    for (int k = 0; k < comm->num_ranks; k++) {
        comm->world[k] = comm->control->members[k].world;
        for (int j = 0; j < k; j++)
            comm->is_in_process |= comm->control->members[k].process == comm->control->members[j].process;
    }
    if (comm->is_in_process || manyscale_gpu_communicator == NULL) return;
    int rank, size;
    if (!manyscale_gpu_rank(&rank, &size)) manyscale_gpu_set_rank(comm->rank, comm->num_ranks, "NCCL");  // without MPI
    void *record = manyscale_gpu_begin(CALL_COMM_INIT);
    comm->number = manyscale_gpu_communicator(comm->world, comm->num_ranks);
    if (record) manyscale_gpu_end(record, 0, 0, 0, 0, comm->number, -2);
}

ncclResult_t comm_complete(ncclComm_t comm) {
    const struct timespec moment = {0, 20000000};
    for (int k = 0; k < comm->num_ranks; k++) {
        Waiting waiting = {comm, k, 0, "ncclCommInitRank"};
        while (!atomic_load(&comm->control->members[k].is_there)) {
            nanosleep(&moment, NULL);
            if (comm_is_over(&waiting)) return comm->failed = ncclRemoteError;
        }
    }
    for (int k = 0; k < comm->num_ranks; k++) {
        char name[128];
        snprintf(name, sizeof name, "%s.%d", comm->name, k);
        comm->logs[k] = log_open(name, comm->num_ranks);
        if (comm->logs[k] == NULL) return comm->failed = ncclSystemError;
    }
    describe(comm);
    comm->is_ready = true;
    return ncclSuccess;
}

Log *comm_pair(ncclComm_t comm, int from, int to) {
    char name[128];
    Log **place = from == comm->rank ? &comm->sent[to] : &comm->received[from];
    snprintf(name, sizeof name, "%s.%d.%d", comm->name, from, to);
    if (*place == NULL) *place = log_open(name, 1);
    return *place;
}

ncclResult_t comm_check(ncclComm_t comm) {
    if (comm == NULL) return refuse(ncclInvalidArgument, "a call on no communicator");
    if (!comm->is_ready) return refuse(ncclInvalidArgument, "a call on a communicator whose ranks have not met yet");
    return comm->failed;
}

ncclResult_t ncclCommDestroy(ncclComm_t comm) {
    STANDS_IN;
    if (comm == NULL) return ncclSuccess;
    char path[4300];
    const bool is_last = atomic_fetch_add(&comm->control->num_gone, 1) == comm->num_ranks - 1;
    for (int k = 0; k < comm->num_ranks; k++) {
        log_close(comm->logs[k], is_last);
        if (k != comm->rank) log_close(comm->sent[k], false);
        if (k != comm->rank) log_close(comm->received[k], false);
    }
    log_close(comm->sent[comm->rank], false);
    munmap(comm->control, sizeof *comm->control);
    snprintf(path, sizeof path, "%.3900s/nccl/%s", getenv("MANYSCALE_CUDA_DIR"), comm->name);
    if (is_last) unlink(path);
    free(comm->world);
    free(comm->logs);
    free(comm->sent);
    free(comm->received);
    free(comm);
    return ncclSuccess;
}

ncclResult_t ncclCommFinalize(ncclComm_t comm) { return comm_check(comm); }

ncclResult_t ncclCommAbort(ncclComm_t comm) {
    STANDS_IN;
    if (comm) atomic_store(&comm->control->is_over, 1);
    return ncclCommDestroy(comm);
}

/* What records MPI calls: shared by mpi.c, requests.c and the generated wrappers. The functions ms_NAME(operation, ...)
   are the recipes of runner/tracers/calls.py, which says what they fill in. */
#ifndef MANYSCALE_RECORD_H
#define MANYSCALE_RECORD_H

#include <mpi.h>

#include "trace.h"

/* MPICH 4.0 forgets the standard's const. */
#if defined(MPICH_NUMVERSION) && MPICH_NUMVERSION < 40100000
typedef int *ms_partitions;
#else
typedef const int *ms_partitions;
#endif

typedef MPI_Grequest_query_function *ms_query_function;
typedef MPI_Grequest_free_function *ms_free_function;
typedef MPI_Grequest_cancel_function *ms_cancel_function;

/* in place of a rank: none; any source; a request that was cancelled; a process outside MPI_COMM_WORLD */
enum { MS_NONE = -2, MS_ANY = -1, MS_WAS_CANCELLED = -3, MS_STRANGER = -4 };

struct ms_communicator {
    MPI_Comm handle;
    int32_t id;
    int rank, size, remote_size, is_inter;
    int32_t *world; /* world ranks of its members, or of its remote group; NULL where they are the ranks themselves */
    int num_users, is_gone; /* open requests and messages that refer to it; whether it was freed */
    int num_neighbours[2]; /* sources, destinations; -1 not yet asked for */
    int *neighbours[2];    /* ranks within it */
    struct ms_communicator *next;
};

/* Sizes per partner: the same for each, or a list of counts of one type, or of a type for each. */
struct ms_sizes {
    MPI_Count count;
    const int *counts;
    const MPI_Count *large_counts;
    MPI_Datatype type;
    const MPI_Datatype *types;
};
#define EACH(n, t) ((struct ms_sizes){.count = (n), .type = (t)})
#define LIST(c, t) ((struct ms_sizes){.counts = _Generic((c), const int *: (c), default: NULL), \
                                      .large_counts = _Generic((c), const MPI_Count *: (c), default: NULL), .type = (t)})
#define TYPED(c, t) ((struct ms_sizes){.counts = _Generic((c), const int *: (c), default: NULL), \
                                       .large_counts = _Generic((c), const MPI_Count *: (c), default: NULL), .types = (t)})
#define BYTES(n, t) ms_bytes(n, t)

/* Marks a call whose buffer is in the memory of a GPU that a stand-in shows. */
extern int manyscale_gpu_owns(const void *address) __attribute__((weak, visibility("default")));
static inline void ms_buffer(struct ms_operation *operation, const void *address) {
    if (manyscale_gpu_owns && operation && manyscale_gpu_owns(address)) operation->flags |= MS_DEVICE_BUFFER;
}
/* A communicator of these ranks, which is not MPI's: its number. */
int32_t ms_number_members(const int32_t *world, int size) MS_HIDDEN;

/* ---- the MPI library, start and end ---- */
/* One of the MPI library's functions; the program ends if there is no such. */
void *ms_real(const char *name) MS_HIDDEN;
void ms_define_calls(void) MS_HIDDEN;
/* Whether a call succeeded; marks it if not. */
int ms_returned(struct ms_operation *operation, int code) MS_HIDDEN;
#if MPI_VERSION >= 4
void ms_session_initialised(struct ms_operation *operation, MPI_Session session) MS_HIDDEN;
int ms_session_finalize(struct ms_operation *operation, int (*real)(MPI_Session *), MPI_Session *session) MS_HIDDEN;
#endif
void ms_initialised(struct ms_operation *operation) MS_HIDDEN;
int ms_abort(struct ms_operation *operation, int (*real)(MPI_Comm, int), MPI_Comm comm, int code) MS_HIDDEN;

/* ---- communicators and sizes ---- */
/* The record's own communicator; NULL for one that cannot be told. */
struct ms_communicator *ms_on(struct ms_operation *operation, MPI_Comm comm) MS_HIDDEN;
struct ms_communicator *ms_communicator(MPI_Comm comm) MS_HIDDEN;
/* Something refers to it, or no longer does. */
static inline struct ms_communicator *ms_use(struct ms_communicator *c) {
    if (c) c->num_users++;
    return c;
}
void ms_release(struct ms_communicator *c) MS_HIDDEN;
void ms_new_communicator(struct ms_operation *operation, MPI_Comm parent, MPI_Comm comm) MS_HIDDEN;
/* One that only its own members make. */
void ms_new_communicator_of_its_own(struct ms_operation *operation, MPI_Comm comm) MS_HIDDEN;
/* World ranks of a group's members in a new array; NULL if they are 0, 1, 2, ... themselves. */
int32_t *ms_world_ranks(MPI_Group group, int size) MS_HIDDEN;
/* The same members under a number of their own: a window's, or a file's. */
struct ms_communicator *ms_shadow(MPI_Comm comm) MS_HIDDEN;
void ms_put_on(struct ms_operation *operation, struct ms_communicator *c) MS_HIDDEN;
int ms_comm_free(struct ms_operation *operation, int (*real)(MPI_Comm *), MPI_Comm *comm) MS_HIDDEN;
/* A count of 0 comes with any datatype, valid or not. */
static inline int64_t ms_bytes(MPI_Count count, MPI_Datatype type) {
    MPI_Count size = 0;
    if (count <= 0 || type == MPI_DATATYPE_NULL || PMPI_Type_size_x(type, &size) != MPI_SUCCESS) return 0;
    return (int64_t)(count * size);
}
static inline int32_t ms_world(const struct ms_communicator *c, int rank) {
    if (MS_UNLIKELY(rank < 0)) return rank == MPI_ANY_SOURCE ? MS_ANY : MS_NONE;
    if (!c || rank >= (c->is_inter ? c->remote_size : c->size)) return MS_NONE;
    return c->world ? c->world[rank] : rank;
}

/* ---- point to point ---- */
void ms_send(struct ms_operation *operation, MPI_Comm comm, int dest, int tag, int64_t bytes) MS_HIDDEN;
void ms_recv(struct ms_operation *operation, MPI_Comm comm, int source, int tag, int64_t room, MPI_Status *status)
    MS_HIDDEN;
void ms_isend(struct ms_operation *operation, MPI_Comm comm, int dest, int tag, int64_t bytes, MPI_Request request)
    MS_HIDDEN;
void ms_irecv(struct ms_operation *operation, MPI_Comm comm, int source, int tag, int64_t room, MPI_Request request)
    MS_HIDDEN;
void ms_send_init(struct ms_operation *operation, MPI_Comm comm, int dest, int tag, int64_t bytes, MPI_Request request)
    MS_HIDDEN;
void ms_recv_init(struct ms_operation *operation, MPI_Comm comm, int source, int tag, int64_t room, MPI_Request request)
    MS_HIDDEN;
void ms_sendrecv(struct ms_operation *operation, MPI_Comm comm, int dest, int sendtag, int64_t sent, int source,
                 int recvtag, int64_t room, MPI_Status *status) MS_HIDDEN;
void ms_isendrecv(struct ms_operation *operation, MPI_Comm comm, int dest, int sendtag, int64_t sent, int source,
                  int recvtag, int64_t room, MPI_Request request) MS_HIDDEN;
void ms_probe(struct ms_operation *operation, MPI_Comm comm, int source, int tag, int found, MPI_Status *status)
    MS_HIDDEN;
void ms_mprobe(struct ms_operation *operation, MPI_Comm comm, int source, int tag, int found, MPI_Message message,
               MPI_Status *status) MS_HIDDEN;
int ms_mrecv(struct ms_operation *operation, int (*real)(void *, int, MPI_Datatype, MPI_Message *, MPI_Status *),
             void *buf, int count, MPI_Datatype type, MPI_Message *message, MPI_Status *status) MS_HIDDEN;
int ms_imrecv(struct ms_operation *operation, int (*real)(void *, int, MPI_Datatype, MPI_Message *, MPI_Request *),
              void *buf, int count, MPI_Datatype type, MPI_Message *message, MPI_Request *request) MS_HIDDEN;
#if MPI_VERSION >= 4
int ms_mrecv_c(struct ms_operation *operation,
               int (*real)(void *, MPI_Count, MPI_Datatype, MPI_Message *, MPI_Status *), void *buf, MPI_Count count,
               MPI_Datatype type, MPI_Message *message, MPI_Status *status) MS_HIDDEN;
int ms_imrecv_c(struct ms_operation *operation,
                int (*real)(void *, MPI_Count, MPI_Datatype, MPI_Message *, MPI_Request *), void *buf, MPI_Count count,
                MPI_Datatype type, MPI_Message *message, MPI_Request *request) MS_HIDDEN;
#endif

/* ---- collectives ---- */
void ms_collective(struct ms_operation *operation, MPI_Comm comm, int root, int64_t bytes) MS_HIDDEN;
void ms_rooted(struct ms_operation *operation, MPI_Comm comm, int root, struct ms_sizes own, struct ms_sizes of_root)
    MS_HIDDEN;
void ms_rooted_list(struct ms_operation *operation, MPI_Comm comm, int root, struct ms_sizes own,
                    struct ms_sizes of_root, int is_gather) MS_HIDDEN;
void ms_allgather_list(struct ms_operation *operation, MPI_Comm comm, struct ms_sizes received) MS_HIDDEN;
void ms_alltoall_list(struct ms_operation *operation, MPI_Comm comm, const void *sendbuf, struct ms_sizes sent,
                      struct ms_sizes received) MS_HIDDEN;
void ms_reduce_scatter(struct ms_operation *operation, MPI_Comm comm, struct ms_sizes received) MS_HIDDEN;
void ms_neighbours(struct ms_operation *operation, MPI_Comm comm, struct ms_sizes sent, struct ms_sizes received)
    MS_HIDDEN;

/* ---- windows, one-sided communication and files ---- */
void ms_new_window(struct ms_operation *operation, MPI_Comm comm, MPI_Win window) MS_HIDDEN;
void ms_on_window(struct ms_operation *operation, MPI_Win window) MS_HIDDEN;
int ms_win_free(struct ms_operation *operation, int (*real)(MPI_Win *), MPI_Win *window) MS_HIDDEN;
void ms_window_test(struct ms_operation *operation, MPI_Win window, int is_over) MS_HIDDEN;
void ms_window_group(struct ms_operation *operation, MPI_Win window, MPI_Group group) MS_HIDDEN;
/* ``put``: bytes that go to the target's window, ``got`` those that come from there. */
void ms_one_sided(struct ms_operation *operation, MPI_Win window, int target, int64_t put, int64_t got) MS_HIDDEN;
void ms_new_file(struct ms_operation *operation, MPI_Comm comm, MPI_File file) MS_HIDDEN;
void ms_on_file(struct ms_operation *operation, MPI_File file) MS_HIDDEN;
/* ``written``: bytes that go to the file, ``asked`` those that are to come from there. */
void ms_file_access(struct ms_operation *operation, MPI_File file, int64_t written, int64_t asked) MS_HIDDEN;
int ms_file_close(struct ms_operation *operation, int (*real)(MPI_File *), MPI_File *file) MS_HIDDEN;
/* A file's split collective, of which there is one at a time, begins or ends. */
void ms_open_split(struct ms_operation *operation, MPI_File file) MS_HIDDEN;
void ms_close_split(struct ms_operation *operation, MPI_File file) MS_HIDDEN;

/* ---- requests ---- */
/* Enter a request under a new number: of a collective, or a template. */
void ms_open(struct ms_operation *operation, MPI_Request request) MS_HIDDEN;
void ms_init(struct ms_operation *operation, MPI_Request request) MS_HIDDEN;
/* What a key of the caller's stands for opens as a request does, and is complete. */
void ms_open_key(struct ms_operation *operation, uint64_t key) MS_HIDDEN;
void ms_complete_key(struct ms_operation *operation, uint64_t key) MS_HIDDEN;
void ms_partitioned_send(struct ms_operation *operation, MPI_Comm comm, int dest, int tag, int partitions,
                         int64_t bytes, MPI_Request request) MS_HIDDEN;
void ms_partitioned_receive(struct ms_operation *operation, MPI_Comm comm, int source, int tag, int64_t room,
                            MPI_Request request) MS_HIDDEN;
/* Template of a request that starts once ``partitions`` are ready. */
void ms_init_partitions(struct ms_operation *operation, MPI_Request request, int partitions) MS_HIDDEN;
/* ``count`` more partitions are. */
void ms_ready(struct ms_operation *operation, MPI_Request request, int count) MS_HIDDEN;
/* The same of a receive: its source will be translated by the communicator. */
void ms_open_receive(struct ms_operation *operation, struct ms_communicator *c, MPI_Request request, int is_template)
    MS_HIDDEN;
int ms_start_request(struct ms_operation *operation, int (*real)(MPI_Request *), MPI_Request *request) MS_HIDDEN;
int ms_startall(struct ms_operation *operation, int (*real)(int, MPI_Request *), int num, MPI_Request *requests)
    MS_HIDDEN;
int ms_request_free(struct ms_operation *operation, int (*real)(MPI_Request *), MPI_Request *request) MS_HIDDEN;
int ms_cancel(struct ms_operation *operation, int (*real)(MPI_Request *), MPI_Request *request) MS_HIDDEN;
int ms_wait(struct ms_operation *operation, int (*real)(MPI_Request *, MPI_Status *), MPI_Request *request,
            MPI_Status *status) MS_HIDDEN;
int ms_waitall(struct ms_operation *operation, int (*real)(int, MPI_Request *, MPI_Status *), int num,
               MPI_Request *requests, MPI_Status *statuses) MS_HIDDEN;
int ms_waitany(struct ms_operation *operation, int (*real)(int, MPI_Request *, int *, MPI_Status *), int num,
               MPI_Request *requests, int *index, MPI_Status *status) MS_HIDDEN;
int ms_waitsome(struct ms_operation *operation, int (*real)(int, MPI_Request *, int *, int *, MPI_Status *), int num,
                MPI_Request *requests, int *outcount, int *indices, MPI_Status *statuses) MS_HIDDEN;
int ms_test(struct ms_operation *operation, int (*real)(MPI_Request *, int *, MPI_Status *), MPI_Request *request,
            int *flag, MPI_Status *status) MS_HIDDEN;
int ms_testall(struct ms_operation *operation, int (*real)(int, MPI_Request *, int *, MPI_Status *), int num,
               MPI_Request *requests, int *flag, MPI_Status *statuses) MS_HIDDEN;
int ms_testany(struct ms_operation *operation, int (*real)(int, MPI_Request *, int *, int *, MPI_Status *), int num,
               MPI_Request *requests, int *index, int *flag, MPI_Status *status) MS_HIDDEN;
int ms_testsome(struct ms_operation *operation, int (*real)(int, MPI_Request *, int *, int *, MPI_Status *), int num,
                MPI_Request *requests, int *outcount, int *indices, MPI_Status *statuses) MS_HIDDEN;

/* A hash table of handles, whether numbers or pointers. */
static inline uint64_t ms_hash(uint64_t key) { return (key * 0x9e3779b97f4a7c15ull) >> 32; }

#endif

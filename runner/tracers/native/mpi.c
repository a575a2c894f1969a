/* Records of MPI calls: start and end, communicators and their members, point-to-point calls. */
#define _GNU_SOURCE
#include "record.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define KEY(handle) ((uint64_t)(uintptr_t)(handle))
#define MOST_LISTED 1000 /* members in one line of definitions */
#define BUCKETS 256

static struct ms_communicator *buckets[BUCKETS], *latest;
static MPI_Group world_group = MPI_GROUP_NULL;
static int32_t next_communicator = 2; /* 0 is MPI_COMM_WORLD, 1 MPI_COMM_SELF */
static int is_defined; /* the process has said who it is */
extern void manyscale_mark(int kind, const char *name, long value);

void *ms_real(const char *name) {
    ms_hide();
    void *found = dlsym(RTLD_NEXT, name);
    ms_show();
    if (!found) {
        fprintf(stderr, "manyscale: the MPI library has no %s; the tracer was built for another one\n", name);
        abort();
    }
    return found;
}

int ms_returned(struct ms_operation *operation, int code) {
    if (MS_UNLIKELY(code != MPI_SUCCESS)) operation->flags |= MS_FAILED;
    return code == MPI_SUCCESS;
}

/* ---- communicators ---- */

static struct ms_communicator **bucket_of(MPI_Comm comm) { return &buckets[ms_hash(KEY(comm)) % BUCKETS]; }

int32_t *ms_world_ranks(MPI_Group group, int size) {
    int *ranks = calloc((size_t)(2 * size + 1), sizeof *ranks), *translated = ranks + size;
    if (!ranks) return NULL;
    for (int i = 0; i < size; i++) ranks[i] = i;
    PMPI_Group_translate_ranks(group, size, ranks, world_group, translated);
    int same = 1;
    for (int i = 0; i < size; i++) {
        if (translated[i] == MPI_UNDEFINED) translated[i] = MS_STRANGER;
        same = same && translated[i] == i;
        ranks[i] = translated[i];
    }
    if (!same) return ranks;
    free(ranks);
    return NULL;
}

static void define_members(const char *key, int32_t id, int32_t parent, const int32_t *world, int size) {
    char text[MOST_LISTED * 12 + 1];
    for (int first = 0; first < size || first == 0; first += MOST_LISTED) {
        size_t length = 0;
        text[0] = 0;
        for (int i = first; i < size && i < first + MOST_LISTED; i++)
            length += (size_t)sprintf(text + length, "%s%d", i > first ? "," : "", world ? world[i] : i);
        if (first) ms_define("{\"communicator\": %d, \"more\": [%s], \"of\": \"%s\"}", id, text, key);
        else ms_define("{\"communicator\": %d, \"parent\": %d, \"%s\": [%s]}", id, parent, key, text);
    }
}

static void free_unused(struct ms_communicator *c) {
    if (!c->is_gone || c->num_users) return;
    free(c->world);
    for (int i = 0; i < 2; i++) free(c->neighbours[i]);
    free(c);
}

void ms_release(struct ms_communicator *c) {
    if (!c) return;
    c->num_users--;
    free_unused(c);
}

static void forget(MPI_Comm comm) {
    for (struct ms_communicator **at = bucket_of(comm); *at; at = &(*at)->next) {
        struct ms_communicator *old = *at;
        if (old->handle != comm) continue;
        *at = old->next;
        latest = NULL;
        old->is_gone = 1; /* kept in memory while requests that are still open refer to it */
        free_unused(old);
        return;
    }
}

static struct ms_communicator *enter(MPI_Comm comm, int32_t parent) {
    struct ms_communicator *c = calloc(1, sizeof *c);
    MPI_Group group;
    int can_tell = comm == MPI_COMM_WORLD || world_group != MPI_GROUP_NULL; /* not in MPI 4's sessions */
    if (!c || !can_tell || PMPI_Comm_group(comm, &group) != MPI_SUCCESS) {
        free(c);
        return NULL;
    }
    forget(comm); /* a handle that the library uses again */
    c->handle = comm;
    c->id = comm == MPI_COMM_WORLD ? 0 : comm == MPI_COMM_SELF ? 1 : next_communicator++;
    c->num_neighbours[0] = c->num_neighbours[1] = -1;
    PMPI_Comm_rank(comm, &c->rank);
    PMPI_Comm_size(comm, &c->size);
    PMPI_Comm_test_inter(comm, &c->is_inter);
    if (comm == MPI_COMM_WORLD) world_group = group;
    c->world = comm == MPI_COMM_WORLD ? NULL : ms_world_ranks(group, c->size);
    if (comm != MPI_COMM_WORLD) {
        define_members("members", c->id, parent, c->world, c->size);
        PMPI_Group_free(&group);
    }
    if (c->is_inter && PMPI_Comm_remote_group(comm, &group) == MPI_SUCCESS) {
        PMPI_Comm_remote_size(comm, &c->remote_size);
        c->world = ms_world_ranks(group, c->remote_size);
        define_members("remote", c->id, parent, c->world, c->remote_size);
        PMPI_Group_free(&group);
    }
    struct ms_communicator **bucket = bucket_of(comm);
    c->next = *bucket;
    *bucket = c;
    return c;
}

struct ms_communicator *ms_communicator(MPI_Comm comm) {
    if (MS_LIKELY(latest && latest->handle == comm)) return latest;
    struct ms_communicator *c = *bucket_of(comm);
    while (c && c->handle != comm) c = c->next;
    if (!c && comm != MPI_COMM_NULL) c = enter(comm, -1); /* made by a call that is not recorded */
    if (c) latest = c;
    return c;
}

static struct ms_communicator *on(struct ms_operation *operation, struct ms_communicator *c) {
    if (!c) return NULL;
    operation->communicator = c->id;
    if (c->is_inter) operation->flags |= MS_INTERCOMMUNICATOR;
    return c;
}

struct ms_communicator *ms_on(struct ms_operation *operation, MPI_Comm comm) {
    return on(operation, ms_communicator(comm));
}

void ms_new_communicator(struct ms_operation *operation, MPI_Comm parent, MPI_Comm comm) {
    struct ms_communicator *from = ms_on(operation, parent);
    if (comm != MPI_COMM_NULL) enter(comm, from ? from->id : -1);
}

void ms_new_communicator_of_its_own(struct ms_operation *operation, MPI_Comm comm) {
    if (comm != MPI_COMM_NULL) on(operation, enter(comm, -1));
}

void ms_put_on(struct ms_operation *operation, struct ms_communicator *c) { on(operation, c); }

struct ms_communicator *ms_shadow(MPI_Comm comm) {
    struct ms_communicator *of = ms_communicator(comm), *c = of && !of->is_inter ? calloc(1, sizeof *c) : NULL;
    if (!c) return NULL;
    *c = *of;
    c->handle = MPI_COMM_NULL;
    c->id = next_communicator++;
    c->num_users = 0;
    c->next = NULL;
    for (int i = 0; i < 2; i++) c->neighbours[i] = NULL;
    if (of->world) {
        c->world = malloc(sizeof *c->world * (size_t)c->size);
        if (c->world) memcpy(c->world, of->world, sizeof *c->world * (size_t)c->size);
    }
    define_members("members", c->id, of->id, c->world, c->size);
    return c;
}

int32_t ms_number_members(const int32_t *world, int size) {
    int32_t id = next_communicator++;
    define_members("members", id, -1, world, size);
    return id;
}

int ms_comm_free(struct ms_operation *operation, int (*real)(MPI_Comm *), MPI_Comm *comm) {
    MPI_Comm handle = *comm;
    ms_lock();
    ms_on(operation, handle);
    ms_unlock();
    int code = real(comm);
    ms_lock();
    if (ms_returned(operation, code)) forget(handle);
    ms_unlock();
    return code;
}

/* ---- start and end ---- */

static void define_process(int rank, int size) {
    char library[64];
#if defined(OPEN_MPI)
    snprintf(library, sizeof library, "Open MPI %d.%d.%d", OMPI_MAJOR_VERSION, OMPI_MINOR_VERSION, OMPI_RELEASE_VERSION);
#elif defined(MPICH_VERSION)
    snprintf(library, sizeof library, "MPICH %s", MPICH_VERSION);
#else
    snprintf(library, sizeof library, "MPI %d.%d", MPI_VERSION, MPI_SUBVERSION);
#endif
    ms_set_rank(rank, size, library);
    ms_define_calls();
    is_defined = 1;
}

void ms_initialised(struct ms_operation *operation) {
    (void)operation;
    int provided = MPI_THREAD_SINGLE, rank, size;
    PMPI_Query_thread(&provided);
    ms.is_threaded |= provided >= MPI_THREAD_SERIALIZED;
    PMPI_Comm_rank(MPI_COMM_WORLD, &rank);
    PMPI_Comm_size(MPI_COMM_WORLD, &size);
    if (!is_defined) define_process(rank, size);
    enter(MPI_COMM_WORLD, -1);
    enter(MPI_COMM_SELF, 0);
}

/* Sessions (MPI 4.0, chapter 11): the process set mpi://WORLD is what MPI_COMM_WORLD would be. */
#if MPI_VERSION >= 4
static MPI_Session world_session = MPI_SESSION_NULL;

void ms_session_initialised(struct ms_operation *operation, MPI_Session session) {
    (void)operation;
    int rank, size;
    if (world_group != MPI_GROUP_NULL) return;
    if (PMPI_Group_from_session_pset(session, "mpi://WORLD", &world_group) != MPI_SUCCESS) return;
    PMPI_Group_rank(world_group, &rank);
    PMPI_Group_size(world_group, &size);
    ms.is_threaded = 1; /* what the session allows it does not say in MPI 4.0 */
    world_session = session;
    if (is_defined) return;
    define_process(rank, size);
}

int ms_session_finalize(struct ms_operation *operation, int (*real)(MPI_Session *), MPI_Session *session) {
    if (world_session != MPI_SESSION_NULL && *session == world_session) {
        PMPI_Group_free(&world_group);
        world_group = MPI_GROUP_NULL;
        world_session = MPI_SESSION_NULL;
    }
    int code = real(session);
    ms_returned(operation, code);
    return code;
}
#endif

int ms_abort(struct ms_operation *operation, int (*real)(MPI_Comm, int), MPI_Comm comm, int code) {
    (void)operation;
    ms_define("{\"abort\": %d}", code);
    ms_finish();
    return real(comm, code);
}

/* Iterations are marked by MPI_Pcontrol(1000 + n). */
__attribute__((visibility("default"))) int MPI_Pcontrol(const int level, ...) {
    static __typeof__(MPI_Pcontrol) *real;
    if (!real) real = (__typeof__(real))ms_real("PMPI_Pcontrol");
    if (level >= 1000) manyscale_mark(3, NULL, level - 1000);
    return real(level);
}
extern __typeof__(MPI_Pcontrol) PMPI_Pcontrol __attribute__((alias("MPI_Pcontrol"), visibility("default")));

/* ---- point to point ---- */

static void set_null(struct ms_operation *operation, int rank) {
    if (MS_UNLIKELY(rank == MPI_PROC_NULL)) operation->flags |= MS_NULL_PEER;
}

static struct ms_communicator *sent(struct ms_operation *operation, MPI_Comm comm, int dest, int tag, int64_t bytes) {
    struct ms_communicator *c = ms_on(operation, comm);
    operation->peer = ms_world(c, dest);
    operation->tag = tag;
    operation->bytes = bytes;
    set_null(operation, dest);
    return c;
}

/* A receive; ``status``: how it ended, or NULL. */
static struct ms_communicator *received(struct ms_operation *operation, struct ms_communicator *c, int source, int tag,
                                        int64_t room, MPI_Status *status) {
    on(operation, c);
    if (source == MPI_ANY_SOURCE) operation->flags |= MS_WILDCARD;
    if (tag == MPI_ANY_TAG) operation->flags |= MS_ANY_TAG;
    set_null(operation, source);
    operation->peer = ms_world(c, source);
    operation->tag = tag == MPI_ANY_TAG ? -1 : tag;
    operation->receive_bytes = room;
    if (status && source != MPI_PROC_NULL) {
        MPI_Count bytes = 0;
        operation->peer = ms_world(c, status->MPI_SOURCE);
        operation->tag = status->MPI_TAG;
        PMPI_Get_elements_x(status, MPI_BYTE, &bytes);
        operation->receive_bytes = (int64_t)bytes;
    }
    return c;
}

void ms_send(struct ms_operation *operation, MPI_Comm comm, int dest, int tag, int64_t bytes) {
    sent(operation, comm, dest, tag, bytes);
}

void ms_recv(struct ms_operation *operation, MPI_Comm comm, int source, int tag, int64_t room, MPI_Status *status) {
    received(operation, ms_communicator(comm), source, tag, room, status);
}

void ms_partitioned_send(struct ms_operation *operation, MPI_Comm comm, int dest, int tag, int partitions,
                         int64_t bytes, MPI_Request request) {
    sent(operation, comm, dest, tag, bytes);
    ms_init_partitions(operation, request, partitions);
}

/* Its status tells nothing in MPICH 4.0: the source and the size are those of the call. */
void ms_partitioned_receive(struct ms_operation *operation, MPI_Comm comm, int source, int tag, int64_t room,
                            MPI_Request request) {
    received(operation, ms_communicator(comm), source, tag, room, NULL);
    ms_init(operation, request);
}

void ms_isend(struct ms_operation *operation, MPI_Comm comm, int dest, int tag, int64_t bytes, MPI_Request request) {
    sent(operation, comm, dest, tag, bytes);
    ms_open(operation, request);
}

void ms_irecv(struct ms_operation *operation, MPI_Comm comm, int source, int tag, int64_t room, MPI_Request request) {
    ms_open_receive(operation, received(operation, ms_communicator(comm), source, tag, room, NULL), request, 0);
}

void ms_send_init(struct ms_operation *operation, MPI_Comm comm, int dest, int tag, int64_t bytes, MPI_Request request) {
    sent(operation, comm, dest, tag, bytes);
    ms_init(operation, request);
}

void ms_recv_init(struct ms_operation *operation, MPI_Comm comm, int source, int tag, int64_t room, MPI_Request request) {
    ms_open_receive(operation, received(operation, ms_communicator(comm), source, tag, room, NULL), request, 1);
}

void ms_sendrecv(struct ms_operation *operation, MPI_Comm comm, int dest, int sendtag, int64_t bytes, int source,
                 int recvtag, int64_t room, MPI_Status *status) {
    received(operation, ms_communicator(comm), source, recvtag, room, status);
    operation->source = operation->peer;
    operation->receive_tag = operation->tag;
    sent(operation, comm, dest, sendtag, bytes);
}

void ms_isendrecv(struct ms_operation *operation, MPI_Comm comm, int dest, int sendtag, int64_t bytes, int source,
                  int recvtag, int64_t room, MPI_Request request) {
    ms_sendrecv(operation, comm, dest, sendtag, bytes, source, recvtag, room, NULL);
    ms_open(operation, request); /* its status tells nothing of the receive in MPICH 4.0 */
}

void ms_probe(struct ms_operation *operation, MPI_Comm comm, int source, int tag, int found, MPI_Status *status) {
    received(operation, ms_communicator(comm), source, tag, 0, found ? status : NULL);
    if (found) operation->flags |= MS_COMPLETED;
}

/* ---- matched probes: the message remembers where it comes from ---- */

static struct message {
    MPI_Message handle;
    struct ms_communicator *communicator;
    int is_wildcard, is_any_tag, used;
} *messages;
static int num_messages;

void ms_mprobe(struct ms_operation *operation, MPI_Comm comm, int source, int tag, int found, MPI_Message message,
               MPI_Status *status) {
    ms_probe(operation, comm, source, tag, found, status);
    if (!found || message == MPI_MESSAGE_NO_PROC) return;
    int free_place = 0;
    while (free_place < num_messages && messages[free_place].used) free_place++;
    if (free_place == num_messages) {
        struct message *grown = realloc(messages, sizeof *messages * (size_t)(2 * num_messages + 4));
        if (!grown) return;
        messages = grown;
        memset(messages + num_messages, 0, sizeof *messages * (size_t)(num_messages + 4));
        num_messages = 2 * num_messages + 4;
    }
    messages[free_place] = (struct message){message, ms_use(ms_communicator(comm)), source == MPI_ANY_SOURCE,
                                            tag == MPI_ANY_TAG, 1};
}

static struct message take_message(MPI_Message handle) {
    struct message taken = {0};
    ms_lock();
    for (int i = 0; i < num_messages && !taken.used; i++) {
        if (!messages[i].used || messages[i].handle != handle) continue;
        taken = messages[i];
        messages[i].used = 0;
    }
    ms_unlock();
    return taken;
}

static struct ms_communicator *received_message(struct ms_operation *operation, struct message from, int is_null,
                                                int64_t room, MPI_Status *status) {
    struct ms_communicator *c = from.communicator ? from.communicator : ms_communicator(MPI_COMM_WORLD);
    received(operation, c, is_null ? MPI_PROC_NULL : MPI_ANY_SOURCE, MPI_ANY_TAG, room, status);
    if (!from.is_wildcard) operation->flags &= (uint16_t)~MS_WILDCARD;
    if (!from.is_any_tag) operation->flags &= (uint16_t)~MS_ANY_TAG;
    return c;
}

#define MATCHED_RECEIVES(suffix, count_type)                                                                          \
    int ms_mrecv##suffix(struct ms_operation *operation,                                                              \
                         int (*real)(void *, count_type, MPI_Datatype, MPI_Message *, MPI_Status *), void *buf,       \
                         count_type count, MPI_Datatype type, MPI_Message *message, MPI_Status *status) {             \
        MPI_Status own;                                                                                               \
        if (status == MPI_STATUS_IGNORE) status = &own;                                                               \
        int is_null = *message == MPI_MESSAGE_NO_PROC;                                                                \
        struct message from = take_message(*message);                                                                 \
        int code = real(buf, count, type, message, status);                                                           \
        ms_lock();                                                                                                    \
        if (ms_returned(operation, code)) received_message(operation, from, is_null, 0, status);                      \
        ms_release(from.communicator);                                                                                \
        ms_unlock();                                                                                                  \
        return code;                                                                                                  \
    }                                                                                                                 \
    int ms_imrecv##suffix(struct ms_operation *operation,                                                             \
                          int (*real)(void *, count_type, MPI_Datatype, MPI_Message *, MPI_Request *), void *buf,     \
                          count_type count, MPI_Datatype type, MPI_Message *message, MPI_Request *request) {          \
        int is_null = *message == MPI_MESSAGE_NO_PROC;                                                                \
        struct message from = take_message(*message);                                                                 \
        int code = real(buf, count, type, message, request);                                                          \
        ms_lock();                                                                                                    \
        if (ms_returned(operation, code))                                                                             \
            ms_open_receive(operation, received_message(operation, from, is_null, ms_bytes(count, type), NULL),       \
                            *request, 0);                                                                             \
        ms_release(from.communicator);                                                                                \
        ms_unlock();                                                                                                  \
        return code;                                                                                                  \
    }
MATCHED_RECEIVES(, int)
#if MPI_VERSION >= 4
MATCHED_RECEIVES(_c, MPI_Count)
#endif

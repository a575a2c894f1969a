/* Requests: which call opened those that a wait or a test completes, by their handles.

   A handle may stand for several requests at once: MPI libraries give all sends that are complete when they return one
   and the same. Those are completed in the order in which they were opened; since they are complete already, it does
   not matter which of them a wait names. */
#include "record.h"

#include <stdlib.h>
#include <string.h>

#define KEY(handle) ((uint64_t)(uintptr_t)(handle))
#define MANY 64 /* requests for which there is room on the stack */

struct request {
    uint64_t key;
    int32_t id;         /* of the request, or of the template */
    int32_t started;    /* of a template: the request that it started, -1 while it is inactive */
    int is_receive, is_template, is_cancelled;
    int partitions, num_ready; /* of a partitioned send: how many there are, 0 for other requests */
    int is_unique; /* no other request has its handle while it is open */
    struct ms_communicator *communicator;
    struct request *next; /* in its bucket */
    struct request *same; /* opened later under the same handle */
    struct request *last; /* of those; valid in the first */
};

static struct request **buckets, *spare;
static uint64_t num_buckets, num_requests;
static int32_t next_request;

static struct request **place_of(uint64_t key) {
    struct request **at = &buckets[ms_hash(key) & (num_buckets - 1)];
    while (*at && (*at)->key != key) at = &(*at)->next;
    return at;
}

static struct request *find_key(uint64_t key) { return num_buckets ? *place_of(key) : NULL; }
static struct request *find(MPI_Request handle) { return handle == MPI_REQUEST_NULL ? NULL : find_key(KEY(handle)); }

static int grow(void) {
    uint64_t old_size = num_buckets;
    struct request **old = buckets, **grown = calloc(old_size ? 2 * old_size : 256, sizeof *grown);
    if (!grown) return old_size > 0;
    buckets = grown;
    num_buckets = old_size ? 2 * old_size : 256;
    for (uint64_t i = 0; i < old_size; i++) {
        for (struct request *each = old[i], *next; each; each = next) {
            next = each->next;
            struct request **bucket = &buckets[ms_hash(each->key) & (num_buckets - 1)];
            each->next = *bucket;
            *bucket = each;
        }
    }
    free(old);
    return 1;
}

static struct request *new_request(void) {
    enum { AT_ONCE = 256 };
    if (!spare) {
        struct request *block = malloc(AT_ONCE * sizeof *block);
        if (!block) return NULL;
        for (int i = 0; i < AT_ONCE; i++) {
            block[i].next = spare;
            spare = &block[i];
        }
    }
    struct request *taken = spare;
    spare = taken->next;
    return taken;
}

/* Take the first request of a key out of the table. */
static void leave_key(uint64_t key) {
    struct request **at = place_of(key), *r = *at;
    if (r->same) {
        r->same->last = r->last;
        r->same->next = r->next;
        *at = r->same;
    } else {
        *at = r->next;
    }
    ms_release(r->communicator);
    r->next = spare;
    spare = r;
    num_requests--;
}

static void leave(MPI_Request handle) { leave_key(KEY(handle)); }

static struct request *enter_key(struct ms_operation *operation, struct ms_communicator *c, uint64_t key,
                                 int is_receive, int is_template) {
    operation->request = next_request++;
    if (num_requests >= num_buckets && !grow()) return NULL;
    struct request *r = new_request();
    if (!r) return NULL;
    *r = (struct request){.key = key, .id = operation->request, .started = -1, .is_receive = is_receive,
                          .is_template = is_template, .communicator = ms_use(c)};
    r->is_unique = is_template || (is_receive && !(operation->flags & MS_NULL_PEER));
    r->last = r;
    struct request **at = place_of(r->key);
    /* Completed where it was not seen, and its handle used again. Where several threads call, the one that completed it
       has yet to say so: the first under a handle is the one that is complete. */
    while (!ms.is_threaded && *at && (r->is_unique || (*at)->is_unique)) {
        leave_key(key);
        at = place_of(r->key);
    }
    if (*at) {
        (*at)->last->same = r;
        (*at)->last = r;
    } else {
        *at = r;
    }
    num_requests++;
    return r;
}

static struct request *enter(struct ms_operation *operation, struct ms_communicator *c, MPI_Request handle,
                             int is_receive, int is_template) {
    if (handle != MPI_REQUEST_NULL) return enter_key(operation, c, KEY(handle), is_receive, is_template);
    operation->request = next_request++;
    return NULL;
}

void ms_open(struct ms_operation *operation, MPI_Request request) { enter(operation, NULL, request, 0, 0); }
void ms_init(struct ms_operation *operation, MPI_Request request) { enter(operation, NULL, request, 0, 1); }
void ms_open_key(struct ms_operation *operation, uint64_t key) { enter_key(operation, NULL, key, 0, 0); }
void ms_open_receive(struct ms_operation *operation, struct ms_communicator *c, MPI_Request request, int is_template) {
    enter(operation, c, request, 1, is_template);
}

/* ---- persistent requests ---- */

/* List the template of a request that was started, and the number that it has this time. */
static void started(struct ms_operation *operation, MPI_Request handle) {
    ms_lock();
    struct request *r = find(handle);
    if (r && r->is_template) {
        r->started = next_request++;
        r->is_cancelled = 0;
        r->num_ready = 0;
        if (!r->partitions) {
            ms_list(operation, r->id);
            ms_list(operation, r->started);
        }
    }
    ms_unlock();
}

/* ---- partitioned communication ---- */

void ms_init_partitions(struct ms_operation *operation, MPI_Request request, int partitions) {
    struct request *r = enter(operation, NULL, request, 0, 1);
    if (r) r->partitions = partitions;
}

/* The message goes when its last partition is ready. */
void ms_ready(struct ms_operation *operation, MPI_Request request, int count) {
    struct request *r = find(request);
    if (!r || !r->partitions || r->started < 0) return;
    r->num_ready += count;
    if (r->num_ready - count >= r->partitions || r->num_ready < r->partitions) return;
    ms_list(operation, r->id);
    ms_list(operation, r->started);
}

int ms_start_request(struct ms_operation *operation, int (*real)(MPI_Request *), MPI_Request *request) {
    int code = real(request);
    if (ms_returned(operation, code)) started(operation, *request);
    return code;
}

int ms_startall(struct ms_operation *operation, int (*real)(int, MPI_Request *), int num, MPI_Request *requests) {
    int code = real(num, requests);
    if (ms_returned(operation, code))
        for (int i = 0; i < num; i++) started(operation, requests[i]);
    return code;
}

int ms_request_free(struct ms_operation *operation, int (*real)(MPI_Request *), MPI_Request *request) {
    MPI_Request handle = *request;
    int code = real(request);
    ms_lock();
    if (ms_returned(operation, code) && find(handle)) leave(handle);
    ms_unlock();
    return code;
}

int ms_cancel(struct ms_operation *operation, int (*real)(MPI_Request *), MPI_Request *request) {
    ms_lock();
    struct request *r = find(*request);
    ms_unlock();
    int code = real(request);
    if (ms_returned(operation, code) && r) r->is_cancelled = 1;
    return code;
}

/* ---- waits and tests ---- */

/* List a request that the call completed. */
static void complete(struct ms_operation *operation, MPI_Request handle, MPI_Status *status) {
    struct request *r = find(handle);
    if (!r || (r->is_template && r->started < 0)) return;
    int32_t source = MS_NONE;
    int tag = 0, was_cancelled = 0;
    MPI_Count bytes = 0;
    if (MS_UNLIKELY(r->is_cancelled)) PMPI_Test_cancelled(status, &was_cancelled);
    if (was_cancelled) {
        source = MS_WAS_CANCELLED;
        operation->flags |= MS_CANCELLED;
    } else if (r->is_receive) {
        source = ms_world(r->communicator, status->MPI_SOURCE);
        tag = status->MPI_TAG;
        PMPI_Get_elements_x(status, MPI_BYTE, &bytes);
    }
    ms_list(operation, r->is_template ? r->started : r->id);
    ms_list(operation, source);
    ms_list(operation, (int64_t)bytes);
    ms_list(operation, tag);
    if (r->is_template) r->started = -1;
    else leave(handle);
}

void ms_complete_key(struct ms_operation *operation, uint64_t key) {
    struct request *r = find_key(key);
    if (!r) return;
    ms_list(operation, r->id);
    ms_list(operation, MS_NONE);
    ms_list(operation, 0);
    ms_list(operation, 0);
    leave_key(key);
}

static void completed(struct ms_operation *operation, MPI_Request handle, MPI_Status *status) {
    ms_lock();
    complete(operation, handle, status);
    ms_unlock();
}

/* After a call that failed: a request whose handle is gone is open no longer, though nothing tells how it ended. */
static void lost(MPI_Request before, MPI_Request after) {
    ms_lock();
    if (after == MPI_REQUEST_NULL && find(before)) leave(before);
    ms_unlock();
}

static void all_lost(int num, const MPI_Request *before, const MPI_Request *after) {
    for (int i = 0; i < num; i++) lost(before[i], after[i]);
}

/* Handles as they are before the call, and statuses of our own where the program wants none. */
struct before {
    MPI_Request few_handles[MANY], *handles;
    MPI_Status few_statuses[MANY], *statuses;
};

static int remember(struct before *before, int num, const MPI_Request *requests, MPI_Status *statuses, int num_statuses) {
    size_t count = num > 0 ? (size_t)num : 0, wanted = num_statuses > 0 ? (size_t)num_statuses : 0;
    before->handles = count <= MANY ? before->few_handles : malloc(count * sizeof(MPI_Request));
    before->statuses = statuses;
    if (statuses == MPI_STATUSES_IGNORE || statuses == MPI_STATUS_IGNORE)
        before->statuses = wanted <= MANY ? before->few_statuses : malloc(wanted * sizeof(MPI_Status));
    if (!before->handles || !before->statuses) return 0;
    if (count) memcpy(before->handles, requests, count * sizeof(MPI_Request));
    return 1;
}

static void forget(struct before *before, MPI_Status *statuses) {
    if (before->handles != before->few_handles) free(before->handles);
    if (before->statuses != before->few_statuses && before->statuses != statuses) free(before->statuses);
}

static int is_undefined(int value) { return value == MPI_UNDEFINED; }

int ms_wait(struct ms_operation *operation, int (*real)(MPI_Request *, MPI_Status *), MPI_Request *request,
            MPI_Status *status) {
    MPI_Status own;
    MPI_Request handle = *request;
    if (status == MPI_STATUS_IGNORE) status = &own;
    int code = real(request, status);
    if (ms_returned(operation, code)) completed(operation, handle, status);
    else lost(handle, *request);
    return code;
}

int ms_test(struct ms_operation *operation, int (*real)(MPI_Request *, int *, MPI_Status *), MPI_Request *request,
            int *flag, MPI_Status *status) {
    MPI_Status own;
    MPI_Request handle = *request;
    if (status == MPI_STATUS_IGNORE) status = &own;
    int code = real(request, flag, status);
    if (!ms_returned(operation, code)) {
        lost(handle, *request);
    } else if (*flag) {
        operation->flags |= MS_COMPLETED;
        completed(operation, handle, status);
    }
    return code;
}

int ms_waitall(struct ms_operation *operation, int (*real)(int, MPI_Request *, MPI_Status *), int num,
               MPI_Request *requests, MPI_Status *statuses) {
    struct before before;
    if (!remember(&before, num, requests, statuses, num)) return real(num, requests, statuses);
    int code = real(num, requests, before.statuses);
    if (!ms_returned(operation, code)) all_lost(num, before.handles, requests);
    else
        for (int i = 0; i < num; i++) completed(operation, before.handles[i], &before.statuses[i]);
    forget(&before, statuses);
    return code;
}

int ms_testall(struct ms_operation *operation, int (*real)(int, MPI_Request *, int *, MPI_Status *), int num,
               MPI_Request *requests, int *flag, MPI_Status *statuses) {
    struct before before;
    if (!remember(&before, num, requests, statuses, num)) return real(num, requests, flag, statuses);
    int code = real(num, requests, flag, before.statuses);
    if (!ms_returned(operation, code)) {
        all_lost(num, before.handles, requests);
    } else if (*flag) {
        operation->flags |= MS_COMPLETED;
        for (int i = 0; i < num; i++) completed(operation, before.handles[i], &before.statuses[i]);
    }
    forget(&before, statuses);
    return code;
}

int ms_waitany(struct ms_operation *operation, int (*real)(int, MPI_Request *, int *, MPI_Status *), int num,
               MPI_Request *requests, int *index, MPI_Status *status) {
    struct before before;
    if (!remember(&before, num, requests, status, 1)) return real(num, requests, index, status);
    int code = real(num, requests, index, before.statuses);
    if (!ms_returned(operation, code)) all_lost(num, before.handles, requests);
    else if (!is_undefined(*index)) completed(operation, before.handles[*index], before.statuses);
    forget(&before, status);
    return code;
}

int ms_testany(struct ms_operation *operation, int (*real)(int, MPI_Request *, int *, int *, MPI_Status *), int num,
               MPI_Request *requests, int *index, int *flag, MPI_Status *status) {
    struct before before;
    if (!remember(&before, num, requests, status, 1)) return real(num, requests, index, flag, status);
    int code = real(num, requests, index, flag, before.statuses);
    if (!ms_returned(operation, code)) {
        all_lost(num, before.handles, requests);
    } else if (*flag) {
        operation->flags |= MS_COMPLETED;
        if (!is_undefined(*index)) completed(operation, before.handles[*index], before.statuses);
    }
    forget(&before, status);
    return code;
}

static int some(struct ms_operation *operation, int (*real)(int, MPI_Request *, int *, int *, MPI_Status *), int num,
                MPI_Request *requests, int *outcount, int *indices, MPI_Status *statuses) {
    struct before before;
    if (!remember(&before, num, requests, statuses, num)) return real(num, requests, outcount, indices, statuses);
    int code = real(num, requests, outcount, indices, before.statuses);
    if (!ms_returned(operation, code)) {
        all_lost(num, before.handles, requests);
    } else if (*outcount != 0) {
        operation->flags |= MS_COMPLETED;
        for (int i = 0; !is_undefined(*outcount) && i < *outcount; i++)
            completed(operation, before.handles[indices[i]], &before.statuses[i]);
    }
    forget(&before, statuses);
    return code;
}

int ms_waitsome(struct ms_operation *operation, int (*real)(int, MPI_Request *, int *, int *, MPI_Status *), int num,
                MPI_Request *requests, int *outcount, int *indices, MPI_Status *statuses) {
    return some(operation, real, num, requests, outcount, indices, statuses);
}

int ms_testsome(struct ms_operation *operation, int (*real)(int, MPI_Request *, int *, int *, MPI_Status *), int num,
                MPI_Request *requests, int *outcount, int *indices, MPI_Status *statuses) {
    return some(operation, real, num, requests, outcount, indices, statuses);
}

/* Records of windows, one-sided communication and files: whose members call together, and what is put and got. */
#include "record.h"

#include <stdlib.h>

#define KEY(handle) ((uint64_t)(uintptr_t)(handle))
#define FILES (1ull << 63) /* keys of files are no windows' */

static struct shadow {
    uint64_t key;
    struct ms_communicator *communicator;
    struct shadow *next;
} *shadows;

static void make(struct ms_operation *operation, uint64_t key, MPI_Comm comm) {
    struct shadow *made = malloc(sizeof *made);
    if (!made) return;
    *made = (struct shadow){key, ms_shadow(comm), shadows};
    shadows = made;
    ms_put_on(operation, made->communicator);
}

static struct ms_communicator *find(uint64_t key) {
    for (struct shadow *each = shadows; each; each = each->next)
        if (each->key == key) return each->communicator;
    return NULL;
}

static void unmake(uint64_t key) {
    for (struct shadow **at = &shadows; *at; at = &(*at)->next) {
        struct shadow *gone = *at;
        if (gone->key != key) continue;
        *at = gone->next;
        if (gone->communicator) free(gone->communicator->world);
        free(gone->communicator);
        free(gone);
        return;
    }
}

void ms_new_window(struct ms_operation *operation, MPI_Comm comm, MPI_Win window) {
    make(operation, KEY(window), comm);
}

void ms_on_window(struct ms_operation *operation, MPI_Win window) { ms_put_on(operation, find(KEY(window))); }

int ms_win_free(struct ms_operation *operation, int (*real)(MPI_Win *), MPI_Win *window) {
    uint64_t key = KEY(*window);
    ms_lock();
    ms_put_on(operation, find(key));
    ms_unlock();
    int code = real(window);
    ms_lock();
    if (ms_returned(operation, code)) unmake(key);
    ms_unlock();
    return code;
}

void ms_window_test(struct ms_operation *operation, MPI_Win window, int is_over) {
    ms_on_window(operation, window);
    if (is_over) operation->flags |= MS_COMPLETED;
}

void ms_window_group(struct ms_operation *operation, MPI_Win window, MPI_Group group) {
    int size = 0;
    ms_on_window(operation, window);
    PMPI_Group_size(group, &size);
    int32_t *ranks = ms_world_ranks(group, size);
    for (int i = 0; i < size; i++) ms_list(operation, ranks ? ranks[i] : i);
    free(ranks);
}

void ms_one_sided(struct ms_operation *operation, MPI_Win window, int target, int64_t put, int64_t got) {
    struct ms_communicator *c = find(KEY(window));
    ms_put_on(operation, c);
    operation->peer = ms_world(c, target);
    operation->bytes = put;
    operation->receive_bytes = got;
    if (target == MPI_PROC_NULL) operation->flags |= MS_NULL_PEER;
}

void ms_new_file(struct ms_operation *operation, MPI_Comm comm, MPI_File file) {
    make(operation, KEY(file) | FILES, comm);
}

void ms_on_file(struct ms_operation *operation, MPI_File file) { ms_put_on(operation, find(KEY(file) | FILES)); }

void ms_file_access(struct ms_operation *operation, MPI_File file, int64_t written, int64_t asked) {
    ms_on_file(operation, file);
    operation->bytes = written;
    operation->receive_bytes = asked;
}

int ms_file_close(struct ms_operation *operation, int (*real)(MPI_File *), MPI_File *file) {
    uint64_t key = KEY(*file) | FILES;
    ms_lock();
    ms_put_on(operation, find(key));
    ms_unlock();
    int code = real(file);
    ms_lock();
    if (ms_returned(operation, code)) unmake(key);
    ms_unlock();
    return code;
}

void ms_open_split(struct ms_operation *operation, MPI_File file) { ms_open_key(operation, KEY(file) | FILES); }
void ms_close_split(struct ms_operation *operation, MPI_File file) { ms_complete_key(operation, KEY(file) | FILES); }

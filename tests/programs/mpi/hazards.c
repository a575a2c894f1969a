/* What production programs do that a tracer must bear, by the first argument:
   "errors": a message is too long for its receive, while errors return; then the same requests' handles are used again;
   "jump": an error handler leaves a call by longjmp;
   "thread": another thread than the first one initialises MPI;
   "waits": a thread opens receives that another one completes, then some that it completes itself;
   "descriptors" FILE: all descriptors above 2 that are of traces are closed, and FILE gets their numbers;
   "quit": another thread ends the process;
   "alarm": the handler of a signal ends it, whatever is being done;
   "communicators": many are made and freed; prints by how much the memory grew, in KiB;
   "message": a communicator is freed before a message that was matched on it is received;
   "spawn": starts another process, and talks within the merged communicator;
   "child" COMMAND: starts a command. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <mpi.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int rank, size;
static jmp_buf place;
static char *program;

static void errors(void) {
    int data[100] = {0}, other = 1 - rank;
    MPI_Request requests[2];
    MPI_Status status;
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Irecv(data, 1, MPI_INT, other, 1, MPI_COMM_WORLD, requests);
    MPI_Send(data, 4, MPI_INT, other, 1, MPI_COMM_WORLD);
    if (MPI_Wait(requests, &status) == MPI_SUCCESS) abort();
    for (int i = 0; i < 2; i++) {
        for (int k = 0; k < 2; k++) MPI_Irecv(data + 10 * k, 10, MPI_INT, other, 2 + k, MPI_COMM_WORLD, &requests[k]);
        for (int k = 0; k < 2; k++) MPI_Send(data, 4, MPI_INT, other, 2 + k, MPI_COMM_WORLD);
        MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
    }
}

static void on_error(MPI_Comm *comm, int *code, ...) {
    (void)comm;
    (void)code;
    longjmp(place, 1);
}

static void jump(void) {
    int data = 0;
    MPI_Errhandler handler;
    MPI_Comm_create_errhandler(on_error, &handler);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, handler);
    if (!setjmp(place)) MPI_Send(&data, 1, MPI_INT, size + 5, 0, MPI_COMM_WORLD);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Bcast(&data, 1, MPI_INT, 0, MPI_COMM_WORLD);
}

static void *whole(void *unused) {
    int provided;
    MPI_Init_thread(NULL, NULL, MPI_THREAD_MULTIPLE, &provided);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Finalize();
    return unused;
}

static void *complete(void *request) {
    MPI_Wait(request, MPI_STATUS_IGNORE);
    return NULL;
}

static void waits(void) {
    int in, out = 0;
    for (int i = 0; i < 6; i++) {
        MPI_Request request;
        pthread_t thread;
        MPI_Irecv(&in, 1, MPI_INT, rank, i, MPI_COMM_WORLD, &request);
        MPI_Send(&out, 1, MPI_INT, rank, i, MPI_COMM_WORLD);
        if (i < 3) {
            pthread_create(&thread, NULL, complete, &request);
            pthread_join(thread, NULL);
        } else {
            MPI_Wait(&request, MPI_STATUS_IGNORE);
        }
    }
}

static void descriptors(const char *path) {
    char link[64], target[4096];
    int one = 1;
    for (int i = 3; i < 1024; i++) {
        snprintf(link, sizeof link, "/proc/self/fd/%d", i);
        ssize_t length = readlink(link, target, sizeof target - 1);
        if (length <= 0) continue;
        target[length] = 0;
        if (!strstr(target, ".trace")) continue;
        close(i);
        int file = open(path, O_RDWR | O_CREAT | O_TRUNC, 0644);
        if (file != i) dup2(file, i);
        if (write(i, "mine", 4) != 4) abort();
    }
    for (int i = 0; i < 10000; i++) MPI_Allreduce(MPI_IN_PLACE, &one, 1, MPI_INT, MPI_MAX, MPI_COMM_SELF);
}

static void *end_process(void *unused) {
    usleep(50000);
    exit(0);
    return unused;
}

static void end_by_alarm(int number) {
    (void)number;
    exit(3);
}

static void reduce_for_ever(void) {
    for (int one = 1;;) MPI_Allreduce(MPI_IN_PLACE, &one, 1, MPI_INT, MPI_MAX, MPI_COMM_SELF);
}

static long memory_kib(void) {
    long pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    if (!file || fscanf(file, "%*d %ld", &pages) != 1) abort();
    fclose(file);
    return pages * (sysconf(_SC_PAGESIZE) / 1024);
}

static void communicators(void) {
    long before = 0;
    for (int i = 0; i < 60000; i++) {
        MPI_Comm comm;
        if (i == 10000) before = memory_kib();
        MPI_Comm_dup(MPI_COMM_SELF, &comm);
        MPI_Comm_free(&comm);
    }
    printf("grew %ld\n", memory_kib() - before);
}

static void message(void) {
    int data = 5, got;
    MPI_Comm comm;
    MPI_Request request;
    MPI_Message matched;
    MPI_Comm_dup(MPI_COMM_SELF, &comm);
    MPI_Isend(&data, 1, MPI_INT, 0, 7, comm, &request);
    MPI_Mprobe(0, 7, comm, &matched, MPI_STATUS_IGNORE);
    MPI_Comm_free(&comm);
    MPI_Mrecv(&got, 1, MPI_INT, &matched, MPI_STATUS_IGNORE);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
}

static void spawn(MPI_Comm inter) {
    int one = 1, is_child = inter != MPI_COMM_NULL;
    MPI_Comm merged;
    if (!is_child)
        MPI_Comm_spawn(program, (char *[]){"spawn", NULL}, 1, MPI_INFO_NULL, 0, MPI_COMM_WORLD, &inter,
                       MPI_ERRCODES_IGNORE);
    MPI_Intercomm_merge(inter, is_child, &merged);
    MPI_Allreduce(MPI_IN_PLACE, &one, 1, MPI_INT, MPI_MAX, merged);
    if (!is_child) MPI_Sendrecv_replace(&one, 1, MPI_INT, 1 - rank, 0, 1 - rank, 0, merged, MPI_STATUS_IGNORE);
    MPI_Barrier(inter);
    MPI_Comm_free(&merged);
    MPI_Comm_disconnect(&inter);
}

int main(int count, char **words) {
    int provided;
    pthread_t thread;
    const char *what = words[1];
    MPI_Comm parent;
    program = words[0];
    if (!strcmp(what, "thread")) {
        pthread_create(&thread, NULL, whole, NULL);
        pthread_join(thread, NULL);
        return 0;
    }
    if (!strcmp(what, "waits")) MPI_Init_thread(&count, &words, MPI_THREAD_MULTIPLE, &provided);
    else MPI_Init(&count, &words);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (!strcmp(what, "errors")) errors();
    if (!strcmp(what, "jump")) jump();
    if (!strcmp(what, "waits")) waits();
    if (!strcmp(what, "descriptors")) descriptors(words[2]);
    if (!strcmp(what, "communicators")) communicators();
    if (!strcmp(what, "message")) message();
    if (!strcmp(what, "child") && system(words[2])) return 1;
    if (!strcmp(what, "quit")) {
        pthread_create(&thread, NULL, end_process, NULL);
        reduce_for_ever();
    }
    if (!strcmp(what, "alarm")) {
        signal(SIGALRM, end_by_alarm);
        ualarm(100000, 0);
        reduce_for_ever();
    }
    if (!strcmp(what, "spawn")) {
        MPI_Comm_get_parent(&parent);
        spawn(parent);
    }
    MPI_Finalize();
    return 0;
}

/* One rank. The first thread sends itself 3 messages, another one 5 (tag 1). With an argument, it tells
   MPI that only the first would. */
#include <mpi.h>
#include <pthread.h>

static void send(int count, int tag) {
    int a = 0, b;
    for (int i = 0; i < count; i++)
        MPI_Sendrecv(&a, 1, MPI_INT, 0, tag, &b, 1, MPI_INT, 0, tag, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}

static void *other(void *unused) {
    send(5, 1);
    return unused;
}

int main(int argc, char **argv) {
    int provided;
    pthread_t thread;
    MPI_Init_thread(&argc, &argv, argc > 1 ? MPI_THREAD_FUNNELED : MPI_THREAD_MULTIPLE, &provided);
    pthread_create(&thread, NULL, other, NULL);
    send(3, 0);
    pthread_join(thread, NULL);
    MPI_Finalize();
    return 0;
}

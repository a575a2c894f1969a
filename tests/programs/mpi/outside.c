/* Any number of ranks: ROUNDS of time outside MPI, each with a barrier behind it. WHAT:
   "helper": another thread computes 20 ms of its CPU time while this one waits for it;
   "sleep": this one sleeps for 20 ms;
   "team": three threads compute 5 ms each and a fourth 20 ms, while this one waits for them;
   "own": this one computes for 20 ms of its CPU time. */
#include <mpi.h>
#include <pthread.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static void *compute(void *ms) {
    struct timespec begin, now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &begin);
    do clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    while ((now.tv_sec - begin.tv_sec) * 1000 + (now.tv_nsec - begin.tv_nsec) / 1000000 < (long)ms);
    return NULL;
}

int main(int argc, char **argv) {
    enum { ROUNDS = 3 };
    int provided, threads = !strcmp(argv[1], "helper") ? 1 : !strcmp(argv[1], "team") ? 4 : 0;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &provided);
    for (int i = 0; i < ROUNDS; i++) {
        pthread_t thread[4];
        for (int t = 0; t < threads; t++) pthread_create(&thread[t], NULL, compute, (void *)(t ? 5l : 20l));
        for (int t = 0; t < threads; t++) pthread_join(thread[t], NULL);
        if (!strcmp(argv[1], "sleep")) usleep(20000);
        if (!strcmp(argv[1], "own")) compute((void *)20l);
        MPI_Barrier(MPI_COMM_WORLD);
    }
    MPI_Finalize();
    return 0;
}

/* Iterations of 1000 loads and stores each, marked; what happens at the end is the argument: exit, kill or fork. A
   second thread does the same and is not traced. */
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "manyscale.h"

static volatile int cells[1000], others[1000];

__attribute__((noinline)) static void sweep(void) {
    for (int i = 0; i < 1000; i++) cells[i]++;
}

__attribute__((noinline)) static void *other(void *unused) {
    for (int i = 0; i < 1000; i++) others[i]++;
    return unused;
}

int main(int argc, char **argv) {
    int iterations = argc > 1 ? atoi(argv[1]) : 10;
    const char *ending = argc > 2 ? argv[2] : "exit";
    pthread_t thread;
    if (pthread_create(&thread, NULL, other, NULL) || pthread_join(thread, NULL)) return 1;
    for (int i = 0; i < iterations; i++) {
        MANYSCALE_ITERATION(i);
        sweep();
    }
    if (!strcmp(ending, "kill")) raise(SIGKILL);
    if (!strcmp(ending, "fork")) {
        if (fork() == 0) {
            sweep();
            _exit(0);
        }
        wait(NULL);
    }
    return 0;
}

/* Drives the tracer's file by hand: N operations, each with one value in its lists and followed by one event, then
   an ending: "exit", "_exit", "kill", "abort", "fork" (a child goes on recording, in vain), "exec" (another program). */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "trace.h"

static void record(int n) {
    for (int i = 0; i < n; i++) {
        struct ms_operation *operation = ms_begin(3);
        if (operation) {
            operation->bytes = i;
            ms_list(operation, 10 * i);
        }
        ms_end(operation, 1);
        struct ms_event *event = ms_event(2);
        if (event) event->value = -i;
    }
}

int main(int count, char **words) {
    const char *ending = count > 2 ? words[2] : "exit";
    ms_start();
    record(atoi(words[1]));
    if (!strcmp(ending, "fork")) {
        pid_t child = fork();
        if (child == 0) {
            record(1000);
            exit(0);
        }
        waitpid(child, NULL, 0);
    }
    if (!strcmp(ending, "unfinished")) {
        ms_begin(7);
        kill(getpid(), SIGKILL);
    }
    if (!strcmp(ending, "_exit")) _exit(0);
    if (!strcmp(ending, "kill")) kill(getpid(), SIGKILL);
    if (!strcmp(ending, "abort")) abort();
    if (!strcmp(ending, "exec")) execl("/bin/true", "true", (char *)NULL);
    printf("went on to the end\n");
    return 0;
}

/* Marks for programs that manyscale traces. Without the tracer they do nothing; nothing has to be linked.

       for (int step = 0; step < steps; step++) {
           MANYSCALE_ITERATION(step);
           MANYSCALE_BEGIN("solve");
           ...
           MANYSCALE_END();
       }

   Fortran programs, and those that include no header of ours: MPI_Pcontrol(1000 + step) marks an iteration. */
#ifndef MANYSCALE_H
#define MANYSCALE_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <dlfcn.h>

#ifndef RTLD_DEFAULT
#define RTLD_DEFAULT ((void *)0)
#endif

static inline void manyscale_mark_(int kind, const char *name, long value) {
    static void (*mark)(int, const char *, long);
    static int looked;
    if (!looked) {
        looked = 1;
        *(void **)&mark = dlsym(RTLD_DEFAULT, "manyscale_mark");
    }
    if (mark) mark(kind, name, value);
}

#define MANYSCALE_BEGIN(name) manyscale_mark_(1, name, 0)
#define MANYSCALE_END() manyscale_mark_(2, 0, 0)
#define MANYSCALE_ITERATION(number) manyscale_mark_(3, 0, number)

#endif

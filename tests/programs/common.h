/* What the programs share: arguments, memory, values that are the same in every run, the verdict, and the marks of
   manyscale (with -DMARKS and its header's folder in the include path; without it they vanish). */
#ifndef PROGRAMS_COMMON_H
#define PROGRAMS_COMMON_H

#ifdef MARKS
#include "manyscale.h"
#else
#define MANYSCALE_ITERATION(number) ((void)(number))
#define MANYSCALE_BEGIN(name) ((void)0)
#define MANYSCALE_END() ((void)0)
#endif

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const double pi = 3.14159265358979323846;

static inline void fail(const char *what) {
    fprintf(stderr, "%s\n", what);
    exit(2);
}

/* The whole number at a place of the command line, or what stands for it where the line is shorter. */
static inline int argument(int argc, char **argv, int place, int fallback, int least) {
    if (place >= argc) return fallback;
    char *end;
    long number = strtol(argv[place], &end, 10);
    if (*end || end == argv[place] || number < least || number > 1000000000) {
        fprintf(stderr, "%s: argument %d is '%s': give a whole number from %d\n", argv[0], place, argv[place], least);
        exit(2);
    }
    return (int)number;
}

/* Zeros, in pages of their own: what one array does to caches does not depend on its neighbour's size. */
static inline void *zeros(size_t count, size_t size) {
    size_t bytes = (count * size + 4095) / 4096 * 4096;
    void *memory = aligned_alloc(4096, bytes ? bytes : 4096);
    if (!memory) fail("out of memory");
    return memset(memory, 0, bytes);
}

/* Scatters an index over all 64-bit numbers, always in the same way. */
static inline uint64_t scatter(uint64_t index) {
    uint64_t bits = (index + 1) * 0x9e3779b97f4a7c15u;
    bits = (bits ^ (bits >> 32)) * 0xd6e8feb86659fd93u;
    bits = (bits ^ (bits >> 32)) * 0xd6e8feb86659fd93u;
    return bits ^ (bits >> 32);
}

/* From 0 to below 1. */
static inline double fraction(uint64_t index) { return (double)(scatter(index) >> 11) * 0x1p-53; }

static inline double distance(double a, double b) { return a > b ? a - b : b - a; }

/* What main returns. */
static inline int verdict(const char *program, int right) {
    printf("%s %s\n", program, right ? "ok" : "WRONG");
    return !right;
}

#endif

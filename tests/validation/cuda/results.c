/* Linked into a program with --wrap of the functions below: what the program gets back from the device goes to the file
   $RESULTS, each piece as its bytes (int64) and the data. That is every copy from the device, and managed memory when
   it is freed. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

enum { FROM_DEVICE = 2, MOST_PIECES = 4096 };

static void keep(const void *data, size_t bytes) {
    static FILE *file;
    if (!file && !(file = fopen(getenv("RESULTS"), "wb"))) {
        perror("RESULTS");
        exit(2);
    }
    int64_t head = (int64_t)bytes;
    fwrite(&head, sizeof head, 1, file);
    fwrite(data, 1, bytes, file);
    fflush(file);
}

int __real_cudaMemcpy(void *to, const void *from, size_t bytes, int kind);
int __wrap_cudaMemcpy(void *to, const void *from, size_t bytes, int kind) {
    int error = __real_cudaMemcpy(to, from, bytes, kind);
    if (!error && kind == FROM_DEVICE) keep(to, bytes);
    return error;
}

/* The tracer copies at once; within a capture nothing is copied yet, and what stands there is kept. */
int __real_cudaMemcpyAsync(void *to, const void *from, size_t bytes, int kind, void *stream);
int __wrap_cudaMemcpyAsync(void *to, const void *from, size_t bytes, int kind, void *stream) {
    int error = __real_cudaMemcpyAsync(to, from, bytes, kind, stream);
    if (!error && kind == FROM_DEVICE) keep(to, bytes);
    return error;
}

int __real_cudaMemcpyFromSymbol(void *to, const void *symbol, size_t bytes, size_t offset, int kind);
int __wrap_cudaMemcpyFromSymbol(void *to, const void *symbol, size_t bytes, size_t offset, int kind) {
    int error = __real_cudaMemcpyFromSymbol(to, symbol, bytes, offset, kind);
    if (!error && kind == FROM_DEVICE) keep(to, bytes);
    return error;
}

static struct { void *address; size_t bytes; } managed[MOST_PIECES];

int __real_cudaMallocManaged(void **address, size_t bytes, unsigned flags);
int __wrap_cudaMallocManaged(void **address, size_t bytes, unsigned flags) {
    int error = __real_cudaMallocManaged(address, bytes, flags);
    for (int k = 0; !error && k < MOST_PIECES; k++)
        if (!managed[k].address) {
            managed[k].address = *address;
            managed[k].bytes = bytes;
            break;
        }
    return error;
}

int __real_cudaFree(void *address);
int __wrap_cudaFree(void *address) {
    for (int k = 0; address && k < MOST_PIECES; k++)
        if (managed[k].address == address) {
            keep(address, managed[k].bytes);
            managed[k].address = NULL;
        }
    return __real_cudaFree(address);
}

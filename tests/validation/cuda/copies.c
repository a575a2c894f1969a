/* Linked into a program with --wrap=cudaMemcpy: every copy between host and device also goes to the file $COPIES, as its
   kind and bytes (int64 each) and the data, so that results are compared with all their digits and for the very inputs
   that the kernels had. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

int __real_cudaMemcpy(void *to, const void *from, size_t bytes, int kind);

int __wrap_cudaMemcpy(void *to, const void *from, size_t bytes, int kind) {
    static FILE *file;
    int error = __real_cudaMemcpy(to, from, bytes, kind);
    if (error || (kind != 1 && kind != 2)) return error;
    if (!file && !(file = fopen(getenv("COPIES"), "wb"))) {
        perror("COPIES");
        exit(2);
    }
    int64_t head[2] = {kind, (int64_t)bytes};
    fwrite(head, sizeof head, 1, file);
    fwrite(kind == 2 ? to : from, 1, bytes, file);
    fflush(file);
    return error;
}

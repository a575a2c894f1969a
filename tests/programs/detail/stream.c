/* The four kernels of STREAM, REPEATS times over vectors of N doubles: copy and scale load one and store one value per
   element, add and triad load two and store one: 6 loads and 4 stores. */
#include <stdio.h>
#include <stdlib.h>

__attribute__((noinline)) static void copy(double *c, const double *a, int n) {
    for (int i = 0; i < n; i++) c[i] = a[i];
}
__attribute__((noinline)) static void scale(double *b, const double *c, int n) {
    for (int i = 0; i < n; i++) b[i] = 3.0 * c[i];
}
__attribute__((noinline)) static void add(double *c, const double *a, const double *b, int n) {
    for (int i = 0; i < n; i++) c[i] = a[i] + b[i];
}
__attribute__((noinline)) static void triad(double *a, const double *b, const double *c, int n) {
    for (int i = 0; i < n; i++) a[i] = b[i] + 3.0 * c[i];
}

int main(int argc, char **argv) {
    int n = argc > 1 ? atoi(argv[1]) : 10000, repeats = argc > 2 ? atoi(argv[2]) : 1;
    double *a = calloc((size_t)n, sizeof *a), *b = calloc((size_t)n, sizeof *b), *c = calloc((size_t)n, sizeof *c);
    for (int i = 0; i < repeats; i++) {
        copy(c, a, n);
        scale(b, c, n);
        add(c, a, b, n);
        triad(a, b, c, n);
    }
    printf("%g\n", a[n / 2]);
    return 0;
}

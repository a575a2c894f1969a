/* Fourier transform of N complex numbers, N a power of two, in place, radix 2, decimation in time: N/2 log2 N
   butterflies, each of ten operations, in log2 N passes; N - 1 turns of the loop over groups; strides that are powers of
   two. */
#include "measure.h"

#include <math.h>

struct point {
    double real, imaginary;
};

KERNEL kernel(struct point *data, const struct point *roots, int n) {
    for (int i = 1, j = 0; i < n; i++) {
        int bit = n / 2;
        for (; j & bit; bit /= 2) j ^= bit;
        j ^= bit;
        if (i < j) {
            struct point swapped = data[i];
            data[i] = data[j];
            data[j] = swapped;
        }
    }
    for (int half = 1; half < n; half *= 2)
        for (int start = 0; start < n; start += 2 * half)
            for (int k = 0; k < half; k++) {
                struct point even = data[start + k], odd = data[start + half + k], root = roots[k * (n / (2 * half))];
                double real = odd.real * root.real - odd.imaginary * root.imaginary;
                double imaginary = odd.real * root.imaginary + odd.imaginary * root.real;
                data[start + k] = (struct point){even.real + real, even.imaginary + imaginary};
                data[start + half + k] = (struct point){even.real - real, even.imaginary - imaginary};
            }
}

int main(int argc, char **argv) {
    int n = argument(argc, argv, 1, 256);
    struct point *data = array((size_t)n, sizeof *data), *roots = array((size_t)n, sizeof *roots);
    for (int k = 0; k < n; k++) {
        roots[k] = (struct point){cos(6.283185307179586 * k / n), -sin(6.283185307179586 * k / n)};
        data[k] = (struct point){1e-9 * (k % 17), 0};
    }
    MEASURE(argument(argc, argv, 2, 0), kernel(data, roots, n));
    printf("%g\n", data[n / 2].real);
    return 0;
}

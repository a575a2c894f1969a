/* The Mandelbrot set on N x N points: a chain of additions and multiplications, left at a time that depends on it. */
#include "measure.h"

KERNEL kernel(int *counts, int n) {
    for (int y = 0; y < n; y++)
        for (int x = 0; x < n; x++) {
            double c_re = -2 + 2.5 * x / n, c_im = -1.25 + 2.5 * y / n, re = 0, im = 0;
            int k = 0;
            for (; k < 100 && re * re + im * im < 4; k++) {
                double next = re * re - im * im + c_re;
                im = 2 * re * im + c_im;
                re = next;
            }
            counts[y * n + x] = k;
        }
}

int main(int argc, char **argv) {
    int n = argument(argc, argv, 1, 32);
    int *counts = array((size_t)n * n, 4);
    MEASURE(argument(argc, argv, 2, 0), kernel(counts, n));
    printf("%d\n", counts[n * n / 2]);
    return 0;
}

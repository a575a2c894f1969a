/* Running sums of N whole numbers, then of N doubles: a chain through a register, and one of additions. */
#include "measure.h"

KERNEL kernel(long *whole, double *real, int n) {
    for (int i = 1; i < n; i++) whole[i] = (whole[i] + whole[i - 1]) & 0xffff;
    for (int i = 1; i < n; i++) real[i] = 0.5 * (real[i] + real[i - 1]);
}

int main(int argc, char **argv) {
    int n = argument(argc, argv, 1, 1000);
    long *whole = array(n, 8);
    double *real = array(n, 8);
    for (int i = 0; i < n; i++) whole[i] = i % 3, real[i] = i % 5;
    MEASURE(argument(argc, argv, 2, 0), kernel(whole, real, n));
    printf("%ld %g\n", whole[n / 2], real[n / 2]);
    return 0;
}

/* A square root that keeps to errno's rules: an instruction, and a call of the library where its operand is negative. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

__attribute__((noinline)) static double sum_of_roots(const double *x, int n) {
    double sum = 0.0;
    for (int i = 0; i < n; i++) sum += sqrt(x[i]);
    return sum;
}

int main(void) {
    static double x[1000];
    for (int i = 0; i < 1000; i++) x[i] = i;
    printf("%f\n", sum_of_roots(x, 1000));
    return 0;
}

/* dot: a sum of 1,000 products, each of which waits for the one before. */
#include <stdio.h>

double a[1000], b[1000];

__attribute__((noinline)) double dot(void) {
    double sum = 0;
    for (int i = 0; i < 1000; i++) sum += a[i] * b[i];
    return sum;
}

int main(void) {
    for (int i = 0; i < 1000; i++) a[i] = b[i] = i;
    return printf("%g\n", dot()) < 0;
}

/* Blocked matrix multiplication (the second of AMM's benchmarks) with one block: n = 50 matrices of doubles.
   Accesses of multiply(): per element of c one load and one store, per innermost iteration two loads:
   2 n^3 + n^2 = 252,500 loads and n^2 = 2,500 stores. */
#include <stdio.h>

#define N 50
#define BLOCK 50

static double a[N][N], b[N][N], c[N][N];

__attribute__((noinline)) static void multiply(void) {
    for (int kk = 0; kk < N; kk += BLOCK)
        for (int jj = 0; jj < N; jj += BLOCK)
            for (int i = 0; i < N; i++)
                for (int j = jj; j < jj + BLOCK; j++) {
                    double sum = c[i][j];
                    for (int k = kk; k < kk + BLOCK; k++) sum += a[i][k] * b[k][j];
                    c[i][j] = sum;
                }
}

int main(void) {
    for (int i = 0; i < N; i++) a[i][i] = b[i][i] = i;
    multiply();
    printf("%g\n", c[7][7]);
    return 0;
}

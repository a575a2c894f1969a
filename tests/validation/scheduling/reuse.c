/* Tasks that find data in caches or do not, by the order in which they run.

   reuse heat BLOCKS BLOCK SWEEPS: a row of BLOCKS x BLOCK points, SWEEPS times the mean of each point and its neighbours,
     between two arrays; a task per block and sweep, after the three blocks that it reads.
   reuse matmul TILES TILE: C += A B of TILES x TILES tiles of TILE x TILE; a task per (i, j, k), after (i, j, k - 1).
   reuse cholesky TILES TILE: a blocked factorisation, right-looking.
   reuse passes BLOCKS BLOCK PASSES: PASSES times over BLOCKS blocks, a task per block and pass, after the block's last. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static double *array(size_t count) {
    double *values = aligned_alloc(4096, (count * sizeof(double) + 4095) & ~(size_t)4095);
    for (size_t i = 0; i < count; i++) values[i] = 1.0 + (double)(i % 7) * 0.125;
    return values;
}

static double heat(int blocks, int block, int sweeps) {
    size_t count = (size_t)blocks * block + 2;
    double *both[2] = {array(count), array(count)};
#pragma omp parallel
#pragma omp single
    for (int t = 0; t < sweeps; t++)
        for (int b = 0; b < blocks; b++) {
            double *in = both[t & 1] + 1 + (size_t)b * block, *out = both[(t + 1) & 1] + 1 + (size_t)b * block;
            double *left = b > 0 ? in - block : in, *right = b + 1 < blocks ? in + block : in;
#pragma omp task depend(in: in[0], left[0], right[0]) depend(out: out[0]) firstprivate(in, out)
            for (int i = 0; i < block; i++) out[i] = 0.25 * in[i - 1] + 0.5 * in[i] + 0.25 * in[i + 1];
        }
    return both[sweeps & 1][count / 2];
}

static double passes(int blocks, int block, int number) {
    double *values = array((size_t)blocks * block);
#pragma omp parallel
#pragma omp single
    for (int p = 0; p < number; p++)
        for (int b = 0; b < blocks; b++) {
            double *mine = values + (size_t)b * block;
#pragma omp task depend(inout: mine[0]) firstprivate(mine)
            for (int i = 0; i < block; i++) mine[i] = mine[i] * 0.5 + 1.0;
        }
    return values[0];
}

static void gemm(const double *a, const double *b, double *c, int n, double sign) {
    for (int i = 0; i < n; i++)
        for (int k = 0; k < n; k++)
            for (int j = 0; j < n; j++) c[i * n + j] += sign * a[i * n + k] * b[k * n + j];
}

static double matmul(int tiles, int tile) {
    size_t size = (size_t)tile * tile, count = (size_t)tiles * tiles * size;
    double *a = array(count), *b = array(count), *c = array(count);
#pragma omp parallel
#pragma omp single
    for (int i = 0; i < tiles; i++)
        for (int j = 0; j < tiles; j++)
            for (int k = 0; k < tiles; k++) {
                double *mine = c + ((size_t)i * tiles + j) * size;
                double *left = a + ((size_t)i * tiles + k) * size, *right = b + ((size_t)k * tiles + j) * size;
#pragma omp task depend(in: left[0], right[0]) depend(inout: mine[0]) firstprivate(left, right, mine)
                gemm(left, right, mine, tile, 1.0);
            }
    return c[0];
}

static void potrf(double *a, int n) {
    for (int k = 0; k < n; k++) {
        double root = a[k * n + k] = sqrt(a[k * n + k]);
        for (int i = k + 1; i < n; i++) a[i * n + k] /= root;
        for (int i = k + 1; i < n; i++)
            for (int j = k + 1; j <= i; j++) a[i * n + j] -= a[i * n + k] * a[j * n + k];
    }
}

static void trsm(const double *l, double *a, int n) {
    for (int i = 0; i < n; i++)
        for (int k = 0; k < n; k++) {
            double value = a[i * n + k] /= l[k * n + k];
            for (int j = k + 1; j < n; j++) a[i * n + j] -= value * l[j * n + k];
        }
}

/* c -= a b^T */
static void update(const double *a, const double *b, double *c, int n) {
    for (int i = 0; i < n; i++)
        for (int j = 0; j < n; j++) {
            double sum = 0.0;
            for (int k = 0; k < n; k++) sum += a[i * n + k] * b[j * n + k];
            c[i * n + j] -= sum;
        }
}

static double cholesky(int tiles, int tile) {
    size_t size = (size_t)tile * tile;
    double *all = array((size_t)tiles * tiles * size);
    for (int i = 0; i < tiles; i++)
        for (int k = 0; k < tile; k++) all[((size_t)i * tiles + i) * size + (size_t)k * tile + k] += 4.0 * tiles * tile;
#define TILE(i, j) (all + ((size_t)(i) * tiles + (j)) * size)
#pragma omp parallel
#pragma omp single
    for (int k = 0; k < tiles; k++) {
        double *diagonal = TILE(k, k);
#pragma omp task depend(inout: diagonal[0]) firstprivate(diagonal)
        potrf(diagonal, tile);
        for (int i = k + 1; i < tiles; i++) {
            double *below = TILE(i, k);
#pragma omp task depend(in: diagonal[0]) depend(inout: below[0]) firstprivate(diagonal, below)
            trsm(diagonal, below, tile);
        }
        for (int i = k + 1; i < tiles; i++)
            for (int j = k + 1; j <= i; j++) {
                double *left = TILE(i, k), *right = TILE(j, k), *mine = TILE(i, j);
#pragma omp task depend(in: left[0], right[0]) depend(inout: mine[0]) firstprivate(left, right, mine)
                update(left, right, mine, tile);
            }
    }
    return all[0];
}

int main(int count, char **words) {
    int number[3] = {0, 0, 0};
    for (int i = 2; i < count && i < 5; i++) number[i - 2] = atoi(words[i]);
    if (count < 4 || number[0] < 1 || number[1] < 1) return 2;
    double result = 0.0;
    if (!strcmp(words[1], "heat")) result = heat(number[0], number[1], number[2]);
    else if (!strcmp(words[1], "passes")) result = passes(number[0], number[1], number[2]);
    else if (!strcmp(words[1], "matmul")) result = matmul(number[0], number[1]);
    else if (!strcmp(words[1], "cholesky")) result = cholesky(number[0], number[1]);
    else return 2;
    printf("%.17g\n", result);
    return 0;
}

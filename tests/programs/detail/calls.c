/* Calls that blocks must end at: recursion, functions called from a library, libm in a loop, calls without any access
   between them, calls in tail position, longjmp. Each function below says what one call of it accesses. */
#include <math.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>

#define NOINLINE __attribute__((noinline))

static int visits, results, compared, leaves, tails;
static double values[64];

/* load and store of visits; in calls with n > 1, after both inner calls, load and store of results */
NOINLINE static int fibonacci(int n) {
    visits++;
    if (n < 2) return n;
    int sum = fibonacci(n - 1) + fibonacci(n - 2);
    results += sum;
    return sum;
}

/* load and store of compared, loads of both values */
static int compare(const void *left, const void *right) {
    compared++;
    double a = *(const double *)left, b = *(const double *)right;
    return a < b ? -1 : a > b;
}

/* load and store of leaves */
NOINLINE static void leaf(void) { leaves++; }

/* nothing of its own: three calls with no access between them */
NOINLINE static void three_leaves(void) {
    leaf();
    leaf();
    leaf();
    __asm__ volatile("");
}

/* load and store of tails, then the leaf's */
NOINLINE static void tail(void) {
    tails++;
    leaf();
}

/* per element: load before exp, store after it */
NOINLINE static void exponentials(double *x, int n) {
    for (int i = 0; i < n; i++) x[i] = exp(x[i]);
}

static jmp_buf place;
/* load and store of leaves, then out of three levels */
NOINLINE static void deep(int n) {
    if (n == 0) longjmp(place, 1);
    deep(n - 1);
    leaf();
}

int main(int argc, char **argv) {
    (void)argv;
    fibonacci(10);
    for (int i = 0; i < 64; i++) values[i] = (double)(i * 37 % 64) / 64;
    exponentials(values, 64);
    qsort(values, 64, sizeof *values, compare);
    for (int i = 0; i < 5; i++) three_leaves();
    for (int i = 0; i < 3; i++) tail();
    if (!setjmp(place)) deep(argc + 2);
    leaf();
    printf("%d %d %d %d %d\n", visits, results, compared, leaves, tails);
    return 0;
}

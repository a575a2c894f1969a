/* A library with coverage of its own, which calls back into the program. */
#include "library.h"

static double sum;

/* load and store of sum */
void library_add(double value) { sum += value; }

/* n times: one load here, then what the function accesses, then one store here */
void library_map(double *values, int n, double (*function)(double)) {
    for (int i = 0; i < n; i++) values[i] = function(values[i]);
}

/* one load */
double library_sum(void) { return sum; }

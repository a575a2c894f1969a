/* Calls a library with coverage, which calls back; the callback calls the library again. */
#include <stdio.h>

#include "library.h"

static int calls;
static double values[20];

/* load and store of calls, load and store in library_add */
static double twice(double value) {
    calls++;
    library_add(value);
    return 2 * value;
}

int main(void) {
    library_map(values, 20, twice);
    printf("%d %g\n", calls, library_sum());
    return 0;
}

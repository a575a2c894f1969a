/* Whole numbers sorted by their lowest byte: loops count and move, one task adds up.
   counting_sort [keys 100000] [iterations 2] */
#include <omp.h>
#include "../../../programs/common.h"
enum { PARTS = 64, KINDS = 256 };

int main(int argc, char **argv) {
    int n = argument(argc, argv, 1, 100000, PARTS), iterations = argument(argc, argv, 2, 2, 1), right = 1;
    uint32_t *from = zeros(n, sizeof *from), *to = zeros(n, sizeof *to);
    int(*count)[KINDS] = zeros(PARTS, sizeof *count);
    for (int i = 0; i < n; i++) from[i] = (uint32_t)scatter(i);
    for (int iteration = 0; iteration < iterations; iteration++) {
        MANYSCALE_ITERATION(iteration);
#pragma omp parallel
        {
#pragma omp for schedule(dynamic)
            for (int part = 0; part < PARTS; part++) {
                for (int kind = 0; kind < KINDS; kind++) count[part][kind] = 0;
                for (int i = part; i < n; i += PARTS) count[part][from[i] % KINDS]++;
            }
#pragma omp single
            for (int kind = 0, sum = 0; kind < KINDS; kind++)
                for (int part = 0; part < PARTS; part++) {
                    int mine = count[part][kind];
                    count[part][kind] = sum;
                    sum += mine;
                }
#pragma omp for schedule(dynamic)
            for (int part = 0; part < PARTS; part++)
                for (int i = part; i < n; i += PARTS) to[count[part][from[i] % KINDS]++] = from[i];
        }
    }
    for (int i = 1; i < n; i++) right &= to[i - 1] % KINDS <= to[i] % KINDS;
    return verdict("counting_sort", right);
}

/* Quicksort of N whole numbers in random order, others each time: branches that no predictor knows, and recursion. */
#include "measure.h"

static void sort(int *values, int low, int high) {
    while (low < high) {
        int pivot = values[(low + high) / 2], i = low, j = high;
        while (i <= j) {
            while (values[i] < pivot) i++;
            while (values[j] > pivot) j--;
            if (i <= j) {
                int kept = values[i];
                values[i++] = values[j];
                values[j--] = kept;
            }
        }
        sort(values, low, j);
        low = i;
    }
}

KERNEL kernel(int *values, int n) { sort(values, 0, n - 1); }

int main(int argc, char **argv) {
    int n = argument(argc, argv, 1, 1000), repetitions = argument(argc, argv, 2, 0);
    int *values = array(n, 4);
    double *times = malloc(sizeof *times * (size_t)(repetitions + 1));
    unsigned state = 1;
    for (int i = 0; i <= repetitions; i++) {
        for (int j = 0; j < n; j++) state = state * 1664525u + 1013904223u, values[j] = state >> 8;
        double begin = nanoseconds();
        kernel(values, n);
        times[i] = nanoseconds() - begin;
    }
    qsort(times + 1, (size_t)repetitions, sizeof *times, ascending);
    if (repetitions) printf("best %.0f ns, median %.0f ns\n", times[1], times[1 + repetitions / 2]);
    printf("%d\n", values[n / 2]);
    return 0;
}

/* Merge sort whose tasks create tasks: recursion in sorting and, within each merge, in merging.

   merge_sort [elements 32768] [leaf 32] [grain 512] [iterations 2]

   sort(n) of more than leaf elements sorts its halves in two tasks, waits, and merges them from the other array;
   merge(n) of more than grain elements merges its first and second half of the result in two tasks, and waits.
   An iteration sorts the same input again.

   Counts per iteration; no edges: nesting and taskwait order everything. With powers of two n, l = leaf, g = grain:
     sort   2 (n/l - 1), half of them left, half right
     merge  sum over s = 2l, 4l, ..., n with s > g of 2 (n/g - n/s), half of them first, half second
   Instructions: some 3 leaf^2 in a leaf, 18 per element in a merge of at most grain.

   Check: in order, and the sum of a scattering of the elements is that of the input. */
#include "../common.h"

static int leaf, grain;

static void insertion_sort(int *values, int count) {
    for (int i = 1; i < count; i++) {
        int value = values[i], j = i;
        for (; j > 0 && values[j - 1] > value; j--) values[j] = values[j - 1];
        values[j] = value;
    }
}

/* How many of the first ``count`` elements of the merged result come from x. */
static int split_point(const int *x, int num_x, const int *y, int num_y, int count) {
    int low = count > num_y ? count - num_y : 0, high = count < num_x ? count : num_x;
    while (low < high) {
        int middle = (low + high) / 2;
        if (x[middle] <= y[count - middle - 1])
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static void merge(const int *x, int num_x, const int *y, int num_y, int *out) {
    int count = num_x + num_y;
    if (count <= grain) {
        int i = 0, j = 0;
        for (int k = 0; k < count; k++) out[k] = j == num_y || (i < num_x && x[i] <= y[j]) ? x[i++] : y[j++];
        return;
    }
    int half = count / 2, from_x = split_point(x, num_x, y, num_y, half), from_y = half - from_x;
#pragma omp task
    merge(x, from_x, y, from_y, out);
#pragma omp task
    merge(x + from_x, num_x - from_x, y + from_y, num_y - from_y, out + half);
#pragma omp taskwait
}

/* Sorts values, which scratch may overwrite; the result is in scratch if ``to_scratch``. */
static void sort(int *values, int *scratch, int count, int to_scratch) {
    if (count <= leaf) {
        insertion_sort(values, count);
        if (to_scratch)
            for (int i = 0; i < count; i++) scratch[i] = values[i];
        return;
    }
    int half = count / 2;
#pragma omp task
    sort(values, scratch, half, !to_scratch);
#pragma omp task
    sort(values + half, scratch + half, count - half, !to_scratch);
#pragma omp taskwait
    const int *from = to_scratch ? values : scratch;
    merge(from, half, from + half, count - half, to_scratch ? scratch : values);
}

static uint64_t fingerprint(const int *values, int count) {
    uint64_t sum = 0;
    for (int i = 0; i < count; i++) sum += scatter((uint64_t)values[i]);
    return sum;
}

int main(int argc, char **argv) {
    int count = argument(argc, argv, 1, 32768, 1);
    leaf = argument(argc, argv, 2, 32, 1);
    grain = argument(argc, argv, 3, 512, 1);
    int iterations = argument(argc, argv, 4, 2, 1);
    int *values = zeros(count, sizeof *values), *scratch = zeros(count, sizeof *scratch);
    uint64_t expected = 0;
    for (int iteration = 0; iteration < iterations; iteration++) {
        MANYSCALE_ITERATION(iteration);
        for (int i = 0; i < count; i++) values[i] = (int)(scatter(i) >> 34);
        expected = fingerprint(values, count);
#pragma omp parallel
#pragma omp single
        sort(values, scratch, count, 0);
    }
    int right = fingerprint(values, count) == expected;
    for (int i = 1; i < count; i++) right &= values[i - 1] <= values[i];
    return verdict("merge_sort", right);
}

/* Fourier transforms of length n^2, each as n transforms of length n, twice, with transpositions between (six steps).

   fft [transforms 32] [length 64] [tile 8] [rows 1] [iterations 2]

   A transform's points are a matrix of length x length. Transpose (tile by tile, in place), transform the rows and
   multiply with twiddle factors, transpose, transform the rows, transpose. length is a power of two; tile and rows divide
   it. taskwait separates the five stages. Working set: transforms * length^2 * 16 bytes.

   Counts per iteration, t = length / tile, X = transforms; no edges:
     instances  transpose_diagonal 3 X t, transpose_pair 3 X t (t - 1) / 2, transform_rows 2 X length / rows (at two places)
   Instructions: some 25 rows * length * log2(length) in transform_rows, 12 tile^2 in a pair.

   Check: transform number m of the sum of three waves has three peaks. */
#include "../common.h"

#include <math.h>

struct point {
    double real, imaginary;
};

static int length, tile, num_rows;
static struct point *data, *input, *roots; /* roots[k] = exp(-2 pi i k / length^2) */

static struct point times(struct point a, struct point b) {
    return (struct point){a.real * b.real - a.imaginary * b.imaginary, a.real * b.imaginary + a.imaginary * b.real};
}

static void transpose_diagonal(struct point *matrix, int block) {
    for (int i = block * tile; i < (block + 1) * tile; i++)
        for (int j = block * tile; j < i; j++) {
            struct point swapped = matrix[i * length + j];
            matrix[i * length + j] = matrix[j * length + i];
            matrix[j * length + i] = swapped;
        }
}

static void transpose_pair(struct point *matrix, int block_row, int block_column) {
    for (int i = block_row * tile; i < (block_row + 1) * tile; i++)
        for (int j = block_column * tile; j < (block_column + 1) * tile; j++) {
            struct point swapped = matrix[i * length + j];
            matrix[i * length + j] = matrix[j * length + i];
            matrix[j * length + i] = swapped;
        }
}

/* In place, radix 2, decimation in time. */
static void transform_row(struct point *row) {
    for (int i = 1, j = 0; i < length; i++) {
        int bit = length / 2;
        for (; j & bit; bit /= 2) j ^= bit;
        j ^= bit;
        if (i < j) {
            struct point swapped = row[i];
            row[i] = row[j];
            row[j] = swapped;
        }
    }
    for (int half = 1; half < length; half *= 2)
        for (int start = 0; start < length; start += 2 * half)
            for (int k = 0; k < half; k++) {
                struct point even = row[start + k];
                struct point odd = times(row[start + half + k], roots[k * (length / (2 * half)) * length]);
                row[start + k] = (struct point){even.real + odd.real, even.imaginary + odd.imaginary};
                row[start + half + k] = (struct point){even.real - odd.real, even.imaginary - odd.imaginary};
            }
}

static void transform_rows(struct point *matrix, int first, int twiddle) {
    for (int i = first; i < first + num_rows; i++) {
        transform_row(matrix + i * length);
        for (int j = 0; twiddle && j < length; j++) matrix[i * length + j] = times(matrix[i * length + j], roots[i * j]);
    }
}

static void transpose_all(int num_transforms) {
    for (int number = 0; number < num_transforms; number++) {
        struct point *matrix = data + (size_t)number * length * length;
        for (int row = 0; row < length / tile; row++) {
#pragma omp task
            transpose_diagonal(matrix, row);
            for (int column = 0; column < row; column++) {
#pragma omp task
                transpose_pair(matrix, row, column);
            }
        }
    }
#pragma omp taskwait
}

static void transform_all(int num_transforms) {
    transpose_all(num_transforms);
    for (int number = 0; number < num_transforms; number++) {
        struct point *matrix = data + (size_t)number * length * length;
        for (int row = 0; row < length; row += num_rows) {
#pragma omp task
            transform_rows(matrix, row, 1);
        }
    }
#pragma omp taskwait
    transpose_all(num_transforms);
    for (int number = 0; number < num_transforms; number++) {
        struct point *matrix = data + (size_t)number * length * length;
        for (int row = 0; row < length; row += num_rows) {
#pragma omp task
            transform_rows(matrix, row, 0);
        }
    }
#pragma omp taskwait
    transpose_all(num_transforms);
}

/* Wave w of a transform: its frequency; its amplitude is w + 1. */
static int64_t frequency(int number, int wave) { return (5 + 7 * number + wave * (length + 1)) % (length * length); }

static double amplitude_at(int number, int place) {
    double sum = 0;
    for (int wave = 0; wave < 3; wave++)
        if (frequency(number, wave) == place) sum += wave + 1;
    return sum;
}

int main(int argc, char **argv) {
    int num_transforms = argument(argc, argv, 1, 32, 1);
    length = argument(argc, argv, 2, 64, 2);
    tile = argument(argc, argv, 3, 8, 1);
    num_rows = argument(argc, argv, 4, 1, 1);
    int iterations = argument(argc, argv, 5, 2, 1);
    if ((length & (length - 1)) || length > 4096 || length % tile || length % num_rows)
        fail("fft: the length is a power of two to 4096 that the tile and the rows divide");
    int points = length * length, right = 1;
    data = zeros((size_t)num_transforms * points, sizeof *data);
    input = zeros((size_t)num_transforms * points, sizeof *input);
    roots = zeros(points, sizeof *roots);
    for (int k = 0; k < points; k++) roots[k] = (struct point){cos(2 * pi * k / points), -sin(2 * pi * k / points)};
    for (int number = 0; number < num_transforms; number++)
        for (int wave = 0; wave < 3; wave++)
            for (int i = 0; i < points; i++) {
                struct point root = roots[i * frequency(number, wave) % points];
                input[(size_t)number * points + i].real += (wave + 1) * root.real;
                input[(size_t)number * points + i].imaginary -= (wave + 1) * root.imaginary;
            }
    for (int iteration = 0; iteration < iterations; iteration++) {
        MANYSCALE_ITERATION(iteration);
        memcpy(data, input, (size_t)num_transforms * points * sizeof *data);
#pragma omp parallel
#pragma omp single
        transform_all(num_transforms);
    }
    for (int number = 0; number < num_transforms; number++)
        for (int i = 0; i < points; i++) {
            struct point value = data[(size_t)number * points + i];
            right &= distance(value.real, points * amplitude_at(number, i)) <= 1e-9 * points;
            right &= distance(value.imaginary, 0) <= 1e-9 * points;
        }
    return verdict("fft", right);
}

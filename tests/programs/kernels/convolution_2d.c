/* 2-D convolution of an image with a square filter, a task for each tile of the result.

   convolution_2d [tiles 48] [tile 6] [radius 2] [iterations 2] [step 1]

   tiles x tiles tiles of tile x tile points, a filter of (2 radius + 1)^2 points; strided accesses. The filter moves by
   step points of the image for each point of the result. Working set: the result, (tiles * tile)^2 doubles, and
   the image, step^2 times as many.

   Counts per iteration: convolve tiles^2; no edges. Instructions: some 9 tile^2 (2 radius + 1)^2.

   Check: a symmetric filter whose sum is 1 turns x^2 + 2 y into itself plus the filter's second moment along x. */
#include "../common.h"

static int tile, radius, step, image_side, result_side;
static double *image, *result, *filter;

static void convolve(int tile_row, int tile_column) {
    int side = 2 * radius + 1;
    for (int i = tile_row * tile; i < (tile_row + 1) * tile; i++)
        for (int j = tile_column * tile; j < (tile_column + 1) * tile; j++) {
            const double *corner = image + (size_t)(i * step) * image_side + j * step;
            double sum = 0;
            for (int row = 0; row < side; row++)
                for (int column = 0; column < side; column++)
                    sum += filter[row * side + column] * corner[(size_t)row * image_side + column];
            result[(size_t)i * result_side + j] = sum;
        }
}

/* Weights fall with the distance and are larger along x; the second moment along x. */
static double fill_filter(void) {
    int side = 2 * radius + 1;
    double total = 0, moment = 0;
    for (int y = -radius; y <= radius; y++)
        for (int x = -radius; x <= radius; x++) {
            double weight = 1.0 / (1 + x * x + 2 * y * y);
            filter[(y + radius) * side + x + radius] = weight;
            total += weight;
            moment += weight * x * x;
        }
    for (int i = 0; i < side * side; i++) filter[i] /= total;
    return moment / total;
}

int main(int argc, char **argv) {
    int num_tiles = argument(argc, argv, 1, 48, 1);
    tile = argument(argc, argv, 2, 6, 1);
    radius = argument(argc, argv, 3, 2, 0);
    int iterations = argument(argc, argv, 4, 2, 1), right = 1;
    step = argument(argc, argv, 5, 1, 1);
    result_side = num_tiles * tile;
    image_side = (result_side - 1) * step + 1 + 2 * radius;
    image = zeros((size_t)image_side * image_side, sizeof *image);
    result = zeros((size_t)result_side * result_side, sizeof *result);
    filter = zeros((size_t)(2 * radius + 1) * (2 * radius + 1), sizeof *filter);
    double moment = fill_filter();
    for (int i = 0; i < image_side; i++)
        for (int j = 0; j < image_side; j++) image[(size_t)i * image_side + j] = (double)j * j + 2.0 * i;
    for (int iteration = 0; iteration < iterations; iteration++) {
        MANYSCALE_ITERATION(iteration);
#pragma omp parallel
#pragma omp single
        for (int row = 0; row < num_tiles; row++)
            for (int column = 0; column < num_tiles; column++) {
#pragma omp task
                convolve(row, column);
            }
    }
    for (int i = 0; i < result_side; i++)
        for (int j = 0; j < result_side; j++) {
            double expected = image[(size_t)(i * step + radius) * image_side + j * step + radius] + moment;
            right &= distance(result[(size_t)i * result_side + j], expected) <= 1e-10 * (1 + expected);
        }
    return verdict("convolution_2d", right);
}

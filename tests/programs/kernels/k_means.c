/* Lloyd's algorithm: points are assigned to the nearest centre, centres move to the mean of their points.

   k_means [blocks 2048] [points 16] [centres 8] [dimensions 4] [iterations 3]

   assign(block) finds the nearest centre of each of its points and sums them per centre; collect(centre) adds the blocks'
   sums and moves the centre. taskwait separates them. Working set: blocks * points * dimensions * 8 bytes, and the
   blocks' sums, blocks * centres * (dimensions + 1) * 8 bytes.

   Counts per iteration: assign blocks, collect centres; no edges. Instructions: some 14 points * centres * dimensions in
   assign, 11 blocks * dimensions in collect.

   Check: clusters lie far apart, so that each is found, and its centre is the mean of its points. */
#include "../common.h"

static int num_blocks, num_points, num_centres, num_dimensions;
static double *points, *centres; /* [point][dimension], [centre][dimension] */
static double *sums;             /* [block][centre][dimension + 1], the last one counts */
static int *nearest;             /* [point] */

static void assign(int block) {
    double *own = sums + (size_t)block * num_centres * (num_dimensions + 1);
    for (int i = 0; i < num_centres * (num_dimensions + 1); i++) own[i] = 0;
    for (int point = block * num_points; point < (block + 1) * num_points; point++) {
        const double *place = points + (size_t)point * num_dimensions;
        double least = 0;
        int best = -1;
        for (int centre = 0; centre < num_centres; centre++) {
            double square = 0;
            for (int axis = 0; axis < num_dimensions; axis++) {
                double difference = place[axis] - centres[centre * num_dimensions + axis];
                square += difference * difference;
            }
            if (best < 0 || square < least) {
                least = square;
                best = centre;
            }
        }
        nearest[point] = best;
        double *sum = own + best * (num_dimensions + 1);
        for (int axis = 0; axis < num_dimensions; axis++) sum[axis] += place[axis];
        sum[num_dimensions] += 1;
    }
}

static void collect(int centre) {
    double *place = centres + centre * num_dimensions, count = 0;
    for (int axis = 0; axis < num_dimensions; axis++) place[axis] = 0;
    for (int block = 0; block < num_blocks; block++) {
        const double *sum = sums + ((size_t)block * num_centres + centre) * (num_dimensions + 1);
        for (int axis = 0; axis < num_dimensions; axis++) place[axis] += sum[axis];
        count += sum[num_dimensions];
    }
    for (int axis = 0; axis < num_dimensions && count > 0; axis++) place[axis] /= count;
}

/* Points are dealt out to the clusters in turn: whole numbers around 1000 (cluster + 1), so that sums are exact. */
static void fill(void) {
    int count = num_blocks * num_points;
    for (int point = 0; point < count; point++)
        for (int axis = 0; axis < num_dimensions; axis++)
            points[(size_t)point * num_dimensions + axis] =
                1000.0 * (point % num_centres + 1) + (double)(scatter((uint64_t)point * num_dimensions + axis) % 100);
    for (int i = 0; i < num_centres * num_dimensions; i++) centres[i] = 1000.0 * (i / num_dimensions + 1);
}

static int is_right(void) {
    int count = num_blocks * num_points, right = 1;
    for (int centre = 0; centre < num_centres; centre++)
        for (int axis = 0; axis < num_dimensions; axis++) {
            double sum = 0;
            int members = 0;
            for (int point = centre; point < count; point += num_centres, members++)
                sum += points[(size_t)point * num_dimensions + axis];
            right &= members == 0 || centres[centre * num_dimensions + axis] == sum / members;
        }
    for (int point = 0; point < count; point++) right &= nearest[point] == point % num_centres;
    return right;
}

int main(int argc, char **argv) {
    num_blocks = argument(argc, argv, 1, 2048, 1);
    num_points = argument(argc, argv, 2, 16, 1);
    num_centres = argument(argc, argv, 3, 8, 1);
    num_dimensions = argument(argc, argv, 4, 4, 1);
    int iterations = argument(argc, argv, 5, 3, 1);
    size_t count = (size_t)num_blocks * num_points;
    if (count < (size_t)num_centres) fail("k_means: give at least as many points as centres");
    points = zeros(count * num_dimensions, sizeof *points);
    centres = zeros((size_t)num_centres * num_dimensions, sizeof *centres);
    sums = zeros((size_t)num_blocks * num_centres * (num_dimensions + 1), sizeof *sums);
    nearest = zeros(count, sizeof *nearest);
    fill();
    for (int iteration = 0; iteration < iterations; iteration++) {
        MANYSCALE_ITERATION(iteration);
#pragma omp parallel
#pragma omp single
        {
            for (int block = 0; block < num_blocks; block++) {
#pragma omp task
                assign(block);
            }
#pragma omp taskwait
            for (int centre = 0; centre < num_centres; centre++) {
#pragma omp task
                collect(centre);
            }
        }
    }
    return verdict("k_means", is_right());
}

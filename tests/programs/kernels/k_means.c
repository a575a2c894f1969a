/* Lloyd's algorithm: points are assigned to the nearest centre, centres move to the mean of their points.

   k_means [blocks 2048] [points 16] [centres 8] [dimensions 4] [iterations 3] [group blocks]

   assign finds the nearest centre of each of a block's points and sums them per centre; gather adds the sums of a group
   of blocks, then of groups of groups, until a group is left; collect adds what is left and moves a centre. taskwait
   separates these stages; with one group of all blocks there is no gather. Working set: points, blocks * points *
   dimensions * 8 bytes, and sums, blocks * centres * (dimensions + 1) * 8 bytes.

   Counts per iteration: assign blocks; gather ceil(blocks / s) for s = group, group^2, ... < blocks; collect centres;
   no edges. Instructions: some 14 points * centres * dimensions in assign, 3 group * centres * (dimensions + 1) in
   gather, 11 blocks * dimensions in collect of one group.

   Check: clusters lie far apart, so that each is found, and its centre is the mean of its points. */
#include "../common.h"

static int num_blocks, num_points, num_centres, num_dimensions, group;
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

/* Adds the sums of the blocks that follow ``first`` at so many places to its own. */
static void gather(int first, int stride) {
    int width = num_centres * (num_dimensions + 1);
    double *own = sums + (size_t)first * width;
    for (int member = 1; member < group && member < (num_blocks - first + stride - 1) / stride; member++) {
        const double *other = own + (size_t)member * stride * width;
        for (int i = 0; i < width; i++) own[i] += other[i];
    }
}

static void collect(int centre, int stride) {
    double *place = centres + centre * num_dimensions, count = 0;
    for (int axis = 0; axis < num_dimensions; axis++) place[axis] = 0;
    for (int block = 0; block < num_blocks; block += stride) {
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
    group = argument(argc, argv, 6, num_blocks, 2);
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
            int stride = 1;
            for (; stride < (num_blocks + group - 1) / group; stride *= group) {
                for (int64_t first = 0; first < num_blocks; first += (int64_t)stride * group) {
#pragma omp task
                    gather((int)first, stride);
                }
#pragma omp taskwait
            }
            for (int centre = 0; centre < num_centres; centre++) {
#pragma omp task
                collect(centre, stride);
            }
        }
    }
    return verdict("k_means", is_right());
}

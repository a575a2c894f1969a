/* Bodies in blocks that push each other away; each block interacts with itself and with those around and far away.

   n_body [blocks 512] [bodies 16] [partners 2] [iterations 2]

   force(i, j): what block j's bodies do to block i's, for j = i and j = i +- m s around the ring, m = 1 .. partners,
   s = blocks / (2 partners + 2); move(i) applies it. Working set: blocks * bodies * 72 bytes, visited at stride.

   Counts per iteration, B = blocks, p = partners (blocks >= 2 partners + 2):
     instances  force B (2 p + 1), move B
     edges      force <- force 2 p B (those of one block follow each other); move <- force B (4 p + 1): those that wrote
                its block's force, 2 p + 1, and the others that read its position, 2 p
   Instructions: some 30 per pair of bodies in force.

   Check: each push has an equal one opposite, so momentum stays 0, and bodies have moved. */
#include "../common.h"

struct body {
    double position[3], velocity[3], force[3];
};

static struct body *bodies;
static int block_bodies;

static void force(int to, int from) {
    for (int i = to * block_bodies; i < (to + 1) * block_bodies; i++) {
        double sum[3] = {0, 0, 0};
        for (int j = from * block_bodies; j < (from + 1) * block_bodies; j++) {
            double d[3], square = 0.01;
            for (int axis = 0; axis < 3; axis++) {
                d[axis] = bodies[i].position[axis] - bodies[j].position[axis];
                square += d[axis] * d[axis];
            }
            double strength = 1 / (square * square);
            for (int axis = 0; axis < 3; axis++) sum[axis] += strength * d[axis];
        }
        for (int axis = 0; axis < 3; axis++) bodies[i].force[axis] += sum[axis];
    }
}

static void move(int block) {
    const double step = 1e-6;
    for (int i = block * block_bodies; i < (block + 1) * block_bodies; i++)
        for (int axis = 0; axis < 3; axis++) {
            bodies[i].velocity[axis] += step * bodies[i].force[axis];
            bodies[i].position[axis] += step * bodies[i].velocity[axis];
            bodies[i].force[axis] = 0;
        }
}

int main(int argc, char **argv) {
    int num_blocks = argument(argc, argv, 1, 512, 1);
    block_bodies = argument(argc, argv, 2, 16, 1);
    int partners = argument(argc, argv, 3, 2, 0), iterations = argument(argc, argv, 4, 2, 1);
    int stride = num_blocks / (2 * partners + 2), count = num_blocks * block_bodies;
    if (stride == 0) fail("n_body: give at least 2 partners + 2 blocks");
    bodies = zeros(count, sizeof *bodies);
    for (int i = 0; i < 3 * count; i++) bodies[i / 3].position[i % 3] = fraction(i);
    for (int iteration = 0; iteration < iterations; iteration++) {
        MANYSCALE_ITERATION(iteration);
#pragma omp parallel
#pragma omp single
        {
            for (int to = 0; to < num_blocks; to++)
                for (int partner = -partners; partner <= partners; partner++) {
                    int from = (to + partner * stride + num_blocks) % num_blocks;
                    double *pushed = bodies[to * block_bodies].force, *mine = bodies[to * block_bodies].position;
                    double *other = bodies[from * block_bodies].position;
#pragma omp task depend(in : mine[0], other[0]) depend(inout : pushed[0])
                    force(to, from);
                }
            for (int block = 0; block < num_blocks; block++) {
                double *pushed = bodies[block * block_bodies].force, *mine = bodies[block * block_bodies].position;
#pragma omp task depend(inout : pushed[0], mine[0])
                move(block);
            }
        }
    }
    double momentum[3] = {0, 0, 0}, speed = 0;
    for (int i = 0; i < 3 * count; i++) {
        momentum[i % 3] += bodies[i / 3].velocity[i % 3];
        speed += distance(bodies[i / 3].velocity[i % 3], 0);
    }
    int right = count == 1 || speed > 0;
    for (int axis = 0; axis < 3; axis++) right &= distance(momentum[axis], 0) <= 1e-10 * speed;
    return verdict("n_body", right);
}

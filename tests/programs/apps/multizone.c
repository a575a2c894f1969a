/* Diffusion in zones whose widths grow like a geometric series, in the spirit of the multi-zone NAS benchmark BT-MZ.

   multizone [zones 4] [rows 8] [columns 2] [block_size 8] [ratio 20] [solves 1] [iterations 4]

   Each rank has that many zones, Z = zones * ranks in all, side by side along x: zone k, which belongs to rank
   k mod ranks, is rows blocks high and c(k) = columns * ratio^(k / (Z - 1)) blocks wide, rounded; blocks are of
   block_size x block_size points. An iteration exchanges the columns at the zones' sides between the ranks, by the main
   thread (MPI_THREAD_FUNNELED), and is one parallel region then: smooth(zone, row of blocks) averages along x, and after
   a taskwait solve(zone, column of blocks) diffuses implicitly along y, solves times. Ranks and tasks have uneven work.

   Counts per iteration:
     instances   of a rank: smooth rows for each of its zones, solve c(k) for each of its zones; no edges
     messages    2 (Z - 1) of rows * block_size * 8 bytes, where there are several ranks

   Check: sin(pi x) sin(pi y) is an eigenvector of both steps. */
#include "grid.h"

#include <math.h>

struct zone {
    int width; /* points, without the two columns of the neighbours */
    int first; /* place of its first column among those of all zones */
    double *now, *next; /* [width + 2][height], columns one after the other */
};

static const double step = 0.5; /* diffusion along y: (1 + 2 step) u(i) - step (u(i - 1) + u(i + 1)) = what was */

static struct grid grid;
static int num_zones, num_all, height, all_width, block_size, num_solves;
static struct zone *zones; /* zone number grid.size * i + grid.rank is zones[i] */
static double *pivots;     /* [height]: what elimination multiplies with */
static MPI_Request *requests;

static double *column(double *values, int place) { return &values[(size_t)(place + 1) * height]; }

static void smooth(const struct zone *zone, int first_row) {
    for (int place = 0; place < zone->width; place++) {
        const double *left = column(zone->now, place - 1), *here = column(zone->now, place);
        const double *right = column(zone->now, place + 1);
        double *target = column(zone->next, place);
        for (int row = first_row; row < first_row + block_size; row++)
            target[row] = 0.25 * (left[row] + 2 * here[row] + right[row]);
    }
}

/* Elimination and substitution for one column; source may be target. */
static void solve_column(const double *source, double *target) {
    double before = 0;
    for (int row = 0; row < height; row++) target[row] = before = (source[row] + step * before) * pivots[row];
    for (int row = height - 2; row >= 0; row--) target[row] += step * pivots[row] * target[row + 1];
}

static void solve(const struct zone *zone, int first_column) {
    for (int place = first_column; place < first_column + block_size; place++) {
        double *target = column(zone->now, place);
        solve_column(column(zone->next, place), target);
        for (int again = 1; again < num_solves; again++) solve_column(target, target);
    }
}

static void iterate(void) {
#pragma omp parallel
#pragma omp single
    {
        for (int i = 0; i < num_zones; i++)
            for (int row = 0; row < height; row += block_size) {
                const struct zone *zone = &zones[i];
#pragma omp task
                smooth(zone, row);
            }
#pragma omp taskwait
        for (int i = 0; i < num_zones; i++)
            for (int place = 0; place < zones[i].width; place += block_size) {
                const struct zone *zone = &zones[i];
#pragma omp task
                solve(zone, place);
            }
    }
}

/* What lies beyond a zone's side: the column at the facing side of the zone there. A message's tag is its source. */
static void exchange(void) {
    int count = 0;
    for (int i = 0; i < num_zones; i++)
        for (int right = 0; right <= 1; right++) {
            int number = grid.size * i + grid.rank, other = number + (right ? 1 : -1), owner = other % grid.size;
            if (other < 0 || other == num_all) continue;
            double *edge = column(zones[i].now, right ? zones[i].width - 1 : 0);
            double *beyond = column(zones[i].now, right ? zones[i].width : -1);
            if (grid.size == 1) {
                double *facing = column(zones[other].now, right ? 0 : zones[other].width - 1);
                memcpy(beyond, facing, height * sizeof(double));
                continue;
            }
            MPI_Irecv(beyond, height, MPI_DOUBLE, owner, 2 * other + !right, MPI_COMM_WORLD, &requests[count++]);
            MPI_Isend(edge, height, MPI_DOUBLE, owner, 2 * number + right, MPI_COMM_WORLD, &requests[count++]);
        }
    if (count) MPI_Waitall(count, requests, MPI_STATUSES_IGNORE);
}

static void allocate(int rows, int columns, int ratio) {
    height = rows * block_size;
    num_all = num_zones * grid.size;
    zones = zeros(num_zones, sizeof *zones);
    requests = zeros((size_t)4 * num_zones, sizeof *requests);
    for (int number = 0; number < num_all; number++) {
        double growth = num_all > 1 ? pow(ratio, (double)number / (num_all - 1)) : 1;
        int width = (int)floor(columns * growth + 0.5) * block_size;
        if (number % grid.size == grid.rank) {
            size_t points = (size_t)(width + 2) * height;
            struct zone zone = {width, all_width, zeros(points, sizeof(double)), zeros(points, sizeof(double))};
            zones[number / grid.size] = zone;
        }
        all_width += width;
    }
    pivots = zeros(height, sizeof(double));
    for (int row = 0; row < height; row++)
        pivots[row] = 1 / (1 + 2 * step - (row ? step * step * pivots[row - 1] : 0));
}

/* Fills the zones with the eigenvector (factor 0), or the largest distance from factor times the eigenvector. */
static double visit(double factor) {
    double largest = 0;
    for (int i = 0; i < num_zones; i++)
        for (int place = 0; place < zones[i].width; place++) {
            double along_x = sin(pi * (zones[i].first + place + 1) / (all_width + 1));
            double *values = column(zones[i].now, place);
            for (int row = 0; row < height; row++) {
                double start = along_x * sin(pi * (row + 1) / (height + 1));
                if (factor == 0)
                    values[row] = start;
                else if (!(distance(values[row], factor * start) <= largest))
                    largest = distance(values[row], factor * start);
            }
        }
    return largest;
}

int main(int argc, char **argv) {
    grid = start_grid(&argc, &argv, MPI_THREAD_FUNNELED);
    num_zones = argument(argc, argv, 1, 4, 1);
    int rows = argument(argc, argv, 2, 8, 1), columns = argument(argc, argv, 3, 2, 1);
    block_size = argument(argc, argv, 4, 8, 1);
    int ratio = argument(argc, argv, 5, 20, 1);
    num_solves = argument(argc, argv, 6, 1, 1);
    int iterations = argument(argc, argv, 7, 4, 1);
    allocate(rows, columns, ratio);
    visit(0);
    for (int iteration = 0; iteration < iterations; iteration++) {
        MANYSCALE_ITERATION(iteration);
        MANYSCALE_BEGIN("exchange");
        exchange();
        MANYSCALE_END();
        MANYSCALE_BEGIN("solve");
        iterate();
        MANYSCALE_END();
    }
    double along_x = (1 + cos(pi / (all_width + 1))) / 2;
    double along_y = 1 / (1 + 2 * step * (1 - cos(pi / (height + 1))));
    return finish_grid(&grid, "multizone", visit(pow(along_x * pow(along_y, num_solves), iterations)), 1e-12);
}

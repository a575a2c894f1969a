/* Distances from one vertex of a random graph, level by level; each level is a loop over all vertices.
   graph_search [vertices 20000] [degree 8] [iterations 2] */
#include "../../../programs/common.h"

int main(int argc, char **argv) {
    int n = argument(argc, argv, 1, 20000, 2), degree = argument(argc, argv, 2, 8, 1);
    int iterations = argument(argc, argv, 3, 2, 1);
    int *edge = zeros((size_t)n * degree, sizeof *edge), *far = zeros(n, sizeof *far);
    for (int i = 0; i < n * degree; i++) edge[i] = (int)(scatter(i) % n);
    for (int iteration = 0; iteration < iterations; iteration++) {
        MANYSCALE_ITERATION(iteration);
#pragma omp parallel
        {
#pragma omp for schedule(static)
            for (int v = 0; v < n; v++) far[v] = v ? -1 : 0;
            for (int level = 0; level < 6; level++) {
#pragma omp for schedule(dynamic, 250)
                for (int v = 0; v < n; v++)
                    for (int k = 0; far[v] < 0 && k < degree; k++)
                        if (far[edge[(size_t)v * degree + k]] == level) far[v] = level + 1;
            }
        }
    }
    return verdict("graph_search", far[0] == 0);
}

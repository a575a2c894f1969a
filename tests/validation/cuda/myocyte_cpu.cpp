// Rodinia's CUDA version of myocyte with its kernel called as an ordinary function: its OpenMP version leaves out one of
// the three models (the index of a thread is one too high). Words: milliseconds that are simulated.
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#define __device__
#include "define.c"
#include "file.c"
#include "kernel_ecc.cu"
#include "kernel_cam.cu"
#include "kernel_fin.cu"

void master(fp time, fp *state, fp *parameters, fp *rates, fp *calcium, fp *, fp *, fp *, fp *) {
    kernel_ecc(time, state, rates, 0, parameters);
    for (int k = 0; k < 3; k++)
        kernel_cam(time, state, rates, 46 + 15 * k, parameters, 5 * k, calcium, k, state[35 + k] * 1e3);
    kernel_fin(state, 0, 46, 61, 76, parameters, rates, calcium[0], calcium[1], calcium[2]);
    for (int k = 0; k < EQUATIONS; k++)
        if (!std::isfinite(rates[k])) rates[k] = 0.0001;
}

#include "embedded_fehlberg_7_8.cu"
#include "solver.cu"

int main(int, char **words) {
    int steps = atoi(words[1]);
    fp **y = (fp **)malloc((steps + 1) * sizeof *y), *x = (fp *)calloc(steps + 1, sizeof *x);
    fp parameters[PARAMETERS], calcium[3];
    for (int step = 0; step <= steps; step++) y[step] = (fp *)calloc(EQUATIONS, sizeof **y);
    read((char *)"../../data/myocyte/y.txt", y[0], EQUATIONS, 1, 0);
    read((char *)"../../data/myocyte/params.txt", parameters, PARAMETERS, 1, 0);
    solver(y, x, steps, parameters, calcium, 0, 0, 0, 0);
    FILE *file = fopen("output.txt", "w");
    fprintf(file, "WORKLOAD 0:\n");
    for (int step = 0; step <= steps; step++) {
        fprintf(file, "\tTIME %d:\n", step);
        for (int k = 0; k < EQUATIONS; k++) fprintf(file, "\t\ty[0][%d][%d]=%10.7e\n", step, k, y[step][k]);
    }
    return fclose(file);
}

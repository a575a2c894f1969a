/* A program without MPI and OpenMP: computes, runs another program if told to, and says so. */
#include <stdio.h>
#include <stdlib.h>

int main(int count, char **words) {
    volatile double sum = 0;
    int steps = count > 1 ? atoi(words[1]) : 10000000;
    for (int i = 0; i < steps; i++) sum += 1.0 / (i + 1);
    if (count > 2 && system(words[2])) return 1;
    printf("sum %.3f\n", sum);
    return 0;
}

#include <cstdio>
#include <cmath>
#include <mpi.h>
#include <cuda_runtime.h>
__global__ void add(double *x, int n, double by) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) x[i] += by;
}
int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    int rank, size, n = 10000, wrong = 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    double *x, *y, host[4];
    cudaMalloc(&x, n * sizeof(double));
    cudaMalloc(&y, n * sizeof(double));
    cudaMemset(x, 0, n * sizeof(double));
    for (int step = 0; step < size; step++) {
        add<<<(n + 255) / 256, 256>>>(x, n, rank + 1.0);
        cudaDeviceSynchronize();
        MPI_Sendrecv(x, n, MPI_DOUBLE, (rank + 1) % size, 7, y, n, MPI_DOUBLE, (rank + size - 1) % size, 7,
                     MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        double *t = x; x = y; y = t;
    }
    cudaMemcpy(host, x + n - 4, sizeof host, cudaMemcpyDeviceToHost);
    double want = size * (size + 1) / 2.0;
    for (int i = 0; i < 4; i++) wrong += host[i] != want;
    MPI_Allreduce(MPI_IN_PLACE, &wrong, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    if (rank == 0) printf(wrong ? "FAILED %g %g\n" : "PASSED %g\n", host[0], want);
    MPI_Finalize();
    return wrong != 0;
}

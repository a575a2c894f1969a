// Device code of two units that is linked with -rdc=true: calls, variables, pointers to functions, virtual functions.
#include <cstdio>
#include <cuda_runtime.h>

extern __device__ int scaled(int);
extern __device__ int counter;
extern __device__ double six_thirds(double);
extern void run_second(int *out);
extern __constant__ int factor;
__device__ int offset = 5;

struct Shape {
    __device__ virtual int area(int) const = 0;
};
struct Square : Shape {
    __device__ int area(int side) const override { return side * side; }
};
struct Strip : Shape {
    __device__ int area(int side) const override { return 3 * side; }
};

typedef int (*Step)(int);
__device__ int up(int x) { return x + 1; }
__device__ int down(int x) { return x - 1; }
__device__ Step steps[3] = {up, down, scaled};
__device__ Step chosen;

__global__ void call(int *out, int which) {
    const int i = threadIdx.x;
    Shape *shape = i & 1 ? (Shape *)new Square : (Shape *)new Strip;
    atomicAdd(&counter, 1);
    out[4 * i] = scaled(i);
    out[4 * i + 1] = steps[(which + i) % 3](i);  // lanes of a warp call different functions
    out[4 * i + 2] = shape->area(i);
    out[4 * i + 3] = (int)six_thirds(i);
    delete shape;
}

__global__ void choose() { chosen = down; }

int main() {
    int *out, values[128], three = 9;
    cudaMalloc(&out, sizeof values);
    call<<<1, 32>>>(out, 2);
    cudaMemcpy(values, out, sizeof values, cudaMemcpyDeviceToHost);
    for (int i = 0; i < 32; i++) printf("%d %d %d %d\n", values[4 * i], values[4 * i + 1], values[4 * i + 2], values[4 * i + 3]);
    choose<<<1, 1>>>();
    run_second(out);
    cudaMemcpyToSymbol(factor, &three, sizeof three);
    run_second(out);
    printf("%s\n", cudaGetErrorName(cudaGetLastError()));
    cudaFunction_t function;
    cudaGetFuncBySymbol(&function, (const void *)choose);
    printf("%s\n", cudaGetErrorName(cudaLaunchKernel((const void *)function, 1, 1, nullptr, 0, 0)));
}

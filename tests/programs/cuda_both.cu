// The runtime and the driver in one program: the driver's kernel, of a file that is named, works on the runtime's memory in
// the runtime's stream, a kernel of the program's own on the driver's memory; errors of one are no errors of the other.
#include <cstdio>
#include <cuda.h>
#include <cuda_runtime.h>

constexpr int COUNT = 300;

__global__ void add_one(float *x, int n) {
    int k = blockIdx.x * blockDim.x + threadIdx.x;
    if (k < n) x[k] += 1;
}

#define NEED(call)                                                       \
    do {                                                                 \
        if (int result = (int)(call)) return printf("%s: %d\n", #call, result), 1; \
    } while (0)

int main(int, char **words) {
    float *x, values[COUNT], factor = 5, a = 2;
    int n = COUNT;
    cudaStream_t stream;
    NEED(cudaMalloc(&x, sizeof values));
    CUcontext context, current = nullptr, none;
    NEED(cuCtxGetCurrent(&current));  // the runtime has initialised the driver, and made the primary one current
    NEED(cuDevicePrimaryCtxRetain(&context, 0));
    printf("%d", current == context);
    NEED(cuCtxPopCurrent(&none));
    NEED(cuCtxGetCurrent(&current));
    printf(" %d", current == nullptr);
    NEED(cudaStreamCreate(&stream));
    NEED(cuCtxGetCurrent(&current));
    printf(" %d\n", current == context);
    CUmodule module;
    CUfunction axpy;
    CUdeviceptr y, at;
    NEED(cuModuleLoad(&module, words[1]));
    NEED(cuModuleGetFunction(&axpy, module, "axpy"));
    NEED(cuModuleGetGlobal(&at, nullptr, module, "factor"));
    NEED(cuMemAlloc(&y, sizeof values));
    for (int k = 0; k < COUNT; k++) values[k] = (float)k;
    NEED(cudaMemcpy(x, values, sizeof values, cudaMemcpyHostToDevice));
    NEED(cudaMemcpy((void *)at, &factor, sizeof factor, cudaMemcpyDefault));
    NEED(cuMemsetD32Async(y, 0, COUNT, stream));
    add_one<<<2, 256, 0, stream>>>((float *)y, n);
    void *arguments[] = {&a, &x, &y, &n};
    NEED(cuLaunchKernel(axpy, 2, 1, 1, 256, 1, 1, 0, stream, arguments, nullptr));
    NEED(cudaStreamSynchronize(stream));
    NEED(cuMemcpyDtoH(values, y, sizeof values));
    for (int k = 0; k < COUNT; k++)
        if (values[k] != 1 + 2 * k * 5.0f) return printf("wrong at %d\n", k), 1;
    printf("%d", cuMemFree(y + 1));
    printf(" %d", cudaGetLastError());
    printf(" %d", cudaFree((void *)(y + 1)));
    printf(" %d\n", cudaGetLastError());
    printf("PASSED\n");
}

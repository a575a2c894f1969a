// Compiles a kernel by NVRTC, to machine code or PTX as the argument says, runs it and checks what it computes.
#include <cuda.h>
#include <nvrtc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NEED(call)                                            \
    do {                                                      \
        const int result = (int)(call);                       \
        if (result) return printf("%s: %d\n", #call, result); \
    } while (0)

enum { ROWS = 70, COLUMNS = 90 };

static const char *const source =
    "template <typename T> __global__ void transpose(const T *from, T *to, int rows, int columns) {\n"
    "    __shared__ T tile[16][17];\n"
    "    int x = blockIdx.x * 16 + threadIdx.x, y = blockIdx.y * 16 + threadIdx.y;\n"
    "    if (x < columns && y < rows) tile[threadIdx.y][threadIdx.x] = from[y * columns + x];\n"
    "    __syncthreads();\n"
    "    x = blockIdx.y * 16 + threadIdx.x, y = blockIdx.x * 16 + threadIdx.y;\n"
    "    if (x < rows && y < columns) to[y * rows + x] = tile[threadIdx.x][threadIdx.y];\n"
    "}\n";

int main(int count, char **words) {
    const int to_ptx = count > 1 && !strcmp(words[1], "ptx");
    CUdevice device;
    CUcontext context;
    CUmodule module;
    CUfunction transpose;
    CUstream stream;
    CUdeviceptr on_from, on_to;
    int major, minor;
    NEED(cuInit(0));
    NEED(cuDeviceGet(&device, 0));
    NEED(cuCtxCreate(&context, NULL, 0, device));
    NEED(cuDeviceGetAttribute(&major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device));
    NEED(cuDeviceGetAttribute(&minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, device));
    char architecture[64];
    snprintf(architecture, sizeof architecture, "--gpu-architecture=%s_%d%d", to_ptx ? "compute" : "sm", major, minor);
    const char *options[] = {architecture}, *name;
    nvrtcProgram program;
    NEED(nvrtcCreateProgram(&program, source, "transpose.cu", 0, NULL, NULL));
    NEED(nvrtcAddNameExpression(program, "transpose<int>"));
    NEED(nvrtcCompileProgram(program, 1, options));
    NEED(nvrtcGetLoweredName(program, "transpose<int>", &name));
    size_t bytes;
    NEED(to_ptx ? nvrtcGetPTXSize(program, &bytes) : nvrtcGetCUBINSize(program, &bytes));
    char *code = malloc(bytes);
    NEED(to_ptx ? nvrtcGetPTX(program, code) : nvrtcGetCUBIN(program, code));
    NEED(cuModuleLoadData(&module, code));
    NEED(cuModuleGetFunction(&transpose, module, name));

    static int from[ROWS][COLUMNS], to[COLUMNS][ROWS];
    int rows = ROWS, columns = COLUMNS;
    for (int k = 0; k < ROWS * COLUMNS; k++) (&from[0][0])[k] = k * k;
    NEED(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    NEED(cuMemAlloc(&on_from, sizeof from));
    NEED(cuMemAllocAsync(&on_to, sizeof to, stream));
    NEED(cuMemcpyHtoDAsync(on_from, from, sizeof from, stream));
    void *arguments[] = {&on_from, &on_to, &rows, &columns};
    NEED(cuLaunchKernel(transpose, (COLUMNS + 15) / 16, (ROWS + 15) / 16, 1, 16, 16, 1, 0, stream, arguments, NULL));
    NEED(cuMemcpyDtoHAsync(to, on_to, sizeof to, stream));
    NEED(cuStreamSynchronize(stream));
    for (int i = 0; i < ROWS; i++)
        for (int j = 0; j < COLUMNS; j++)
            if (to[j][i] != from[i][j]) return printf("wrong at %d, %d\n", i, j);
    puts("PASSED");
    return 0;
}

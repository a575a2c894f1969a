// A program on CUDA's driver interface: kernels come from a file (machine code, PTX or a fat binary) that is named, and are
// loaded in each of the ways that there are. It checks its results, and prints what the calls give, by parts.
#include <cuda.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { COUNT = 1000 };

static const char *name(CUresult result) {
    const char *found = "?";
    cuGetErrorName(result, &found);
    return found;
}

static void tell(CUresult result) { puts(name(result)); }

static void need(CUresult result, const char *what) {
    const char *text = "?";
    if (result == CUDA_SUCCESS) return;
    cuGetErrorString(result, &text);
    printf("%s: %s (%s)\n", what, name(result), text);
    exit(1);
}
#define NEED(call) need(call, #call)

static char *content(const char *path) {
    FILE *file = fopen(path, "rb");
    char *bytes = calloc(1, 1 << 20);
    if (file == NULL || fread(bytes, 1, (1 << 20) - 1, file) == 0) exit(2);
    fclose(file);
    return bytes;
}

// axpy(float a, const float *x, float *y, int n): y += a * x * factor[0], a variable of the module
static int check(CUfunction axpy, CUdeviceptr factor, int form) {
    float x[COUNT], y[COUNT], a = 2, times = 3;
    int n = COUNT, wrong = 0;
    CUdeviceptr on_x, on_y;
    for (int k = 0; k < COUNT; k++) x[k] = (float)k, y[k] = 1;
    NEED(cuMemAlloc(&on_x, sizeof x));
    NEED(cuMemAlloc(&on_y, sizeof y));
    NEED(cuMemcpyHtoD(on_x, x, sizeof x));
    NEED(cuMemcpyHtoD(on_y, y, sizeof y));
    NEED(cuMemcpyHtoD(factor, &times, sizeof times));
    void *arguments[] = {&a, &on_x, &on_y, &n};
    struct {
        float a;
        CUdeviceptr x, y;
        int n;
    } block = {a, on_x, on_y, n};
    size_t bytes = sizeof block;
    void *extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, &block, CU_LAUNCH_PARAM_BUFFER_SIZE, &bytes, CU_LAUNCH_PARAM_END};
    CUlaunchConfig config = {.gridDimX = 8, .gridDimY = 1, .gridDimZ = 1, .blockDimX = 128, .blockDimY = 1, .blockDimZ = 1};
    if (form == 0) NEED(cuLaunchKernel(axpy, 8, 1, 1, 128, 1, 1, 0, NULL, arguments, NULL));
    if (form == 1) NEED(cuLaunchKernel(axpy, 8, 1, 1, 128, 1, 1, 0, NULL, NULL, extra));
    if (form == 2) NEED(cuLaunchKernelEx(&config, axpy, arguments, NULL));
    NEED(cuCtxSynchronize());
    NEED(cuMemcpyDtoH(y, on_y, sizeof y));
    for (int k = 0; k < COUNT; k++) wrong += y[k] != 1 + 6 * (float)k;
    NEED(cuMemFree(on_x));
    NEED(cuMemFree(on_y));
    return wrong;
}

static void load(const char *path, const char *second) {
    CUmodule module;
    CUfunction axpy;
    CUdeviceptr factor;
    size_t bytes;
    NEED(cuModuleLoad(&module, path));
    NEED(cuModuleGetFunction(&axpy, module, "axpy"));
    NEED(cuModuleGetGlobal(&factor, &bytes, module, "factor"));
    printf("file %d %zu\n", check(axpy, factor, 0), bytes);
    tell(cuModuleGetFunction(&axpy, module, "nothing"));
    tell(cuModuleGetGlobal(&factor, &bytes, module, "nothing"));
    NEED(cuModuleUnload(module));
    tell(cuModuleUnload(module));
    tell(cuModuleGetFunction(&axpy, module, "axpy"));

    char *image = content(path), log[4096] = "";
    CUjit_option options[] = {CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES, CU_JIT_MAX_REGISTERS};
    void *values[] = {log, (void *)sizeof log, (void *)32};
    NEED(cuModuleLoadDataEx(&module, image, 3, options, values));
    NEED(cuModuleGetFunction(&axpy, module, "axpy"));
    NEED(cuModuleGetGlobal(&factor, NULL, module, "factor"));
    printf("data %d\n", check(axpy, factor, 1));

    CUlibrary library;
    CUkernel kernel;
    NEED(cuLibraryLoadData(&library, image, NULL, NULL, 0, NULL, NULL, 0));
    NEED(cuLibraryGetKernel(&kernel, library, "axpy"));
    NEED(cuLibraryGetGlobal(&factor, NULL, library, "factor"));
    printf("library %d\n", check((CUfunction)kernel, factor, 2));
    NEED(cuLibraryUnload(library));

    tell(cuModuleLoadDataEx(&module, ".version 8.0\n.target sm_75\n.address_size 64\n.entry wrong() { add; }\n", 2, options,
                            values));
    puts(strstr(log, "ptxas") ? "the log says so" : log);
    tell(cuModuleLoadData(&module, "no code at all"));
    tell(cuModuleLoad(&module, "/no/such/file"));
    if (second == NULL) return;
    CUlinkState link;
    void *linked;
    NEED(cuLinkCreate(0, NULL, NULL, &link));
    NEED(cuLinkAddFile(link, CU_JIT_INPUT_PTX, second, 0, NULL, NULL));
    NEED(cuLinkComplete(link, &linked, &bytes));
    NEED(cuModuleLoadData(&module, linked));
    NEED(cuLinkDestroy(link));
    NEED(cuModuleGetFunction(&axpy, module, "axpy"));
    NEED(cuModuleGetGlobal(&factor, NULL, module, "factor"));
    printf("linked %d\n", check(axpy, factor, 0));
}

static void addresses(void) {
    CUdriverProcAddressQueryResult status;
    void *found;
    const struct {
        const char *name;
        int version;
    } wanted[] = {{"cuMemAlloc", 3020}, {"cuMemAlloc", 13000}, {"cuCtxCreate", 3020}, {"cuLaunchKernelEx", 11000},
                  {"cuNothing", 13000}, {"cuInit", 13000}};
    for (int k = 0; k < 6; k++) {
        found = NULL;
        const CUresult result = cuGetProcAddress_v2(wanted[k].name, &found, wanted[k].version, 0, &status);
        printf("%s %s %d %s\n", wanted[k].name, name(result), status, found ? "found" : "none");
    }
    cuGetProcAddress_v2("cuMemAlloc", &found, 12000, CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM, &status);
    printf("%d\n", found == (void *)cuMemAlloc);
    tell(cuGetExportTable((const void **)&found, NULL));
}

static void contexts(CUdevice device) {
    CUcontext primary, other, current;
    unsigned flags;
    int is_active;
    tell(cuCtxGetDevice(&device));
    tell(cuMemAlloc(&(CUdeviceptr){0}, 4));
    cuDevicePrimaryCtxGetState(device, &flags, &is_active);
    NEED(cuDevicePrimaryCtxRetain(&primary, device));
    printf("%d", is_active);
    cuDevicePrimaryCtxGetState(device, &flags, &is_active);
    printf(" %d\n", is_active);
    NEED(cuCtxPushCurrent(primary));
    NEED(cuCtxCreate(&other, NULL, 0, device));
    NEED(cuCtxGetCurrent(&current));
    printf("%d", current == other);
    NEED(cuCtxDestroy(other));
    NEED(cuCtxGetCurrent(&current));
    printf(" %d\n", current == primary);
    tell(cuCtxSetCurrent(other));
    NEED(cuDevicePrimaryCtxRelease(device));
    tell(cuDevicePrimaryCtxRelease(device));
}

static void memory(void) {
    CUdeviceptr place, base;
    size_t bytes;
    unsigned short words[8];
    CUmemorytype kind;
    NEED(cuMemAlloc(&place, 1000));
    NEED(cuMemsetD16(place, 0x1234, 4));
    NEED(cuMemsetD32(place + 8, 0xabcd0099, 2));
    NEED(cuMemcpyDtoH(words, place, sizeof words));
    for (int k = 0; k < 8; k++) printf("%x%c", words[k], k < 7 ? ' ' : '\n');
    tell(cuMemsetD32(place + 2, 0, 1));
    NEED(cuMemGetAddressRange(&base, &bytes, place + 500));
    printf("%d %zu\n", base == place, bytes);
    NEED(cuPointerGetAttribute(&kind, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, place + 3));
    printf("%d\n", kind == CU_MEMORYTYPE_DEVICE);
    tell(cuPointerGetAttribute(&kind, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, (CUdeviceptr)&kind));
    char rows[12] = "abcdefghijkl", back[6] = "......";
    const CUDA_MEMCPY2D in = {.srcMemoryType = CU_MEMORYTYPE_HOST, .srcHost = rows, .srcPitch = 4, .srcXInBytes = 1,
                              .dstMemoryType = CU_MEMORYTYPE_DEVICE, .dstDevice = place, .dstPitch = 100,
                              .WidthInBytes = 2, .Height = 3};
    const CUDA_MEMCPY2D out = {.srcMemoryType = CU_MEMORYTYPE_DEVICE, .srcDevice = place, .srcPitch = 100,
                               .dstMemoryType = CU_MEMORYTYPE_HOST, .dstHost = back, .dstPitch = 2, .WidthInBytes = 2,
                               .Height = 3};
    NEED(cuMemcpy2D(&in));
    NEED(cuMemcpy2D(&out));
    printf("%.6s\n", back);
    tell(cuMemcpyHtoD(place, rows, 1001));
    tell(cuMemAlloc(&base, 0));
    tell(cuMemFree(place + 4));
    tell(cuMemFree(place));
    tell(cuMemAddressReserve(&base, 1 << 21, 0, 0, 0));
}

static void count_up(void *counter) { ++*(int *)counter; }

// A graph is captured and launched; it, and then what was instantiated of it, keep an object of the program's.
static void graphs(void) {
    CUstream stream;
    CUgraph graph;
    CUgraphExec instance;
    CUstreamCaptureStatus status;
    CUuserObject object;
    CUdeviceptr place;
    const CUgraphNode *last = NULL;
    CUgraphNodeType type;
    size_t count = 7;
    int gone = 0, values[3] = {0};
    NEED(cuMemAlloc(&place, sizeof values));
    NEED(cuMemsetD32(place, 5, 3));
    NEED(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    NEED(cuStreamGetCaptureInfo(stream, &status, NULL, NULL, &last, NULL, &count));
    printf("%d", status);
    NEED(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    NEED(cuMemsetD32Async(place + 4, 9, 1, stream));
    NEED(cuStreamGetCaptureInfo(stream, &status, NULL, NULL, &last, NULL, &count));
    NEED(cuGraphNodeGetType(last[0], &type));
    printf(" %d %zu %d\n", status, count, type == CU_GRAPH_NODE_TYPE_MEMSET);
    NEED(cuStreamEndCapture(stream, &graph));
    NEED(cuUserObjectCreate(&object, &gone, count_up, 1, CU_USER_OBJECT_NO_DESTRUCTOR_SYNC));
    NEED(cuGraphRetainUserObject(graph, object, 1, CU_GRAPH_USER_OBJECT_MOVE));
    CUDA_GRAPH_INSTANTIATE_PARAMS parameters = {0};
    NEED(cuGraphInstantiateWithParams(&instance, graph, &parameters));
    NEED(cuMemcpyDtoH(values, place, sizeof values));
    printf("%d %d %d", values[0], values[1], values[2]);
    NEED(cuGraphLaunch(instance, stream));
    NEED(cuMemcpyDtoH(values, place, sizeof values));
    printf(" %d %d %d\n", values[0], values[1], values[2]);
    printf("%d", gone);
    NEED(cuGraphDestroy(graph));
    printf(" %d", gone);
    NEED(cuGraphExecDestroy(instance));
    printf(" %d\n", gone);
    tell(cuUserObjectRelease(object, 1));
}

int main(int count, char **words) {
    CUdevice device;
    CUcontext context;
    int value;
    if (!strcmp(words[1], "early")) return tell(cuDeviceGetCount(&value)), 0;
    NEED(cuInit(0));
    NEED(cuDeviceGet(&device, 0));
    if (!strcmp(words[1], "contexts")) return contexts(device), 0;
    if (!strcmp(words[1], "addresses")) return addresses(), 0;
    NEED(cuDevicePrimaryCtxRetain(&context, device));
    NEED(cuCtxSetCurrent(context));
    if (!strcmp(words[1], "memory")) memory();
    if (!strcmp(words[1], "graphs")) graphs();
    if (!strcmp(words[1], "load")) load(words[2], count > 3 ? words[3] : NULL);
    return 0;
}

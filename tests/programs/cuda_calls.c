/* Calls of the CUDA runtime without a kernel; each part prints what the calls gave. */
#include <cuda_runtime_api.h>
#include <driver_functions.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SHOW(call) printf("%s\n", cudaGetErrorName(call))

static void memory(void) {
    char *a, *b, *c, text[16] = "0123456789";
    SHOW(cudaMalloc((void **)&a, 1));
    SHOW(cudaMalloc((void **)&b, 513));
    SHOW(cudaMalloc((void **)&c, 16));
    printf("%td %td\n", b - a, c - b);
    SHOW(cudaMemcpy(c, text, 16, cudaMemcpyHostToDevice));
    SHOW(cudaMemcpy(b, c, 16, cudaMemcpyDefault));
    SHOW(cudaMemset(b + 2, 'x', 3));
    memset(text, 0, sizeof text);
    SHOW(cudaMemcpy(text, b, 16, cudaMemcpyDeviceToHost));
    printf("%s\n", text);
    SHOW(cudaMemcpy(c, text, 17, cudaMemcpyHostToDevice)); /* one byte too many */
    SHOW(cudaMemcpy(text, c - 1, 1, cudaMemcpyDeviceToHost));
    SHOW(cudaMemset(b, 0, 514));
    SHOW(cudaFree(b));
    SHOW(cudaFree(b));
    SHOW(cudaFree(c + 1));
    SHOW(cudaFree(NULL));
    SHOW(cudaGetLastError());
    SHOW(cudaGetLastError());
    SHOW(cudaMalloc((void **)&b, (size_t)1 << 60));
    printf("%s\n", cudaGetErrorString(cudaPeekAtLastError()));
    cudaGetLastError();
    char *d;
    SHOW(cudaMalloc((void **)&d, 600)); /* takes the room of b */
    printf("%td\n", d - a);
}

static void shapes(void) {
    size_t pitch, left, total;
    char *rows, from[4][10], to[4][10];
    SHOW(cudaMallocPitch((void **)&rows, &pitch, 10, 4));
    printf("%zu\n", pitch);
    for (int k = 0; k < 40; k++) (&from[0][0])[k] = (char)('a' + k % 26);
    memset(to, '.', sizeof to);
    SHOW(cudaMemcpy2D(rows, pitch, from, 10, 10, 4, cudaMemcpyHostToDevice));
    SHOW(cudaMemset2D(rows + 1, pitch, '-', 2, 3));
    SHOW(cudaMemcpy2D(to, 10, rows, pitch, 5, 4, cudaMemcpyDeviceToHost));
    for (int k = 0; k < 4; k++) printf("%.10s\n", to[k]);
    SHOW(cudaMemcpy2D(to, 4, rows, pitch, 5, 4, cudaMemcpyDeviceToHost));
    struct cudaPitchedPtr box;
    SHOW(cudaMalloc3D(&box, make_cudaExtent(8, 2, 2)));
    char slices[2][2][8], back[8] = "";
    memcpy(slices, "AAAAAAA\0BBBBBBB\0CCCCCCC\0DDDDDDD", 32);
    struct cudaMemcpy3DParms copy = {0};
    copy.srcPtr = make_cudaPitchedPtr(slices, 8, 8, 2);
    copy.dstPtr = box;
    copy.extent = make_cudaExtent(8, 2, 2);
    copy.kind = cudaMemcpyHostToDevice;
    SHOW(cudaMemcpy3D(&copy));
    SHOW(cudaMemcpy(back, (char *)box.ptr + 3 * box.pitch, 8, cudaMemcpyDeviceToHost));
    printf("%s\n", back);
    SHOW(cudaMemGetInfo(&left, &total));
    printf("%zu %zu\n", total, total - left);
}

static void host(void) {
    char *pinned, *managed, own[100], *seen;
    struct cudaPointerAttributes of;
    SHOW(cudaMallocHost((void **)&pinned, 100));
    SHOW(cudaMallocManaged((void **)&managed, 100, cudaMemAttachGlobal));
    strcpy(managed, "the host writes it");
    SHOW(cudaMemcpy(pinned, managed, 100, cudaMemcpyDefault));
    printf("%s\n", pinned);
    void *const pointers[] = {pinned, managed, own};
    for (int k = 0; k < 3; k++) {
        SHOW(cudaPointerGetAttributes(&of, pointers[k]));
        printf("%d\n", of.type);
    }
    SHOW(cudaHostRegister(own, 100, 0));
    SHOW(cudaHostRegister(own + 50, 100, 0));
    SHOW(cudaHostGetDevicePointer((void **)&seen, own, 0));
    printf("%d\n", seen == own);
    SHOW(cudaHostUnregister(own));
    SHOW(cudaHostUnregister(own));
    SHOW(cudaFree(pinned));
    SHOW(cudaFreeHost(pinned));
}

static void devices(void) {
    int count, number;
    struct cudaDeviceProp of;
    SHOW(cudaGetDeviceCount(&count));
    SHOW(cudaSetDevice(1));
    SHOW(cudaGetDeviceProperties(&of, 0));
    printf("%d %s %d.%d %d %zu %zu %zu %d %d %d %d\n", count, of.name, of.major, of.minor, of.multiProcessorCount,
           of.totalGlobalMem, of.sharedMemPerBlock, of.sharedMemPerBlockOptin, of.regsPerBlock, of.warpSize,
           of.maxThreadsPerMultiProcessor, of.maxThreadsPerBlock);
    const enum cudaDeviceAttr wanted[] = {cudaDevAttrClockRate, cudaDevAttrMultiProcessorCount, cudaDevAttrL2CacheSize,
                                          cudaDevAttrMaxGridDimX, cudaDevAttrWarpSize, cudaDevAttrCooperativeLaunch};
    for (int k = 0; k < 6; k++) {
        SHOW(cudaDeviceGetAttribute(&number, wanted[k], 0));
        printf("%d\n", number);
    }
}

static void add(void *sum) { *(int *)sum += 1; }

static void graphs(void) {
    cudaStream_t stream, other;
    cudaEvent_t event, first;
    cudaGraph_t graph;
    cudaGraphExec_t made;
    enum cudaStreamCaptureStatus status;
    char *a;
    char text[8] = "abc";
    int sum = 0;
    size_t count = 0;
    float milliseconds = -1;
    SHOW(cudaStreamCreate(&stream));
    SHOW(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking));
    SHOW(cudaEventCreate(&event));
    SHOW(cudaEventCreate(&first));
    cudaMalloc((void **)&a, 8);
    cudaMemset(a, 0, 8);
    SHOW(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    SHOW(cudaMemcpyAsync(a, text, 8, cudaMemcpyHostToDevice, stream));
    SHOW(cudaEventRecord(event, stream));
    SHOW(cudaStreamWaitEvent(other, event, 0));
    SHOW(cudaLaunchHostFunc(other, add, &sum));
    SHOW(cudaMemsetAsync(a, 'z', 1, stream));
    SHOW(cudaStreamSynchronize(stream));
    SHOW(cudaStreamIsCapturing(other, &status));
    printf("%d\n", status);
    SHOW(cudaStreamEndCapture(stream, &graph));
    cudaGraphGetNodes(graph, NULL, &count);
    printf("%zu %d\n", count, sum);
    SHOW(cudaGraphInstantiate(&made, graph, 0));
    strcpy(text, "def"); /* a graph copies what stands there when it runs */
    for (int k = 0; k < 3; k++) SHOW(cudaGraphLaunch(made, stream));
    SHOW(cudaMemcpy(text, a, 8, cudaMemcpyDeviceToHost));
    printf("%s %d\n", text, sum);
    cudaGraph_t built;
    cudaGraphNode_t late, early;
    struct cudaHostNodeParams call = {add, &sum};
    SHOW(cudaGraphCreate(&built, 0));
    SHOW(cudaGraphAddMemcpyNode1D(&late, built, NULL, 0, text, a, 8, cudaMemcpyDeviceToHost));
    struct cudaMemsetParams set = {0};
    set.dst = a, set.elementSize = 2, set.value = 0x4241, set.width = 2, set.height = 1, set.pitch = 4;
    SHOW(cudaGraphAddMemsetNode(&early, built, NULL, 0, &set));
    SHOW(cudaGraphAddDependencies(built, &early, &late, NULL, 1));
    SHOW(cudaGraphAddHostNode(&early, built, &late, 1, &call));
    SHOW(cudaGraphInstantiate(&made, built, 0));
    SHOW(cudaGraphLaunch(made, 0));
    printf("%s %d\n", text, sum);
    SHOW(cudaGraphAddDependencies(built, &early, &late, NULL, 1)); /* a cycle */
    SHOW(cudaGraphInstantiate(&made, built, 0));
    SHOW(cudaEventElapsedTime(&milliseconds, first, event));
    SHOW(cudaEventRecord(first, stream));
    SHOW(cudaEventRecord(event, stream));
    SHOW(cudaEventElapsedTime(&milliseconds, first, event));
    printf("%d\n", milliseconds >= 0);
    char *asked;
    SHOW(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    SHOW(cudaMallocAsync((void **)&asked, 16, stream));
    SHOW(cudaMemsetAsync(asked, 'q', 16, stream));
    SHOW(cudaStreamEndCapture(stream, &graph));
    SHOW(cudaGraphInstantiate(&made, graph, 0));
    SHOW(cudaGraphLaunch(made, stream));
    SHOW(cudaFree(asked));
    SHOW(cudaMemset(asked, 'r', 16)); /* it is freed */
    SHOW(cudaGraphLaunch(made, stream)); /* which allocates it anew */
    SHOW(cudaMemcpy(text, asked, 2, cudaMemcpyDefault));
    printf("%.2s\n", text);
    SHOW(cudaStreamDestroy(other));
    SHOW(cudaStreamDestroy(other));
    SHOW(cudaStreamQuery(other));
}

static void missing(void) {
    cudaMipmappedArray_t array;
    struct cudaChannelFormatDesc form = cudaCreateChannelDesc(32, 0, 0, 0, cudaChannelFormatKindFloat);
    SHOW(cudaMallocMipmappedArray(&array, &form, (struct cudaExtent){4, 4, 0}, 2, 0));
    SHOW(cudaMallocMipmappedArray(&array, &form, (struct cudaExtent){4, 4, 0}, 2, 0));
    SHOW(cudaIpcCloseMemHandle(NULL));
    SHOW(cudaGetLastError());
    printf("%s|%s|%s\n", cudaGetErrorString(cudaErrorNotSupported), cudaGetErrorString(cudaErrorInvalidPtx),
           cudaGetErrorString(cudaErrorNvlinkUncorrectable));
}

static void several(void) {
    int count, can, number;
    char *own, *other, *more, text[4] = "abc";
    size_t left, total;
    char bus[16];
    struct cudaPointerAttributes where;
    cudaStream_t stream;
    cudaEvent_t event;
    SHOW(cudaGetDeviceCount(&count));
    SHOW(cudaSetDevice(count));
    SHOW(cudaMalloc((void **)&own, 1024));
    SHOW(cudaSetDevice(1));
    cudaMemGetInfo(&left, &total);
    printf("%d %zu\n", count, total - left); /* nothing of this device is taken */
    SHOW(cudaMalloc((void **)&other, total));
    SHOW(cudaMalloc((void **)&more, 512));
    cudaPointerGetAttributes(&where, other);
    printf("%d", where.device);
    cudaPointerGetAttributes(&where, own);
    printf(" %d\n", where.device);
    SHOW(cudaFree(other));
    SHOW(cudaMalloc((void **)&other, 512));
    SHOW(cudaDeviceCanAccessPeer(&can, 1, 0));
    SHOW(cudaDeviceCanAccessPeer(&number, 1, 1));
    printf("%d %d\n", can, number);
    SHOW(cudaDeviceDisablePeerAccess(0));
    SHOW(cudaDeviceEnablePeerAccess(0, 0));
    SHOW(cudaDeviceEnablePeerAccess(0, 0));
    SHOW(cudaDeviceEnablePeerAccess(1, 0));
    SHOW(cudaGetLastError());
    cudaMemcpy(own, text, 4, cudaMemcpyHostToDevice);
    SHOW(cudaMemcpyPeer(other, 1, own, 0, 4));
    SHOW(cudaMemcpyPeer(other, 0, own, 1, 4)); /* it is the other way round */
    memset(text, 0, 4);
    cudaMemcpy(text, other, 4, cudaMemcpyDeviceToHost);
    printf("%s\n", text);
    SHOW(cudaStreamCreate(&stream));
    SHOW(cudaEventCreate(&event));
    SHOW(cudaSetDevice(0));
    SHOW(cudaEventRecord(event, 0)); /* an event of the other device */
    SHOW(cudaEventRecord(event, stream));
    SHOW(cudaStreamWaitEvent(0, event, 0));
    SHOW(cudaDeviceGetPCIBusId(bus, sizeof bus, 1));
    SHOW(cudaDeviceGetByPCIBusId(&number, bus));
    printf("%s %d\n", bus, number);
    SHOW(cudaDeviceReset());
    SHOW(cudaFree(other)); /* of the other device, which has it still */
    SHOW(cudaFree(own));
}

int main(int count, char **words) {
    const struct {
        const char *name;
        void (*run)(void);
    } parts[] = {{"memory", memory}, {"shapes", shapes}, {"host", host}, {"devices", devices}, {"graphs", graphs},
                 {"missing", missing}, {"several", several}};
    for (int k = 0; count > 1 && k < 7; k++)
        if (!strcmp(parts[k].name, words[1])) parts[k].run();
    return 0;
}

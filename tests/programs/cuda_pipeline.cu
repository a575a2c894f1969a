// Four pieces, each copied in, worked on and copied back in a stream of its own, the last in one that does not wait for
// the default stream and has a higher priority; an event between two streams; a copy from pageable memory; one between
// two devices, where there are two.
#include <cstdio>
#include <cuda_runtime.h>
__global__ void work(float *a, int rounds) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float x = a[i];
    for (int k = 0; k < rounds; k++) x = x * 1.0001f + 1.0f;
    a[i] = x;
}
int main() {
    const int n = 1 << 14, pieces = 4;
    float *host, *device, *other, one = 1;
    cudaMallocHost(&host, n * pieces * sizeof(float));
    cudaMalloc(&device, n * pieces * sizeof(float));
    for (int i = 0; i < n * pieces; i++) host[i] = 0;
    cudaStream_t stream[pieces];
    cudaEvent_t done;
    cudaEventCreate(&done);
    for (int k = 0; k < pieces; k++)
        cudaStreamCreateWithPriority(&stream[k], k == 3 ? cudaStreamNonBlocking : cudaStreamDefault, k == 3 ? -2 : 0);
    for (int k = 0; k < pieces; k++) {
        cudaMemcpyAsync(device + k * n, host + k * n, n * sizeof(float), cudaMemcpyHostToDevice, stream[k]);
        work<<<n / 256, 256, 0, stream[k]>>>(device + k * n, 20);
        cudaMemcpyAsync(host + k * n, device + k * n, n * sizeof(float), cudaMemcpyDeviceToHost, stream[k]);
    }
    cudaEventRecord(done, stream[0]);
    cudaStreamWaitEvent(stream[1], done, 0);
    cudaEventSynchronize(done);
    cudaDeviceSynchronize();
    cudaMemcpy(device, &one, sizeof one, cudaMemcpyHostToDevice);
    int devices = 0;
    cudaGetDeviceCount(&devices);
    if (devices > 1) {
        cudaSetDevice(1);
        cudaMalloc(&other, n * sizeof(float));
        cudaMemcpyPeer(other, 1, device, 0, n * sizeof(float));
        cudaDeviceSynchronize();
    }
    printf("%s\n", host[0] > 20 && host[0] < 21 && host[n * pieces - 1] == host[0] ? "PASSED" : "FAILED");
}

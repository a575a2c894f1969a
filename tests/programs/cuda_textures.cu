// Textures and surfaces of arrays, pitched and linear memory; each line is a part, which the test computes, too.
#include <cstdio>
#include <vector>
#include <cuda_runtime.h>

#define CHECK(call)                                                                                      \
    do {                                                                                                 \
        const cudaError_t error = call;                                                                  \
        if (error != cudaSuccess) return printf("%d: %s\n", __LINE__, cudaGetErrorName(error)), 1;       \
    } while (0)

enum { WIDTH = 40, HEIGHT = 20, DEPTH = 3, THREADS = 64 };

__global__ void linear(cudaTextureObject_t texture, int *out) { out[threadIdx.x] = tex1Dfetch<int>(texture, threadIdx.x); }

__global__ void filtered(cudaTextureObject_t texture, float *out) {
    out[threadIdx.x] = tex2D<float>(texture, 0.25f * threadIdx.x + 0.5f, 0.125f * threadIdx.x + 1.0f);
}

__global__ void chosen(const cudaTextureObject_t *textures, float *out) {  // handles from memory, one for each thread
    out[threadIdx.x] = tex2D<float>(textures[threadIdx.x & 1], threadIdx.x % WIDTH + 0.5f, 2.5f);
}

__global__ void normalised(cudaTextureObject_t texture, float4 *out) {
    out[threadIdx.x] = tex2D<float4>(texture, threadIdx.x / 8.0f + 0.0625f, 0.5f);
}

__global__ void layered(cudaTextureObject_t texture, int *out) {
    out[threadIdx.x] = tex2DLayered<int>(texture, threadIdx.x % WIDTH, threadIdx.x % HEIGHT, threadIdx.x % DEPTH);
}

__global__ void solid(cudaTextureObject_t texture, int *out) {
    out[threadIdx.x] = tex3D<int>(texture, threadIdx.x % WIDTH, threadIdx.x % HEIGHT, threadIdx.x % DEPTH);
}

__global__ void line(cudaTextureObject_t texture, float *out) { out[threadIdx.x] = tex1D<float>(texture, threadIdx.x / 2.0f); }

__global__ void gathered(cudaTextureObject_t texture, int4 *out) {
    out[threadIdx.x] = tex2Dgather<int4>(texture, threadIdx.x % WIDTH, threadIdx.x % HEIGHT, 0);
}

__global__ void written(cudaSurfaceObject_t surface) {
    int value;
    surf2Dread(&value, surface, 4 * (threadIdx.x % WIDTH), blockIdx.x);
    surf2Dwrite(value + 1000, surface, 4 * (threadIdx.x % WIDTH), blockIdx.x);
}

template <typename T> static int show(const char *name, const T *device, int count) {
    std::vector<T> values(count);
    CHECK(cudaMemcpy(values.data(), device, count * sizeof(T), cudaMemcpyDeviceToHost));
    printf("%s", name);
    for (int k = 0; k < count; k++) printf(" %.9g", (double)values[k]);
    printf("\n");
    return 0;
}

static cudaTextureObject_t object(const cudaResourceDesc &resource, bool filters = false, bool normalises = false) {
    cudaTextureDesc how = {};
    cudaTextureObject_t made = 0;
    how.addressMode[0] = how.addressMode[1] = normalises ? cudaAddressModeWrap : cudaAddressModeClamp;
    how.filterMode = filters ? cudaFilterModeLinear : cudaFilterModePoint;
    how.readMode = normalises ? cudaReadModeNormalizedFloat : cudaReadModeElementType;
    how.normalizedCoords = normalises;
    const cudaError_t error = cudaCreateTextureObject(&made, &resource, &how, nullptr);
    if (error != cudaSuccess) printf("texture: %s\n", cudaGetErrorName(error));
    return made;
}

static cudaResourceDesc of_array(cudaArray_t array) {
    cudaResourceDesc resource = {};
    resource.resType = cudaResourceTypeArray;
    resource.res.array.array = array;
    return resource;
}

int main() {
    std::vector<int> numbers(WIDTH * HEIGHT * DEPTH);
    std::vector<float> floats(numbers.size());
    for (size_t k = 0; k < numbers.size(); k++) numbers[k] = (int)k, floats[k] = (float)k;
    int *out;
    float *out_of_floats;
    CHECK(cudaMalloc(&out, 4 * THREADS * sizeof *out));
    CHECK(cudaMalloc(&out_of_floats, 4 * THREADS * sizeof *out_of_floats));

    int *memory;
    CHECK(cudaMalloc(&memory, 40 * sizeof *memory));
    CHECK(cudaMemcpy(memory, numbers.data(), 40 * sizeof *memory, cudaMemcpyHostToDevice));
    cudaResourceDesc flat = {};
    flat.resType = cudaResourceTypeLinear;
    flat.res.linear = {memory, cudaCreateChannelDesc<int>(), 40 * sizeof *memory};
    linear<<<1, THREADS>>>(object(flat), out);
    show("linear", out, THREADS);

    float *rows;
    size_t pitch;
    CHECK(cudaMallocPitch(&rows, &pitch, WIDTH * sizeof *rows, HEIGHT));
    CHECK(cudaMemcpy2D(rows, pitch, floats.data(), WIDTH * sizeof *rows, WIDTH * sizeof *rows, HEIGHT, cudaMemcpyHostToDevice));
    cudaResourceDesc pitched = {};
    pitched.resType = cudaResourceTypePitch2D;
    pitched.res.pitch2D = {rows, cudaCreateChannelDesc<float>(), WIDTH, HEIGHT, pitch};
    filtered<<<1, THREADS>>>(object(pitched, true), out_of_floats);
    show("pitched", out_of_floats, THREADS);

    const cudaChannelFormatDesc of_floats = cudaCreateChannelDesc<float>(), of_numbers = cudaCreateChannelDesc<int>();
    cudaArray_t plane, other;
    CHECK(cudaMallocArray(&plane, &of_floats, WIDTH, HEIGHT));
    CHECK(cudaMallocArray(&other, &of_floats, WIDTH, HEIGHT));
    CHECK(cudaMemcpy2DToArray(plane, 0, 0, floats.data(), WIDTH * 4, WIDTH * 4, HEIGHT, cudaMemcpyHostToDevice));
    CHECK(cudaMemcpy2DArrayToArray(other, 8, 2, plane, 0, 0, 80, 10));  // 20 texels of 10 rows
    filtered<<<1, THREADS>>>(object(of_array(plane), true), out_of_floats);
    show("array", out_of_floats, THREADS);
    cudaTextureObject_t two[2] = {object(of_array(plane)), object(of_array(other))}, *handles;
    CHECK(cudaMalloc(&handles, sizeof two));
    CHECK(cudaMemcpy(handles, two, sizeof two, cudaMemcpyHostToDevice));
    chosen<<<1, THREADS>>>(handles, out_of_floats);
    show("chosen", out_of_floats, 32);

    const cudaChannelFormatDesc of_bytes = cudaCreateChannelDesc<uchar4>();
    const unsigned char colours[8][4] = {{0, 51, 102, 255}, {255, 0, 0, 0}, {1, 2, 3, 4}, {5, 6, 7, 8}};
    cudaArray_t bytes;
    CHECK(cudaMallocArray(&bytes, &of_bytes, 8));
    CHECK(cudaMemcpy2DToArray(bytes, 0, 0, colours, sizeof colours, sizeof colours, 1, cudaMemcpyHostToDevice));
    normalised<<<1, 16>>>(object(of_array(bytes), false, true), (float4 *)out_of_floats);
    show("bytes", out_of_floats, 64);

    for (int is_layered = 0; is_layered < 2; is_layered++) {
        cudaArray_t deep;
        cudaMemcpy3DParms copy = {};
        copy.extent = make_cudaExtent(WIDTH, HEIGHT, DEPTH);
        CHECK(cudaMalloc3DArray(&deep, &of_numbers, copy.extent, is_layered ? cudaArrayLayered : 0));
        copy.srcPtr = make_cudaPitchedPtr(numbers.data(), WIDTH * 4, WIDTH, HEIGHT);
        copy.dstArray = deep;
        copy.kind = cudaMemcpyHostToDevice;
        CHECK(cudaMemcpy3D(&copy));
        if (is_layered) layered<<<1, THREADS>>>(object(of_array(deep)), out);
        else solid<<<1, THREADS>>>(object(of_array(deep)), out);
        show(is_layered ? "layers" : "solid", out, THREADS);
        CHECK(cudaFreeArray(deep));
    }

    cudaArray_t row, surfaced;
    CHECK(cudaMallocArray(&row, &of_floats, WIDTH));
    CHECK(cudaMemcpy2DToArray(row, 0, 0, floats.data(), WIDTH * 4, WIDTH * 4, 1, cudaMemcpyHostToDevice));
    line<<<1, THREADS>>>(object(of_array(row), true), out_of_floats);
    show("line", out_of_floats, THREADS);

    CHECK(cudaMallocArray(&surfaced, &of_numbers, WIDTH, HEIGHT, cudaArraySurfaceLoadStore | cudaArrayTextureGather));
    CHECK(cudaMemcpy2DToArray(surfaced, 0, 0, numbers.data(), WIDTH * 4, WIDTH * 4, HEIGHT, cudaMemcpyHostToDevice));
    gathered<<<1, 8>>>(object(of_array(surfaced)), (int4 *)out);
    show("gathered", out, 32);
    cudaSurfaceObject_t surface;
    const cudaResourceDesc resource = of_array(surfaced);
    CHECK(cudaCreateSurfaceObject(&surface, &resource));
    written<<<HEIGHT, WIDTH>>>(surface);
    std::vector<int> read(WIDTH * HEIGHT);
    CHECK(cudaMemcpy2DFromArray(read.data(), WIDTH * 4, surfaced, 0, 0, WIDTH * 4, HEIGHT, cudaMemcpyDeviceToHost));
    bool is_right = true;
    for (int k = 0; k < WIDTH * HEIGHT; k++) is_right &= read[k] == k + 1000;
    printf("surface %s\n", is_right ? "right" : "wrong");

    cudaResourceDesc wrong = of_array(surfaced);
    object(wrong, true);  // integers are not filtered
    CHECK(cudaDestroySurfaceObject(surface));
    printf("%s\n", cudaGetErrorName(cudaDestroySurfaceObject(surface)));
    cudaChannelFormatDesc format;
    cudaExtent extent;
    unsigned flags;
    CHECK(cudaArrayGetInfo(&format, &extent, &flags, surfaced));
    printf("%d %d %zu %zu %zu %u\n", format.x, (int)format.f, extent.width, extent.height, extent.depth, flags);
    printf("%s\n", cudaGetErrorName(cudaMemcpy2DToArray(surfaced, 0, 15, numbers.data(), 160, 160, 6, cudaMemcpyHostToDevice)));
    const cudaExtent cube = make_cudaExtent(8, 8, 6);
    printf("%s\n", cudaGetErrorName(cudaMalloc3DArray(&plane, &of_floats, cube, cudaArrayCubemap)));
    return 0;
}

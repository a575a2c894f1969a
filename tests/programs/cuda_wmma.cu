// C = A x B on tensor cores, a warp for each tile of 16 x 16: B by columns and by rows, each checked on the host.
#include <cstdio>
#include <cuda_fp16.h>
#include <mma.h>
#include <type_traits>

using namespace nvcuda;
static const int N = 64, TILE = 16;

template <class Layout> __global__ void product(const half *a, const half *b, float *c) {
    constexpr bool by_rows = std::is_same<Layout, wmma::row_major>::value;
    wmma::fragment<wmma::matrix_a, TILE, TILE, TILE, half, wmma::row_major> left;
    wmma::fragment<wmma::matrix_b, TILE, TILE, TILE, half, Layout> right;
    wmma::fragment<wmma::accumulator, TILE, TILE, TILE, float> sum;
    wmma::fill_fragment(sum, 0.0f);
    __shared__ half tile_a[TILE * TILE], tile_b[TILE * TILE];
    int row = blockIdx.y * TILE, column = blockIdx.x * TILE;
    for (int k = 0; k < N; k += TILE) {
        for (int i = threadIdx.x; i < TILE * TILE; i += 32) {
            int outer = i / TILE, inner = i % TILE;
            tile_a[i] = a[(row + outer) * N + k + inner];
            tile_b[i] = by_rows ? b[(k + outer) * N + column + inner] : b[(k + inner) * N + column + outer];
        }
        __syncwarp();
        wmma::load_matrix_sync(left, tile_a, TILE);
        wmma::load_matrix_sync(right, tile_b, TILE);
        wmma::mma_sync(sum, left, right, sum);
        __syncwarp();
    }
    wmma::store_matrix_sync(c + row * N + column, sum, N, wmma::mem_row_major);
}

int main() {
    half *a, *b;
    float *c;
    cudaMallocManaged(&a, N * N * sizeof(half));
    cudaMallocManaged(&b, N * N * sizeof(half));
    cudaMallocManaged(&c, N * N * sizeof(float));
    for (int i = 0; i < N * N; i++) a[i] = (i * 7 % 23 - 11) / 8.0f, b[i] = (i * 5 % 19 - 9) / 4.0f;
    for (int form = 0; form < 2; form++) {
        cudaMemset(c, 0xff, N * N * sizeof(float));
        if (form) product<wmma::row_major><<<dim3(N / TILE, N / TILE), 32>>>(a, b, c);
        else product<wmma::col_major><<<dim3(N / TILE, N / TILE), 32>>>(a, b, c);
        if (cudaDeviceSynchronize() != cudaSuccess) return printf("%s\n", cudaGetErrorString(cudaGetLastError())), 1;
        int wrong = 0;
        for (int i = 0; i < N; i++)
            for (int j = 0; j < N; j++) {
                float expected = 0;  // exact: multiples of 1/32 below 2^12
                for (int k = 0; k < N; k++) expected += __half2float(a[i * N + k]) * __half2float(b[k * N + j]);
                wrong += !(c[i * N + j] == expected);
            }
        printf("%d wrong\n", wrong);
    }
    return 0;
}

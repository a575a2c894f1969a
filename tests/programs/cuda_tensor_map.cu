// A kernel that copies a box of a matrix by a tensor map, which the driver makes; where the box leaves the matrix there are
// zeros. It checks what it copied, and that the driver refuses maps that its documentation does not allow.
#include <cstdint>
#include <cstdio>
#include <cuda.h>
#include <cuda_runtime.h>

constexpr int ROWS = 40, COLUMNS = 64, HIGH = 8, WIDE = 32;

__global__ void copy_box(const __grid_constant__ CUtensorMap map, int *to, int x, int y) {
    __shared__ alignas(128) int box[HIGH][WIDE];
    __shared__ alignas(8) uint64_t barrier;
    uint32_t place = (uint32_t)__cvta_generic_to_shared(&barrier), into = (uint32_t)__cvta_generic_to_shared(box);
    if (threadIdx.x == 0) asm volatile("mbarrier.init.shared.b64 [%0], 1;" ::"r"(place));
    __syncthreads();
    if (threadIdx.x == 0) {
        asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;" ::"r"(place), "r"(HIGH * WIDE * 4) : "memory");
        asm volatile(
            "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];" ::"r"(into),
            "l"(&map), "r"(x), "r"(y), "r"(place)
            : "memory");
    }
    asm volatile("{ .reg .pred p; again: mbarrier.try_wait.parity.shared.b64 p, [%0], 0; @!p bra again; }" ::"r"(place)
                 : "memory");
    to[threadIdx.x] = box[threadIdx.x / WIDE][threadIdx.x % WIDE];
}

int main() {
    void *found = nullptr;
    cudaDriverEntryPointQueryResult status;
    cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &found, 12000, cudaEnableDefault, &status);
    if (status != cudaDriverEntryPointSuccess) return printf("the driver's call is not found: %d\n", status), 1;
    auto encode = (decltype(&cuTensorMapEncodeTiled))found;
    int *matrix, *to;
    cudaMallocManaged(&matrix, ROWS * COLUMNS * sizeof(int));
    cudaMallocManaged(&to, HIGH * WIDE * sizeof(int));
    for (int k = 0; k < ROWS * COLUMNS; k++) matrix[k] = k + 1;
    alignas(64) CUtensorMap map;
    cuuint64_t dimensions[] = {COLUMNS, ROWS}, strides[] = {COLUMNS * sizeof(int)};
    cuuint32_t box[] = {WIDE, HIGH}, steps[] = {1, 1}, wrong_box[] = {WIDE + 1, HIGH}, wrong_steps[] = {1, 9};
    auto make = [&](void *address, const cuuint32_t *form, const cuuint32_t *by) {
        return (int)encode(&map, CU_TENSOR_MAP_DATA_TYPE_INT32, 2, address, dimensions, strides, form, by,
                           CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_NONE, CU_TENSOR_MAP_L2_PROMOTION_NONE,
                           CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    };
    printf("%d %d %d", make(matrix + 1, box, steps), make(matrix, wrong_box, steps), make(matrix, box, wrong_steps));
    printf(" %d\n", make(matrix, box, steps));
    const int places[][2] = {{0, 0}, {16, 12}, {-4, 36}, {60, -2}};
    for (auto [x, y] : places) {
        copy_box<<<1, HIGH * WIDE>>>(map, to, x, y);
        if (cudaDeviceSynchronize() != cudaSuccess) return printf("%s\n", cudaGetErrorString(cudaGetLastError())), 1;
        for (int k = 0; k < HIGH * WIDE; k++) {
            const int column = x + k % WIDE, row = y + k / WIDE;
            const bool is_inside = column >= 0 && column < COLUMNS && row >= 0 && row < ROWS;
            if (to[k] != (is_inside ? matrix[row * COLUMNS + column] : 0)) return printf("wrong at %d\n", k), 1;
        }
    }
    printf("PASSED\n");
}

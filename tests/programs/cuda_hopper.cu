// What compute capability 9.0 brings, by the PTX ISA, for sm_90a: a product of matrices of halves by a warp group that
// computes and a warp that copies (TMA, barriers in shared memory, wgmma), and two blocks of a cluster that share what
// they load (multicast), write into each other's shared memory (st.async) and add to global memory (cp.reduce.async.bulk).
// Each is checked on the CPU.
#include <cstdio>
#include <cstdint>
#include <cstdlib>
#include <cmath>
#include <cuda.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>
enum { M = 192, N = 128, K = 256, TM = 64, TN = 64, TK = 64, STAGES = 2 };
__device__ uint32_t sh(const void *p) { return (uint32_t)__cvta_generic_to_shared(p); }
__device__ void wait(uint32_t bar, uint32_t parity) {
    asm volatile("{\n.reg .pred p;\nL: mbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1;\n@p bra D;\nbra L;\nD:\n}" :: "r"(bar), "r"(parity) : "memory");
}
__device__ void load(uint32_t to, const CUtensorMap *map, int x, int y, uint32_t bar) {
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];" :: "r"(to), "l"(map), "r"(x), "r"(y), "r"(bar) : "memory");
}
__device__ uint64_t desc(uint32_t address) { return (uint64_t)((address & 0x3ffff) >> 4) | 1ull << 16 | (uint64_t)(1024 >> 4) << 32 | 1ull << 62; }
struct Shared { __half a[STAGES][TM * TK], b[STAGES][TN * TK]; float c[TM * 32]; uint64_t full[STAGES], empty[STAGES]; };
__global__ void __launch_bounds__(256) gemm(const __grid_constant__ CUtensorMap a, const __grid_constant__ CUtensorMap b, const __grid_constant__ CUtensorMap c) {
    extern __shared__ __align__(1024) char raw[];
    Shared &s = *(Shared *)raw;
    int row = blockIdx.y * TM, column = blockIdx.x * TN;
    if (threadIdx.x == 0) {
        for (int k = 0; k < STAGES; k++) {
            asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" :: "r"(sh(&s.full[k])));
            asm volatile("mbarrier.init.shared::cta.b64 [%0], 128;" :: "r"(sh(&s.empty[k])));
        }
        asm volatile("fence.mbarrier_init.release.cluster;");
    }
    __syncthreads();
    if (threadIdx.x >= 128) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
        if (threadIdx.x == 128)
            for (int k = 0; k < K / TK; k++) {
                int stage = k % STAGES;
                wait(sh(&s.empty[stage]), (k / STAGES & 1) ^ 1);
                asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" :: "r"(sh(&s.full[stage])), "r"((TM + TN) * TK * 2) : "memory");
                load(sh(s.a[stage]), &a, k * TK, row, sh(&s.full[stage]));
                load(sh(s.b[stage]), &b, k * TK, column, sh(&s.full[stage]));
            }
        return;
    }
    asm volatile("setmaxnreg.inc.sync.aligned.u32 160;");
    float d[32] = {0};
    for (int k = 0; k < K / TK; k++) {
        int stage = k % STAGES;
        wait(sh(&s.full[stage]), k / STAGES & 1);
        asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
        for (int part = 0; part < 4; part++) {
            uint64_t da = desc(sh(s.a[stage]) + part * 32), db = desc(sh(s.b[stage]) + part * 32);
            asm volatile("wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 {%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31}, %32, %33, 1, 1, 1, 0, 0;"
                : "+f"(d[0]),"+f"(d[1]),"+f"(d[2]),"+f"(d[3]),"+f"(d[4]),"+f"(d[5]),"+f"(d[6]),"+f"(d[7]),"+f"(d[8]),"+f"(d[9]),"+f"(d[10]),"+f"(d[11]),"+f"(d[12]),"+f"(d[13]),"+f"(d[14]),"+f"(d[15]),"+f"(d[16]),"+f"(d[17]),"+f"(d[18]),"+f"(d[19]),"+f"(d[20]),"+f"(d[21]),"+f"(d[22]),"+f"(d[23]),"+f"(d[24]),"+f"(d[25]),"+f"(d[26]),"+f"(d[27]),"+f"(d[28]),"+f"(d[29]),"+f"(d[30]),"+f"(d[31])
                : "l"(da), "l"(db));
        }
        asm volatile("wgmma.commit_group.sync.aligned;\nwgmma.wait_group.sync.aligned 0;" ::: "memory");
        asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" :: "r"(sh(&s.empty[stage])) : "memory");
    }
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    for (int half = 0; half < 2; half++) {
        for (int i = 0; i < 16; i++) {
            int r = 16 * warp + lane / 4 + 8 * (i >> 1 & 1), q = 8 * (i >> 2) + 2 * (lane % 4) + (i & 1);
            s.c[r * 32 + q] = d[16 * half + i];
        }
        asm volatile("fence.proxy.async.shared::cta;");
        asm volatile("bar.sync 1, 128;");
        if (threadIdx.x == 0) {
            asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%0, {%1, %2}], [%3];" :: "l"(&c), "r"(column + 32 * half), "r"(row), "r"(sh(s.c)) : "memory");
            asm volatile("cp.async.bulk.commit_group;\ncp.async.bulk.wait_group 0;");
        }
        asm volatile("bar.sync 1, 128;");
    }
}
static CUtensorMap make(void *p, int type, int size, int rows, int columns, int box_rows, int box_columns, int swizzle) {
    CUtensorMap map;
    void *entry; cudaDriverEntryPointQueryResult found;
    if (cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &entry, 12000, cudaEnableDefault, &found)) exit(printf("no entry point\n"));
    cuuint64_t shape[2] = {(cuuint64_t)columns, (cuuint64_t)rows}, stride[1] = {(cuuint64_t)columns * size};
    cuuint32_t box[2] = {(cuuint32_t)box_columns, (cuuint32_t)box_rows}, one[2] = {1, 1};
    CUresult error = ((decltype(&cuTensorMapEncodeTiled))entry)(&map, (CUtensorMapDataType)type, 2, p, shape, stride, box, one, CU_TENSOR_MAP_INTERLEAVE_NONE, (CUtensorMapSwizzle)swizzle, CU_TENSOR_MAP_L2_PROMOTION_NONE, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    if (error) exit(printf("cuTensorMapEncodeTiled: %d\n", error));
    return map;
}
static bool multiplies() {
    __half *a, *b; float *c;
    cudaMallocManaged(&a, M * K * 2), cudaMallocManaged(&b, N * K * 2), cudaMallocManaged(&c, M * N * 4);
    for (int i = 0; i < M * K; i++) a[i] = __float2half((i * 7 % 31 - 15) / 8.0f);
    for (int i = 0; i < N * K; i++) b[i] = __float2half((i * 11 % 29 - 14) / 8.0f);
    CUtensorMap ma = make(a, CU_TENSOR_MAP_DATA_TYPE_FLOAT16, 2, M, K, TM, TK, CU_TENSOR_MAP_SWIZZLE_128B);
    CUtensorMap mb = make(b, CU_TENSOR_MAP_DATA_TYPE_FLOAT16, 2, N, K, TN, TK, CU_TENSOR_MAP_SWIZZLE_128B);
    CUtensorMap mc = make(c, CU_TENSOR_MAP_DATA_TYPE_FLOAT32, 4, M, N, TM, 32, CU_TENSOR_MAP_SWIZZLE_NONE);
    cudaFuncSetAttribute(gemm, cudaFuncAttributeMaxDynamicSharedMemorySize, sizeof(Shared));
    gemm<<<dim3(N / TN, M / TM), 256, sizeof(Shared)>>>(ma, mb, mc);
    cudaError_t error = cudaDeviceSynchronize();
    if (error) return printf("%s\n", cudaGetErrorString(error)), false;
    for (int i = 0; i < M; i++)
        for (int j = 0; j < N; j++) {
            double sum = 0;
            for (int k = 0; k < K; k++) sum += (double)__half2float(a[i * K + k]) * __half2float(b[j * K + k]);
            if (sum != c[i * N + j]) return printf("wrong at %d %d: %g, not %g\n", i, j, c[i * N + j], sum), false;
        }
    return true;
}

enum { ROWS = 8, HALF = 32, ALL = ROWS * HALF };
__device__ uint32_t of_peer(uint32_t address, uint32_t rank) {
    uint32_t there;
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(address), "r"(rank));
    return there;
}
__device__ void meet() { asm volatile("barrier.cluster.arrive.aligned;\nbarrier.cluster.wait.aligned;" ::: "memory"); }
__global__ void __cluster_dims__(2) share(const __grid_constant__ CUtensorMap map, float *out, float *total) {
    __shared__ __align__(128) float part[2][ALL], got[ALL];
    __shared__ uint64_t full, arrived;
    uint32_t rank, t = threadIdx.x;
    asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    if (t == 0) {
        asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" :: "r"(sh(&full)));
        asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" :: "r"(sh(&arrived)));
        asm volatile("fence.mbarrier_init.release.cluster;");
        asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" :: "r"(sh(&full)), "r"(2 * ALL * 4) : "memory");
        asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" :: "r"(sh(&arrived)), "r"(ALL * 4) : "memory");
    }
    meet();
    if (t == 0)
        asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%0], [%1, {%2, %3}], [%4], %5;"
                     :: "r"(sh(part[rank])), "l"(&map), "r"(rank * HALF), "r"(blockIdx.x / 2 * ROWS), "r"(sh(&full)), "h"((short)3) : "memory");
    wait(sh(&full), 0);
    asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.u32 [%0], %1, [%2];"
                 :: "r"(of_peer(sh(&got[t]), rank ^ 1)), "r"(__float_as_uint(part[0][t] + part[1][t])), "r"(of_peer(sh(&arrived), rank ^ 1)) : "memory");
    wait(sh(&arrived), 0);
    float theirs;
    asm volatile("ld.shared::cluster.f32 %0, [%1];" : "=f"(theirs) : "r"(of_peer(sh(&part[rank][t]), rank ^ 1)));
    out[blockIdx.x * ALL + t] = 2 * got[t] + theirs;
    asm volatile("fence.proxy.async.shared::cta;");
    meet();
    if (t == 0) {
        asm volatile("cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 [%0], [%1], %2;" :: "l"(total), "r"(sh(got)), "r"(ALL * 4) : "memory");
        asm volatile("cp.async.bulk.commit_group;\ncp.async.bulk.wait_group 0;");
    }
}
static bool shares() {
    const int clusters = 3;
    float *x, *out, *total;
    cudaMallocManaged(&x, clusters * 2 * ALL * 4), cudaMallocManaged(&out, clusters * 2 * ALL * 4), cudaMallocManaged(&total, ALL * 4);
    for (int i = 0; i < clusters * 2 * ALL; i++) x[i] = i % 97;
    for (int i = 0; i < ALL; i++) total[i] = 5;
    CUtensorMap map = make(x, CU_TENSOR_MAP_DATA_TYPE_FLOAT32, 4, clusters * ROWS, 2 * HALF, ROWS, HALF, CU_TENSOR_MAP_SWIZZLE_NONE);
    cudaLaunchAttribute pair; cudaLaunchConfig_t config = {}; cudaDeviceProp shown; int held, of_sm;
    pair.id = cudaLaunchAttributeClusterDimension, pair.val.clusterDim = {2, 1, 1};
    config.gridDim = 2 * clusters, config.blockDim = ALL, config.attrs = &pair, config.numAttrs = 1;
    cudaGetDeviceProperties(&shown, 0);
    cudaOccupancyMaxActiveBlocksPerMultiprocessor(&of_sm, share, ALL, 0);
    if (cudaOccupancyMaxActiveClusters(&held, share, &config) || held != of_sm * shown.multiProcessorCount / 2)
        return printf("%d clusters are held\n", held), false;
    share<<<2 * clusters, ALL>>>(map, out, total);
    cudaError_t error = cudaDeviceSynchronize();
    if (error) return printf("%s\n", cudaGetErrorString(error)), false;
    for (int t = 0; t < ALL; t++) {
        float sum = 5;
        for (int block = 0; block < 2 * clusters; block++) {
            const float *row = x + (block / 2 * ROWS + t / HALF) * 2 * HALF + t % HALF;
            float both = row[0] + row[HALF];
            sum += both;
            if (out[block * ALL + t] != 2 * both + row[HALF * (block % 2)]) return printf("wrong at block %d thread %d\n", block, t), false;
        }
        if (total[t] != sum) return printf("the sum at %d is %g, not %g\n", t, total[t], sum), false;
    }
    return true;
}
int main() {
    if (!multiplies() || !shares()) return 1;
    printf("PASSED\n");
}

// Ranks of MPI whose GPUs communicate by NCCL: each result is compared with what it must be, which all ranks know. The
// part of NCCL's interface that is used is declared here, as its user guide has it.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>
#include <mpi.h>
#include <vector>

extern "C" {
typedef struct ncclComm *ncclComm_t;
typedef struct { char internal[128]; } ncclUniqueId;
enum { Int8, Uint8, Int32, Uint32, Int64, Uint64, Half, Float, Double, Bfloat16, E4m3 };
enum { Sum, Prod, Max, Min, Avg };
int ncclGetUniqueId(ncclUniqueId *);
int ncclCommInitRank(ncclComm_t *, int, ncclUniqueId, int);
int ncclCommSplit(ncclComm_t, int, int, ncclComm_t *, void *);
int ncclCommDestroy(ncclComm_t);
int ncclCommCount(ncclComm_t, int *);
int ncclCommUserRank(ncclComm_t, int *);
int ncclAllReduce(const void *, void *, size_t, int, int, ncclComm_t, cudaStream_t);
int ncclReduce(const void *, void *, size_t, int, int, int, ncclComm_t, cudaStream_t);
int ncclBroadcast(const void *, void *, size_t, int, int, ncclComm_t, cudaStream_t);
int ncclAllGather(const void *, void *, size_t, int, ncclComm_t, cudaStream_t);
int ncclReduceScatter(const void *, void *, size_t, int, int, ncclComm_t, cudaStream_t);
int ncclSend(const void *, size_t, int, int, ncclComm_t, cudaStream_t);
int ncclRecv(void *, size_t, int, int, ncclComm_t, cudaStream_t);
int ncclRedOpCreatePreMulSum(int *, void *, int, int, ncclComm_t);
int ncclGroupStart(void);
int ncclGroupEnd(void);
}

static int rank, size, wrong;
static ncclComm_t comm;
static cudaStream_t stream;
const int N = 1000;

static void check(bool is_right, const char *what) {
    if (!is_right) wrong++, printf("rank %d: %s is wrong\n", rank, what);
}
#define DONE(call) check((call) == 0, #call)

// Rank r gives r + 1 + i % 3 at place i: small whole numbers, exact in every type.
static double given(int r, int i) { return r + 1 + i % 3; }
static double combined(int operation, int i) {
    double value = given(0, i);
    for (int r = 1; r < size; r++) {
        const double next = given(r, i);
        if (operation == Sum || operation == Avg) value += next;
        if (operation == Prod) value *= next;
        if (operation == Max && next > value) value = next;
        if (operation == Min && next < value) value = next;
    }
    return operation == Avg ? value / size : value;
}

template <typename T> static void reductions(int type, const char *name, bool is_whole) {
    std::vector<T> host(N * size), got(N * size);
    T *from, *to;
    cudaMalloc(&from, N * size * sizeof(T));
    cudaMalloc(&to, N * size * sizeof(T));
    for (int i = 0; i < N * size; i++) host[i] = T(given(rank, i % N));
    cudaMemcpy(from, host.data(), N * size * sizeof(T), cudaMemcpyHostToDevice);
    for (int operation = Sum; operation <= Avg; operation++) {
        if (operation == Avg && is_whole) continue;
        DONE(ncclAllReduce(from, to, N, type, operation, comm, stream));
        cudaMemcpyAsync(got.data(), to, N * sizeof(T), cudaMemcpyDeviceToHost, stream);
        cudaStreamSynchronize(stream);
        bool is_right = true;
        for (int i = 0; i < N; i++) is_right &= double(got[i]) == double(T(combined(operation, i)));
        check(is_right, name);
    }
    DONE(ncclReduceScatter(from, to, N, type, Sum, comm, stream));
    DONE(ncclReduce(from, from, N, type, Max, size - 1, comm, stream));  // in place
    cudaMemcpy(got.data(), to, N * sizeof(T), cudaMemcpyDeviceToHost);
    cudaMemcpy(host.data(), from, N * sizeof(T), cudaMemcpyDeviceToHost);
    bool is_right = true;
    for (int i = 0; i < N; i++) {
        is_right &= double(got[i]) == double(T(combined(Sum, i)));
        is_right &= double(host[i]) == (rank == size - 1 ? combined(Max, i) : given(rank, i));
    }
    check(is_right, name);
    cudaFree(from);
    cudaFree(to);
}

__global__ void add_one(int *x, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) x[i] += 1;
}

static void moves() {
    int *x, *all;
    std::vector<int> host(N * size);
    cudaMalloc(&x, N * sizeof(int));
    cudaMalloc(&all, N * size * sizeof(int));
    for (int i = 0; i < N; i++) host[i] = 100 * rank + i;
    cudaMemcpy(x, host.data(), N * sizeof(int), cudaMemcpyHostToDevice);
    add_one<<<(N + 255) / 256, 256, 0, stream>>>(x, N);
    DONE(ncclAllGather(x, all, N, Int32, comm, stream));
    cudaMemcpyAsync(host.data(), all, N * size * sizeof(int), cudaMemcpyDeviceToHost, stream);
    cudaStreamSynchronize(stream);
    bool is_right = true;
    for (int i = 0; i < N * size; i++) is_right &= host[i] == 100 * (i / N) + i % N + 1;
    check(is_right, "ncclAllGather");
    // a ring, captured in a graph and launched three times: all values go round by three ranks
    cudaGraph_t graph;
    cudaGraphExec_t made;
    cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal);
    DONE(ncclGroupStart());
    DONE(ncclSend(x, N, Int32, (rank + 1) % size, comm, stream));
    DONE(ncclRecv(all, N, Int32, (rank + size - 1) % size, comm, stream));
    DONE(ncclGroupEnd());
    cudaMemcpyAsync(x, all, N * sizeof(int), cudaMemcpyDeviceToDevice, stream);
    cudaStreamEndCapture(stream, &graph);
    cudaGraphInstantiate(&made, graph, 0);
    for (int k = 0; k < 3; k++) cudaGraphLaunch(made, stream);
    cudaMemcpyAsync(host.data(), x, N * sizeof(int), cudaMemcpyDeviceToHost, stream);
    cudaStreamSynchronize(stream);
    const int from = ((rank - 3) % size + size) % size;
    is_right = true;
    for (int i = 0; i < N; i++) is_right &= host[i] == 100 * from + i + 1;
    check(is_right, "ncclSend in a graph");
    DONE(ncclBroadcast(x, all, N, Int32, 1, comm, stream));
    cudaMemcpy(host.data(), all, N * sizeof(int), cudaMemcpyDeviceToHost);
    const int root = ((1 - 3) % size + size) % size;
    check(host[5] == 100 * root + 6, "ncclBroadcast");
}

static void parts() {
    ncclComm_t half;
    int count, own, by, *x, host = rank;
    DONE(ncclCommSplit(comm, rank % 2, -rank, &half, nullptr));  // the other way round
    DONE(ncclCommCount(half, &count));
    DONE(ncclCommUserRank(half, &own));
    check(count == (size + (rank % 2 == 0)) / 2, "ncclCommSplit's size");
    check(own == count - 1 - rank / 2, "ncclCommSplit's rank");
    cudaMalloc(&x, sizeof(int));
    cudaMemcpy(x, &host, sizeof host, cudaMemcpyHostToDevice);
    DONE(ncclAllReduce(x, x, 1, Int32, Sum, half, stream));
    cudaMemcpy(&host, x, sizeof host, cudaMemcpyDeviceToHost);
    int expected = 0;
    for (int r = rank % 2; r < size; r += 2) expected += r;
    check(host == expected, "a sum of half the ranks");
    int scalar = rank + 2;
    DONE(ncclRedOpCreatePreMulSum(&by, &scalar, Int32, 1, comm));
    host = 10;
    cudaMemcpy(x, &host, sizeof host, cudaMemcpyHostToDevice);
    DONE(ncclAllReduce(x, x, 1, Int32, by, comm, stream));
    cudaMemcpy(&host, x, sizeof host, cudaMemcpyDeviceToHost);
    expected = 0;
    for (int r = 0; r < size; r++) expected += 10 * (r + 2);
    check(host == expected, "a sum of multiples");
    DONE(ncclCommDestroy(half));
}

int main(int argc, char **argv) {
    ncclUniqueId id;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (rank == 0) ncclGetUniqueId(&id);
    MPI_Bcast(&id, sizeof id, MPI_BYTE, 0, MPI_COMM_WORLD);
    cudaStreamCreate(&stream);
    DONE(ncclCommInitRank(&comm, size, id, rank));
    reductions<signed char>(Int8, "int8", true);
    reductions<unsigned char>(Uint8, "uint8", true);
    reductions<int>(Int32, "int32", true);
    reductions<unsigned>(Uint32, "uint32", true);
    reductions<long long>(Int64, "int64", true);
    reductions<unsigned long long>(Uint64, "uint64", true);
    reductions<__half>(Half, "half", false);
    reductions<float>(Float, "float", false);
    reductions<double>(Double, "double", false);
    reductions<__nv_bfloat16>(Bfloat16, "bfloat16", false);
    moves();
    parts();
    check(ncclAllReduce(stream, stream, 1, E4m3, Sum, comm, stream) == 4, "a sum of 8-bit floats");
    DONE(ncclCommDestroy(comm));
    MPI_Allreduce(MPI_IN_PLACE, &wrong, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    if (rank == 0 && !wrong) printf("PASSED\n");
    MPI_Finalize();
    return wrong != 0;
}

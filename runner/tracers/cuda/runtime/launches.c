// Kernel launches: checked as CUDA checks them, run by the interpreter when they are made.
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "arrays.h"
#include "runtime.h"

#if CUDART_VERSION >= 11080
#define CLUSTER_ERROR cudaErrorInvalidClusterSize
#else
#define CLUSTER_ERROR cudaErrorInvalidConfiguration
#endif

typedef struct {
    dim3 grid, block;
    size_t shared;
    cudaStream_t stream;
} Configuration;

enum { MOST_PUSHED = 64 };
static _Thread_local Configuration pushed[MOST_PUSHED];
static _Thread_local int num_pushed;
static uint64_t num_launches;

uint64_t launches_made(void) { return num_launches; }

unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared, struct CUstream_st *stream) {
    if (num_pushed == MOST_PUSHED) return 1;
    pushed[num_pushed++] = (Configuration){grid, block, shared, stream};
    return 0;
}

cudaError_t __cudaPopCallConfiguration(dim3 *grid, dim3 *block, size_t *shared, void *stream) {
    if (num_pushed == 0) return failed(cudaErrorMissingConfiguration);
    const Configuration top = pushed[--num_pushed];
    *grid = top.grid;
    *block = top.block;
    *shared = top.shared;
    *(cudaStream_t *)stream = top.stream;
    return cudaSuccess;
}

static bool is_shape(dim3 grid, dim3 block, unsigned most_threads) {
    const uint64_t threads = (uint64_t)block.x * block.y * block.z;
    return grid.x && grid.y && grid.z && threads && grid.x <= 0x7fffffff && grid.y <= 65535 && grid.z <= 65535 &&
           block.x <= 1024 && block.y <= 1024 && block.z <= 64 && threads <= most_threads;
}

int shared_limit(const Function *function) {
    const Device *shown = device();
    const int fixed = (int)(function->kernel.shared_bytes - function->stored->shared_reserved);
    const int most = function->max_dynamic_shared >= 0 ? function->max_dynamic_shared : shown->shared_per_block - fixed;
    return most < shown->shared_optin - fixed ? most : shown->shared_optin - fixed;
}

cudaError_t kernel_operation(Operation *into, const void *host, dim3 grid, dim3 block, void **arguments, size_t shared) {
    Function *function = function_of(host);
    if (function == NULL) return cudaErrorInvalidDeviceFunction;
    if (function->stored->problem) {
        session_message("%s", function_problem(function));
        session_note("cuda-kernel-not-run", function->kernel.name);
        return cudaErrorNotSupported;
    }
    if (!is_shape(grid, block, 1024)) return cudaErrorInvalidConfiguration;
    const uint64_t warps = (((uint64_t)block.x * block.y * block.z) + 31) / 32;
    const uint64_t unit = (uint64_t)device()->register_unit;
    const uint64_t of_warp = ((uint64_t)function->kernel.num_registers * LANES + unit - 1) / unit * unit;
    if (!is_shape(grid, block, function->stored->max_threads) || warps * of_warp > (uint64_t)device()->registers_per_sm)
        return cudaErrorLaunchOutOfResources;
    if (shared > (size_t)(shared_limit(function) < 0 ? 0 : shared_limit(function))) return cudaErrorInvalidValue;
    const Kernel *kernel = &function->kernel;
    *into = (Operation){.kind = OP_KERNEL, .function = function, .grid = grid, .block = block, .shared = shared,
                        .parameters = calloc(1, kernel->parameter_bytes ? kernel->parameter_bytes : 1)};
    if (into->parameters == NULL) return cudaErrorMemoryAllocation;
    for (uint32_t k = 0; k < function->stored->num_parameters; k++) {
        const StoredParameter parameter = function->parameters[k];
        if (arguments == NULL || arguments[k] == NULL) {
            operation_free(into);
            return cudaErrorInvalidValue;
        }
        memcpy(into->parameters + parameter.offset, arguments[k], parameter.bytes);
    }
    return cudaSuccess;
}

cudaError_t shape_of_launch(Operation *into, const uint32_t asked[3], bool is_cooperative) {
    const Function *function = into->function;
    const uint32_t grid[3] = {into->grid.x, into->grid.y, into->grid.z};
    const uint32_t *compiled = function->kernel.cluster, *cluster = asked[0] ? asked : compiled[0] ? compiled : function->cluster;
    const uint64_t held = blocks_of_device(function, into->block, into->shared);
    uint64_t size = 1;
    into->is_cooperative = is_cooperative;
    if (is_cooperative && (uint64_t)grid[0] * grid[1] * grid[2] > held) return cudaErrorCooperativeLaunchTooLarge;
    if (cluster[0] == 0) return cudaSuccess;
    if (device()->major < 9) return not_supported("a launch with clusters before compute capability 9.0");
    for (int k = 0; k < 3; k++) {
        into->cluster[k] = cluster[k] ? cluster[k] : 1;
        size *= into->cluster[k];
        if (grid[k] % into->cluster[k]) return CLUSTER_ERROR;
        if (compiled[0] && into->cluster[k] != compiled[k]) return CLUSTER_ERROR;
    }
    return size > (function->has_large_clusters ? 16 : 8) || size > held ? CLUSTER_ERROR : cudaSuccess;
}

// Where blocks of a cooperative launch meet: memory of the system, which a program does not see.
static uint64_t workspace(void) {
    static uint64_t *found;
    if (found == NULL) {
        const int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE;
        found = mmap((void *)0x1f0000000000, 4096, PROT_READ | PROT_WRITE, flags, -1, 0);
        if (found == MAP_FAILED || !memory_add((uint64_t)found, 4096, MEMORY_MODULE, 0)) {
            session_message("the address 0x1f0000000000 is not free, where cooperative launches meet; report it");
            _Exit(2);
        }
    }
    *found = 0;
    return (uint64_t)found;
}

static const char *running;  // kernel

void launch_leaves_memory(uint64_t address) {
    static const char *told;
    static uint64_t counted;  // once for each launch
    if (counted != num_launches) session_note("cuda-outside-allocation", running);
    counted = num_launches;
    if (told != running)
        session_message("%s: accesses %#llx, outside of what is allocated; it goes on, as it does on hardware "
                        "(--check-memory stops there)", running, (unsigned long long)address);
    told = running;
}

static uint64_t allocate_for_threads(uint64_t bytes) { return memory_allocate(bytes, MEMORY_THREADS, 0); }

static int release_of_threads(uint64_t address) { return address == 0 || memory_free(address, MEMORY_THREADS); }

cudaError_t run_kernel(const Operation *operation, const Stream *stream) {
    const Function *function = operation->function;
    const uint64_t id = ++num_launches;
    Kernel kernel = function->kernel;
    if (kernel.local_bytes && kernel.local_bytes < stack_limit()) kernel.local_bytes = stack_limit();
    Launch launch = {
        .kernel = &kernel,
        .grid = {operation->grid.x, operation->grid.y, operation->grid.z},
        .block = {operation->block.x, operation->block.y, operation->block.z},
        .dynamic_shared_bytes = (uint32_t)operation->shared,
        .parameters = operation->parameters,
        .local_base = LOCAL_WINDOW,
        .shared_base = SHARED_WINDOW,
        .num_sms = (uint32_t)device()->sms,
        .find_allocation = memory_bounds,
        .allocate = allocate_for_threads,
        .release = release_of_threads,
        .find_texture = find_texture,
        .cluster = {operation->cluster[0], operation->cluster[1], operation->cluster[2]},
        .workers = device()->workers > 1 ? (uint32_t)device()->workers : 1,
        .chunk = (uint32_t)device()->chunk,
        .find_quietly = memory_bounds_of_allocated,
        .most_resident = (uint32_t)blocks_of_device(function, operation->block, operation->shared),
        .is_cooperative = operation->is_cooperative,
        .workspace = operation->is_cooperative ? workspace() : 0,
    };
    const int on = stream ? stream->device : current_device();
    memory_is_used_by(on);
    running = function->kernel.name;
    const uint64_t stream_id = stream ? stream->id : 0;
    recording_begin(&launch, id, function->index, stream_id);
    void *record = call_begins(CALL_LAUNCH);
    const int ended = sass_run(&launch);
    for (int k = 0; k < 8; k++)
        if (launch.system_calls[k]) session_note("cuda-system-functions", running);
    const char *mode = recording_end(&launch, id);
    session_event("launch %llu %u %u %u %u %u %u %u %llu %llu %llu %s %s %d", (unsigned long long)id, function->index,
                  launch.grid[0], launch.grid[1], launch.grid[2], launch.block[0], launch.block[1], launch.block[2],
                  (unsigned long long)operation->shared, (unsigned long long)stream_id,
                  (unsigned long long)launch.warp_instructions, ended ? "stopped" : "whole", mode, on);
    call_ends(record, stream, id, 0);
    if (ended) {  // as on hardware the launch itself succeeds, and everything after it fails
        session_message("%s", launch.problem);
        session_event("problem %llu %s", (unsigned long long)id, launch.problem);
        stop_for_good(launch.error ? (cudaError_t)launch.error : cudaErrorLaunchFailure);
    }
    return cudaSuccess;
}

static cudaError_t shaped_launch(const void *function, dim3 grid, dim3 block, void **arguments, size_t shared,
                                 cudaStream_t stream, const uint32_t cluster[3], bool is_cooperative) {
    LOCKED;
    Operation operation;
    if (done() != cudaSuccess) return done();
    const Stream *on = stream_of(stream);
    if (on == NULL || on->device != current_device()) return failed(cudaErrorInvalidResourceHandle);
    cudaError_t error = kernel_operation(&operation, function, grid, block, arguments, shared);
    if (error != cudaSuccess) return failed(error);
    error = shape_of_launch(&operation, cluster, is_cooperative);
    if (error == cudaSuccess) return submit(stream, &operation);
    operation_free(&operation);
    return failed(error);
}

static const uint32_t no_cluster[3];

static cudaError_t launch(const void *function, dim3 grid, dim3 block, void **arguments, size_t shared, cudaStream_t stream) {
    return shaped_launch(function, grid, block, arguments, shared, stream, no_cluster, false);
}

cudaError_t cudaLaunchKernel(const void *function, dim3 grid, dim3 block, void **arguments, size_t shared,
                             cudaStream_t stream) {
    return launch(function, grid, block, arguments, shared, stream);
}

cudaError_t cudaLaunchCooperativeKernel(const void *function, dim3 grid, dim3 block, void **arguments, size_t shared,
                                        cudaStream_t stream) {
    return shaped_launch(function, grid, block, arguments, shared, stream, no_cluster, true);
}

#if CUDART_VERSION >= 12000
cudaError_t __cudaGetKernel(cudaKernel_t *kernel, const void *function) {
    LOCKED;
    const Function *found = function_of(function);
    if (found == NULL) return failed(cudaErrorInvalidDeviceFunction);
    *kernel = (cudaKernel_t)found;
    return cudaSuccess;
}

cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block, void **arguments, size_t shared,
                               cudaStream_t stream) {
    return launch(kernel, grid, block, arguments, shared, stream);
}

cudaError_t __cudaLaunchKernel_ptsz(cudaKernel_t kernel, dim3 grid, dim3 block, void **arguments, size_t shared,
                                    cudaStream_t stream) {
    return launch(kernel, grid, block, arguments, shared, stream);
}

cudaError_t cudaGetKernel(cudaKernel_t *kernel, const void *function) { return __cudaGetKernel(kernel, function); }
#endif

#if CUDART_VERSION >= 11080
// Attributes that only say how to place or order blocks play no part.
cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t *given, const void *function, void **arguments) {
    uint32_t cluster[3] = {0};
    bool is_cooperative = false;
    if (given == NULL) return failed(cudaErrorInvalidValue);
    for (unsigned k = 0; k < given->numAttrs; k++) {
        const cudaLaunchAttributeValue *value = &given->attrs[k].val;
        if (given->attrs[k].id == cudaLaunchAttributeCooperative) is_cooperative = value->cooperative != 0;
        if (given->attrs[k].id != cudaLaunchAttributeClusterDimension) continue;
        cluster[0] = value->clusterDim.x;
        cluster[1] = value->clusterDim.y;
        cluster[2] = value->clusterDim.z;
    }
    return shaped_launch(function, given->gridDim, given->blockDim, arguments, given->dynamicSmemBytes, given->stream,
                         cluster, is_cooperative);
}
#endif

cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void *user) {
    LOCKED;
    Operation operation = {.kind = OP_HOST, .host_function = function, .user = user};
    return function ? submit(stream, &operation) : failed(cudaErrorInvalidValue);
}

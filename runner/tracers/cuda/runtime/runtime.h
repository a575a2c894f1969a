// What the files of the replacement of the CUDA runtime share. Every entry point locks, so that a program's threads may
// call at once; what a stream is given runs at once, in the order of the calls, in the calling thread.
#ifndef MANYSCALE_CUDA_RUNTIME_H
#define MANYSCALE_CUDA_RUNTIME_H

#include <cuda_runtime_api.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "modules.h"

// ---- session.c: what `manyscale trace` gave, and the records
typedef struct {
    char name[256];
    int major, minor, sms, clock_khz, memory_clock_khz, bus_bits, warps, blocks_per_sm, threads_per_sm, registers_per_sm;
    int register_unit, l2_bytes, shared_per_sm, shared_per_block, shared_optin, shared_reserved, shared_unit;
    uint64_t memory_bytes;
    int gpus;           // devices that are shown, all alike
    int checks_memory;  // whether a launch stops where it accesses what is not allocated, even if hardware would not
    int workers;        // threads that run a launch
    int chunk;          // instructions of each of them before they are compared, 0: some million
    int keeps_lanes;    // whether masks and addresses of lanes are recorded
    char regions[1024];  // names, with commas: launches outside of them are left out; "": none is
} Device;

typedef struct CUstream_st Stream;

const Device *device(void);  // each of those that are shown
const char *session_folder(void);  // that the command made
void session_event(const char *format, ...) __attribute__((format(printf, 1, 2)));  // a line of the process's `events`
void session_note(const char *code, const char *name);  // once for each name; counted
FILE *session_launch_file(uint64_t launch_id, const char *suffix);
FILE *session_arrival_file(unsigned number, char *name, size_t room);  // its name in the session's folder
void session_message(const char *format, ...) __attribute__((format(printf, 1, 2)));  // a line on standard error
int session_lock(void);
void session_unlock(int *locked);
#define LOCKED int locked_here __attribute__((cleanup(session_unlock), unused)) = session_lock()

// ---- calls.c: what the tracer of MPI programs, where it is loaded, too, is told. Numbers: readers/raw_trace/gpu_calls.py
typedef enum {
    CALL_LAUNCH, CALL_COPY, CALL_SET, CALL_HOST_FUNCTION, CALL_RECORD_EVENT, CALL_WAIT_EVENT, CALL_SYNCHRONIZE_STREAM,
    CALL_SYNCHRONIZE_EVENT, CALL_SYNCHRONIZE_DEVICE
} Call;
// What more there is to say of a call, as GpuFlag has it (models/workload/gpu_tables.py), and of the two of its stream.
enum { FLAG_WAITS = 1, FLAG_PAGEABLE = 2, FLAG_NON_BLOCKING = 4, FLAG_DEFAULT_STREAM = 8, FLAG_FROM_PEER = 16 };
void *call_begins(Call call);
void call_ends(void *record, const Stream *stream, uint64_t bytes, int tag);
void copy_ends(void *record, const Stream *stream, uint64_t bytes, int direction, unsigned flags, int peer);  // -1: none
void call_made(Call call, const Stream *stream, uint64_t bytes, int tag);  // both
bool stream_is_default(const Stream *stream);
// Of a copy for which the host waits: until the end of the block that has it.
int copies_wait(void);
void copies_waited(int *before);
bool copy_is_waited_for(void);
#define HOST_WAITS int waits_here __attribute__((cleanup(copies_waited), unused)) = copies_wait()
int session_yield(void);                    // gives up all of the thread's locks, for the program's own code; how many
void session_retake(int locks);
// ---- recording.c
void recording_begin(Launch *launch, uint64_t id, uint32_t kernel, uint64_t stream);  // whether and where to
const char *recording_end(Launch *launch, uint64_t id);  // "recorded", "counted", "outside" or "limit"

// ---- regions.c
bool region_is_wanted(const char *name);
void region_of_process(int change);   // a wanted region begins (1) or ends (-1)
void region_of_thread(int change);
bool region_is_open(void);            // for what the calling thread launches

// ---- devices.c, peers.c
enum { MOST_DEVICES = 16 };
int current_device(void);                   // of this thread
bool is_device(int number);
uint32_t stack_limit(void);  // bytes of a thread
bool peer_is_reached(int from, int to);     // whether code of one device may access memory of another
void peers_forget(int number);

// ---- errors.c
cudaError_t failed(cudaError_t error);         // remembers it for cudaGetLastError; returns it
cudaError_t done(void);                        // success, or the error that a launch left for good
void stop_for_good(cudaError_t error);
const char *error_name(cudaError_t error);     // generated from the headers; NULL: unknown
const char *error_words(cudaError_t error);    // the same
void errors_of_child(void);                    // of a process that used CUDA and was copied (fork): all calls fail
cudaError_t not_supported(const char *name);
int errors_enter_driver(void);                 // until it is left, the runtime's last error stays; for errors_leave_driver
void errors_leave_driver(int *before);
bool errors_runtime_was_used(void);            // by this thread, since this was asked
bool errors_runtime_is_used(void);             // by any thread

// ---- memory.c: device, page-locked and modules' memory, at fixed addresses
typedef enum { MEMORY_DEVICE, MEMORY_HOST, MEMORY_MANAGED, MEMORY_REGISTERED, MEMORY_MODULE, MEMORY_THREADS } MemoryKind;
typedef struct {
    uint64_t start, bytes;
    MemoryKind kind;
    unsigned flags;
    int device;                      // that had it allocated
} Allocation;

// In the generic address space, with lower words of zero: code for sm_90 puts its own behind SR_SWINHI. The shared one has
// 16 MiB for each of a cluster's blocks.
#define SHARED_WINDOW 0x1ffe00000000ull
#define LOCAL_WINDOW 0x1fff00000000ull

uint64_t memory_allocate(uint64_t bytes, MemoryKind kind, unsigned flags);  // 0: there is no room
bool memory_add(uint64_t start, uint64_t bytes, MemoryKind kind, unsigned flags);  // memory that is there already
const Allocation *memory_find(uint64_t address);   // the allocation that holds it
bool memory_free(uint64_t start, MemoryKind kind);
void memory_free_all(int device);
uint64_t memory_in_use(int device);                // bytes of its memory
void memory_is_used_by(int device);                // whose code runs: what it may access
bool memory_is_allocated(uint64_t address, uint64_t bytes);
int memory_bounds_of_allocated(uint64_t address, uint64_t *low, uint64_t *high);  // the same, of what is allocated alone
int memory_bounds(uint64_t address, uint64_t *low, uint64_t *high);  // of the allocation that holds it; 0: none

// ---- module_files.c
typedef struct {
    const uint8_t *bytes;
    const StoredHeader *header;
    size_t size;
    uint32_t first_kernel;           // number of its first kernel, of all that the program has
} ModuleFile;
#define MODULE_TABLE(file, type, member) ((const type *)((file)->bytes + (file)->header->member))

const ModuleFile *module_file(const char *name, uint32_t first_kernel);  // in the session's folder; or the end
void module_file_close(const ModuleFile *file);
const char *module_text(const ModuleFile *file, uint64_t offset);
void modules_of_device(int device);  // its variables stand at their addresses from now on
void managed_variables_stay(uint8_t *place, const uint8_t *from, size_t bytes);  // modules.c: one of all devices

// ---- arriving.c: device code that arrives while the program runs. All give 0, or -1 with the error and why.
typedef struct {
    int error;                       // by the numbers of CUDA's errors
    char told[1024];
    char name[256];                  // of the file that was made, in the session's folder
    const ModuleFile *file;
    uint32_t first_kernel;
} Arrival;

size_t fat_binary_bytes(const void *image);  // 0: it is none
int arriving_write(const void *content, size_t bytes, Arrival *into);
int arriving_load(const void *content, size_t bytes, const char *options, Arrival *into);  // machine code, a fat binary, PTX
int arriving_link(const char *files, const char *options, Arrival *into);  // files: each with a blank before it

// ---- modules.c
typedef struct Function {
    const void *host;                // the program's own function
    Kernel kernel;
    const StoredKernel *stored;
    const StoredParameter *parameters;
    const ModuleFile *file;
    uint32_t module;                 // in its file
    uint32_t index;                  // of the kernel among all that the program has
    int max_dynamic_shared;          // -1: not set
    int carveout;
    uint32_t cluster[3];             // blocks of a cluster that the program asked for, zeros: none
    bool has_large_clusters;         // more than 8 blocks, which not every GPU can run
} Function;
typedef struct {
    const void *host;
    void *device;
    size_t bytes;
    bool is_constant, is_managed;
} Variable;

Function *function_of(const void *host);       // NULL: none
const char *function_problem(const Function *function);  // why it cannot be run
const Variable *variable_of(const void *host);
Function *function_new(const ModuleFile *from, uint32_t module, uint32_t index, const void *host);  // host NULL: itself
void function_forget(const Function *function);

// ---- operations.c: what streams are given
typedef enum { OP_KERNEL, OP_COPY, OP_SET, OP_HOST, OP_EVENT, OP_EMPTY, OP_ALLOCATE, OP_GRAPH } OperationKind;
typedef struct Graph Graph;
typedef struct {
    const struct cudaArray *array;   // NULL: memory
    size_t x, y, z;                  // x in bytes
} ArrayPlace;
typedef struct Operation {
    OperationKind kind;
    Function *function;
    dim3 grid, block;
    size_t shared;
    uint8_t *parameters;             // own
    uint32_t cluster[3];             // of kernels: zeros for none
    bool is_cooperative;
    char *to;                        // of copies and sets: three dimensions, in bytes
    const char *from;
    size_t to_pitch, from_pitch, to_slice, from_slice, width, height, depth;
    ArrayPlace to_place, from_place;
    enum cudaMemcpyKind direction;
    unsigned value, element;         // of sets
    cudaHostFn_t host_function;
    void (*own_function)(void *, unsigned long long);  // of another stand-in, told the stream
    void *user;
    cudaEvent_t event;
    Graph *child;                    // own
} Operation;
struct CUstream_st {
    struct CUstream_st *next;
    Graph *capture;
    bool is_capture_origin;
    unsigned flags;
    int priority;
    int device;
    unsigned long long id;
};

cudaError_t submit(cudaStream_t stream, Operation *operation);  // runs it or adds it to what is captured
cudaError_t run_operation(const Operation *operation, const Stream *stream);
cudaError_t operation_check(const Operation *operation);
Operation operation_copy_of(const Operation *operation);
void operation_free(Operation *operation);
cudaError_t copy_of(Operation *into, void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width, size_t height, enum cudaMemcpyKind direction);

// ---- arrays.c: copies from and to arrays
bool array_holds(const ArrayPlace *place, const Operation *operation);
uint64_t array_address(const ArrayPlace *place);
cudaError_t run_array_copy(const Operation *operation);
cudaError_t box_copy_of(Operation *into, const struct cudaMemcpy3DParms *given);

// ---- launches.c
cudaError_t kernel_operation(Operation *into, const void *function, dim3 grid, dim3 block, void **arguments, size_t shared);
// The same for clusters and for blocks that run side by side; checked as CUDA checks them.
cudaError_t shape_of_launch(Operation *into, const uint32_t cluster[3], bool is_cooperative);
cudaError_t run_kernel(const Operation *operation, const Stream *stream);
uint64_t launches_made(void);
void launch_leaves_memory(uint64_t address);   // of the one that runs
int shared_limit(const Function *function);    // most dynamic bytes that a launch may ask for

// ---- functions.c
uint64_t blocks_of_device(const Function *function, dim3 block, size_t dynamic_shared);  // that it holds at a time

// ---- streams.c
Stream *stream_of(cudaStream_t stream);        // NULL: no stream
void streams_end_capture(const Graph *graph);

// ---- graphs.c
Graph *graph_new(void);
void graph_add(Graph *graph, Operation *operation);  // takes it
cudaError_t graph_add_after(cudaGraphNode_t *into, cudaGraph_t graph, const cudaGraphNode_t *before, size_t num_before,
                            Operation *operation);   // the same, for the entry points
cudaError_t graph_run(const Graph *graph, const Stream *stream);
Graph *graph_clone(const Graph *graph);
void user_objects_cloned(const Graph *from, const Graph *to);
void user_objects_of_freed(const Graph *graph);
const cudaGraphNode_t *graph_last(const Graph *graph);  // the node that was made last; NULL: none
void graph_free(Graph *graph);

#endif

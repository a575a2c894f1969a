// Memory of the device that is shown, page-locked memory and the memory of modules: parts of the process's own address
// space at fixed addresses, so that device pointers are the same in each run and valid for the host.
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "runtime.h"

static const uint64_t SPACING = 512;  // of what cudaMalloc gives, as on hardware
static const uint64_t PAGE = 2 << 20;  // of the device's memory
static const uint64_t FIRST_START = 0x200000000000, DEVICE_SPACING = 1ull << 40;  // of the devices' memories
static const uint64_t HOST_START = 0x300000000000, HOST_BYTES = 1ull << 40;

static Allocation *allocations;  // in ascending order
static size_t num_allocations, room;
static uint64_t bytes_in_use[MOST_DEVICES];
static bool is_mapped;
static int running_device;  // whose code accesses memory

static uint64_t start_of(int device) { return FIRST_START + (uint64_t)device * DEVICE_SPACING; }

static void map_at(uint64_t start, uint64_t bytes) {
    const int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE;
    void *mapped = mmap((void *)start, bytes, PROT_READ | PROT_WRITE, flags, -1, 0);
    if (mapped == (void *)start) return;
    session_message("%llu bytes of address space at %#llx are not free (%s); raise the limit of virtual memory (ulimit -v)",
                    (unsigned long long)bytes, (unsigned long long)start, strerror(errno));
    _Exit(2);
}

static void map_arenas(void) {
    if (is_mapped) return;
    for (int k = 0; k < device()->gpus; k++) map_at(start_of(k) - PAGE, device()->memory_bytes + 2 * PAGE);
    map_at(HOST_START, HOST_BYTES);
    is_mapped = true;
}

// Index of the first allocation that begins behind an address.
static size_t behind(uint64_t address) {
    size_t low = 0, high = num_allocations;
    while (low < high) {
        const size_t middle = (low + high) / 2;
        if (allocations[middle].start <= address)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static bool insert(size_t at, Allocation one) {
    if (num_allocations == room) {
        room = room ? 2 * room : 64;
        Allocation *more = realloc(allocations, room * sizeof *more);
        if (more == NULL) return false;
        allocations = more;
    }
    memmove(allocations + at + 1, allocations + at, (num_allocations - at) * sizeof *allocations);
    allocations[at] = one;
    num_allocations++;
    return true;
}

static uint64_t spaced(uint64_t bytes) { return (bytes + SPACING - 1) / SPACING * SPACING; }

uint64_t memory_allocate(uint64_t bytes, MemoryKind kind, unsigned flags) {
    map_arenas();
    const int owner = kind == MEMORY_THREADS ? running_device : current_device();
    const uint64_t start = kind == MEMORY_HOST ? HOST_START : start_of(owner);
    const uint64_t end = start + (kind == MEMORY_HOST ? HOST_BYTES : device()->memory_bytes);
    if (bytes > end - start) return 0;
    const uint64_t taken = spaced(bytes);
    uint64_t place = start;
    size_t at = behind(start);
    if (at > 0 && allocations[at - 1].start == start) at--;
    for (; at < num_allocations && allocations[at].start < end; at++) {  // the first gap that is large enough
        if (allocations[at].start - place >= taken) break;
        place = spaced(allocations[at].start + allocations[at].bytes);
    }
    if (place > end || end - place < taken) return 0;
    if (!insert(at, (Allocation){place, bytes, kind, flags, owner})) return 0;
    if (kind != MEMORY_HOST) bytes_in_use[owner] += taken;
    return place;
}

bool memory_add(uint64_t start, uint64_t bytes, MemoryKind kind, unsigned flags) {
    const size_t at = behind(start);
    if (at > 0 && allocations[at - 1].start + allocations[at - 1].bytes > start) return false;
    if (at < num_allocations && allocations[at].start < start + bytes) return false;
    if (!insert(at, (Allocation){start, bytes, kind, flags, current_device()})) return false;
    if (kind == MEMORY_DEVICE) bytes_in_use[current_device()] += spaced(bytes);
    return true;
}

const Allocation *memory_find(uint64_t address) {
    const size_t at = behind(address);
    if (at == 0) return NULL;
    const Allocation *found = &allocations[at - 1];
    return address - found->start < found->bytes ? found : NULL;
}

static void remove_at(size_t at) {
    const Allocation gone = allocations[at];
    if (gone.kind == MEMORY_DEVICE || gone.kind == MEMORY_MANAGED || gone.kind == MEMORY_THREADS) bytes_in_use[gone.device] -= spaced(gone.bytes);
    if (gone.kind != MEMORY_MODULE && gone.kind != MEMORY_REGISTERED && gone.bytes >= 1 << 20) {
        const uint64_t page = 4096, first = (gone.start + page - 1) & -page, end = (gone.start + gone.bytes) & -page;
        if (end > first) madvise((void *)first, end - first, MADV_DONTNEED);
    }
    num_allocations--;
    memmove(allocations + at, allocations + at + 1, (num_allocations - at) * sizeof *allocations);
}

bool memory_free(uint64_t start, MemoryKind of) {
    const size_t at = behind(start);
    if (at == 0 || allocations[at - 1].start != start) return false;
    const MemoryKind kind = allocations[at - 1].kind;
    if (kind != of && !(of == MEMORY_DEVICE && kind == MEMORY_MANAGED)) return false;
    remove_at(at - 1);
    return true;
}

void memory_free_all(int number) {
    for (size_t at = num_allocations; at-- > 0;)
        if (allocations[at].device == number && allocations[at].kind != MEMORY_MODULE && allocations[at].kind != MEMORY_REGISTERED) remove_at(at);
}

uint64_t memory_in_use(int number) { return bytes_in_use[number]; }

void memory_is_used_by(int number) { running_device = number; }

bool memory_is_allocated(uint64_t address, uint64_t bytes) {
    const Allocation *found = memory_find(address);
    return found && bytes <= found->bytes - (address - found->start);
}

// Where hardware notices nothing: what is not allocated in the pages of an allocation and in those beside them.
static int gap_bounds(uint64_t address, uint64_t *low, uint64_t *high) {
    const uint64_t start = start_of(running_device), end = start + device()->memory_bytes + PAGE;
    if (!is_mapped || address < start - PAGE || address >= end) return 0;
    const size_t at = behind(address);
    const Allocation *before = at ? &allocations[at - 1] : NULL, *after = at < num_allocations ? &allocations[at] : NULL;
    const uint64_t first = before && before->start >= start ? before->start + before->bytes : start - PAGE;
    const uint64_t last = after && after->start < end ? after->start : end;
    const uint64_t reached = (first + PAGE - 1) / PAGE * PAGE + PAGE, reaching = last / PAGE * PAGE - PAGE;
    const bool is_near_first = first >= start && address < reached;
    const bool is_near_last = last < end && address >= reaching;
    if (!is_near_first && !is_near_last) return 0;
    *low = is_near_first || reaching < first ? first : reaching;
    *high = is_near_last || reached > last ? last : reached;
    return 1;
}

int memory_bounds_of_allocated(uint64_t address, uint64_t *low, uint64_t *high) {
    const Allocation *found = memory_find(address);
    const bool is_own = found && (found->kind == MEMORY_DEVICE || found->kind == MEMORY_THREADS);  // of one device
    if (found == NULL || (is_own && !peer_is_reached(running_device, found->device))) return 0;
    *low = found->start;
    *high = found->start + found->bytes;
    return 1;
}

int memory_bounds(uint64_t address, uint64_t *low, uint64_t *high) {
    if (memory_bounds_of_allocated(address, low, high)) return 1;
    if (device()->checks_memory || !gap_bounds(address, low, high)) return 0;
    launch_leaves_memory(address);
    return 1;
}

cudaError_t cudaHostRegister(void *start, size_t bytes, unsigned flags) {
    LOCKED;
    if (start == NULL || bytes == 0) return failed(cudaErrorInvalidValue);
    if (!memory_add((uint64_t)start, bytes, MEMORY_REGISTERED, flags)) return failed(cudaErrorHostMemoryAlreadyRegistered);
    return done();
}

cudaError_t cudaHostUnregister(void *start) {
    LOCKED;
    const size_t at = behind((uint64_t)start);
    const Allocation *one = at ? &allocations[at - 1] : NULL;
    if (one == NULL || one->start != (uint64_t)start || one->kind != MEMORY_REGISTERED)
        return failed(cudaErrorHostMemoryNotRegistered);
    remove_at(at - 1);
    return done();
}

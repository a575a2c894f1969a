// Contexts: the primary one of each device, which the runtime uses, too, and others. All of a device use its one memory, so
// that a context is a name and a device here.
#include <stdlib.h>

#include "driver/driver.h"

enum { MOST_PUSHED = 256 };

struct CUctx_st {
    struct CUctx_st *next;
    CUdevice device;
    unsigned flags;
    unsigned retained;  // of a primary one
    unsigned long long id;
    CUfunc_cache cache;
    CUsharedconfig shared;
};

static bool is_initialised;
static struct CUctx_st primary[MOST_DEVICES];
static struct CUctx_st *made;  // all others
static unsigned long long num_made;
static _Thread_local CUcontext pushed[MOST_PUSHED];
static _Thread_local int num_pushed;

// The runtime initialises the driver when it is first used.
bool driver_is_initialised(void) {
    if (!is_initialised && errors_runtime_is_used()) driver_initialise();
    return is_initialised;
}

void driver_initialise(void) {
    for (int k = 0; k < MOST_DEVICES && !is_initialised; k++) primary[k] = (struct CUctx_st){.device = k, .id = ++num_made};
    is_initialised = true;
}

static CUcontext context_of(CUcontext given) {  // NULL: no context, or one that is gone
    if (given >= primary && given < primary + MOST_DEVICES) return given->retained ? given : NULL;
    for (CUcontext one = made; one; one = one->next)
        if (one == given) return one;
    return NULL;
}

// The runtime, when a thread uses it, takes the context that is current, or makes the primary one so.
CUcontext context_current(void) {
    const bool was_used = errors_runtime_was_used();
    int number = 0;
    if (num_pushed) return pushed[num_pushed - 1];
    if (!was_used || cudaGetDevice(&number) || !is_device(number)) return NULL;
    primary[number].retained++;
    return pushed[num_pushed++] = &primary[number];
}

CUresult context_device(CUdevice *device) {
    const CUcontext current = context_current();
    if (current == NULL) return CUDA_ERROR_INVALID_CONTEXT;
    *device = current->device;
    return CUDA_SUCCESS;
}

static CUresult push(CUcontext context) {
    if (num_pushed == MOST_PUSHED) return CUDA_ERROR_OUT_OF_MEMORY;
    pushed[num_pushed++] = context;
    return result_of(cudaSetDevice(context->device));
}

static CUresult pop(void) {
    num_pushed--;
    return num_pushed ? result_of(cudaSetDevice(pushed[num_pushed - 1]->device)) : CUDA_SUCCESS;
}

// Primary contexts

CUresult cuDevicePrimaryCtxRetain(CUcontext *into, CUdevice number) {
    ENTERED;
    if (into == NULL) return CUDA_ERROR_INVALID_VALUE;
    if (!is_device(number)) return CUDA_ERROR_INVALID_DEVICE;
    primary[number].retained++;
    *into = &primary[number];
    return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxRelease_v2(CUdevice number) {
    ENTERED;
    if (!is_device(number)) return CUDA_ERROR_INVALID_DEVICE;
    if (primary[number].retained == 0) return CUDA_ERROR_INVALID_CONTEXT;
    primary[number].retained--;
    return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxReset_v2(CUdevice number) {
    ENTERED;
    return is_device(number) ? result_of(cudaDeviceReset()) : CUDA_ERROR_INVALID_DEVICE;
}

CUresult cuDevicePrimaryCtxSetFlags_v2(CUdevice number, unsigned flags) {
    ENTERED;
    if (!is_device(number)) return CUDA_ERROR_INVALID_DEVICE;
    primary[number].flags = flags;
    return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxGetState(CUdevice number, unsigned *flags, int *is_active) {
    ENTERED;
    if (flags == NULL || is_active == NULL) return CUDA_ERROR_INVALID_VALUE;
    if (!is_device(number)) return CUDA_ERROR_INVALID_DEVICE;
    *flags = primary[number].flags;
    *is_active = primary[number].retained > 0;
    return CUDA_SUCCESS;
}

// Others

CUresult cuCtxCreate_v2(CUcontext *into, unsigned flags, CUdevice number) {
    ENTERED;
    if (into == NULL) return CUDA_ERROR_INVALID_VALUE;
    if (!is_device(number)) return CUDA_ERROR_INVALID_DEVICE;
    CUcontext context = calloc(1, sizeof *context);
    if (context == NULL) return CUDA_ERROR_OUT_OF_MEMORY;
    *context = (struct CUctx_st){.next = made, .device = number, .flags = flags, .id = ++num_made};
    made = context;
    *into = context;
    return push(context);
}

#if CUDA_VERSION >= 11040
CUresult cuCtxCreate_v3(CUcontext *into, CUexecAffinityParam *affinity, int count, unsigned flags, CUdevice number) {
    if (affinity || count) return refused("cuCtxCreate with a part of the SMs");
    return cuCtxCreate_v2(into, flags, number);
}
#endif

#if CUDA_VERSION >= 12050
CUresult cuCtxCreate_v4(CUcontext *into, CUctxCreateParams *wanted, unsigned flags, CUdevice number) {
    if (wanted && (wanted->numExecAffinityParams || wanted->cigParams))
        return refused("cuCtxCreate with a part of the SMs or for graphics");
    return cuCtxCreate_v2(into, flags, number);
}
#endif

CUresult cuCtxDestroy_v2(CUcontext context) {
    ENTERED;
    for (struct CUctx_st **place = &made; *place; place = &(*place)->next) {
        if (*place != context) continue;
        *place = context->next;
        if (num_pushed && pushed[num_pushed - 1] == context) pop();
        free(context);
        return CUDA_SUCCESS;
    }
    return CUDA_ERROR_INVALID_CONTEXT;
}

CUresult cuCtxPushCurrent_v2(CUcontext context) {
    ENTERED;
    return context_of(context) ? push(context) : CUDA_ERROR_INVALID_CONTEXT;
}

CUresult cuCtxPopCurrent_v2(CUcontext *into) {
    IN_CONTEXT;
    if (into) *into = pushed[num_pushed - 1];
    return pop();
}

CUresult cuCtxSetCurrent(CUcontext context) {
    ENTERED;
    if (context && context_of(context) == NULL) return CUDA_ERROR_INVALID_CONTEXT;
    if (num_pushed) num_pushed--;
    return context ? push(context) : CUDA_SUCCESS;
}

CUresult cuCtxGetCurrent(CUcontext *into) {
    ENTERED;
    if (into == NULL) return CUDA_ERROR_INVALID_VALUE;
    *into = context_current();
    return CUDA_SUCCESS;
}

CUresult cuCtxGetDevice(CUdevice *device) {
    IN_CONTEXT;
    return device ? context_device(device) : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuCtxGetFlags(unsigned *flags) {
    IN_CONTEXT;
    if (flags == NULL) return CUDA_ERROR_INVALID_VALUE;
    *flags = context_current()->flags;
    return CUDA_SUCCESS;
}

CUresult cuCtxGetApiVersion(CUcontext context, unsigned *version) {
    ENTERED;
    if (version == NULL || (context && context_of(context) == NULL)) return CUDA_ERROR_INVALID_VALUE;
    *version = 3020;  // of the interface with _v2
    return CUDA_SUCCESS;
}

CUresult cuCtxSynchronize(void) {
    IN_CONTEXT;
    return result_of(cudaDeviceSynchronize());
}

#if CUDA_VERSION >= 12000
CUresult cuCtxGetId(CUcontext context, unsigned long long *id) {
    ENTERED;
    const CUcontext found = context ? context_of(context) : context_current();
    if (id == NULL || found == NULL) return id ? CUDA_ERROR_INVALID_CONTEXT : CUDA_ERROR_INVALID_VALUE;
    *id = found->id;
    return CUDA_SUCCESS;
}
#endif

#if CUDA_VERSION >= 12010
CUresult cuCtxSetFlags(unsigned flags) {
    IN_CONTEXT;
    context_current()->flags = flags;
    return CUDA_SUCCESS;
}
#endif

#if CUDA_VERSION >= 13000
CUresult cuCtxGetDevice_v2(CUdevice *device, CUcontext context) {
    ENTERED;
    const CUcontext found = context ? context_of(context) : context_current();
    if (device == NULL || found == NULL) return device ? CUDA_ERROR_INVALID_CONTEXT : CUDA_ERROR_INVALID_VALUE;
    *device = found->device;
    return CUDA_SUCCESS;
}

CUresult cuCtxSynchronize_v2(CUcontext context) {
    ENTERED;
    if ((context ? context_of(context) : context_current()) == NULL) return CUDA_ERROR_INVALID_CONTEXT;
    return result_of(cudaDeviceSynchronize());
}
#endif

// Their properties

CUresult cuCtxSetLimit(CUlimit limit, size_t value) {
    IN_CONTEXT;
    return result_of(cudaDeviceSetLimit((enum cudaLimit)limit, value));
}

CUresult cuCtxGetLimit(size_t *value, CUlimit limit) {
    IN_CONTEXT;
    return result_of(cudaDeviceGetLimit(value, (enum cudaLimit)limit));
}

CUresult cuCtxSetCacheConfig(CUfunc_cache config) {
    IN_CONTEXT;
    context_current()->cache = config;
    return CUDA_SUCCESS;
}

CUresult cuCtxGetCacheConfig(CUfunc_cache *config) {
    IN_CONTEXT;
    if (config == NULL) return CUDA_ERROR_INVALID_VALUE;
    *config = context_current()->cache;
    return CUDA_SUCCESS;
}

CUresult cuCtxSetSharedMemConfig(CUsharedconfig config) {
    IN_CONTEXT;
    context_current()->shared = config;
    return CUDA_SUCCESS;
}

CUresult cuCtxGetSharedMemConfig(CUsharedconfig *config) {
    IN_CONTEXT;
    if (config == NULL) return CUDA_ERROR_INVALID_VALUE;
    *config = context_current()->shared;
    return CUDA_SUCCESS;
}

CUresult cuCtxGetStreamPriorityRange(int *least, int *greatest) {
    IN_CONTEXT;
    return result_of(cudaDeviceGetStreamPriorityRange(least, greatest));
}

CUresult cuCtxResetPersistingL2Cache(void) {
    IN_CONTEXT;
    return CUDA_SUCCESS;
}

CUresult cuCtxEnablePeerAccess(CUcontext peer, unsigned flags) {
    IN_CONTEXT;
    if (context_of(peer) == NULL) return CUDA_ERROR_INVALID_CONTEXT;
    return result_of(cudaDeviceEnablePeerAccess(peer->device, flags));
}

CUresult cuCtxDisablePeerAccess(CUcontext peer) {
    IN_CONTEXT;
    if (context_of(peer) == NULL) return CUDA_ERROR_INVALID_CONTEXT;
    return result_of(cudaDeviceDisablePeerAccess(peer->device));
}

// Memory of other devices: who may access whose, and copies between them.
#include "runtime.h"

static bool is_enabled[MOST_DEVICES][MOST_DEVICES];  // of whose code, to whose memory

bool peer_is_reached(int from, int to) { return from == to || is_enabled[from][to]; }

void peers_forget(int number) {
    for (int k = 0; k < MOST_DEVICES; k++) is_enabled[number][k] = false;
}

cudaError_t cudaDeviceCanAccessPeer(int *can, int number, int peer) {
    LOCKED;
    if (can == NULL) return failed(cudaErrorInvalidValue);
    if (!is_device(number) || !is_device(peer)) return failed(cudaErrorInvalidDevice);
    *can = number != peer;
    return done();
}

cudaError_t cudaDeviceEnablePeerAccess(int peer, unsigned flags) {
    LOCKED;
    if (flags) return failed(cudaErrorInvalidValue);
    if (!is_device(peer) || peer == current_device()) return failed(cudaErrorInvalidDevice);
    if (is_enabled[current_device()][peer]) return failed(cudaErrorPeerAccessAlreadyEnabled);
    is_enabled[current_device()][peer] = true;
    return done();
}

cudaError_t cudaDeviceDisablePeerAccess(int peer) {
    LOCKED;
    if (!is_device(peer)) return failed(cudaErrorInvalidDevice);
    if (!is_enabled[current_device()][peer]) return failed(cudaErrorPeerAccessNotEnabled);
    is_enabled[current_device()][peer] = false;
    return done();
}

cudaError_t cudaDeviceGetP2PAttribute(int *value, enum cudaDeviceP2PAttr attribute, int number, int peer) {
    LOCKED;
    if (value == NULL) return failed(cudaErrorInvalidValue);
    if (!is_device(number) || !is_device(peer) || number == peer) return failed(cudaErrorInvalidDevice);
    *value = attribute != cudaDevP2PAttrPerformanceRank;  // access, atomics and arrays; all pairs are alike
    return done();
}

static bool is_of(const void *place, int number) {
    const Allocation *found = memory_find((uint64_t)place);
    return found == NULL || found->device == number || found->kind != MEMORY_DEVICE;
}

cudaError_t cudaMemcpyPeerAsync(void *to, int to_device, const void *from, int from_device, size_t bytes,
                                cudaStream_t stream) {
    LOCKED;
    if (!is_device(to_device) || !is_device(from_device)) return failed(cudaErrorInvalidDevice);
    if (!is_of(to, to_device) || !is_of(from, from_device)) return failed(cudaErrorInvalidValue);
    return cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, stream);
}

cudaError_t cudaMemcpyPeer(void *to, int to_device, const void *from, int from_device, size_t bytes) {
    HOST_WAITS;
    return cudaMemcpyPeerAsync(to, to_device, from, from_device, bytes, NULL);
}

cudaError_t cudaMemcpy3DPeerAsync(const struct cudaMemcpy3DPeerParms *given, cudaStream_t stream) {
    LOCKED;
    if (given == NULL) return failed(cudaErrorInvalidValue);
    if (!is_device(given->dstDevice) || !is_device(given->srcDevice)) return failed(cudaErrorInvalidDevice);
    const struct cudaMemcpy3DParms same = {
        .srcArray = given->srcArray, .srcPos = given->srcPos, .srcPtr = given->srcPtr, .dstArray = given->dstArray,
        .dstPos = given->dstPos, .dstPtr = given->dstPtr, .extent = given->extent, .kind = cudaMemcpyDeviceToDevice};
    return cudaMemcpy3DAsync(&same, stream);
}

cudaError_t cudaMemcpy3DPeer(const struct cudaMemcpy3DPeerParms *given) {
    HOST_WAITS;
    return cudaMemcpy3DPeerAsync(given, NULL);
}

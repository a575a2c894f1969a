// Texture references, which CUDA 12 removed, by texture objects, for programs that have them: a declaration
// `texture<float, 1, cudaReadModeElementType> name;` is written TEXTURE(name, float, 1, cudaReadModeElementType) before it
// is compiled (rodinia.py). Fetches and bindings stay as they are. Of linear memory alone.
#ifdef __CUDACC__
#pragma once
#include <cuda_runtime.h>

template <class T, int dimensions = 1, cudaTextureReadMode mode = cudaReadModeElementType> struct TextureReference {
    using type = T;
    const void *symbol;  // of the object's handle in device code
    cudaTextureAddressMode addressMode[3];
    cudaTextureFilterMode filterMode;
    int normalized;
    cudaChannelFormatDesc channelDesc;
};

#define TEXTURE(name, ...)                              \
    static __device__ cudaTextureObject_t name##_object; \
    static TextureReference<__VA_ARGS__> name = {&name##_object};
#define tex1Dfetch(name, place) tex1Dfetch<typename decltype(name)::type>(name##_object, place)

template <class T, int dimensions, cudaTextureReadMode mode>
cudaError_t cudaBindTexture(size_t *offset, TextureReference<T, dimensions, mode> &reference, const void *memory,
                            const cudaChannelFormatDesc &channels, size_t bytes = 0x7fffffff) {
    cudaResourceDesc resource = {};
    cudaTextureDesc how = {};
    cudaTextureObject_t object;
    resource.resType = cudaResourceTypeLinear;
    resource.res.linear = {const_cast<void *>(memory), channels, bytes};
    how.readMode = mode;
    if (offset) *offset = 0;
    const cudaError_t error = cudaCreateTextureObject(&object, &resource, &how, nullptr);
    return error == cudaSuccess ? cudaMemcpyToSymbol(reference.symbol, &object, sizeof object) : error;
}

template <class T, int dimensions, cudaTextureReadMode mode>
cudaError_t cudaBindTexture(size_t *offset, TextureReference<T, dimensions, mode> &reference, const void *memory, size_t bytes) {
    return cudaBindTexture(offset, reference, memory, cudaCreateChannelDesc<T>(), bytes);
}

template <class T, int dimensions, cudaTextureReadMode mode>
cudaError_t cudaBindTexture(size_t *offset, TextureReference<T, dimensions, mode> *reference, const void *memory,
                            const cudaChannelFormatDesc *channels, size_t bytes) {
    return cudaBindTexture(offset, *reference, memory, *channels, bytes);
}

template <class T, int dimensions, cudaTextureReadMode mode>
cudaError_t cudaUnbindTexture(TextureReference<T, dimensions, mode> &reference) {
    const cudaTextureObject_t none = 0;
    return cudaMemcpyToSymbol(reference.symbol, &none, sizeof none);
}
#endif

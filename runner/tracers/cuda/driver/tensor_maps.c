// Tensor maps, with which kernels copy boxes of tensors: checked as the documentation of cuTensorMapEncodeTiled and
// cuTensorMapEncodeIm2col demands, and written as native/tensor_map.h lays them out.
#include <string.h>

#include "driver/driver.h"
#include "tensor_map.h"

#if CUDA_VERSION >= 12000
typedef struct {
    CUtensorMapDataType type;
    cuuint32_t rank;
    void *address;
    const cuuint64_t *dimensions, *strides;
    const cuuint32_t *element_strides;
    CUtensorMapInterleave interleave;
    CUtensorMapSwizzle swizzle;
    CUtensorMapL2promotion promotion;
    CUtensorMapFloatOOBfill fill;
} Layout;

static bool is_floating(unsigned type) {
    return type >= CU_TENSOR_MAP_DATA_TYPE_FLOAT16 && type <= CU_TENSOR_MAP_DATA_TYPE_TFLOAT32_FTZ;
}

static bool is_of_packed(unsigned type) { return tensor_element_bytes(type) == 0; }

// Whether `layout` is one that NVIDIA documents; `width`: elements of a box along dimension 0.
static bool is_allowed(const Layout *layout, unsigned width) {
    static const unsigned spans[] = {0, 32, 64, 128, 128, 128, 128};
    const unsigned unit = layout->interleave == CU_TENSOR_MAP_INTERLEAVE_32B ? 32 : 16;
    const unsigned least = layout->interleave == CU_TENSOR_MAP_INTERLEAVE_NONE ? 1 : 3;
    const unsigned row = width * tensor_element_bytes(layout->type);
    if (layout->rank < least || layout->rank > TENSOR_MOST_DIMENSIONS || (uintptr_t)layout->address % unit) return false;
    if (layout->dimensions == NULL || layout->element_strides == NULL || (layout->rank > 1 && layout->strides == NULL))
        return false;
    if ((unsigned)layout->interleave > CU_TENSOR_MAP_INTERLEAVE_32B || (unsigned)layout->swizzle >= sizeof spans / sizeof *spans ||
        (unsigned)layout->promotion > CU_TENSOR_MAP_L2_PROMOTION_L2_256B || (unsigned)layout->fill > 1)
        return false;
    for (unsigned k = 0; k < layout->rank; k++) {
        if (layout->dimensions[k] == 0 || layout->dimensions[k] > 1ull << 32) return false;
        if (layout->element_strides[k] == 0 || layout->element_strides[k] > 8) return false;
        if (k + 1 < layout->rank && (layout->strides[k] % unit || layout->strides[k] >= 1ull << 40)) return false;
    }
    if (layout->interleave == CU_TENSOR_MAP_INTERLEAVE_NONE) {
        if (row % 16 || (layout->swizzle && row > spans[layout->swizzle])) return false;
    } else if (layout->interleave == CU_TENSOR_MAP_INTERLEAVE_32B && layout->swizzle != CU_TENSOR_MAP_SWIZZLE_32B) {
        return false;
    }
    return layout->fill == CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE || is_floating(layout->type);
}

static TensorMap map_of(const Layout *layout, enum TensorKind kind) {
    TensorMap map = {.address = (uint64_t)layout->address, .kind = kind, .rank = (uint8_t)layout->rank,
                     .type = (uint8_t)layout->type, .interleave = (uint8_t)layout->interleave,
                     .swizzle = (uint8_t)layout->swizzle, .promotion = (uint8_t)layout->promotion,
                     .fill = (uint8_t)layout->fill};
    for (unsigned k = 0; k < layout->rank; k++) {
        map.last[k] = (uint32_t)(layout->dimensions[k] - 1);
        map.element_strides[k] = (uint8_t)layout->element_strides[k];
        if (k + 1 < layout->rank) map.strides[k] = layout->strides[k];
    }
    return map;
}

static CUresult write_map(CUtensorMap *into, TensorMap *map) {
    tensor_map_seal(map);
    memcpy(into, map, sizeof *map);
    return CUDA_SUCCESS;
}

static CUresult check(const CUtensorMap *into, unsigned type) {
    if (device()->major < 9) return CUDA_ERROR_NOT_SUPPORTED;
    if (into == NULL || (uintptr_t)into % 64) return CUDA_ERROR_INVALID_VALUE;
    return is_of_packed(type) ? refused("cuTensorMapEncode of packed elements of 4 and 6 bits") : CUDA_SUCCESS;
}

CUresult cuTensorMapEncodeTiled(CUtensorMap *into, CUtensorMapDataType type, cuuint32_t rank, void *address,
                                const cuuint64_t *dimensions, const cuuint64_t *strides, const cuuint32_t *box,
                                const cuuint32_t *element_strides, CUtensorMapInterleave interleave,
                                CUtensorMapSwizzle swizzle, CUtensorMapL2promotion promotion, CUtensorMapFloatOOBfill fill) {
    ENTERED;
    const Layout layout = {type, rank, address, dimensions, strides, element_strides, interleave, swizzle, promotion, fill};
    const CUresult result = check(into, type);
    if (result) return result;
    if (box == NULL || !is_allowed(&layout, box[0])) return CUDA_ERROR_INVALID_VALUE;
    TensorMap map = map_of(&layout, TENSOR_TILED);
    for (unsigned k = 0; k < rank; k++) {
        if (box[k] == 0 || box[k] > 256) return CUDA_ERROR_INVALID_VALUE;
        map.box[k] = (uint16_t)box[k];
    }
    return write_map(into, &map);
}

CUresult cuTensorMapEncodeIm2col(CUtensorMap *into, CUtensorMapDataType type, cuuint32_t rank, void *address,
                                 const cuuint64_t *dimensions, const cuuint64_t *strides, const int *lower,
                                 const int *upper, cuuint32_t channels, cuuint32_t pixels,
                                 const cuuint32_t *element_strides, CUtensorMapInterleave interleave,
                                 CUtensorMapSwizzle swizzle, CUtensorMapL2promotion promotion, CUtensorMapFloatOOBfill fill) {
    ENTERED;
    const Layout layout = {type, rank, address, dimensions, strides, element_strides, interleave, swizzle, promotion, fill};
    const CUresult result = check(into, type);
    if (result) return result;
    if (rank < 3 || lower == NULL || upper == NULL || channels == 0 || channels > 256 || pixels == 0 || pixels > 1024 ||
        !is_allowed(&layout, channels))
        return CUDA_ERROR_INVALID_VALUE;
    TensorMap map = map_of(&layout, TENSOR_IM2COL);
    const int most = rank == 3 ? 32767 : rank == 4 ? 127 : 15;
    for (unsigned k = 0; k < rank - 2; k++) {  // D, H, W
        if (lower[k] < -most - 1 || lower[k] > most || upper[k] < -most - 1 || upper[k] > most)
            return CUDA_ERROR_INVALID_VALUE;
        map.lower[k] = (int16_t)lower[k];
        map.upper[k] = (int16_t)upper[k];
    }
    map.channels = (uint16_t)channels;
    map.pixels = (uint16_t)pixels;
    return write_map(into, &map);
}

// Another tensor of the same form.
CUresult cuTensorMapReplaceAddress(CUtensorMap *into, void *address) {
    ENTERED;
    TensorMap map;
    if (into == NULL || (uintptr_t)into % 64) return CUDA_ERROR_INVALID_VALUE;
    memcpy(&map, into, sizeof map);
    const unsigned unit = map.interleave == CU_TENSOR_MAP_INTERLEAVE_32B ? 32 : 16;
    if (!tensor_map_is_whole(&map) || (uintptr_t)address % unit) return CUDA_ERROR_INVALID_VALUE;
    map.address = (uint64_t)address;
    return write_map(into, &map);
}
#endif

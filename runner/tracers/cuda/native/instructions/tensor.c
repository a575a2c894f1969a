// Copies of boxes of tensors (TMA): cp.async.bulk.tensor and cp.reduce.async.bulk.tensor in tiled mode, as the PTX ISA
// ("Tensors") and the driver API's documentation of cuTensorMapEncodeTiled describe them. They are done at once, as
// blocks of bytes are.
#include "access.h"
#include "barrier.h"
#include "bulk.h"
#include "words.h"
#include "tensor_map.h"

// What ``extra`` holds; rules_hopper.py writes it: an operation of a reduction in the lowest byte, dimensions above.
enum { LOADS = 1 << 16, REDUCES = 1 << 17, MULTICASTS = 1 << 18, PREFETCHES = 1 << 19 };

typedef struct {
    TensorMap map;
    uint32_t size;              // bytes of an element
    uint32_t counts[5];         // elements of the box along each dimension, as shared memory holds them
    int64_t first[5];           // coordinates of its first element
    uint32_t width;             // chunks of 16 bytes of a row of the swizzle's pattern, 1: none
    uint32_t bytes;             // of the box
} Box;

static bool refused(const Context *at, const char *what) {
    at->block->launch->error = STOP_INSTRUCTION;
    fail(at, "a copy of a tensor %s is not executed", what);
    return false;
}

static bool map_at(const Context *at, uint64_t address, TensorMap *into) {
    const uint8_t *place = global_place(at, address, sizeof *into);
    if (place == NULL) return false;
    memcpy(into, place, sizeof *into);
    if (into->name != TENSOR_MAP_NAME) return refused(at, "whose tensor map cuTensorMapEncodeTiled has not made");
    if (!tensor_map_is_whole(into)) return refused(at, "whose tensor map the program has changed (tensormap.replace)");
    return true;
}

// What of a map is not executed; NULL where all is.
static const char *missing(const TensorMap *map, uint32_t rank) {
    static const uint8_t spans[] = {0, 32, 64, 128};
    if (map->kind != TENSOR_TILED) return "of a tensor map for im2col";
    if (map->rank != rank) return "with another number of dimensions than its tensor map's";
    if (!tensor_element_bytes(map->type)) return "of packed elements of 4 or 6 bits";
    if (map->interleave) return "of interleaved elements";
    if (map->swizzle > 3) return "with a swizzle of larger atoms";
    if (map->swizzle && map->box[0] * tensor_element_bytes(map->type) != spans[map->swizzle])
        return "whose box is narrower than its swizzle";
    return NULL;
}

static bool box_of(const Context *at, uint64_t address, uint32_t coordinates, Box *box) {
    static const uint32_t widths[] = {1, 2, 4, 8};
    const uint32_t rank = at->instruction->extra >> 8 & 0xff;
    if (!map_at(at, address, &box->map)) return false;
    const char *what = missing(&box->map, rank);
    if (what != NULL) return refused(at, what);
    box->size = tensor_element_bytes(box->map.type);
    box->width = widths[box->map.swizzle];
    box->bytes = box->size;
    for (uint32_t k = 0; k < 5; k++) {
        const uint32_t stride = k && k < rank ? box->map.element_strides[k] : 1;  // that of dimension 0 plays no part
        box->counts[k] = k < rank ? (box->map.box[k] + stride - 1) / stride : 1;
        box->first[k] = k < rank ? (int32_t)uniform_of(at->warp, coordinates + k) : 0;
        box->bytes *= box->counts[k];
    }
    return true;
}

// A row of the box: elements along dimension 0, those from ``low`` to ``high`` inside the tensor.
typedef struct {
    uint8_t *place;             // of element ``low`` in global memory
    uint32_t low, high, number;
} Row;

// False: a problem. A row that lies outside has ``high`` of 0.
static bool row_of(const Context *at, const Box *box, const uint32_t *index, Row *row) {
    const TensorMap *map = &box->map;
    int64_t offset = 0;
    const int64_t length = (int64_t)map->last[0] + 1 - box->first[0];
    row->low = row->high = 0;
    for (uint32_t k = 1; k < map->rank; k++) {
        const int64_t place = box->first[k] + (int64_t)index[k] * map->element_strides[k];
        if (place < 0 || place > map->last[k]) return true;
        offset += place * (int64_t)map->strides[k - 1];
    }
    if (length <= 0 || box->first[0] + box->counts[0] <= 0) return true;
    row->low = box->first[0] < 0 ? (uint32_t)-box->first[0] : 0;
    row->high = length < box->counts[0] ? (uint32_t)length : box->counts[0];
    const uint64_t start = map->address + (uint64_t)(offset + (box->first[0] + row->low) * box->size);
    row->place = global_place(at, start, (row->high - row->low) * box->size);
    return row->place != NULL;
}

// Part of a row, from its byte ``from`` on, in shared memory whose pattern of chunks the address decides.
static inline uint32_t swizzled(const Box *box, uint32_t address) { return address ^ (address >> 7 & (box->width - 1)) << 4; }

static void flush(const Box *box, uint8_t *row) {
    if (box->map.type != 10 && box->map.type != 12) return;  // FLOAT32_FTZ, TFLOAT32_FTZ
    for (uint32_t k = 0; k < box->counts[0]; k++) {
        uint32_t bits;
        memcpy(&bits, row + 4 * k, 4);
        if (!(bits & 0x7f800000u)) bits &= 0x80000000u;
        memcpy(row + 4 * k, &bits, 4);
    }
}

static uint32_t reduced_type(uint32_t type) {
    static const uint8_t types[] = {255, 255, TYPE_U32, TYPE_S32, TYPE_U64, TYPE_S64, TYPE_F16, TYPE_F32, TYPE_F64, TYPE_BF16};
    return type < sizeof types ? types[type] : 255;
}

// One row between global memory and ``whole``, a row of the box.
static bool move_row(const Context *at, const Box *box, const Row *row, uint8_t *whole) {
    const uint32_t extra = at->instruction->extra, count = row->high - row->low, bytes = count * box->size;
    uint8_t *inside = whole + row->low * box->size;
    if (extra & LOADS) {
        if (count != box->counts[0]) {
            if (box->map.fill) return refused(at, "that fills with NaN what lies outside of the tensor");
            memset(whole, 0, box->counts[0] * box->size);
        }
        if (count) memcpy(inside, row->place, bytes);
        flush(box, whole);
        return true;
    }
    if (!count) return true;
    if (!(extra & REDUCES)) {
        memcpy(row->place, inside, bytes);
        return true;
    }
    const uint32_t type = reduced_type(box->map.type);
    if (type == 255) return refused(at, "that adds to elements of this type");
    return reduce_elements(at, extra & 0xff, type, row->place, inside, count);
}

// All rows of the box, between global memory and the blocks' shared memory at ``address``, whose ranks ``ranks`` has.
static bool move_box(const Context *at, const Box *box, uint32_t address, uint32_t ranks) {
    const uint32_t row_bytes = box->counts[0] * box->size, own = address & (WINDOW_BYTES - 1);
    const bool loads = at->instruction->extra & LOADS;
    uint8_t *shared[32], whole[256 * 8];
    uint32_t number = 0, index[5] = {0};
    for (uint32_t left = ranks; left; left &= left - 1) {
        shared[number] = shared_bytes_at(at, lowest(left) << 24 | own, box->bytes);
        if (shared[number++] == NULL) return false;
    }
    const uint32_t rows = box->bytes / row_bytes;
    for (uint32_t k = 0; k < rows; k++) {
        uint32_t rest = k;
        for (uint32_t dimension = 1; dimension < 5; dimension++) {
            index[dimension] = rest % box->counts[dimension];
            rest /= box->counts[dimension];
        }
        Row row;
        if (!row_of(at, box, index, &row)) return false;
        for (uint32_t byte = 0; !loads && byte < row_bytes; byte += 16) {
            const uint32_t piece = row_bytes - byte < 16 ? row_bytes - byte : 16;
            memcpy(whole + byte, shared[0] + (swizzled(box, own + k * row_bytes + byte) - own), piece);
        }
        if (!move_row(at, box, &row, whole)) return false;
        for (uint32_t block = 0; loads && block < number; block++)
            for (uint32_t byte = 0; byte < row_bytes; byte += 16) {
                const uint32_t piece = row_bytes - byte < 16 ? row_bytes - byte : 16;
                memcpy(shared[block] + (swizzled(box, own + k * row_bytes + byte) - own), whole + byte, piece);
            }
    }
    return true;
}

// The indices of a dimension of the box that lie inside the tensor: [*low, *high).
static void inside(const Box *box, uint32_t k, uint32_t *low, uint32_t *high) {
    const int64_t step = k ? box->map.element_strides[k] : 1, length = (int64_t)box->map.last[k] + 1 - box->first[k];
    *low = 0, *high = 1;
    if (k >= box->map.rank) return;
    const int64_t end = length <= 0 ? 0 : (length + step - 1) / step;
    *low = box->first[k] < 0 ? (uint32_t)((-box->first[k] + step - 1) / step) : 0;
    *high = end < box->counts[k] ? (uint32_t)end : box->counts[k];
    if (*high < *low) *high = *low;
}

// Rows along dimension 1 are a run; there is one for each place along the others.
static void record_box(const Context *at, const Box *box, uint32_t barrier, uint32_t ranks) {
    const uint32_t extra = at->instruction->extra;
    const TensorMap *map = &box->map;
    uint32_t low[5], high[5], index[3];
    const enum CopyWay way = extra & LOADS ? COPY_LOADS : extra & REDUCES ? COPY_REDUCES : extra & PREFETCHES ? COPY_PREFETCHES : COPY_STORES;
    record_copy(at, way, barrier, box->bytes, ranks);
    for (uint32_t k = 0; k < 5; k++) inside(box, k, &low[k], &high[k]);
    const uint64_t begin = map->address + (uint64_t)(box->first[0] + low[0]) * box->size;
    const uint64_t step = map->rank > 1 ? map->strides[0] * map->element_strides[1] : 0;
    for (index[2] = low[4]; index[2] < high[4]; index[2]++)
        for (index[1] = low[3]; index[1] < high[3]; index[1]++)
            for (index[0] = low[2]; index[0] < high[2]; index[0]++) {
                uint64_t start = begin;
                if (map->rank > 1) start += (uint64_t)(box->first[1] + (int64_t)low[1] * map->element_strides[1]) * map->strides[0];
                for (uint32_t k = 2; k < map->rank; k++)
                    start += (uint64_t)(box->first[k] + (int64_t)index[k - 2] * map->element_strides[k]) * map->strides[k - 1];
                record_run(at, start, (high[0] - low[0]) * box->size, high[1] - low[1], step);
            }
}

// UTMALDG [to], [map], ranks: behind the register of the address in shared memory that of the barrier, then coordinates.
// UTMASTG, UTMAREDG [from], [map]: behind that of the address coordinates. UTMAPF [coordinates], [map].
static void copy_box(const Context *at) {
    const Instruction *instruction = at->instruction;
    const Warp *warp = at->warp;
    const bool loads = instruction->extra & LOADS, is_multicast = instruction->extra & MULTICASTS;
    const uint32_t first = instruction->operands[0].index, address = uniform_of(warp, first);
    Box box;
    if (!box_of(at, uniform_pair(warp, instruction->operands[1].index), first + (loads ? 2 : instruction->extra & PREFETCHES ? 0 : 1), &box)) return;
    if (instruction->extra & PREFETCHES) {  // into L2
        record_box(at, &box, at->block->rank << 24, 0);
        return;
    }
    if (address % 128) {
        at->block->launch->error = STOP_ALIGNMENT;
        fail(at, "a copy of a tensor has shared address 0x%x, which is not aligned to 128 bytes", address & (WINDOW_BYTES - 1));
        return;
    }
    const uint32_t mask = is_multicast ? uniform_of(warp, instruction->operands[2].number) >> 16 : 0;
    uint32_t ranks = receivers(address, is_multicast, mask);
    const uint32_t barrier = loads ? uniform_of(warp, first + 1) : at->block->rank << 24;
    record_box(at, &box, barrier, is_multicast ? ranks : 0);
    at->block->changes++;
    if (!move_box(at, &box, address, ranks) || !loads) return;
    for (; ranks; ranks &= ranks - 1) {
        const uint32_t place = is_multicast ? lowest(ranks) << 24 | (barrier & (WINDOW_BYTES - 1)) : barrier;
        if (!complete_transaction(at, place, box.bytes)) return;
    }
}

bool execute_tensor(const Context *at) {
    if (at->instruction->op != OP_TENSOR_COPY) return false;
    copy_box(at);
    return true;
}

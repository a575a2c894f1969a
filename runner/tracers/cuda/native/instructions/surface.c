// Surfaces: reads, writes and reductions of bytes of an array, at an x in bytes (PTX ISA: suld.b, sust.b, sured.b).
#include "texture.h"
#include "track.h"
#include "warp.h"

enum { BOUNDARY_CLAMPS, BOUNDARY_IGNORES, BOUNDARY_TRAPS };

static uint32_t clamped(uint32_t place, uint32_t least, uint32_t most) {
    return (int32_t)place < (int32_t)least ? least : place > most ? most : place;
}

// Where a lane's bytes stand; 0: outside, and that is no mistake; or the launch stops.
static uint64_t place_in(const Context *at, const Texture *surface, const uint32_t *coordinate, int lane) {
    const Instruction *instruction = at->instruction;
    const uint32_t dimensions = instruction->extra & 3, is_layered = instruction->extra >> 2 & 1;
    const uint32_t boundary = instruction->extra >> 4 & 3, size = instruction->size;
    const uint32_t row = surface->width * surface->channels * surface->bits / 8;
    uint32_t x = coordinate[0], y = dimensions > 1 ? coordinate[1] : 0;
    uint32_t z = dimensions > 2 || is_layered ? coordinate[dimensions == 1 ? 1 : 2] : 0;
    const uint32_t slices = is_layered ? surface->layers : surface->depth;
    if (x % size) {
        at->block->launch->error = STOP_ALIGNMENT;
        fail(at, "x of a surface, %u bytes, is not a multiple of %u", x, size);
        return 0;
    }
    if (x >= row || x + size > row || y >= surface->height || z >= slices) {
        if (boundary == BOUNDARY_IGNORES) return 0;
        if (boundary == BOUNDARY_TRAPS) {
            at->block->launch->error = STOP_ADDRESS;
            fail(at, "thread (%u,%u,%u) of block (%u,%u,%u) accesses byte %d of row %d of slice %d of a surface of %u bytes by %u "
                 "rows by %u", at->warp->tid[0][lane], at->warp->tid[1][lane], at->warp->tid[2][lane], at->block->ctaid[0],
                 at->block->ctaid[1], at->block->ctaid[2], (int)x, (int)y, (int)z, row, surface->height, slices);
            return 0;
        }
        x = clamped(x, 0, row - size);
        y = clamped(y, 0, surface->height - 1);
        z = clamped(z, 0, slices - 1);
    }
    return surface->base + z * surface->slice + texel_offset(surface, x, y);
}

static uint64_t reduced(const Instruction *instruction, uint64_t old, uint64_t value) {
    const uint32_t type = instruction->extra >> 16 & 0xff;
    bool less = value < old;
    if (type == TYPE_S32) less = (int32_t)value < (int32_t)old;
    if (type == TYPE_S64) less = (int64_t)value < (int64_t)old;
    switch (instruction->extra >> 8 & 0xff) {
    case ATOMIC_ADD: return old + value;
    case ATOMIC_MIN: return less ? value : old;
    case ATOMIC_MAX: return less ? old : value;
    case ATOMIC_AND: return old & value;
    case ATOMIC_OR: return old | value;
    default: return old ^ value;
    }
}

static void access_lane(const Context *at, uint64_t address, int lane, uint32_t (*data)[LANES]) {
    const Instruction *instruction = at->instruction;
    uint8_t *place = (uint8_t *)(uintptr_t)address, bytes[16] = {0};
    const uint32_t size = instruction->size, words = size > 4 ? size / 4 : 1;
    struct Tracker *tracker = at->block->tracker;
    if (instruction->op == OP_SULD) {
        if (tracker) track_read(tracker, address, size);
        memcpy(bytes, place, size);
        for (uint32_t k = 0; k < words; k++) memcpy(&data[k][lane], bytes + 4 * k, 4);
        if (instruction->modifiers & IS_SIGNED)
            data[0][lane] = size == 1 ? (uint32_t)(int32_t)(int8_t)bytes[0] : (uint32_t)(int32_t)(int16_t)data[0][lane];
        return;
    }
    for (uint32_t k = 0; k < words; k++) memcpy(bytes + 4 * k, &data[k][lane], 4);
    if (tracker && instruction->op == OP_SUST) track_written(tracker, address, bytes, size);
    if (instruction->op == OP_SURED) {
        if (tracker) track_updated(tracker, address, size);
        uint64_t old = 0, value = 0;
        memcpy(&old, place, size), memcpy(&value, bytes, size);
        value = reduced(instruction, old, value);
        memcpy(bytes, &value, size);
    }
    memcpy(place, bytes, size);
}

static void access_surface(const Context *at) {
    const Instruction *instruction = at->instruction;
    const bool is_read = instruction->op == OP_SULD;
    const int words = instruction->size > 4 ? instruction->size / 4 : 1;
    uint32_t data[4][LANES] = {{0}}, coordinate[3][LANES] = {{0}}, tmp[LANES], more[LANES];
    uint64_t reached[LANES];
    uint32_t count = 0;
    const uint32_t *handles = plain(at, &instruction->operands[1], 0, tmp);
    for (int k = 0; k < 3; k++)
        if (instruction->operands[2 + k].kind == OPERAND_REGISTER)
            memcpy(coordinate[k], plain(at, &instruction->operands[2 + k], 0, more), sizeof coordinate[k]);
    for (int k = 0; k < words && !is_read; k++) memcpy(data[k], plain(at, &instruction->operands[0], k, more), sizeof data[k]);
    EACH_LANE {
        if (!(at->mask >> lane & 1)) continue;
        const Texture *surface = texture_of(at, handles[lane]);
        if (surface == NULL || (surface->layers > 0) != (instruction->extra >> 2 & 1)) {
            fail(at, surface ? "accesses surface %#x with layers as one without, or the reverse" : "accesses surface %#x, which does not exist", handles[lane]);
            return;
        }
        const uint32_t own[3] = {coordinate[0][lane], coordinate[1][lane], coordinate[2][lane]};
        const uint64_t address = place_in(at, surface, own, lane);
        if (at->block->launch->problem[0]) return;
        if (address == 0) continue;
        access_lane(at, address, lane, data);
        reached[count++] = address;
    }
    for (int k = 0; k < words && is_read; k++) set_word(at, &instruction->operands[0], k, data[k]);
    record_pieces(at, reached, count, instruction->size);
}

bool execute_surface(const Context *at) {
    if (at->instruction->op != OP_SULD && at->instruction->op != OP_SUST && at->instruction->op != OP_SURED) return false;
    access_surface(at);
    return true;
}

// Reads of textures: NVIDIA, CUDA C++ Programming Guide, "Texture Fetching" (nearest and linear filters, address modes,
// weights in nine bits of fixed point, eight of them behind the point) and PTX ISA (tex, tld4, txq).
//
// Not published are how a weight is rounded (to the nearest here) and in which precision texels are summed (double here,
// rounded once to single).
#include "texture.h"
#include "track.h"
#include "halves.h"
#include "warp.h"

enum { MOST_TEXELS = 8, COMPONENTS = 4 };

// What a lane found: numbers, or the bits of integers.
typedef struct {
    double number[COMPONENTS];
    uint32_t bits[COMPONENTS];
} Texel;

typedef struct {
    uint64_t address[LANES * MOST_TEXELS];  // of the texels that lanes read
    uint32_t count;
} Reached;

static bool gives_numbers(const Texture *texture) { return texture->kind == TEXEL_FLOAT || texture->reads_normalised; }

static double channel_number(const Texture *texture, uint32_t bits) {
    float single;
    if (texture->kind == TEXEL_FLOAT) {
        if (texture->bits == 16) return half_value((uint16_t)bits);
        memcpy(&single, &bits, 4);
        return single;
    }
    const double most = texture->kind == TEXEL_UNSIGNED ? (double)((1u << texture->bits) - 1) : (double)((1u << (texture->bits - 1)) - 1);
    if (texture->kind == TEXEL_UNSIGNED) return (float)(bits / most);
    const double value = (float)((int32_t)bits / most);
    return value < -1 ? -1 : value;
}

static uint32_t channel_bits(const Texture *texture, const uint8_t *from) {
    uint32_t bits = 0;
    memcpy(&bits, from, texture->bits / 8);
    if (texture->kind == TEXEL_SIGNED && texture->bits < 32) {
        const uint32_t shift = 32 - texture->bits;
        bits = (uint32_t)((int32_t)(bits << shift) >> shift);
    }
    return bits;
}

// The texel of a dimension that an index means; -1: that of the border.
static int64_t placed(int64_t index, int64_t size, int mode) {
    if (index >= 0 && index < size) return index;
    if (mode == TEXTURE_BORDERS) return -1;
    if (mode == TEXTURE_CLAMPS) return index < 0 ? 0 : size - 1;
    int64_t turn = index % (mode == TEXTURE_WRAPS ? size : 2 * size);
    if (turn < 0) turn += mode == TEXTURE_WRAPS ? size : 2 * size;
    return turn < size ? turn : 2 * size - 1 - turn;
}

static void read_texel(const Texture *texture, const int64_t *at, uint64_t slice, Texel *into, Reached *reached) {
    const int64_t size[3] = {texture->width, texture->height, texture->depth};
    int64_t place[3] = {0, 0, 0};
    bool is_border = false;
    memset(into, 0, sizeof *into);
    for (int k = 0; k < texture->dimensions; k++) {
        place[k] = placed(at[k], size[k], texture->address[k]);
        is_border |= place[k] < 0;
    }
    if (is_border) {
        for (int k = 0; k < COMPONENTS; k++) into->number[k] = texture->border[k];
        for (int k = 0; k < COMPONENTS; k++) into->bits[k] = (uint32_t)(int64_t)texture->border[k];
        return;
    }
    const uint64_t texel_bytes = (uint64_t)texture->channels * texture->bits / 8;
    const uint64_t begin = texture->base + (slice + (uint64_t)place[2]) * texture->slice;
    const uint64_t address = begin + texel_offset(texture, (uint64_t)place[0] * texel_bytes, (uint64_t)place[1]);
    reached->address[reached->count++] = address;
    for (int k = 0; k < texture->channels; k++) {
        into->bits[k] = channel_bits(texture, (const uint8_t *)(uintptr_t)address + k * texture->bits / 8);
        if (gives_numbers(texture)) into->number[k] = channel_number(texture, into->bits[k]);
    }
}

static int64_t whole(double value) {  // far away, or no number: as far as a texture can be
    if (!(value > -1e9)) return value <= -1e9 ? -1000000000 : 0;
    return value < 1e9 ? (int64_t)floor(value) : 1000000000;
}

// Texels between which a coordinate lies, and the weight of the second.
static double between(double coordinate, int64_t *first) {
    const double moved = coordinate - 0.5;
    *first = whole(moved);
    const double rest = moved - (double)*first;
    return rest >= 0 && rest <= 1 ? nearbyint(rest * 256) / 256 : 0;
}

static void filtered(const Texture *texture, const double *coordinate, uint64_t slice, Texel *into, Reached *reached) {
    int64_t first[3] = {0, 0, 0}, at[3];
    double weight[3] = {0, 0, 0};
    memset(into, 0, sizeof *into);
    for (int k = 0; k < texture->dimensions; k++) weight[k] = between(coordinate[k], &first[k]);
    for (int corner = 0; corner < 1 << texture->dimensions; corner++) {
        Texel texel;
        double share = 1;
        for (int k = 0; k < texture->dimensions; k++) {
            const bool is_second = corner >> k & 1;
            at[k] = first[k] + is_second;
            share *= is_second ? weight[k] : 1 - weight[k];
        }
        read_texel(texture, at, slice, &texel, reached);
        if (share == 0) continue;
        for (int k = 0; k < COMPONENTS; k++) into->number[k] += share * texel.number[k];
    }
}

static uint64_t layer_of(const Texture *texture, uint32_t asked) {
    if (!texture->layers) return 0;
    return asked < texture->layers ? asked : texture->layers - 1;
}

// Coordinates of a lane in texels.
static void coordinates_of(const Context *at, const Texture *texture, uint32_t *const words[4], int lane, double *into) {
    const uint32_t size[3] = {texture->width, texture->height, texture->depth};
    for (int k = 0; k < texture->dimensions; k++) {
        const uint32_t bits = words[1 + k] ? words[1 + k][lane] : 0;
        float value;
        memcpy(&value, &bits, 4);
        if (at->instruction->op == OP_TLD) into[k] = (int32_t)bits;
        else if (texture->is_normalised) into[k] = value * (float)size[k];
        else into[k] = value;
    }
}

static void gathered(const Texture *texture, const double *coordinate, uint64_t slice, uint32_t component, Texel *into, Reached *reached) {
    static const int corner[4][2] = {{0, 1}, {1, 1}, {1, 0}, {0, 0}};  // against the clock, from the lower left
    int64_t first[3] = {0, 0, 0};
    for (int k = 0; k < 2; k++) between(coordinate[k], &first[k]);
    for (int k = 0; k < 4; k++) {
        Texel texel;
        const int64_t at[3] = {first[0] + corner[k][0], first[1] + corner[k][1], 0};
        read_texel(texture, at, slice, &texel, reached);
        into->number[k] = texel.number[component];
        into->bits[k] = texel.bits[component];
    }
}

static void sample(const Context *at, const Texture *texture, const double *coordinate, uint64_t slice, Texel *into, Reached *reached) {
    int64_t place[3] = {0, 0, 0};
    if (at->instruction->op == OP_TLD4) {
        gathered(texture, coordinate, slice, at->instruction->extra >> 8 & 3, into, reached);
    } else if (texture->is_filtered && at->instruction->op == OP_TEX) {
        filtered(texture, coordinate, slice, into, reached);
    } else {
        for (int k = 0; k < texture->dimensions; k++) place[k] = whole(coordinate[k]);
        read_texel(texture, place, slice, into, reached);
    }
}

// What the instruction asks of a texture that has fewer or more dimensions, or no layers.
static bool fits(const Context *at, const Texture *texture, uint32_t handle) {
    const uint32_t dimensions = at->instruction->extra & 3, is_layered = at->instruction->extra >> 2 & 1;
    if (texture == NULL) {
        fail(at, "reads texture object %#x, which does not exist", handle);
        return false;
    }
    const bool is_wide_enough = dimensions == texture->dimensions || (dimensions == 2 && texture->dimensions == 1);
    if (!is_wide_enough || is_layered != (texture->layers > 0) || (at->instruction->op == OP_TLD4 && texture->dimensions != 2)) {
        fail(at, "reads a texture of %u dimensions and %u layers as one of %u dimensions%s", texture->dimensions,
             texture->layers, dimensions, is_layered ? " with layers" : "");
        return false;
    }
    return true;
}

static void set_component(const Context *at, uint32_t number, const uint32_t *values) {
    const Operand *pair = &at->instruction->operands[number < 2];
    if (pair->number != NO_ROW) set_word(at, pair, (int)(number & 1), values);
}

static void read_texture(const Context *at) {
    const Instruction *instruction = at->instruction;
    uint32_t room[5][LANES], into[COMPONENTS][LANES] = {{0}};
    uint32_t *words[4] = {NULL};
    const uint32_t *handles = plain(at, &instruction->operands[2], 0, room[4]);
    Reached reached = {.count = 0};
    uint32_t bytes = 4;
    for (int k = 0; k < 4; k++)
        if (instruction->operands[3 + k].kind == OPERAND_REGISTER) {
            memcpy(room[k], plain(at, &instruction->operands[3 + k], 0, into[0]), sizeof room[k]);
            words[k] = room[k];
        }
    EACH_LANE {
        if (!(at->mask >> lane & 1)) continue;
        const Texture *texture = texture_of(at, handles[lane]);
        if (!fits(at, texture, handles[lane])) return;
        double coordinate[3];
        Texel found;
        coordinates_of(at, texture, words, lane, coordinate);
        sample(at, texture, coordinate, layer_of(texture, words[0] ? words[0][lane] : 0), &found, &reached);
        for (int k = 0; k < COMPONENTS; k++) {
            const float number = (float)found.number[k];
            if (gives_numbers(texture)) memcpy(&into[k][lane], &number, 4);
            else into[k][lane] = found.bits[k];
        }
        bytes = texture->channels * texture->bits / 8u;
    }
    for (uint32_t k = 0, given = 0; k < COMPONENTS; k++)
        if (instruction->extra >> (4 + k) & 1) set_component(at, given++, into[k]);
    for (uint32_t k = 0; at->block->tracker && k < reached.count; k++) track_read(at->block->tracker, reached.address[k], bytes);
    record_pieces(at, reached.address, reached.count, bytes);
}

static void query(const Context *at) {
    const Instruction *instruction = at->instruction;
    uint32_t tmp[LANES], into[3][LANES];
    const uint32_t *handles = plain(at, &instruction->operands[2], 0, tmp);
    EACH_LANE {
        if (!(at->mask >> lane & 1)) continue;
        const Texture *texture = texture_of(at, handles[lane]);
        if (texture == NULL) {
            fail(at, "asks for texture object %#x, which does not exist", handles[lane]);
            return;
        }
        into[0][lane] = texture->width;
        into[1][lane] = texture->height;
        into[2][lane] = texture->layers ? texture->layers : texture->depth;
    }
    for (uint32_t k = 0, given = 0; k < 3; k++)
        if (instruction->extra >> (4 + k) & 1) set_component(at, given++, into[k]);
}

const Texture *texture_of(const Context *at, uint32_t handle) {
    const Launch *launch = at->block->launch;
    return launch->find_texture ? launch->find_texture(handle) : NULL;
}

bool execute_texture(const Context *at) {
    switch (at->instruction->op) {
    case OP_TEX: case OP_TLD: case OP_TLD4: read_texture(at); return true;
    case OP_TXQ: query(at); return true;
    default: return execute_surface(at);
    }
}

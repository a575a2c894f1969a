// Loads, stores and copies in global, shared, local and constant memory.
#include "access.h"
#include "track.h"
#include "warp.h"

static uint64_t wide_uniform(const Warp *warp, uint32_t number) {
    return (uint64_t)uniform_of(warp, number + (number < NO_UNIFORM)) << 32 | uniform_of(warp, number);
}

void addresses_of(const Context *at, const Operand *operand, uint64_t *into) {
    const Warp *warp = at->warp;
    uint32_t scale = at->instruction->modifiers >> SCALE_SHIFT & 7;
    bool is_wide = operand->flags & FLAG_WIDE, uniform_is_wide = operand->flags & FLAG_HIGH;
    uint64_t base = (uint64_t)(int64_t)(int32_t)operand->value;
    base += uniform_is_wide ? wide_uniform(warp, operand->index) : uniform_of(warp, operand->index);
    if (operand->number == NO_ROW) {
        EACH_LANE into[lane] = base;
    } else {
        const uint32_t *low = warp->registers[operand->number];
        const uint32_t *high = is_wide ? warp->registers[operand->number + 1] : low;
        EACH_LANE into[lane] = ((is_wide ? (uint64_t)high[lane] << 32 | low[lane] : (uint64_t)low[lane]) << scale) + base;
    }
    if (!is_wide && !uniform_is_wide) EACH_LANE into[lane] &= 0xffffffffu;
}

static void outside(const Context *at, const char *space, uint64_t address, int lane) {
    const Warp *warp = at->warp;
    at->block->launch->error = STOP_ADDRESS;
    fail(at, "thread (%u,%u,%u) of block (%u,%u,%u) accesses %u bytes at %s address 0x%llx, outside of what is allocated",
         warp->tid[0][lane], warp->tid[1][lane], warp->tid[2][lane], at->block->ctaid[0], at->block->ctaid[1],
         at->block->ctaid[2], at->instruction->size, space, (unsigned long long)address);
}

static bool is_global(const Context *at, uint64_t address, uint32_t size) {
    Block *block = at->block;
    int (*find)(uint64_t, uint64_t *, uint64_t *) = block->tracker ? block->tracker->find_allocation : block->launch->find_allocation;
    for (uint32_t k = 0; k < NUM_KNOWN; k++)
        if (address >= block->known[k].low && address < block->known[k].high && address + size <= block->known[k].high) return true;
    if (find == NULL) return true;
    const uint64_t constants = (uint64_t)(uintptr_t)block->banks[0];  // parameters whose address was taken
    if (address >= constants && address + size <= constants + block->bank_bytes[0]) return true;
    uint64_t low, high;
    if (!find(address, &low, &high) || address + size > high) return false;
    block->known[block->next_known].low = low;
    block->known[block->next_known].high = high;
    block->next_known = (block->next_known + 1) % NUM_KNOWN;
    return true;
}

// Notes for workers what a lane does to global memory; stores and atomics note it themselves, with what they write.
static void follow(const Context *at, uint64_t address) {
    const uint32_t op = at->instruction->op;
    if (op == OP_LOAD || op == OP_LDGSTS) track_read(at->block->tracker, address, at->instruction->size);
    else if (op != OP_STORE && op != OP_ATOMIC) track_updated(at->block->tracker, address, at->instruction->size);
}

// The same for all lanes that read; those that lie one behind the other at once.
static void follow_reads(const Context *at, const uint64_t *addresses) {
    const uint32_t size = at->instruction->size;
    uint64_t start = addresses[lowest(at->mask)], end = start;
    EACH_LANE {
        if (!(at->mask >> lane & 1)) continue;
        const uint64_t address = addresses[lane];
        if (address == end) {
            end += size;
        } else if (address < start || address + size > end) {
            track_read(at->block->tracker, start, (uint32_t)(end - start));
            start = address;
            end = address + size;
        }
    }
    track_read(at->block->tracker, start, (uint32_t)(end - start));
}

static void follow_store(const Context *at, int lane, uint64_t address, const uint32_t *const *values, int words) {
    uint32_t together[4];
    for (int word = 0; word < words; word++) together[word] = values[word][lane];
    track_written(at->block->tracker, address, together, at->instruction->size);
}

uint8_t *shared_place(const Block *block, uint32_t address, uint32_t size) {
    const uint32_t rank = address >> 24, offset = address & (WINDOW_BYTES - 1);
    if (rank != block->rank) {
        if (rank >= block->num_peers) return NULL;
        block = block->peers[rank];
    }
    return (uint64_t)offset + size <= block->shared_bytes ? block->shared + offset : NULL;
}

uint8_t *place_of(const Context *at, int space, uint64_t address, int lane) {
    Block *block = at->block;
    uint32_t size = at->instruction->size;
    if (size > 1 && address % (size < 16 ? size : 16)) {
        at->block->launch->error = STOP_ALIGNMENT;
        fail(at, "address 0x%llx is not aligned to %u bytes", (unsigned long long)address, size);
        return NULL;
    }
    if (space == SPACE_SHARED) {
        uint8_t *place = shared_place(block, (uint32_t)address, size);
        if (place != NULL) return place;
        outside(at, "shared", address & (WINDOW_BYTES - 1), lane);
    } else if (space == SPACE_LOCAL) {
        address &= WINDOW_BYTES - 1;
        at->warp->has_local = true;
        if (address + size <= block->local_bytes) return at->warp->local + (size_t)lane * block->local_bytes + address;
        outside(at, "local", address, lane);
    } else {
        if (is_global(at, address, size)) {
            if (block->tracker) follow(at, address);
            return (uint8_t *)(uintptr_t)address;
        }
        outside(at, "global", address, lane);
    }
    return NULL;
}

uint8_t *global_place(const Context *at, uint64_t address, uint32_t size) {
    if (at->block->tracker) {
        fail(at, "a copy that workers do not follow: the blocks run again");
        return NULL;
    }
    if (is_global(at, address, size)) return (uint8_t *)(uintptr_t)address;
    at->block->launch->error = STOP_ADDRESS;
    fail(at, "block (%u,%u,%u) accesses %u bytes at global address 0x%llx, outside of what is allocated", at->block->ctaid[0],
         at->block->ctaid[1], at->block->ctaid[2], size, (unsigned long long)address);
    return NULL;
}

// Where the bytes of all lanes stand, where that needs one look: they lie in one allocation, or in the block's own memory,
// and are aligned. Lanes that do not execute get the place of one that does. False: each lane needs a look of its own.
static bool places_of(const Context *at, int space, const uint64_t *addresses, uint8_t *places[LANES]) {
    const Block *block = at->block;
    const uint64_t size = at->instruction->size, first = lowest(at->mask);
    const bool is_global = space == SPACE_GLOBAL;
    uint64_t low = 0, high = space == SPACE_SHARED ? block->shared_bytes : block->local_bytes, wrong = 0;
    if (at->instruction->modifiers & GENERIC) return false;
    if (is_global) {
        uint32_t k = 0;
        while (k < NUM_KNOWN && !(addresses[first] >= block->known[k].low && addresses[first] < block->known[k].high)) k++;
        if (k == NUM_KNOWN) return false;
        low = block->known[k].low;
        high = block->known[k].high;
    }
    // of shared memory that of this block alone: another rank gives an offset outside
    const uint64_t keep = is_global ? ~0ull : space == SPACE_SHARED ? 0xffffffffu : WINDOW_BYTES - 1;
    const uint64_t own = space == SPACE_SHARED ? (uint64_t)block->rank << 24 : 0;
    uint64_t offsets[LANES];
    EACH_LANE {
        const uint64_t offset = ((at->mask >> lane & 1 ? addresses[lane] : addresses[first]) & keep) - own;
        wrong |= (uint64_t)(offset < low || offset >= high) | (uint64_t)(offset + size > high) | (offset & (size - 1));
        offsets[lane] = offset;
    }
    if (wrong) return false;
    if (is_global) EACH_LANE places[lane] = (uint8_t *)(uintptr_t)offsets[lane];
    else if (space == SPACE_SHARED) EACH_LANE places[lane] = block->shared + offsets[lane];
    else EACH_LANE places[lane] = at->warp->local + (size_t)lane * block->local_bytes + offsets[lane];
    return true;
}

// The window that a generic address lies in.
int window_of(const Context *at, uint64_t address) {
    const Launch *launch = at->block->launch;
    if (address - launch->shared_base < 1ull << 32) return SPACE_SHARED;
    if (address - launch->local_base < WINDOW_BYTES) return SPACE_LOCAL;
    return SPACE_GLOBAL;
}

int space_of(const Context *at, const uint64_t *addresses) {
    const Instruction *instruction = at->instruction;
    if (!(instruction->modifiers & GENERIC) || !at->mask) return instruction->space;
    return window_of(at, addresses[lowest(at->mask)]);
}

static uint32_t extended(const Instruction *instruction, const uint8_t *from) {
    uint32_t value = 0;
    memcpy(&value, from, instruction->size < 4 ? instruction->size : 4);
    if (instruction->modifiers & IS_SIGNED && instruction->size == 1) return (uint32_t)(int32_t)(int8_t)value;
    if (instruction->modifiers & IS_SIGNED && instruction->size == 2) return (uint32_t)(int32_t)(int16_t)value;
    return value;
}

static void load(const Context *at) {
    const Instruction *instruction = at->instruction;
    uint64_t addresses[LANES];
    int words = instruction->size > 4 ? instruction->size / 4 : 1;
    uint32_t into[4][LANES];
    addresses_of(at, &instruction->operands[1], addresses);
    int space = space_of(at, addresses);
    uint8_t *places[LANES];
    if (places_of(at, space, addresses, places)) {
        if (at->block->tracker && space == SPACE_GLOBAL) follow_reads(at, addresses);
        if (words == 1 && instruction->size == 4) EACH_LANE memcpy(&into[0][lane], places[lane], 4);
        else if (words == 1) EACH_LANE into[0][lane] = extended(instruction, places[lane]);
        else for (int word = 0; word < words; word++) EACH_LANE memcpy(&into[word][lane], places[lane] + 4 * word, 4);
    } else EACH_LANE {
        if (!(at->mask >> lane & 1)) continue;
        int own = instruction->modifiers & GENERIC ? window_of(at, addresses[lane]) : space;
        const uint8_t *from = place_of(at, own, addresses[lane], lane);
        if (from == NULL) return;
        if (words == 1) into[0][lane] = extended(instruction, from);
        else for (int word = 0; word < words; word++) memcpy(&into[word][lane], from + 4 * word, 4);
    }
    for (int word = 0; word < words; word++) set_word(at, &instruction->operands[0], word, into[word]);
    if (instruction->modifiers & STRONG) poll(at, addresses[lowest(at->mask)], into[0][lowest(at->mask)]);
    record_accesses(at, addresses, space);
    record_addresses(at, addresses);
}

// Writes bytes of a lane; a block that is watched notes whether they change.
static inline void put(Block *block, uint8_t *to, const uint32_t *from, size_t bytes) {
    if (block->watches) block->changes += memcmp(to, from, bytes) != 0;
    memcpy(to, from, bytes);
}

static void store(const Context *at) {
    const Instruction *instruction = at->instruction;
    uint64_t addresses[LANES];
    uint32_t tmp[4][LANES];
    const uint32_t *values[4];
    int words = instruction->size > 4 ? instruction->size / 4 : 1;
    addresses_of(at, &instruction->operands[0], addresses);
    int space = space_of(at, addresses);
    for (int word = 0; word < words; word++) values[word] = plain(at, &instruction->operands[1], word, tmp[word]);
    uint8_t *places[LANES];
    if (places_of(at, space, addresses, places)) {
        at->warp->has_local |= space == SPACE_LOCAL;
        const size_t bytes = words == 1 && instruction->size < 4 ? instruction->size : 4;
        if (at->block->tracker && space == SPACE_GLOBAL)
            EACH_LANE if (at->mask >> lane & 1) follow_store(at, lane, addresses[lane], values, words);
        EACH_LANE if (at->mask >> lane & 1)
            for (int word = 0; word < words; word++) put(at->block, places[lane] + 4 * word, &values[word][lane], bytes);
    } else EACH_LANE {
        if (!(at->mask >> lane & 1)) continue;
        int own = instruction->modifiers & GENERIC ? window_of(at, addresses[lane]) : space;
        uint8_t *to = place_of(at, own, addresses[lane], lane);
        if (to == NULL) return;
        if (at->block->tracker && own == SPACE_GLOBAL) follow_store(at, lane, addresses[lane], values, words);
        const size_t bytes = instruction->size < 4 ? instruction->size : 4;
        for (int word = 0; word < words; word++) put(at->block, to + 4 * word, &values[word][lane], bytes);
    }
    record_accesses(at, addresses, space);
    record_addresses(at, addresses);
}

// LDC d, c[bank][register + offset]
static void load_constant(const Context *at) {
    const Instruction *instruction = at->instruction;
    const Operand *source = &instruction->operands[1];
    uint32_t words = instruction->size > 4 ? instruction->size / 4 : 1, tmp[LANES], into[4][LANES];
    const uint32_t *offset = NULL;
    if (source->flags & FLAG_INDEXED) {
        Operand index = {.kind = source->flags & FLAG_HIGH ? OPERAND_UNIFORM : OPERAND_REGISTER, .number = source->index};
        offset = plain(at, &index, 0, tmp);
    }
    const Block *block = at->block;
    EACH_LANE {
        if (!(at->mask >> lane & 1)) continue;
        uint32_t place = source->value + (offset ? offset[lane] : 0);
        if (source->number >= NUM_BANKS || (uint64_t)place + instruction->size > block->bank_bytes[source->number]) {
            fail(at, "constant c[0x%x][0x%x] lies outside the bank", source->number, place);
            return;
        }
        const uint8_t *from = block->banks[source->number] + place;
        if (words == 1) into[0][lane] = extended(instruction, from);
        else for (uint32_t word = 0; word < words; word++) memcpy(&into[word][lane], from + 4 * word, 4);
    }
    for (uint32_t word = 0; word < words; word++) set_word(at, &instruction->operands[0], (int)word, into[word]);
}

// QSPC p, address: lanes whose generic address is one of the space that ``extra`` has.
static void ask(const Context *at) {
    uint64_t addresses[LANES];
    uint32_t held = 0;
    addresses_of(at, &at->instruction->operands[1], addresses);
    EACH_LANE held |= (uint32_t)((uint32_t)window_of(at, addresses[lane]) == (at->instruction->extra & 0xffff)) << lane;
    set_predicate(at, 0, held);
}

// LDGSTS [shared], [global]: a copy; with a false predicate zeros are written.
static void copy(const Context *at) {
    const Instruction *instruction = at->instruction;
    uint64_t to[LANES], from[LANES];
    addresses_of(at, &instruction->operands[0], to);
    addresses_of(at, &instruction->operands[1], from);
    uint32_t copies = instruction->operands[2].kind == OPERAND_NONE ? 0xffffffffu : predicate(at, 2);
    EACH_LANE {
        if (!(at->mask >> lane & 1)) continue;
        uint8_t *shared = place_of(at, SPACE_SHARED, to[lane], lane);
        if (shared == NULL) return;
        if (!(copies >> lane & 1)) {
            memset(shared, 0, instruction->size);
            continue;
        }
        const uint8_t *global = place_of(at, SPACE_GLOBAL, from[lane], lane);
        if (global == NULL) return;
        memcpy(shared, global, instruction->size);
    }
    Context copied = *at;
    copied.mask &= copies;
    record_accesses(&copied, from, SPACE_GLOBAL);
    record_addresses(at, from);
}

bool execute_memory(const Context *at) {
    switch (at->instruction->op) {
    case OP_LOAD: load(at); return true;
    case OP_STORE: store(at); return true;
    case OP_LDC: load_constant(at); return true;
    case OP_QSPC: ask(at); return true;
    case OP_ATOMIC: execute_atomic(at); return true;
    case OP_LDGSTS: copy(at); return true;
    default: return false;
    }
}

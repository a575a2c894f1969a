// State of warps and blocks while a launch is interpreted, and how instructions read and write it.
#ifndef MANYSCALE_WARP_H
#define MANYSCALE_WARP_H

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "ops.h"
#include "sass.h"

enum { NO_ROW = 255, NO_UNIFORM = 255, PT = 7, NUM_BARRIERS = 16, NUM_BLOCK_BARRIERS = 16, NUM_WARP_GROUPS = 8, WARPS_OF_GROUP = 4, WINDOW_BYTES = 1 << 24 };
enum { UNIFORM_REGISTERS = 256, NUM_KNOWN = 8 };

// Lanes of a warp that execute together.
enum GroupState { READY, AT_CONVERGENCE, AT_WARP_BARRIER, AT_BLOCK_BARRIER, AT_CLUSTER_BARRIER };
typedef struct {
    uint32_t mask, pc;   // index of the next instruction
    uint8_t state, barrier;
    uint32_t named;      // lanes that it waits for at WARPSYNC
} Group;

typedef struct {
    int32_t *row;
    uint8_t *active, *accesses;
    int64_t *sector;
    uint32_t *written;
    uint32_t num_rows, num_sectors, room_rows, room_sectors;
    uint32_t *mask;                // of each row, where lanes are kept
    uint8_t *lanes;                // of each row: its addresses
    int64_t *address;
    uint32_t num_addresses, room_addresses;
    int64_t *word;                 // of asynchronous operations (words.h)
    uint32_t num_words, room_words, copy;  // the last copy's first word
    struct {                       // a look at a barrier in shared memory that found its phase open
        bool is_set;
        uint32_t row, words, addresses, sectors;  // where it stands in the record
        uint32_t address, parity, mask;
    } open;
} Record;

typedef struct {
    uint32_t (*registers)[LANES];
    uint32_t predicates[8];        // masks of lanes; 7 is PT
    uint32_t uniforms[UNIFORM_REGISTERS];
    uint32_t uniform_predicates[8];  // all lanes or none
    uint32_t barriers[NUM_BARRIERS];
    Group groups[LANES + 1];       // the last one that is ready runs
    int num_groups;
    uint32_t alive;
    uint32_t index;                // in the block
    uint32_t tid[3][LANES];
    uint8_t *local;                // LANES pieces of local_bytes
    bool has_local;                // something was written there
    uint32_t at_cluster;           // lanes that arrived at the cluster's barrier, which is not complete yet
    uint32_t since;                // instructions since a group of lanes had its turn
    bool polls;                    // it asked memory again for what it was told before: others may run
    uint32_t poll_pc;              // of the last such question: where, for which address, and the answer
    uint64_t poll_address, poll_answer;
    Record record;
} Warp;

typedef struct {
    uint32_t arrived;              // threads that went on without waiting (BAR.ARV)
    uint32_t expected;             // threads, 0: all of the block
    uint32_t red_kind, red_count, red_and, red_or, result_kind, result_count, result_and, result_or;
} BlockBarrier;

// Where records go: a file, or where it is NULL bytes in memory.
typedef struct {
    FILE *file;
    uint8_t *bytes;
    size_t count, room;
} Sink;

typedef struct Cluster Cluster;
typedef struct Block {
    Launch *launch;
    const Kernel *kernel;
    uint32_t ctaid[3];
    uint64_t number;               // in the grid
    uint32_t num_threads, num_warps, num_registers;
    uint32_t local_bytes;          // of a thread
    uint8_t *shared;
    uint32_t shared_bytes;
    Warp *warps;
    BlockBarrier barriers[NUM_BLOCK_BARRIERS + NUM_WARP_GROUPS];  // of the block; of each group of four warps
    bool has_warp_groups;          // whether the latter are in use
    const uint8_t *banks[NUM_BANKS];
    uint32_t bank_bytes[NUM_BANKS];
    uint64_t executed;
    struct { uint64_t low, high; } known[NUM_KNOWN];  // allocations that were accessed last
    uint32_t next_known;
    bool records, counts_only, keeps_lanes;
    // The blocks of its cluster by their ranks, this one among them; NULL where it stands alone, with rank 0. A shared
    // address holds the rank of its block in bits 24 to 31.
    uint32_t fruitless;            // looks at barriers in shared memory that found nothing new, one after the other
    struct Block **peers;
    uint32_t rank, num_peers;
    Sink *record, *lanes;          // where they are written
    struct Tracker *tracker;       // of a worker, else NULL
    Cluster *cluster;
    uint64_t begun;                // `executed` when the block began
    bool watches, has_ended;
    uint64_t changes;              // of memory by the block, while `watches` is set: whether it gets on
} Block;

// Blocks that run side by side and reach each other's shared memory; most clusters are of one block.
enum { MOST_OF_CLUSTER = 16 };
struct Cluster {
    Block *members[MOST_OF_CLUSTER];
    uint32_t size;
    Cluster *next;                 // that runs at the same time
};

// What an instruction needs beside itself. ``mask``: lanes that execute it.
typedef struct {
    Block *block;
    Warp *warp;
    const Instruction *instruction;
    uint32_t mask;
} Context;

enum Outcome { GOES_ON, WARP_WAITS, FAILED };

#define EACH_LANE for (int lane = 0; lane < LANES; lane++)

// Says why the launch stops, with kernel and place; the first problem stays.
void fail(const Context *at, const char *format, ...) __attribute__((format(printf, 2, 3)));

static inline uint32_t lowest(uint32_t mask) { return (uint32_t)__builtin_ctz(mask); }

// Operands. A plain register is returned as it stands; else ``into`` is filled.
static inline const uint32_t *broadcast(uint32_t value, uint32_t *into) {
    EACH_LANE into[lane] = value;
    return into;
}

static inline uint32_t constant_at(const Context *at, uint32_t bank, uint32_t offset) {
    uint32_t value = 0;
    if (bank < NUM_BANKS && (uint64_t)offset + 4 <= at->block->bank_bytes[bank])
        memcpy(&value, at->block->banks[bank] + offset, 4);
    else
        fail(at, "constant c[0x%x][0x%x] lies outside the bank's %u bytes", bank, offset,
             bank < NUM_BANKS ? at->block->bank_bytes[bank] : 0);
    return value;
}

static inline uint32_t uniform_of(const Warp *warp, uint32_t number) {
    return number >= NO_UNIFORM ? 0 : warp->uniforms[number];
}

// Part ``word`` (0 or 1) of an operand of 32 or 64 bits, without its flags.
static inline const uint32_t *plain(const Context *at, const Operand *operand, int word, uint32_t *into) {
    switch (operand->kind) {
    case OPERAND_REGISTER:
        if (operand->number == NO_ROW) return broadcast(0, into);
        return at->warp->registers[operand->number + word];
    case OPERAND_UNIFORM: return broadcast(uniform_of(at->warp, operand->number + (operand->number < NO_UNIFORM ? word : 0)), into);
    case OPERAND_IMMEDIATE: return broadcast(operand->value, into);
    case OPERAND_CONSTANT: return broadcast(constant_at(at, operand->number, operand->value + 4 * word), into);
    default: return broadcast(0, into);
    }
}

// A source of 32 bits as an integer. ``into``: room for it.
static inline const uint32_t *integer(const Context *at, int place, uint32_t *into) {
    const Operand *operand = &at->instruction->operands[place];
    const uint32_t *values = plain(at, operand, 0, into);
    if (operand->flags & (FLAG_NEGATED | FLAG_ABSOLUTE | FLAG_INVERTED)) {
        if (operand->flags & FLAG_ABSOLUTE) {
            EACH_LANE into[lane] = (int32_t)values[lane] < 0 ? 0u - values[lane] : values[lane];
            values = into;
        }
        if (operand->flags & FLAG_INVERTED) EACH_LANE into[lane] = ~values[lane];
        else if (operand->flags & FLAG_NEGATED) EACH_LANE into[lane] = 0u - values[lane];
        else return values;
        return into;
    }
    return values;
}

// A source of 32 bits as a float, by its bits.
static inline const float *single(const Context *at, int place, uint32_t *into) {
    const Operand *operand = &at->instruction->operands[place];
    const uint32_t *values = plain(at, operand, 0, into);
    if (operand->flags & (FLAG_NEGATED | FLAG_ABSOLUTE)) {
        uint32_t keep = operand->flags & FLAG_ABSOLUTE ? 0x7fffffffu : 0xffffffffu;
        uint32_t flip = operand->flags & FLAG_NEGATED ? 0x80000000u : 0;
        EACH_LANE into[lane] = (values[lane] & keep) ^ flip;
        values = into;
    }
    return (const float *)values;
}

// A source of 64 bits as an integer.
static inline void wide(const Context *at, int place, uint64_t *into) {
    const Operand *operand = &at->instruction->operands[place];
    uint32_t first[LANES], second[LANES];
    const uint32_t *low = plain(at, operand, 0, first), *high = plain(at, operand, 1, second);
    if (operand->kind == OPERAND_IMMEDIATE)  // 32 bits, with their sign
        EACH_LANE into[lane] = (uint64_t)(int64_t)(int32_t)low[lane];
    else
        EACH_LANE into[lane] = (uint64_t)high[lane] << 32 | low[lane];
    if (operand->flags & FLAG_NEGATED) EACH_LANE into[lane] = 0 - into[lane];
    if (operand->flags & FLAG_INVERTED) EACH_LANE into[lane] = ~into[lane];
}

// A source of 64 bits as a double; an immediate is its upper half.
static inline void twice(const Context *at, int place, double *into) {
    const Operand *operand = &at->instruction->operands[place];
    uint32_t first[LANES], second[LANES];
    const uint32_t *low = plain(at, operand, 0, first), *high = plain(at, operand, 1, second);
    uint64_t bits[LANES];
    if (operand->kind == OPERAND_IMMEDIATE)
        EACH_LANE bits[lane] = (uint64_t)low[lane] << 32;
    else
        EACH_LANE bits[lane] = (uint64_t)high[lane] << 32 | low[lane];
    if (operand->flags & FLAG_ABSOLUTE) EACH_LANE bits[lane] &= ~(1ull << 63);
    if (operand->flags & FLAG_NEGATED) EACH_LANE bits[lane] ^= 1ull << 63;
    memcpy(into, bits, sizeof bits);
}

// A source predicate: the lanes where it holds.
static inline uint32_t predicate(const Context *at, int place) {
    const Operand *operand = &at->instruction->operands[place];
    uint32_t held = operand->kind == OPERAND_UNIFORM_PREDICATE ? at->warp->uniform_predicates[operand->number]
                                                              : at->warp->predicates[operand->number];
    return operand->flags & FLAG_INVERTED ? ~held : held;
}

static inline void set_word(const Context *at, const Operand *operand, int word, const uint32_t *values) {
    if (operand->kind == OPERAND_REGISTER) {
        if (operand->number == NO_ROW) return;
        uint32_t *row = at->warp->registers[operand->number + word];
        uint32_t mask = at->mask;
        if (mask == 0xffffffffu) memcpy(row, values, LANES * sizeof *row);
        else EACH_LANE row[lane] = mask >> lane & 1 ? values[lane] : row[lane];
    } else if (operand->kind == OPERAND_UNIFORM && operand->number < NO_UNIFORM && at->mask) {
        at->warp->uniforms[operand->number + word] = values[lowest(at->mask)];
    }
}

static inline void set(const Context *at, int place, const uint32_t *values) {
    set_word(at, &at->instruction->operands[place], 0, values);
}

static inline void set_single(const Context *at, int place, const float *values) {
    set(at, place, (const uint32_t *)values);
}

static inline void set_wide(const Context *at, int place, const uint64_t *values) {
    uint32_t low[LANES], high[LANES];
    EACH_LANE low[lane] = (uint32_t)values[lane];
    EACH_LANE high[lane] = (uint32_t)(values[lane] >> 32);
    set_word(at, &at->instruction->operands[place], 0, low);
    set_word(at, &at->instruction->operands[place], 1, high);
}

static inline void set_twice(const Context *at, int place, const double *values) {
    uint64_t bits[LANES];
    memcpy(bits, values, sizeof bits);
    set_wide(at, place, bits);
}

static inline void set_predicate(const Context *at, int place, uint32_t held) {
    const Operand *operand = &at->instruction->operands[place];
    if (operand->number == PT) return;
    if (operand->kind == OPERAND_PREDICATE) {
        uint32_t *bits = &at->warp->predicates[operand->number];
        *bits = (*bits & ~at->mask) | (held & at->mask);
    } else if (operand->kind == OPERAND_UNIFORM_PREDICATE && at->mask) {
        at->warp->uniform_predicates[operand->number] = held >> lowest(at->mask) & 1 ? 0xffffffffu : 0;
    }
}

// A comparison (held AND/OR/XOR with), and both results of one: that, and (not held ... with). (integer.c)
uint32_t combined(const Context *at, uint32_t held, uint32_t with);
void set_compared(const Context *at, uint32_t held, uint32_t with);
// Lanes where a comparison of operands 2 and 3, of 64 bits, holds. (pairs.c)
uint32_t compared_wide(const Context *at);
// Lanes where a comparison of the instruction holds. (floating.c)
uint32_t compared_float(const Context *at, const float *a, const float *b);
uint32_t compared_double(const Context *at, const double *a, const double *b);

// Families of instructions; each executes those that it knows. False: it is none of them.
bool execute_integer(const Context *at);
bool execute_float(const Context *at);
bool execute_conversion(const Context *at);
bool execute_halves(const Context *at);
bool execute_packed(const Context *at);
bool execute_warpgroup(const Context *at);
bool execute_pairs(const Context *at);
bool execute_barrier(const Context *at);
bool execute_tensor(const Context *at);
bool execute_bulk(const Context *at);
bool execute_matrix(const Context *at);
bool execute_memory(const Context *at);
bool execute_warp(const Context *at);
bool execute_texture(const Context *at);
bool execute_surface(const Context *at);
const struct Texture *texture_of(const Context *at, uint32_t handle);  // NULL: there is none
// Instructions that change which lanes run, or what runs next.
bool is_control(uint32_t op);
enum Outcome check_phase(const Context *at, Group *group);  // barrier.c
enum Outcome execute_control(const Context *at, Group *group);

// Blocks (blocks.c)
enum Turn { TURN_ENDS, TURN_GOES_ON, TURN_WAITS, TURN_FAILS };
Block *new_block(Launch *launch, const uint8_t *bank_zero, uint32_t bank_bytes);  // NULL: no memory is left
void free_block(Block *block);
void begin_block(Block *block, const uint32_t ctaid[3]);
// Executes until the block ends, waits for other blocks, or has executed ``most`` instructions.
enum Turn run_turn(Block *block, uint64_t most);
bool open_cluster(Cluster *cluster);  // its barrier, where all threads arrived: whether somebody waited for it
void tell_waiting(Block *block);      // a problem: for ever
uint32_t local_bytes_of(const Kernel *kernel);

// Where a warp reads or tries memory that other blocks write: it lets others run if it asks the same again and nothing
// changed.
static inline void poll(const Context *at, uint64_t address, uint64_t answer) {
    Warp *warp = at->warp;
    const uint32_t pc = (uint32_t)(at->instruction - at->block->kernel->code);
    warp->polls = warp->poll_pc == pc && warp->poll_address == address && warp->poll_answer == answer;
    warp->poll_pc = pc;
    warp->poll_address = address;
    warp->poll_answer = answer;
}

// Groups (groups.c)
Group *running(Warp *warp);
void free_waiting(Warp *warp);

// Records (record.c)
void record_instruction(const Context *at);
void record_accesses(const Context *at, const uint64_t *addresses, int space);
// ``count`` pieces of global memory that the lanes read or write, of ``bytes`` each.
void record_pieces(const Context *at, const uint64_t *addresses, uint32_t count, uint32_t bytes);
void record_addresses(const Context *at, const uint64_t *addresses);  // of lanes, where they are kept
void record_divergence(const Context *at);
void *grown(void *array, size_t count, size_t item);  // or the process ends
void hold(const Context *at, uint64_t before);  // whether a record that had ``before`` bytes may be as large as it is
uint64_t room_bytes(const Record *record);
void move_counts(Launch *into, Launch *from);  // of rows, from a worker's; ``into`` NULL: away
void begin_record(Block *block);      // before a block runs: whether it is recorded, and how
void write_block(Block *block);       // when it has ended, in the order of the grid
void end_record(Launch *launch);      // when all have, or the launch stopped
void clear_record(Record *record);
void free_record(Record *record);
#endif

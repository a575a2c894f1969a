// What the decoder (sass/decode.py), the runtimes (runtime, driver) and the interpreter share.
// A module file holds these structures as they stand in memory, little-endian; module.py and decode.py write it.
#ifndef MANYSCALE_SASS_H
#define MANYSCALE_SASS_H

#include <stdint.h>
#include <stdio.h>

enum { LANES = 32, NUM_BANKS = 8, MAX_OPERANDS = 9, DIVERGED = 0x80 };

// Kinds of operands, in the order of an instruction's text: destinations first.
enum OperandKind {
    OPERAND_NONE,
    OPERAND_REGISTER,           // R<number>; 255 is RZ
    OPERAND_UNIFORM,            // UR<number>; 255 is URZ
    OPERAND_IMMEDIATE,          // value
    OPERAND_CONSTANT,           // c[number][value], with INDEXED plus register `index`
    OPERAND_PREDICATE,          // P<number>; 7 is PT
    OPERAND_UNIFORM_PREDICATE,  // UP<number>; 7 is UPT
    OPERAND_SPECIAL,            // SR_..., by `value`
    OPERAND_BARRIER,            // B<number>: a convergence barrier
    OPERAND_ADDRESS,            // [R<number> + UR<index> + value]; 255 where there is none
    OPERAND_PREDICATES,         // PR: all seven predicates
};
enum OperandFlag {
    FLAG_NEGATED = 1,    // -x
    FLAG_ABSOLUTE = 2,   // |x|
    FLAG_INVERTED = 4,   // ~x, !p
    FLAG_WIDE = 8,       // of an address: the register is a pair of 64 bits
    FLAG_INDEXED = 16,   // of a constant: plus a register
    FLAG_LOW = 32,       // .H0_H0
    FLAG_HIGH = 64,      // .H1_H1
    FLAG_SWAPPED = 128,  // .H1_H0
};
typedef struct {
    uint8_t kind, flags;
    uint8_t number, index;
    uint32_t value;  // of an address or constant: the offset, as a signed number
} Operand;

typedef struct {
    uint16_t op;             // decode.py's number of the root, with the form where roots have several
    uint8_t guard;           // predicate that has to hold: 0 to 6, 7: none
    uint8_t guard_flags;     // FLAG_INVERTED
    uint32_t modifiers;      // bits of the op's own
    uint32_t row;            // of the launch's static instructions; the recorder writes it
    int32_t target;          // index of the instruction that a branch goes to, -1
    uint8_t num_operands;
    uint8_t size;            // bytes that a thread accesses in memory
    uint8_t space, access;   // as models/workload/launch_trace.py numbers them
    uint32_t extra;          // of the op's own: a table of LOP3, a shape, a width
    Operand operands[MAX_OPERANDS];
} Instruction;               // 24 + 72 = 96 bytes

typedef struct {  // a function in a kernel's code that has an address, by its lower word
    const char *name;
    uint32_t address, bytes, first;  // index of its first instruction
} CodePart;

typedef struct {
    const char *name;             // mangled
    const Instruction *code;
    uint32_t num_instructions;
    uint32_t num_registers;       // of a thread
    uint32_t shared_bytes;        // static, of a block
    uint32_t local_bytes;         // of a thread: its stack
    uint32_t parameter_offset;    // in constant bank 0
    uint32_t parameter_bytes;
    uint32_t architecture;        // 80: code for sm_80
    const uint8_t *banks[NUM_BANKS];  // constant banks but 0 (bank 4 relocated)
    uint32_t bank_bytes[NUM_BANKS];
    const CodePart *parts;        // none where the code names no addresses of code
    uint32_t num_parts;
    uint32_t cluster[3];          // blocks of a cluster that it is compiled for, zeros: any
} Kernel;

// Why a launch stops, by the numbers that CUDA's errors have.
enum StopKind {
    STOP_ADDRESS = 700,
    STOP_WAITS = 702,  // for ever
    STOP_ASSERT = 710,
    STOP_INSTRUCTION = 715,
    STOP_ALIGNMENT = 716,
    STOP_FAILURE = 719,
};

// Numbers from ``first`` to ``last``, every ``step``-th of them.
typedef struct {
    uint64_t first, last, step;
} Range;

// How often a row was executed, by how many threads, and how often it parted the lanes of a warp.
typedef struct {
    uint64_t executed, threads, diverged;
} RowCounts;

// What a block comes to; its columns follow where it is recorded whole.
enum BlockKind { BLOCK_COUNTED, BLOCK_RECORDED, LAST_BLOCK, BLOCK_WITH_WORDS };
typedef struct {
    uint32_t kind, warps;
    uint32_t instructions, accesses;  // that are recorded
    uint64_t number;                  // in the grid
    uint64_t warp_instructions, thread_instructions, requests;  // executed; sectors of global and local memory
} BlockHead;

typedef struct {
    const Kernel *kernel;
    uint32_t grid[3], block[3];
    uint32_t dynamic_shared_bytes;
    const void *parameters;       // kernel->parameter_bytes
    uint64_t local_base, shared_base;  // windows in the generic address space: 16 MiB, of shared memory for each block of
                                  // a cluster; the lower words are 0
    uint32_t num_sms;             // of the device that is shown to the program
    // whether ``address`` lies in memory that the program may access on the device, and the bounds of that allocation
    // [*low, *high); NULL: nothing is checked
    int (*find_allocation)(uint64_t address, uint64_t *low, uint64_t *high);
    FILE *record;                 // the launch's record file, NULL: nothing is recorded
    uint64_t warp_instructions;   // out
    char problem[512];            // out: why it stopped, "" if it did not
    int error;                    // out: the same as a StopKind, 0 if it did not
    uint64_t (*allocate)(uint64_t bytes);  // malloc of threads, 0: there is no room
    int (*release)(uint64_t address);
    uint64_t system_calls[8];     // out: of functions of the system (system.h), by their numbers
    FILE *lanes;                  // beside `record`: which lanes execute, and their addresses; NULL: not kept
    uint32_t cluster[3];          // blocks of a cluster; zeros: each block is one of its own
    uint32_t most_resident;       // blocks that the device holds at a time, 0: it is not known
    uint32_t is_cooperative;      // all blocks run side by side
    uint32_t workers;             // threads that run blocks at a time; what they leave does not depend on them
    uint32_t chunk;               // instructions of a worker before they are compared, 0: some million
    // as `find_allocation`, of memory that is allocated alone: it tells nobody
    int (*find_quietly)(uint64_t address, uint64_t *low, uint64_t *high);
    uint32_t chunks[2];           // out: of blocks that workers ran, and that had to run again, one after the other
    uint64_t workspace;           // of such a launch: 8 bytes, zeros, at which its blocks meet
    const struct Texture *(*find_texture)(uint32_t handle);  // of a texture or surface object (texture.h); NULL: none
    int counts_only;              // of all blocks no more than what they come to is recorded
    const Range *chosen;          // blocks that are recorded whole, the others as counts; none: all are
    uint32_t num_chosen;
    RowCounts *of_row;            // own: of blocks of which only counts are recorded
    uint32_t num_rows;
} Launch;

// Runs all blocks of a launch, in the order of the grid or side by side (schedule.c); 0, or -1 with a problem that names
// kernel and place.
int sass_run(Launch *launch);

// A record, a file or a stream: blocks in the grid's order, each a BlockHead, and behind that of one that is recorded
//   int32 warp_instructions[warps], int32 warp_accesses[warps],
//   int32 row[instructions], uint8 active[instructions], uint8 accesses[instructions],
//   int64 sector[accesses], uint32 written[accesses]
// and of one with words, behind these, uint32 warp_words[warps], int64 word[] (words.h),
// with the meaning of models/workload/launch_trace.py (LaunchTrace); active has DIVERGED where the lanes of a warp parted
// at a branch. At the end a BlockHead of kind LAST_BLOCK, with the
// launch's warp instructions, in ``number`` the blocks of a cluster along each dimension in 16 bits (0: there are none), ``instructions`` 1 where the launch stopped, and ``accesses`` RowCounts behind it: of each
// row, by blocks of which only counts are recorded.
//
// A file of lanes: uint64 shared_base, local_base; then for each block that is recorded whole
//   uint32 instructions, uint32 addresses,
//   uint32 mask[instructions], uint8 addresses[instructions], int64 address[addresses]
// in the order of the record: lanes that execute, and the generic or own address of each, in the lanes' order.

#endif

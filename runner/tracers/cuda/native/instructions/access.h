// Addresses and places of memory, for the instructions that access it.
#ifndef MANYSCALE_ACCESS_H
#define MANYSCALE_ACCESS_H

#include "warp.h"

enum { SPACE_NONE, SPACE_GLOBAL, SPACE_LOCAL, SPACE_SHARED, SPACE_CONSTANT };  // as launch_trace.py's Space

// The space that a generic address lies in, and that of an instruction's addresses (of the first lane's).
int window_of(const Context *at, uint64_t address);
int space_of(const Context *at, const uint64_t *addresses);
void execute_atomic(const Context *at);
// Address of each lane that an operand gives.
void addresses_of(const Context *at, const Operand *operand, uint64_t *into);
// Where a lane's bytes stand in this process, NULL (and a problem) where nothing is allocated.
uint8_t *place_of(const Context *at, int space, uint64_t address, int lane);
// Where ``size`` bytes of shared memory stand, of the block that the address names; NULL where they are not there.
uint8_t *shared_place(const Block *block, uint32_t address, uint32_t size);
// The same of global memory, and a problem where they are not.
uint8_t *global_place(const Context *at, uint64_t address, uint32_t size);
// What an atomic operation leaves in memory.
uint64_t updated_value(const Context *at, uint32_t operation, uint32_t type, uint64_t old, uint64_t value, uint64_t other);
#endif

// Addresses and places of memory, for the instructions that access it.
#ifndef MANYSCALE_ACCESS_H
#define MANYSCALE_ACCESS_H

#include "warp.h"

enum { SPACE_NONE, SPACE_GLOBAL, SPACE_LOCAL, SPACE_SHARED, SPACE_CONSTANT };  // as launch_trace.py's Space

// Address of each lane that an operand gives.
void addresses_of(const Context *at, const Operand *operand, uint64_t *into);
// Where a lane's bytes stand in this process, NULL (and a problem) where nothing is allocated.
uint8_t *place_of(const Context *at, int space, uint64_t address, int lane);
// Where ``size`` bytes of shared memory stand, of the block that the address names; NULL where they are not there.
uint8_t *shared_place(const Block *block, uint32_t address, uint32_t size);
#endif

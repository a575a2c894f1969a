// What copies of blocks of bytes and of boxes of tensors share.
#ifndef MANYSCALE_BULK_H
#define MANYSCALE_BULK_H

#include "warp.h"

// 64 bits that a uniform register and the next hold.
uint64_t uniform_pair(const Warp *warp, uint32_t number);
// ``count`` elements at ``to`` and ``from`` meet in ``to``. False, and a problem, where the operation has no such type.
bool reduce_elements(const Context *at, uint32_t operation, uint32_t type, uint8_t *to, const uint8_t *from, uint32_t count);
// Bytes of an element of a type of reductions.
uint32_t bytes_of_type(uint32_t type);
// The ranks of blocks that a copy into shared memory at ``address`` reaches: those of ``mask``, or the address's own.
uint32_t receivers(uint32_t address, bool is_multicast, uint32_t mask);
// ``size`` bytes of shared memory at an address that names its block, or a problem and NULL.
uint8_t *shared_bytes_at(const Context *at, uint32_t address, uint32_t size);
#endif

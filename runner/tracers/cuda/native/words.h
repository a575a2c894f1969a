// Records of asynchronous operations: words of each warp, those of an instruction one behind the other, as
// models/workload/asynchronous.py has them. A first word holds
//   bits 0 to 3: its kind; 4 to 19: how many more words the instruction has; 20 to 43: the offset of a barrier in shared
//   memory; 44 to 48: the rank of the block in its cluster that has it; 49: that is not the block itself; 50 to 52: more.
// Behind MEETS (a barrier of the block whose number or threads stand in registers; its number in place of an offset) stands
// the number of threads; behind BEGINS the number of arrivals of a phase; behind ARRIVES, DROPS (which lowers a phase's arrivals
// for good), FOLLOWS and STORES arrivals in the lower 32 bits,
// and above them the bytes that are then expected (less than 0: that have come); behind COPIES the bytes, and above these
// the ranks that a multicast serves; then two words for each run of rows in global memory: the address of the first row's
// first byte in 48 bits, and the number of rows; the bytes of a row in 24 bits, and those from a row to the next.
#ifndef MANYSCALE_WORDS_H
#define MANYSCALE_WORDS_H

#include "warp.h"

enum WordKind { WORD_BEGINS = 1, WORD_ARRIVES, WORD_WAITS, WORD_TRIES, WORD_COPIES, WORD_STORES, WORD_FOLLOWS, WORD_DROPS, WORD_MEETS };
enum CopyWay { COPY_LOADS, COPY_STORES, COPY_REDUCES, COPY_WITHIN, COPY_PREFETCHES };  // into shared memory; out of it; between
// blocks; into L2

// Whether words of the block are kept.
static inline bool keeps_words(const Context *at) { return at->block->records && !at->block->counts_only; }
// An operation on the barriers of lanes, those of the same barrier together. ``arrivals``, ``bytes`` of each lane.
void record_barriers(const Context *at, enum WordKind kind, const uint64_t *addresses, const uint32_t *arrivals, const int64_t *bytes);
// A look at barriers: ``held``: lanes whose phase had ended. One that finds it open takes the place of the one before it,
// if nothing was done between the two: how often a program asks is a matter of the order in which warps run here.
void record_look(const Context *at, const uint64_t *addresses, const uint32_t *parities, uint32_t held);
// A warp comes to a barrier of the block; ``only_arrives``: and goes on.
void record_meeting(const Context *at, uint32_t number, uint32_t threads, bool only_arrives);
// A copy, and then runs of its rows.
void record_copy(const Context *at, enum CopyWay way, uint32_t barrier, uint32_t bytes, uint32_t ranks);
void record_run(const Context *at, uint64_t start, uint32_t row_bytes, uint32_t rows, uint64_t stride);
#endif

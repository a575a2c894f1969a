// What a worker's blocks did to global memory, so that blocks that ran at the same time are known to have left what they
// would have left one after the other; and the contents that memory had before, to go back to.
#ifndef MANYSCALE_TRACK_H
#define MANYSCALE_TRACK_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { PIECE_BYTES = 1024, PIECE_SECTORS = PIECE_BYTES / 32 };

// A piece of memory: which of its bytes were read, written and reduced, a bit for each of a sector's 32 bytes.
typedef struct {
    uint64_t number;                    // address / PIECE_BYTES
    uint32_t read[PIECE_SECTORS], written[PIECE_SECTORS], reduced[PIECE_SECTORS];
    uint8_t operation[PIECE_SECTORS];   // of the reductions, plus one; 0: none
    uint8_t values[PIECE_BYTES];        // that were written last
    bool is_saved;
} Piece;

// Pieces as memory had them before anything was written, of all workers.
typedef struct {
    uint64_t number;
    uint8_t content[PIECE_BYTES];
} SavedPiece;
typedef struct {
    pthread_mutex_t mutex;
    SavedPiece **slots;                 // by their numbers
    uint32_t num_slots, count;
    SavedPiece **all;
    uint32_t room;                      // in `all`; those behind `count` are free
} Saved;

typedef struct Tracker {
    Piece **slots;
    uint32_t num_slots, count;
    Piece **all;
    uint32_t room, made;
    Piece *last;
    Saved *saved;
    int (*find_allocation)(uint64_t address, uint64_t *low, uint64_t *high);
} Tracker;

void track_read(Tracker *tracker, uint64_t address, uint32_t bytes);
// Before they are written; at most to the end of a sector.
void track_written(Tracker *tracker, uint64_t address, const void *values, uint32_t bytes);
// Before a reduction whose order does not matter; ``operation``: one of a kind.
void track_reduced(Tracker *tracker, uint64_t address, uint32_t bytes, uint8_t operation);
// Before bytes are read and written at once.
void track_updated(Tracker *tracker, uint64_t address, uint32_t bytes);

// Whether what one worker wrote, another one read, reduced otherwise, or wrote with another value.
bool tracks_meet(const Tracker *one, const Tracker *other);
void tracks_undo(const Tracker *const *trackers, uint32_t count, const Saved *saved);
void track_clear(Tracker *tracker);
void saved_clear(Saved *saved);
void track_free(Tracker *tracker);
void saved_free(Saved *saved);
#endif

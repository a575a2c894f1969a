#include "track.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void *needed(void *memory) {
    if (memory) return memory;
    fputs("manyscale: no memory is left to run blocks side by side in; trace with --workers 1\n", stderr);
    abort();
}

static uint32_t place_of_number(uint64_t number, uint32_t num_slots) {
    return (uint32_t)((number * 0x9e3779b97f4a7c15ull) >> 40) & (num_slots - 1);
}

// Both kinds of tables begin with a pointer to something that begins with its number.
static void **slot_of(void **slots, uint32_t num_slots, uint64_t number) {
    uint32_t place = place_of_number(number, num_slots);
    while (slots[place] && *(uint64_t *)slots[place] != number) place = (place + 1) & (num_slots - 1);
    return &slots[place];
}

static void grow(void ***slots, uint32_t *num_slots, void **all, uint32_t count) {
    const uint32_t more = *num_slots ? 2 * *num_slots : 1024;
    free(*slots);
    *slots = needed(calloc(more, sizeof **slots));
    *num_slots = more;
    for (uint32_t k = 0; k < count; k++) *slot_of(*slots, more, *(uint64_t *)all[k]) = all[k];
}

static void enlarge(void ***all, uint32_t *room, uint32_t count) {
    if (count < *room) return;
    const uint32_t more = *room ? 2 * *room : 256;
    *all = needed(realloc(*all, more * sizeof **all));
    memset(*all + *room, 0, (more - *room) * sizeof **all);
    *room = more;
}

static Piece *piece_of(Tracker *tracker, uint64_t address) {
    const uint64_t number = address / PIECE_BYTES;
    if (tracker->last && tracker->last->number == number) return tracker->last;
    if (2 * (tracker->count + 1) > tracker->num_slots)
        grow((void ***)&tracker->slots, &tracker->num_slots, (void **)tracker->all, tracker->count);
    Piece **slot = (Piece **)slot_of((void **)tracker->slots, tracker->num_slots, number);
    if (*slot == NULL) {
        enlarge((void ***)&tracker->all, &tracker->room, tracker->count);
        Piece **place = &tracker->all[tracker->count++];
        if (*place == NULL) *place = needed(malloc(sizeof **place));
        memset(*place, 0, offsetof(Piece, values));
        (*place)->number = number;
        (*place)->is_saved = false;
        *slot = *place;
    }
    return tracker->last = *slot;
}

static void save(Saved *saved, uint64_t number) {
    pthread_mutex_lock(&saved->mutex);
    if (2 * (saved->count + 1) > saved->num_slots)
        grow((void ***)&saved->slots, &saved->num_slots, (void **)saved->all, saved->count);
    SavedPiece **slot = (SavedPiece **)slot_of((void **)saved->slots, saved->num_slots, number);
    if (*slot == NULL) {
        enlarge((void ***)&saved->all, &saved->room, saved->count);
        SavedPiece **place = &saved->all[saved->count++];
        if (*place == NULL) *place = needed(malloc(sizeof **place));
        (*place)->number = number;
        memcpy((*place)->content, (const void *)(uintptr_t)(number * PIECE_BYTES), PIECE_BYTES);
        *slot = *place;
    }
    pthread_mutex_unlock(&saved->mutex);
}

static Piece *saved_piece(Tracker *tracker, uint64_t address) {
    Piece *piece = piece_of(tracker, address);
    if (!piece->is_saved) save(tracker->saved, piece->number);
    piece->is_saved = true;
    return piece;
}

static inline uint32_t sector_of(uint64_t address) { return (uint32_t)(address / 32 % PIECE_SECTORS); }

static inline uint32_t bytes_of(uint64_t address, uint32_t bytes) { return (uint32_t)((1ull << bytes) - 1) << (address % 32); }

void track_read(Tracker *tracker, uint64_t address, uint32_t bytes) {
    while (bytes) {
        const uint32_t left = 32 - (uint32_t)(address % 32), size = bytes < left ? bytes : left;
        piece_of(tracker, address)->read[sector_of(address)] |= bytes_of(address, size);
        address += size;
        bytes -= size;
    }
}

void track_written(Tracker *tracker, uint64_t address, const void *values, uint32_t bytes) {
    Piece *piece = saved_piece(tracker, address);
    piece->written[sector_of(address)] |= bytes_of(address, bytes);
    memcpy(piece->values + address % PIECE_BYTES, values, bytes);
}

void track_updated(Tracker *tracker, uint64_t address, uint32_t bytes) {
    Piece *piece = saved_piece(tracker, address);
    piece->read[sector_of(address)] |= bytes_of(address, bytes);
    piece->written[sector_of(address)] |= bytes_of(address, bytes);
}

void track_reduced(Tracker *tracker, uint64_t address, uint32_t bytes, uint8_t operation) {
    Piece *piece = saved_piece(tracker, address);
    const uint32_t sector = sector_of(address);
    if (piece->operation[sector] == 0) piece->operation[sector] = operation + 1;
    if (piece->operation[sector] != operation + 1) return track_updated(tracker, address, bytes);
    piece->reduced[sector] |= bytes_of(address, bytes);
}

static bool values_differ(const Piece *one, const Piece *other, uint32_t sector, uint32_t bytes) {
    for (uint32_t k = 32 * sector; bytes; k++, bytes >>= 1)
        if (bytes & 1 && one->values[k] != other->values[k]) return true;
    return false;
}

bool tracks_meet(const Tracker *one, const Tracker *other) {
    for (uint32_t k = 0; k < one->count && other->count; k++) {
        const Piece *mine = one->all[k];
        if (!mine->is_saved) continue;
        const Piece *theirs = *(Piece **)slot_of((void **)other->slots, other->num_slots, mine->number);
        if (theirs == NULL) continue;
        for (uint32_t s = 0; s < PIECE_SECTORS; s++) {
            const uint32_t changed = mine->written[s] | mine->reduced[s], both = mine->written[s] & theirs->written[s];
            if (changed & theirs->read[s] || mine->written[s] & theirs->reduced[s]) return true;
            if (mine->reduced[s] & theirs->reduced[s] && mine->operation[s] != theirs->operation[s]) return true;
            if (both && values_differ(mine, theirs, s, both)) return true;
        }
    }
    return false;
}

void tracks_undo(const Tracker *const *trackers, uint32_t count, const Saved *saved) {
    for (uint32_t k = 0; k < saved->count; k++) {
        const SavedPiece *before = saved->all[k];
        uint8_t *at = (uint8_t *)(uintptr_t)(before->number * PIECE_BYTES);
        for (uint32_t t = 0; t < count; t++) {
            const Tracker *tracker = trackers[t];
            if (!tracker->count) continue;
            const Piece *piece = *(Piece **)slot_of((void **)tracker->slots, tracker->num_slots, before->number);
            for (uint32_t s = 0; piece && s < PIECE_SECTORS; s++) {
                uint32_t changed = piece->written[s] | piece->reduced[s];
                for (uint32_t byte = 32 * s; changed; byte++, changed >>= 1)
                    if (changed & 1) at[byte] = before->content[byte];
            }
        }
    }
}

void track_clear(Tracker *tracker) {
    if (tracker->slots) memset(tracker->slots, 0, tracker->num_slots * sizeof *tracker->slots);
    tracker->count = 0;
    tracker->last = NULL;
}

void saved_clear(Saved *saved) {
    if (saved->slots) memset(saved->slots, 0, saved->num_slots * sizeof *saved->slots);
    saved->count = 0;
}

void track_free(Tracker *tracker) {
    for (uint32_t k = 0; k < tracker->room; k++) free(tracker->all[k]);
    free(tracker->all);
    free(tracker->slots);
}

void saved_free(Saved *saved) {
    for (uint32_t k = 0; k < saved->room; k++) free(saved->all[k]);
    free(saved->all);
    free(saved->slots);
    pthread_mutex_destroy(&saved->mutex);
}

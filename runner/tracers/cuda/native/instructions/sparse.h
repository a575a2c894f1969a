// Matrices of which half of the elements are stored: of each chunk of four units (of 16 bits, or of 8 for narrower
// elements, of 4 bits by pairs) two, whose places four bits of the metadata hold. Which lane holds the bits of a row and
// chunk is what CUTLASS publishes as ELayout (mma_traits_sm90_gmma_sparse.hpp, mma_traits_sm120_sparse.hpp).
#ifndef MANYSCALE_SPARSE_H
#define MANYSCALE_SPARSE_H

#include "warp.h"

// Row ``row`` (0 to 15) with zeros between the stored units; ``chunks``: of the row; ``selector``: which lanes of four
// hold the metadata, where not all do.
static inline void expand_row(const uint32_t *metadata, bool is_narrow, int chunks, int selector, int row, const void *stored,
                              void *full) {
    const int unit = is_narrow ? 1 : 2, half = row >> 3;
    memset(full, 0, (size_t)(4 * chunks * unit));
    for (int chunk = 0; chunk < chunks; chunk++) {
        int own, shift;
        if (is_narrow) {
            own = half + 2 * (chunks == 16 ? chunk >> 3 : selector);
            shift = 4 * (chunk & 7);
        } else {
            own = chunks == 4 ? selector : 2 * selector + (chunk >> 2);
            shift = 16 * half + 4 * (chunk & 3);
        }
        const uint32_t choice = metadata[4 * (row & 7) + (own & 3)] >> shift;
        for (int k = 0; k < 2; k++)
            memcpy((uint8_t *)full + (4 * chunk + (int)(choice >> 2 * k & 3)) * unit, (const uint8_t *)stored + (2 * chunk + k) * unit, (size_t)unit);
    }
}
#endif

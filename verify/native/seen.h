/* The cache slots that a row may see: all before the step, then those of the step that its mask
   names, or, without a mask, those of the rows up to itself. */
#ifndef NATIVE_SEEN_H
#define NATIVE_SEEN_H

#include "vec.h"

typedef struct {
    int64_t start;       /* slots before the step: all are seen */
    int64_t count;       /* seen slots in all */
    const uint8_t *mask; /* the row's columns of the step, or NULL: the first ones */
} Seen;

static Seen seen_by(int64_t row, int64_t width, int64_t start, const uint8_t *mask) {
    Seen seen = {start, start, mask ? mask + row * width : NULL};
    if (!mask) seen.count += row + 1;
    else for (int64_t c = 0; c < width; c++) seen.count += seen.mask[c] != 0;
    return seen;
}

INLINE int64_t next_slot(const Seen *seen, int64_t slot) {
    slot++;
    if (seen->mask) while (slot >= seen->start && !seen->mask[slot - seen->start]) slot++;
    return slot;
}

#endif

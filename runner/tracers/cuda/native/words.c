// Words of asynchronous operations (words.h).
#include "words.h"

enum { MOST_BETWEEN = 16 };  // instructions of a loop that looks at a barrier

static void put_word(const Context *at, uint64_t word) {
    Record *record = &at->warp->record;
    if (record->num_words == record->room_words) {
        const uint64_t before = room_bytes(record);
        record->room_words = record->room_words ? 2 * record->room_words : 256;
        record->word = grown(record->word, record->room_words, sizeof *record->word);
        hold(at, before);
    }
    record->word[record->num_words++] = (int64_t)word;
}

static uint64_t first_word(const Context *at, enum WordKind kind, uint32_t address, uint32_t more) {
    const uint64_t rank = address >> 24 & 31;
    return (uint64_t)kind | (uint64_t)(address & (WINDOW_BYTES - 1)) << 20 | rank << 44 | (uint64_t)(rank != at->block->rank) << 49 |
           (uint64_t)more << 50;
}

// Of the instruction whose first word stands at ``first``: how many more it has.
static void count_words(const Context *at, uint32_t first) {
    Record *record = &at->warp->record;
    record->word[first] |= (int64_t)(record->num_words - first - 1) << 4;
}

void record_barriers(const Context *at, enum WordKind kind, const uint64_t *addresses, const uint32_t *arrivals, const int64_t *bytes) {
    if (!keeps_words(at) || !at->mask) return;
    const uint32_t first = at->warp->record.num_words;
    for (uint32_t left = at->mask; left;) {
        const uint32_t address = (uint32_t)addresses[lowest(left)];
        uint64_t all_arrivals = 0;
        int64_t all_bytes = 0;
        EACH_LANE {
            if (!(left >> lane & 1) || (uint32_t)addresses[lane] != address) continue;
            left &= ~(1u << lane);
            all_arrivals = kind == WORD_BEGINS ? arrivals[lane] : all_arrivals + arrivals[lane];
            all_bytes += bytes[lane];
        }
        put_word(at, first_word(at, kind, address, 0));
        put_word(at, (all_arrivals & 0xffffffff) | (uint64_t)all_bytes << 32);
    }
    count_words(at, first);
}

void record_meeting(const Context *at, uint32_t number, uint32_t threads, bool only_arrives) {
    if (!keeps_words(at)) return;
    put_word(at, WORD_MEETS | 1 << 4 | (uint64_t)number << 20 | (uint64_t)only_arrives << 50);
    put_word(at, threads);
}

// Whether what was recorded behind the last look may be left out: it only led to this one.
static bool only_asked(const Context *at, uint32_t address, uint32_t parity) {
    const Record *record = &at->warp->record;
    const Kernel *kernel = at->block->kernel;
    const uint32_t last = record->num_rows - 1;
    if (!record->open.is_set || record->open.address != address || record->open.parity != parity || record->open.mask != at->mask)
        return false;
    if (record->num_words != record->open.words + 1 || record->num_sectors != record->open.sectors || last - record->open.row > MOST_BETWEEN)
        return false;
    for (uint32_t k = record->open.row + 1; k < last; k++) {
        const uint32_t row = (uint32_t)record->row[k];
        if (record->accesses[k] || row >= kernel->num_instructions || kernel->code[row].row != row) return false;
        const uint32_t op = kernel->code[row].op;
        if (op == OP_WGMMA || op == OP_WARPGROUP || op == OP_BAR || op == OP_CLUSTER_ARRIVE || op == OP_CLUSTER_WAIT) return false;
    }
    return true;
}

void record_look(const Context *at, const uint64_t *addresses, const uint32_t *parities, uint32_t held) {
    if (!at->block->records || !at->mask) return;
    Record *record = &at->warp->record;
    const uint32_t lane = lowest(at->mask), address = (uint32_t)addresses[lane], parity = parities[lane] >> 31;
    const bool has_ended = (held & at->mask) == at->mask;
    if (only_asked(at, address, parity)) {
        const uint32_t to = record->open.row, from = record->num_rows - 1;
        record->row[to] = record->row[from];
        record->active[to] = record->active[from];
        record->accesses[to] = record->accesses[from];
        if (at->block->keeps_lanes) {
            record->mask[to] = record->mask[from];
            record->lanes[to] = record->lanes[from];
        }
        record->num_rows = to + 1;
        record->num_words = record->open.words;
        record->num_addresses = record->open.addresses;
    }
    record->open.is_set = !has_ended;
    record->open.row = record->num_rows - 1;
    record->open.words = record->num_words;
    record->open.addresses = record->num_addresses;
    record->open.sectors = record->num_sectors;
    record->open.address = address;
    record->open.parity = parity;
    record->open.mask = at->mask;
    const uint32_t first = record->num_words;
    if (!has_ended) {
        put_word(at, first_word(at, WORD_TRIES, address, parity));
        return;
    }
    for (uint32_t left = at->mask; left;) {
        const uint32_t one = lowest(left), its_address = (uint32_t)addresses[one], its_parity = parities[one] >> 31;
        EACH_LANE if (left >> lane & 1 && (uint32_t)addresses[lane] == its_address && parities[lane] >> 31 == its_parity) left &= ~(1u << lane);
        put_word(at, first_word(at, WORD_WAITS, its_address, its_parity));
    }
    count_words(at, first);
}

void record_copy(const Context *at, enum CopyWay way, uint32_t barrier, uint32_t bytes, uint32_t ranks) {
    if (!keeps_words(at)) return;
    at->warp->record.copy = at->warp->record.num_words;
    put_word(at, first_word(at, WORD_COPIES, barrier, way) | 1 << 4);
    put_word(at, bytes | (uint64_t)ranks << 32);
}

void record_run(const Context *at, uint64_t start, uint32_t row_bytes, uint32_t rows, uint64_t stride) {
    if (!keeps_words(at) || !rows || !row_bytes) return;
    Record *record = &at->warp->record;
    put_word(at, (start & 0xffffffffffffull) | (uint64_t)rows << 48);
    put_word(at, row_bytes | stride << 24);
    record->word[record->copy] += 2 << 4;
}

// What is recorded of a block: rows of static instructions, active lanes, and what lanes access together, by the rules
// that the reader of Accel-Sim's traces applies to addresses (runner/readers/accelsim/accesses.py): one request for each
// sector of 32 bytes, ascending; atomics again for lanes that meet bytes taken already; of shared memory the words that
// the busiest of 32 banks gives, request by request.
#include <stdatomic.h>
#include <unistd.h>

#include "warp.h"

enum { SPACE_GLOBAL = 1, SPACE_LOCAL = 2, SPACE_SHARED = 3 };
enum { ACCESS_LOAD = 1, ACCESS_STORE = 2, ACCESS_ATOMIC = 3, ACCESS_REDUCTION = 4, MOST_REQUESTS = 256 };
#define LOCAL_WINDOW (1ll << 62)

void *grown(void *array, size_t count, size_t item) {
    void *larger = realloc(array, count * item);
    if (larger == NULL) {
        fputs("manyscale: no memory is left to record in\n", stderr);
        abort();
    }
    return larger;
}

// Bytes that records of blocks which run may take; 0: half of the machine's memory.
uint64_t sass_most_recorded;
static _Atomic uint64_t held;

uint64_t room_bytes(const Record *record) {
    const uint64_t of_row = sizeof *record->row + 2 + (record->mask ? sizeof *record->mask + 1 : 0);
    return record->room_rows * of_row + record->room_sectors * 12ull + record->room_addresses * 8ull + record->room_words * 8ull;
}

// A kernel that never ends stops here, before the machine's memory does.
void hold(const Context *at, uint64_t before) {
    const uint64_t added = room_bytes(&at->warp->record) - before;
    const uint64_t most = sass_most_recorded ? sass_most_recorded : (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE) / 2;
    const bool is_countable = at->warp->record.room_rows < 1u << 31 && at->warp->record.room_sectors < 1u << 31;
    if (atomic_fetch_add(&held, added) + added <= most && is_countable) return;
    fail(at, "the record of block (%u,%u,%u) takes more than %.1f GB of memory; if the kernel does end, leave its launches "
         "out with --regions", at->block->ctaid[0], at->block->ctaid[1], at->block->ctaid[2], (double)most / 1e9);
}

void record_instruction(const Context *at) {
    Record *record = &at->warp->record;
    if (record->num_rows == record->room_rows) {
        const uint64_t before = room_bytes(record);
        record->room_rows = record->room_rows ? 2 * record->room_rows : 1024;
        record->row = grown(record->row, record->room_rows, sizeof *record->row);
        record->active = grown(record->active, record->room_rows, 1);
        record->accesses = grown(record->accesses, record->room_rows, 1);
        if (at->block->keeps_lanes) {
            record->mask = grown(record->mask, record->room_rows, sizeof *record->mask);
            record->lanes = grown(record->lanes, record->room_rows, 1);
        }
        hold(at, before);
    }
    uint32_t place = record->num_rows++;
    record->row[place] = (int32_t)at->instruction->row;
    record->active[place] = (uint8_t)__builtin_popcount(at->mask);
    record->accesses[place] = 0;
    if (at->block->keeps_lanes) {
        record->mask[place] = at->mask;
        record->lanes[place] = 0;
    }
}

// The instruction that was recorded last parted the lanes of its warp.
void record_divergence(const Context *at) {
    Record *record = &at->warp->record;
    if (at->block->records) record->active[record->num_rows - 1] |= DIVERGED;
}

void record_addresses(const Context *at, const uint64_t *addresses) {
    if (!at->block->keeps_lanes) return;
    Record *record = &at->warp->record;
    if (record->num_addresses + LANES > record->room_addresses) {
        const uint64_t before = room_bytes(record);
        record->room_addresses = 2 * record->room_addresses + 1024;
        record->address = grown(record->address, record->room_addresses, sizeof *record->address);
        hold(at, before);
    }
    EACH_LANE if (at->mask >> lane & 1) record->address[record->num_addresses++] = (int64_t)addresses[lane];
    record->lanes[record->num_rows - 1] = (uint8_t)__builtin_popcount(at->mask);
}

typedef struct {
    int64_t sector[MOST_REQUESTS];
    uint32_t written[MOST_REQUESTS];
    uint32_t count;
} Requests;

static uint32_t bits(uint32_t start, uint32_t size) { return (uint32_t)(((1ull << size) - 1) << start); }

static void insert(Requests *requests, uint32_t at, int64_t sector, uint32_t written) {
    if (requests->count == MOST_REQUESTS) return;
    for (uint32_t k = requests->count; k > at; k--) {
        requests->sector[k] = requests->sector[k - 1];
        requests->written[k] = requests->written[k - 1];
    }
    requests->sector[at] = sector;
    requests->written[at] = written;
    requests->count++;
}

// Bytes ``start`` to ``start + size - 1``, in one sector.
static void touch(Requests *requests, uint64_t start, uint32_t size, bool is_store) {
    int64_t sector = (int64_t)(start >> 5);
    uint32_t mask = is_store ? bits(start & 31, size) : 0, at = requests->count;
    while (at > 0 && requests->sector[at - 1] > sector) at--;
    if (at > 0 && requests->sector[at - 1] == sector) requests->written[at - 1] |= mask;
    else insert(requests, at, sector, mask);
}

static void touch_all(Requests *requests, uint64_t start, uint32_t size, bool is_store) {
    while (size) {
        uint32_t inside = 32 - (start & 31) < size ? 32 - (uint32_t)(start & 31) : size;
        touch(requests, start, inside, is_store);
        start += inside;
        size -= inside;
    }
}

// A lane of an atomic joins the first request for its sector in which none has taken its bytes.
static void touch_atomically(Requests *requests, uint64_t start, uint32_t size) {
    int64_t sector = (int64_t)(start >> 5);
    uint32_t place = start & 31, mask = bits(place, size < 32 - place ? size : 32 - place), end = requests->count;
    while (end > 0 && requests->sector[end - 1] > sector) end--;
    uint32_t each = end;
    while (each > 0 && requests->sector[each - 1] == sector) each--;
    while (each < end && requests->written[each] & mask) each++;
    if (each < end) requests->written[each] |= mask;
    else insert(requests, end, sector, mask);
}

static void global_requests(const Context *at, const uint64_t *addresses, Requests *requests) {
    const Instruction *instruction = at->instruction;
    bool is_atomic = instruction->access == ACCESS_ATOMIC || instruction->access == ACCESS_REDUCTION;
    EACH_LANE {
        if (!(at->mask >> lane & 1)) continue;
        if (is_atomic) touch_atomically(requests, addresses[lane], instruction->size);
        else touch_all(requests, addresses[lane], instruction->size, instruction->access == ACCESS_STORE);
    }
    if (is_atomic) for (uint32_t k = 0; k < requests->count; k++) requests->written[k] = 0xffffffffu;
}

// Word w of a lane stands beside those of the same word of the warp's other lanes; words lie an odd number of lines apart,
// as they do where traces are read (runner/readers/accelsim/parser.py).
static void local_requests(const Context *at, const uint64_t *addresses, Requests *requests) {
    const Instruction *instruction = at->instruction;
    const Block *block = at->block;
    uint64_t stride = (uint64_t)block->launch->grid[0] * block->launch->grid[1] * block->launch->grid[2] * block->num_warps | 1;
    uint64_t warp = block->number * block->num_warps + at->warp->index;
    uint32_t words = instruction->size >= 4 ? instruction->size / 4 : 1, bytes = instruction->size < 4 ? instruction->size : 4;
    for (uint32_t word = 0; word < words; word++)
        EACH_LANE {
            if (!(at->mask >> lane & 1)) continue;
            uint64_t offset = (addresses[lane] & (WINDOW_BYTES - 1)) + 4 * word;
            uint64_t start = LOCAL_WINDOW + ((offset >> 2) * stride + warp) * 128 + 4 * (uint32_t)lane + (offset & 3);
            touch_all(requests, start, bytes, instruction->access == ACCESS_STORE);
        }
}

// Whether of the lanes of a mask all neighbours, or all next but one, ask for the same.
static bool go_in_pairs(uint32_t mask, const uint64_t *addresses) {
    bool next_to = true, beyond = true;
    EACH_LANE {
        if (!(mask >> lane & 1)) continue;
        if (mask >> (lane ^ 1) & 1 && addresses[lane] != addresses[lane ^ 1]) next_to = false;
        if (mask >> (lane ^ 2) & 1 && addresses[lane] != addresses[lane ^ 2]) beyond = false;
    }
    return next_to || beyond;
}

// Distinct words of the busiest bank, of the lanes of a mask.
static uint32_t busiest_bank(uint32_t mask, const uint64_t *addresses, uint32_t size) {
    uint64_t words[32][LANES * 4];
    uint32_t counts[32] = {0}, most = 0;
    uint64_t before = ~0ull;
    EACH_LANE {
        if (!(mask >> lane & 1) || addresses[lane] == before) continue;  // the lane before asks for the same
        before = addresses[lane];
        uint64_t first = (addresses[lane] & (WINDOW_BYTES - 1)) >> 2, last = ((addresses[lane] & (WINDOW_BYTES - 1)) + size - 1) >> 2;
        for (uint64_t word = first; word <= last; word++) {
            uint32_t bank = word & 31, k = 0;
            while (k < counts[bank] && words[bank][k] != word) k++;
            if (k == counts[bank]) words[bank][counts[bank]++] = word;
            if (counts[bank] > most) most = counts[bank];
        }
    }
    return most;
}

// Words that the banks give one after the other. Lanes of 64-bit accesses ask in halves of the warp and those of 128-bit
// ones in quarters; loads of two of them that go in pairs are one (runner/readers/accelsim/accesses.py has the source).
static uint32_t bank_words(const Context *at, const uint64_t *addresses) {
    const uint32_t size = at->instruction->size, lanes = size >= 16 ? 8 : size >= 8 ? 16 : 32;
    const bool is_load = at->instruction->access == ACCESS_LOAD;
    uint32_t total = 0;
    for (uint32_t first = 0; first < LANES; first += 2 * lanes) {
        const uint32_t half = (lanes < 32 ? (1u << lanes) - 1 : ~0u) << first, other = lanes < 32 ? half << lanes : 0;
        const uint32_t one = at->mask & half, two = at->mask & other;
        if (!two || !one || (is_load && go_in_pairs(one | two, addresses))) total += busiest_bank(one | two, addresses, size);
        else total += busiest_bank(one, addresses, size) + busiest_bank(two, addresses, size);
    }
    return total;
}

// Adds the requests of the instruction that was recorded last.
static void add_requests(const Context *at, const Requests *requests) {
    Record *record = &at->warp->record;
    const uint32_t count = requests->count > 255 ? 255 : requests->count;
    record->accesses[record->num_rows - 1] = (uint8_t)count;
    if (at->block->counts_only) {
        record->num_sectors += count;
        return;
    }
    if (record->num_sectors + count > record->room_sectors) {
        const uint64_t before = room_bytes(record);
        record->room_sectors = 2 * record->room_sectors + MOST_REQUESTS;
        record->sector = grown(record->sector, record->room_sectors, sizeof *record->sector);
        record->written = grown(record->written, record->room_sectors, sizeof *record->written);
        hold(at, before);
    }
    memcpy(record->sector + record->num_sectors, requests->sector, count * sizeof *requests->sector);
    memcpy(record->written + record->num_sectors, requests->written, count * sizeof *requests->written);
    record->num_sectors += count;
}

void record_pieces(const Context *at, const uint64_t *addresses, uint32_t count, uint32_t bytes) {
    if (!at->block->records) return;
    Requests requests = {.count = 0};
    const bool is_atomic = at->instruction->access == ACCESS_REDUCTION;
    for (uint32_t k = 0; k < count; k++) {
        if (is_atomic) touch_atomically(&requests, addresses[k], bytes);
        else touch_all(&requests, addresses[k], bytes, at->instruction->access == ACCESS_STORE);
    }
    for (uint32_t k = 0; k < requests.count && is_atomic; k++) requests.written[k] = 0xffffffffu;
    add_requests(at, &requests);
}

// Whether a lane accesses shared memory of another block of the cluster.
static bool is_of_others(const Context *at, const uint64_t *addresses) {
    if (at->block->num_peers <= 1) return false;
    EACH_LANE if (at->mask >> lane & 1 && (addresses[lane] >> 24 & 31) != at->block->rank) return true;
    return false;
}

void record_accesses(const Context *at, const uint64_t *addresses, int space) {
    if (!at->block->records || !at->mask) return;
    Record *record = &at->warp->record;
    uint32_t last = record->num_rows - 1;
    if (at->instruction->modifiers & GENERIC && space != SPACE_GLOBAL)  // the rows behind are of other spaces
        record->row[last] = (int32_t)(at->instruction->extra >> 16) + (space == SPACE_LOCAL ? 1 : is_of_others(at, addresses) ? 2 : 0);
    if (space == SPACE_SHARED) {
        record->accesses[last] = (uint8_t)bank_words(at, addresses);
        return;
    }
    Requests requests = {.count = 0};
    if (space == SPACE_LOCAL) local_requests(at, addresses, &requests);
    else global_requests(at, addresses, &requests);
    add_requests(at, &requests);
}

static void put(const Block *block, Sink *sink, const void *bytes, size_t size) {
    if (sink->file == NULL) {
        if (sink->count + size > sink->room) {
            sink->room = 2 * sink->room + size + (1 << 16);
            sink->bytes = grown(sink->bytes, sink->room, 1);
        }
        memcpy(sink->bytes + sink->count, bytes, size);
        sink->count += size;
        return;
    }
    if (size && fwrite(bytes, 1, size, sink->file) != size && !block->launch->problem[0])
        snprintf(block->launch->problem, sizeof block->launch->problem, "the record of a launch cannot be written; make room on the disk");
}

#define PUT_ALL(sink, field, count) \
    for (uint32_t k = 0; k < block->num_warps; k++) \
        put(block, sink, block->warps[k].record.field, block->warps[k].record.count * sizeof *block->warps[k].record.field)

static void write_lanes(const Block *block) {
    Sink *sink = block->lanes;
    uint32_t head[2] = {0, 0};
    for (uint32_t k = 0; k < block->num_warps; k++) {
        head[0] += block->warps[k].record.num_rows;
        head[1] += block->warps[k].record.num_addresses;
    }
    put(block, sink, head, sizeof head);
    PUT_ALL(sink, mask, num_rows);
    PUT_ALL(sink, lanes, num_rows);
    PUT_ALL(sink, address, num_addresses);
}

void begin_record(Block *block) {
    const Launch *launch = block->launch;
    bool is_chosen = !launch->counts_only && launch->num_chosen == 0;
    for (uint32_t k = 0; !launch->counts_only && k < launch->num_chosen && !is_chosen; k++) {
        const Range *range = &launch->chosen[k];
        is_chosen = block->number >= range->first && block->number <= range->last &&
                    (block->number - range->first) % range->step == 0;
    }
    block->records = launch->record != NULL;
    block->counts_only = !is_chosen;
    block->keeps_lanes = block->records && is_chosen && launch->lanes != NULL;
}

static void make_room_for_row(Launch *launch, uint32_t row) {
    if (row < launch->num_rows) return;
    const uint32_t room = 2 * row + 64;
    launch->of_row = grown(launch->of_row, room, sizeof *launch->of_row);
    memset(launch->of_row + launch->num_rows, 0, (room - launch->num_rows) * sizeof *launch->of_row);
    launch->num_rows = room;
}

void move_counts(Launch *into, Launch *from) {
    for (uint32_t row = 0; into != NULL && row < from->num_rows; row++) {
        if (from->of_row[row].executed == 0) continue;
        make_room_for_row(into, row);
        into->of_row[row].executed += from->of_row[row].executed;
        into->of_row[row].threads += from->of_row[row].threads;
        into->of_row[row].diverged += from->of_row[row].diverged;
    }
    free(from->of_row);
    from->of_row = NULL;
    from->num_rows = 0;
}

// Adds up what a block executed of each row.
static void count_rows(Launch *launch, const Record *record) {
    for (uint32_t k = 0; k < record->num_rows; k++) {
        uint32_t row = (uint32_t)record->row[k];
        make_room_for_row(launch, row);
        launch->of_row[row].executed++;
        launch->of_row[row].threads += record->active[k] & ~DIVERGED;
        launch->of_row[row].diverged += record->active[k] >= DIVERGED;
    }
}

static bool has_words(const Block *block) {
    for (uint32_t w = 0; w < block->num_warps; w++)
        if (block->warps[w].record.num_words) return true;
    return false;
}

static BlockHead head_of(const Block *block) {
    const uint32_t whole = has_words(block) ? BLOCK_WITH_WORDS : BLOCK_RECORDED;
    BlockHead head = {.kind = block->counts_only ? BLOCK_COUNTED : whole, .warps = block->num_warps, .number = block->number};
    for (uint32_t w = 0; w < block->num_warps; w++) {
        const Record *record = &block->warps[w].record;
        head.warp_instructions += record->num_rows;
        head.requests += record->num_sectors;
        for (uint32_t k = 0; k < record->num_rows; k++) head.thread_instructions += record->active[k] & ~DIVERGED;
    }
    if (!block->counts_only) {
        head.instructions = (uint32_t)head.warp_instructions;
        head.accesses = (uint32_t)head.requests;
    }
    return head;
}

void write_block(Block *block) {
    Sink *sink = block->record;
    const BlockHead head = head_of(block);
    if (block->number == 0 && block->launch->lanes != NULL) {
        const uint64_t windows[2] = {block->launch->shared_base, block->launch->local_base};
        put(block, block->lanes, windows, sizeof windows);
    }
    put(block, sink, &head, sizeof head);
    if (block->counts_only) {
        for (uint32_t w = 0; w < block->num_warps; w++) count_rows(block->launch, &block->warps[w].record);
        return;
    }
    for (uint32_t k = 0; k < block->num_warps; k++) put(block, sink, &block->warps[k].record.num_rows, 4);
    for (uint32_t k = 0; k < block->num_warps; k++) put(block, sink, &block->warps[k].record.num_sectors, 4);
    PUT_ALL(sink, row, num_rows);
    PUT_ALL(sink, active, num_rows);
    PUT_ALL(sink, accesses, num_rows);
    PUT_ALL(sink, sector, num_sectors);
    PUT_ALL(sink, written, num_sectors);
    if (head.kind == BLOCK_WITH_WORDS) {
        for (uint32_t k = 0; k < block->num_warps; k++) put(block, sink, &block->warps[k].record.num_words, 4);
        PUT_ALL(sink, word, num_words);
    }
    if (block->keeps_lanes) write_lanes(block);
}

void end_record(Launch *launch) {
    if (launch->record == NULL) return;
    const Block block = {.launch = launch};
    while (launch->num_rows && !launch->of_row[launch->num_rows - 1].executed) launch->num_rows--;  // room for more
    const BlockHead head = {.kind = LAST_BLOCK, .instructions = launch->problem[0] != 0, .accesses = launch->num_rows,
                            .number = launch->cluster[0] | (uint64_t)launch->cluster[1] << 16 | (uint64_t)launch->cluster[2] << 32,
                            .warp_instructions = launch->warp_instructions};
    Sink into = {.file = launch->record};
    put(&block, &into, &head, sizeof head);
    put(&block, &into, launch->of_row, launch->num_rows * sizeof *launch->of_row);
    free(launch->of_row);
    launch->of_row = NULL;
    launch->num_rows = 0;
}

void clear_record(Record *record) {
    record->num_rows = record->num_sectors = record->num_addresses = record->num_words = 0;
    record->open.is_set = false;
}

void free_record(Record *record) {
    atomic_fetch_sub(&held, room_bytes(record));
    free(record->row);
    free(record->active);
    free(record->accesses);
    free(record->sector);
    free(record->written);
    free(record->mask);
    free(record->lanes);
    free(record->address);
    free(record->word);
    memset(record, 0, sizeof *record);
}

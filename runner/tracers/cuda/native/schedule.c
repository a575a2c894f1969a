// Runs a launch. Blocks run in the order of the grid, one after the other, until one waits for what a later one does: then
// more of them run side by side, in turns, at most as many as the device holds at a time. Blocks of a cluster, and all of
// a cooperative launch, run side by side from their begin. Records stand in the order of the grid: what a block recorded
// that ends before an earlier one waits in a file of its own.
#include "schedule.h"

// Instructions of a turn; of a block alone before it is watched; without a change of memory before further blocks start;
// without one before a launch ends that asks for what nobody writes, and any launch. ASKS: passes in which all ask.
enum { SHARE = 1 << 16, ALONE = 1 << 20, PATIENCE = 1 << 22, MOST_ASKING = 1 << 24, ASKS = 16 };
static const uint64_t MOST_IDLE = 1ull << 32;

void out_of(Launch *launch, const char *what) {
    if (!launch->problem[0]) snprintf(launch->problem, sizeof launch->problem, "%s: %s", launch->kernel->name, what);
    if (!launch->error) launch->error = STOP_FAILURE;
}

// Constants that the system gives a launch, at the places where code of each architecture reads them: a cluster's shape,
// the reciprocals of its last two dimensions, clusters of the grid, and where blocks of cooperative launches meet.
static void give_environment(const Schedule *schedule, uint8_t *bank) {
    const Launch *launch = schedule->launch;
    const uint32_t architecture = launch->kernel->architecture;
    const uint32_t meeting = architecture >= 100 ? 0x254 : architecture >= 90 ? 0x44 : 0x8c;
    const uint32_t words[2] = {(uint32_t)(launch->workspace >> 32), (uint32_t)launch->workspace};
    memcpy(bank + meeting, words, 8);
    if (architecture < 90) return;
    const uint32_t first = architecture >= 100 ? 0x2a0 : 0x144, is_explicit = launch->cluster[0] > 0;
    memcpy(bank + (architecture >= 100 ? 0x36c : 0x140), &is_explicit, 4);
    memcpy(bank + first, schedule->shape, 12);
    for (int k = 1; k < 3; k++) {
        float part = 1.0f / (float)schedule->shape[k];
        if ((double)part * schedule->shape[k] < 1.0) part = nextafterf(part, 2.0f);  // a product is cut off to an integer
        memcpy(bank + first + 0xc + 4 * k, &part, 4);
    }
    memcpy(bank + first + (architecture >= 100 ? 0x20 : 0x18), schedule->clusters, 12);
    memcpy(bank + (architecture >= 100 ? 0x2cc : 0x188), &schedule->of_cluster, 4);
}

static uint8_t *bank_zero(const Schedule *schedule, uint32_t *bytes) {
    const Launch *launch = schedule->launch;
    const Kernel *kernel = launch->kernel;
    const uint32_t local_bytes = local_bytes_of(kernel);
    *bytes = kernel->parameter_offset + kernel->parameter_bytes + 4096;
    if (*bytes < 0x10000) *bytes = 0x10000;
    *bytes = (*bytes + 127) / 128 * 128;
    uint8_t *bank = aligned_alloc(128, *bytes);  // parameters have addresses, too, and keep their alignment
    if (bank == NULL) return NULL;
    memset(bank, 0, *bytes);
    const uint64_t constants = (uint64_t)(uintptr_t)kernel->banks[3];  // of the program, whose addresses may be taken
    memcpy(bank + (kernel->architecture >= 100 ? 0x120 : kernel->architecture >= 90 ? 0xd0 : 0x50), &constants, 8);
    if (kernel->architecture >= 90 && kernel->architecture < 100) {
        const uint64_t parameters = (uint64_t)(uintptr_t)bank + kernel->parameter_offset;
        memcpy(bank + 0x2c, &launch->dynamic_shared_bytes, 4);
        memcpy(bank + 0x198, &parameters, sizeof parameters);
    }
    if (kernel->architecture >= 100) {  // where code for sm_100 and sm_120 reads them
        const uint64_t parameters = (uint64_t)(uintptr_t)bank + kernel->parameter_offset;
        memcpy(bank + 0x2ac, &launch->dynamic_shared_bytes, 4);
        memcpy(bank + 0x2f8, &launch->local_base, 8);
        memcpy(bank + 0x348, &parameters, sizeof parameters);
        memcpy(bank + 0x360, launch->block, 12);
        memcpy(bank + 0x370, launch->grid, 12);
        memcpy(bank + 0x37c, &local_bytes, 4);
        give_environment(schedule, bank);
        if (kernel->parameter_bytes) memcpy(bank + kernel->parameter_offset, launch->parameters, kernel->parameter_bytes);
        return bank;
    }
    memcpy(bank, launch->block, 12);
    memcpy(bank + 0xc, launch->grid, 12);
    memcpy(bank + 0x18, &launch->shared_base, 8);
    memcpy(bank + 0x20, &launch->local_base, 8);
    memcpy(bank + 0x28, &local_bytes, 4);
    give_environment(schedule, bank);
    if (kernel->parameter_bytes) memcpy(bank + kernel->parameter_offset, launch->parameters, kernel->parameter_bytes);
    return bank;
}

Cluster *make_cluster(const Schedule *schedule, Launch *launch) {
    Cluster *cluster = calloc(1, sizeof *cluster);
    for (uint32_t k = 0; cluster && k < schedule->of_cluster; k++) {
        Block *block = cluster->members[k] = new_block(launch, schedule->bank_zero, schedule->bank_bytes);
        if (block == NULL) {
            free_clusters(cluster);
            return NULL;
        }
        block->cluster = cluster;
        block->rank = k;
        block->peers = cluster->members;
        block->num_peers = schedule->of_cluster;
        cluster->size = k + 1;
    }
    return cluster;
}

void place_of_block(const Schedule *schedule, uint64_t cluster, uint32_t member, uint32_t ctaid[3]) {
    for (int k = 0; k < 3; k++) {
        ctaid[k] = (uint32_t)(cluster % schedule->clusters[k]) * schedule->shape[k] + member % schedule->shape[k];
        cluster /= schedule->clusters[k];
        member /= schedule->shape[k];
    }
}

// Start the grid's next cluster, behind those that run.
static bool start(Schedule *schedule) {
    Cluster *cluster = schedule->free, **place = &schedule->running;
    if (cluster) schedule->free = cluster->next;
    else cluster = make_cluster(schedule, schedule->launch);
    if (cluster == NULL) return false;
    for (uint32_t k = 0; k < cluster->size; k++) {
        uint32_t ctaid[3];
        place_of_block(schedule, schedule->started, k, ctaid);
        begin_block(cluster->members[k], ctaid);
    }
    schedule->started++;
    while (*place) place = &(*place)->next;
    cluster->next = NULL;
    *place = cluster;
    schedule->resident += cluster->size;
    return true;
}

static bool copy(FILE *from, long begin, long end, FILE *to) {
    char bytes[1 << 16];
    if (fseek(from, begin, SEEK_SET)) return false;
    while (begin < end) {
        const size_t size = end - begin < (long)sizeof bytes ? (size_t)(end - begin) : sizeof bytes;
        if (fread(bytes, 1, size, from) != size || fwrite(bytes, 1, size, to) != size) return false;
        begin += (long)size;
    }
    return true;
}

// The record of a block for which an earlier one is not there yet.
static bool keep(Schedule *schedule, Block *block) {
    if (schedule->num_kept == schedule->room) {
        const size_t room = schedule->room ? 2 * schedule->room : 64;
        Kept *more = realloc(schedule->kept, room * sizeof *more);
        if (more == NULL) return false;
        schedule->kept = more;
        schedule->room = room;
    }
    Kept *one = &schedule->kept[schedule->num_kept++];
    *one = (Kept){.number = block->number};
    for (int k = 0; k < 2; k++) {
        Sink *later = &schedule->later[k];
        if (schedule->into[k].file == NULL) continue;
        if (later->file == NULL) later->file = tmpfile();
        if (later->file == NULL || fseek(later->file, 0, SEEK_END)) return false;
        one->begin[k] = ftell(later->file);
    }
    block->record = &schedule->later[0];
    block->lanes = &schedule->later[1];
    write_block(block);
    for (int k = 0; k < 2; k++)
        if (schedule->later[k].file) one->end[k] = ftell(schedule->later[k].file);
    return true;
}

// Those of the kept records whose turn it is.
static bool write_kept(Schedule *schedule) {
    for (size_t k = 0; k < schedule->num_kept;) {
        const Kept one = schedule->kept[k];
        if (one.number != schedule->written) {
            k++;
            continue;
        }
        for (int which = 0; which < 2; which++) {
            FILE *into = schedule->into[which].file;
            if (into && !copy(schedule->later[which].file, one.begin[which], one.end[which], into)) return false;
        }
        schedule->kept[k] = schedule->kept[--schedule->num_kept];
        schedule->written++;
        k = 0;
    }
    return true;
}

static bool write_record(Schedule *schedule, Block *block) {
    if (!block->records) return true;
    bool written = true;
    if (block->number == schedule->written) {
        block->record = &schedule->into[0];
        block->lanes = &schedule->into[1];
        write_block(block);
        schedule->written++;
        if (schedule->num_kept) written = write_kept(schedule);
    } else {
        written = keep(schedule, block);
    }
    if (!written) out_of(schedule->launch, "the record of a launch cannot be written; make room on the disk");
    return written;
}

static bool has_ended(const Cluster *cluster) {
    for (uint32_t k = 0; k < cluster->size; k++)
        if (!cluster->members[k]->has_ended) return false;
    return true;
}

// What a pass through all blocks that run came to.
typedef struct {
    bool changed, asks;  // memory, or a block ended; all that ran ask for what has not changed
    uint64_t executed;
} Pass;

static bool run_cluster(Schedule *schedule, Cluster *cluster, uint64_t share, Pass *pass) {
    for (uint32_t k = 0; k < cluster->size; k++) {
        Block *block = cluster->members[k];
        if (block->has_ended) continue;
        const uint64_t changes = block->changes, executed = block->executed;
        const bool watched = block->watches;
        const enum Turn turn = run_turn(block, share);
        pass->executed += block->executed - executed;
        schedule->executed += block->executed - executed;
        if (turn == TURN_FAILS) return false;
        pass->changed |= turn == TURN_ENDS || block->changes != changes || (!watched && turn == TURN_GOES_ON);
        pass->asks &= turn != TURN_GOES_ON;
        block->watches = true;
        if (turn == TURN_ENDS && !write_record(schedule, block)) return false;
    }
    return true;
}

static bool run_pass(Schedule *schedule, Pass *pass) {
    const uint64_t share = schedule->resident == 1 ? ALONE : SHARE;
    *pass = (Pass){.asks = true};
    for (Cluster **place = &schedule->running; *place;) {
        Cluster *cluster = *place;
        if (!run_cluster(schedule, cluster, share, pass)) return false;
        if (!has_ended(cluster)) {
            place = &cluster->next;
            continue;
        }
        *place = cluster->next;
        cluster->next = schedule->free;
        schedule->free = cluster;
        schedule->resident -= cluster->size;
    }
    return true;
}

static bool waits_for_ever(const Schedule *schedule) {
    for (const Cluster *each = schedule->running; each; each = each->next)
        for (uint32_t k = 0; k < each->size; k++)
            if (!each->members[k]->has_ended) tell_waiting(each->members[k]);
    return false;
}

static bool start_or_tell(Schedule *schedule) {
    if (start(schedule)) return true;
    out_of(schedule->launch, "no memory is left to run a block in");
    return false;
}

bool run_until(Schedule *schedule, uint64_t end) {
    uint64_t idle = 0;  // instructions since memory changed
    while (schedule->running || schedule->started < end) {
        const bool is_room = schedule->started < schedule->total && schedule->resident + schedule->of_cluster <= schedule->limit;
        const bool together = schedule->launch->is_cooperative && is_room;
        if ((schedule->running == NULL || together) && !start_or_tell(schedule)) return false;
        if (together) continue;
        Pass pass;
        if (!run_pass(schedule, &pass)) return false;
        idle = pass.changed ? 0 : idle + pass.executed;
        schedule->asked = pass.asks && !pass.changed ? schedule->asked + 1 : 0;
        if (pass.changed || !schedule->running) continue;
        if (is_room && (schedule->asked >= ASKS || !pass.executed || idle >= PATIENCE)) {
            if (!start_or_tell(schedule)) return false;
        } else if (!pass.executed || (pass.asks && idle >= MOST_ASKING) || idle >= MOST_IDLE) {
            return waits_for_ever(schedule);
        }
    }
    return true;
}

void free_clusters(Cluster *first) {
    while (first) {
        Cluster *next = first->next;
        for (uint32_t k = 0; k < first->size; k++) free_block(first->members[k]);
        free(first);
        first = next;
    }
}

int sass_run(Launch *launch) {
    Schedule schedule = {.launch = launch, .of_cluster = 1, .total = 1, .limit = launch->most_resident,
                         .into = {{.file = launch->record}, {.file = launch->lanes}}};
    launch->problem[0] = 0;
    launch->error = 0;
    launch->chunks[0] = launch->chunks[1] = 0;
    memset(launch->system_calls, 0, sizeof launch->system_calls);
    for (int k = 0; k < 3; k++) {
        schedule.shape[k] = launch->cluster[k] ? launch->cluster[k] : 1;
        schedule.of_cluster *= schedule.shape[k];
        schedule.clusters[k] = launch->grid[k] / schedule.shape[k];
        schedule.total *= schedule.clusters[k];
    }
    if (schedule.limit < schedule.of_cluster) schedule.limit = schedule.of_cluster;
    schedule.bank_zero = bank_zero(&schedule, &schedule.bank_bytes);
    if (schedule.of_cluster > MOST_OF_CLUSTER) out_of(launch, "a cluster has more than 16 blocks");
    else if (schedule.bank_zero == NULL) out_of(launch, "no memory is left to run a block in");
    else if (launch->workers > 1) run_by_workers(&schedule);
    else run_until(&schedule, schedule.total);
    launch->warp_instructions = schedule.executed;
    free_clusters(schedule.running);
    free_clusters(schedule.free);
    end_record(launch);
    for (int k = 0; k < 2; k++)
        if (schedule.later[k].file) fclose(schedule.later[k].file);
    free(schedule.kept);
    free(schedule.bank_zero);
    return launch->problem[0] ? -1 : 0;
}

// Runs the blocks of a launch by several threads, some million instructions of blocks at a time, and keeps what they leave
// if it is what the blocks leave one after the other: no worker read, or wrote with another value, what another one wrote
// meanwhile (track.c). Else memory goes back to what it was, and the same blocks run one after the other. So memory and
// records have the same bytes for any number of workers, whatever the threads' timing.
#include <stdatomic.h>

#include "schedule.h"
#include "track.h"

// CHUNK: instructions of a worker in one chunk; one LEAST'th of that: of a launch that is worth hiring workers, and one
// FIRST'th: that are run to see how many a block has; TASKS: pieces of a chunk for each worker; MOST_ASKED: turns of a
// block that waits.
enum { MOST_WORKERS = 64, CHUNK = 1 << 20, LEAST = 8, FIRST = 64, TASKS = 8, MOST_OF_BLOCK = 1 << 26, MOST_ASKED = 64 };
enum { KNOWN_KERNELS = 256, MOST_PENALTY = 256 };

typedef struct {
    uint32_t worker;
    size_t begin[2], end[2];  // in its sinks
} Task;

typedef struct Crew Crew;
typedef struct {
    Crew *crew;
    uint32_t number;
    Launch launch;            // a copy: what goes wrong is told by running again
    Cluster *cluster;
    Tracker tracker;
    Sink sinks[2][2];         // of this chunk and of the one before, which is being written
    uint64_t executed;
} Worker;

struct Crew {
    Schedule *schedule;
    Worker workers[MOST_WORKERS];
    uint64_t chunk;           // instructions of a worker
    uint32_t count, half;     // workers; which of their sinks are filled
    pthread_mutex_t gate;     // closed until it is known how many they are
    pthread_barrier_t barrier;
    Saved saved;
    uint64_t first, blocks, of_task;  // of the chunk
    Task *tasks[2];           // of this chunk and of the one before
    uint32_t num_tasks[2];
    atomic_uint next;
    atomic_bool gives_up, ends;
};

// What is known of kernels from their earlier blocks: how long one takes, and whether they get in each other's way.
static struct {
    const Kernel *kernel;
    uint64_t of_block;        // instructions
    uint32_t penalty, wait;   // chunks that run one after the other, since one had to run again
} known[KNOWN_KERNELS];

static bool run_alone(Worker *worker, Block *block) {
    for (uint32_t asked = 0; asked < MOST_ASKED && !atomic_load_explicit(&worker->crew->gives_up, memory_order_relaxed);) {
        const enum Turn turn = run_turn(block, MOST_OF_BLOCK);
        if (turn == TURN_ENDS) return true;
        if (turn != TURN_WAITS) return false;
        asked++;
    }
    return false;
}

static void run_tasks(Worker *worker) {
    Crew *crew = worker->crew;
    Block *block = worker->cluster->members[0];
    Sink *sinks = worker->sinks[crew->half];
    const uint64_t before = block->executed;
    block->record = &sinks[0];
    block->lanes = &sinks[1];
    sinks[0].count = sinks[1].count = 0;
    track_clear(&worker->tracker);
    memset(block->known, 0, sizeof block->known);
    for (;;) {
        const uint32_t number = atomic_fetch_add(&crew->next, 1);
        if (number >= crew->num_tasks[crew->half] || atomic_load(&crew->gives_up)) break;
        Task *task = &crew->tasks[crew->half][number];
        task->worker = worker->number;
        for (int k = 0; k < 2; k++) task->begin[k] = sinks[k].count;
        const uint64_t end = crew->blocks < (number + 1) * crew->of_task ? crew->blocks : (number + 1) * crew->of_task;
        for (uint64_t at = number * crew->of_task; at < end; at++) {
            uint32_t ctaid[3];
            place_of_block(crew->schedule, crew->first + at, 0, ctaid);
            begin_block(block, ctaid);
            if (!run_alone(worker, block)) {
                atomic_store(&crew->gives_up, true);
                return;
            }
            if (block->records) write_block(block);
        }
        for (int k = 0; k < 2; k++) task->end[k] = sinks[k].count;
    }
    worker->executed = block->executed - before;
}

static void compare(Worker *worker) {
    Crew *crew = worker->crew;
    for (uint32_t k = 0; k < crew->count && !atomic_load(&crew->gives_up); k++)
        if (k != worker->number && tracks_meet(&worker->tracker, &crew->workers[k].tracker)) atomic_store(&crew->gives_up, true);
}

static void *work(void *given) {
    Worker *worker = given;
    Crew *crew = worker->crew;
    pthread_mutex_lock(&crew->gate);
    pthread_mutex_unlock(&crew->gate);
    for (;;) {
        pthread_barrier_wait(&crew->barrier);
        if (atomic_load(&crew->ends)) return NULL;
        run_tasks(worker);
        pthread_barrier_wait(&crew->barrier);
        compare(worker);
        pthread_barrier_wait(&crew->barrier);
    }
}

// Writes what a half of the sinks holds, in the order of the grid.
static bool write_half(Crew *crew, uint32_t half) {
    Schedule *schedule = crew->schedule;
    for (uint32_t number = 0; number < crew->num_tasks[half]; number++) {
        const Task *task = &crew->tasks[half][number];
        for (int k = 0; k < 2; k++) {
            const Sink *from = &crew->workers[task->worker].sinks[half][k];
            const size_t bytes = task->end[k] - task->begin[k];
            if (!bytes || fwrite(from->bytes + task->begin[k], 1, bytes, schedule->into[k].file) == bytes) continue;
            out_of(schedule->launch, "the record of a launch cannot be written; make room on the disk");
            return false;
        }
    }
    crew->num_tasks[half] = 0;
    return true;
}

static void divide(Crew *crew, uint64_t blocks) {
    const uint64_t wanted = (uint64_t)crew->count * TASKS;
    crew->first = crew->schedule->started;
    crew->blocks = blocks;
    crew->of_task = (blocks + wanted - 1) / wanted;
    crew->num_tasks[crew->half] = (uint32_t)((blocks + crew->of_task - 1) / crew->of_task);
    atomic_store(&crew->next, 0);
    atomic_store(&crew->gives_up, false);
}

static void take_back(Crew *crew) {
    const Tracker *trackers[MOST_WORKERS];
    for (uint32_t k = 0; k < crew->count; k++) {
        trackers[k] = &crew->workers[k].tracker;
        move_counts(NULL, &crew->workers[k].launch);
    }
    tracks_undo(trackers, crew->count, &crew->saved);
    crew->num_tasks[crew->half] = 0;
}

// A chunk of blocks by all workers. False: the launch failed, as its blocks do one after the other.
static bool run_chunk(Crew *crew, uint64_t blocks, bool *is_kept) {
    Schedule *schedule = crew->schedule;
    divide(crew, blocks);
    saved_clear(&crew->saved);
    pthread_barrier_wait(&crew->barrier);
    const bool written = write_half(crew, !crew->half);  // while the others run
    run_tasks(&crew->workers[0]);
    pthread_barrier_wait(&crew->barrier);
    compare(&crew->workers[0]);
    pthread_barrier_wait(&crew->barrier);
    *is_kept = written && !atomic_load(&crew->gives_up);
    schedule->launch->chunks[*is_kept ? 0 : 1]++;
    if (!*is_kept) {
        take_back(crew);
        return written && run_until(schedule, schedule->started + blocks);
    }
    schedule->started += blocks;
    schedule->written += blocks;
    for (uint32_t k = 0; k < crew->count; k++) {
        schedule->executed += crew->workers[k].executed;
        move_counts(schedule->launch, &crew->workers[k].launch);
    }
    crew->half = !crew->half;
    return true;
}

static int find_nothing(uint64_t address, uint64_t *low, uint64_t *high) {
    (void)address, (void)low, (void)high;
    return 0;
}

static bool hire(Crew *crew, pthread_t *threads) {
    Schedule *schedule = crew->schedule;
    for (uint32_t k = 0; k < crew->count; k++) {
        Worker *worker = &crew->workers[k];
        *worker = (Worker){.crew = crew, .number = k, .launch = *schedule->launch};
        // what reaches memory by other ways than those that are followed finds none, and the blocks run again
        worker->launch.find_allocation = find_nothing;
        worker->launch.of_row = NULL;
        worker->launch.num_rows = 0;
        worker->tracker.find_allocation = schedule->launch->find_quietly;
        worker->tracker.saved = &crew->saved;
        worker->cluster = make_cluster(schedule, &worker->launch);
        if (worker->cluster == NULL) return false;
        worker->cluster->members[0]->tracker = &worker->tracker;
    }
    for (int half = 0; half < 2; half++) crew->tasks[half] = calloc((size_t)crew->count * TASKS, sizeof **crew->tasks);
    if (!crew->tasks[0] || !crew->tasks[1]) return false;
    pthread_mutex_lock(&crew->gate);
    uint32_t hired = 1;
    while (hired < crew->count && !pthread_create(&threads[hired], NULL, work, &crew->workers[hired])) hired++;
    crew->count = hired;
    pthread_barrier_init(&crew->barrier, NULL, hired);
    pthread_mutex_unlock(&crew->gate);
    return true;
}

static void dismiss(Crew *crew) {
    for (uint32_t k = 0; k < MOST_WORKERS; k++) {
        free_clusters(crew->workers[k].cluster);
        track_free(&crew->workers[k].tracker);
        free(crew->workers[k].launch.of_row);
        for (int half = 0; half < 2; half++)
            for (int which = 0; which < 2; which++) free(crew->workers[k].sinks[half][which].bytes);
    }
    saved_free(&crew->saved);
    pthread_mutex_destroy(&crew->gate);
    free(crew->tasks[0]);
    free(crew->tasks[1]);
    free(crew);
}

// Whether workers can follow all that a kernel does to memory.
static bool can_be_followed(const Kernel *kernel) {
    bool is_other[1024] = {false};
    for (size_t k = 0; k < sizeof OPS_NOT_FOLLOWED / sizeof *OPS_NOT_FOLLOWED; k++) is_other[OPS_NOT_FOLLOWED[k] % 1024] = true;
    for (uint32_t k = 0; k < kernel->num_instructions; k++)
        if (is_other[kernel->code[k].op % 1024]) return false;
    return true;
}

static uint32_t place_of_kernel(const Kernel *kernel) {
    uint32_t place = 0;
    while (place < KNOWN_KERNELS && known[place].kernel != kernel && known[place].kernel) place++;
    if (place == KNOWN_KERNELS) {
        memset(known, 0, sizeof known);
        place = 0;
    }
    known[place].kernel = kernel;
    return place;
}

static bool run_chunks(Crew *crew, uint32_t place) {
    Schedule *schedule = crew->schedule;
    bool goes_on = true;
    while (goes_on && schedule->started < schedule->total) {
        const uint64_t of_block = known[place].of_block ? known[place].of_block : 1, left = schedule->total - schedule->started;
        uint64_t blocks = (uint64_t)crew->count * crew->chunk / of_block;
        if (blocks < crew->count) blocks = crew->count;
        if (blocks > left) blocks = left;
        if (known[place].wait || blocks < 2 || blocks * of_block < crew->chunk / LEAST / 4) {
            if (known[place].wait) known[place].wait--;
            if (crew->num_tasks[!crew->half] && !write_half(crew, !crew->half)) return false;
            goes_on = run_until(schedule, schedule->started + blocks);
            continue;
        }
        bool is_kept;
        goes_on = run_chunk(crew, blocks, &is_kept);
        known[place].penalty = is_kept ? known[place].penalty / 2 : 2 * known[place].penalty + 1;
        if (known[place].penalty > MOST_PENALTY) known[place].penalty = MOST_PENALTY;
        known[place].wait = is_kept ? 0 : known[place].penalty;
        known[place].of_block = schedule->executed / schedule->started;
    }
    return goes_on && write_half(crew, !crew->half);
}

void run_by_workers(Schedule *schedule) {
    const Launch *launch = schedule->launch;
    pthread_t threads[MOST_WORKERS];
    const uint32_t place = place_of_kernel(launch->kernel);
    const uint64_t chunk = launch->chunk ? launch->chunk : CHUNK;
    if (schedule->of_cluster > 1 || launch->is_cooperative || !can_be_followed(launch->kernel)) {
        run_until(schedule, schedule->total);
        return;
    }
    if (known[place].of_block * schedule->total < chunk / LEAST)  // it is not known to be worth it
        while (schedule->started < schedule->total && schedule->executed < chunk / FIRST)
            if (!run_until(schedule, schedule->started + 1)) return;
    if (schedule->started) known[place].of_block = schedule->executed / schedule->started;
    const uint64_t left = schedule->total - schedule->started;
    bool is_worth = left > 1 && left * known[place].of_block >= chunk / LEAST;
    if (is_worth && known[place].wait) {
        known[place].wait--;
        is_worth = false;
    }
    Crew *crew = is_worth ? calloc(1, sizeof *crew) : NULL;
    if (crew == NULL) {
        run_until(schedule, schedule->total);
        return;
    }
    crew->schedule = schedule;
    crew->chunk = chunk;
    crew->count = launch->workers < MOST_WORKERS ? launch->workers : MOST_WORKERS;
    if (crew->count > left) crew->count = (uint32_t)left;
    pthread_mutex_init(&crew->gate, NULL);
    pthread_mutex_init(&crew->saved.mutex, NULL);
    if (hire(crew, threads)) {
        run_chunks(crew, place);
        atomic_store(&crew->ends, true);
        pthread_barrier_wait(&crew->barrier);
        for (uint32_t k = 1; k < crew->count; k++) pthread_join(threads[k], NULL);
        pthread_barrier_destroy(&crew->barrier);
    } else {
        out_of(schedule->launch, "no memory is left for workers; trace with --workers 1");
    }
    dismiss(crew);
}

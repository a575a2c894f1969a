// A block while it runs: its warps in turns of bounded length, until it ends or waits for other blocks.
#include <stdarg.h>

#include "warp.h"

enum { TURN = 4096, ROTATION = 1 << 16, STACK_BYTES = 1024, SLACK_ROWS = 4 };

void fail(const Context *at, const char *format, ...) {
    char *problem = at->block->launch->problem;
    if (problem[0]) return;
    if (at->block->launch->error == 0) at->block->launch->error = STOP_FAILURE;
    const Kernel *kernel = at->block->kernel;
    const char *name = kernel->name;
    uint32_t place = (uint32_t)(at->instruction - kernel->code), first = 0;
    for (uint32_t k = 0; k < kernel->num_parts; k++)
        if (place >= kernel->parts[k].first) name = kernel->parts[k].name, first = kernel->parts[k].first;
    int length = snprintf(problem, sizeof at->block->launch->problem, "%s+0x%x: ", name, (place - first) * 16);
    if (length < 0 || (size_t)length >= sizeof at->block->launch->problem) return;
    va_list words;
    va_start(words, format);
    vsnprintf(problem + length, sizeof at->block->launch->problem - (size_t)length, format, words);
    va_end(words);
}

static uint32_t guarded(const Warp *warp, const Instruction *instruction, uint32_t mask) {
    if (instruction->guard == PT) return instruction->guard_flags & FLAG_INVERTED ? 0 : mask;
    uint32_t held = instruction->guard_flags & FLAG_INDEXED ? warp->uniform_predicates[instruction->guard] : warp->predicates[instruction->guard];
    return mask & (instruction->guard_flags & FLAG_INVERTED ? ~held : held);
}

// Execute a warp for a turn at most, or until it waits or ends. False: the launch failed.
static bool run_warp(Block *block, Warp *warp) {
    Context at = {.block = block, .warp = warp};
    const char *problem = block->launch->problem;
    uint32_t steps = 0;
    Group *group = running(warp);
    while (group != NULL && steps++ < TURN) {
        if (group->pc >= block->kernel->num_instructions) {
            at.instruction = block->kernel->code + group->pc;
            fail(&at, "execution runs off the end of the function");
            return false;
        }
        const Instruction *instruction = at.instruction = block->kernel->code + group->pc;
        at.mask = guarded(warp, instruction, group->mask);
        block->executed++;
        if (block->records) {
            record_instruction(&at);
            if (problem[0]) return false;
        }
        if (is_control(instruction->op)) {
            enum Outcome outcome = execute_control(&at, group);
            if (outcome == FAILED) return false;
            group = running(warp);
            if (outcome == WARP_WAITS) return true;
            continue;
        }
        if (at.mask) {
            if (!execute_integer(&at) && !execute_float(&at) && !execute_memory(&at) && !execute_warp(&at) &&
                !execute_conversion(&at) && !execute_matrix(&at) && !execute_halves(&at) && !execute_packed(&at) &&
                !execute_warpgroup(&at) && !execute_pairs(&at) && !execute_barrier(&at) && !execute_tensor(&at) && !execute_bulk(&at) &&
                !execute_texture(&at)) {
                block->launch->error = STOP_INSTRUCTION;
                fail(&at, "this instruction is not executed; please report its line of cuobjdump -sass");
            }
            if (problem[0]) return false;
        }
        group->pc++;
        if (warp->polls || ++warp->since == ROTATION) {  // lanes that spin let others on
            warp->since = 0;
            if (warp->num_groups > 1) {
                Group self = *group;
                memmove(&warp->groups[1], &warp->groups[0], (size_t)(warp->num_groups - 1) * sizeof(Group));
                warp->groups[0] = self;
                group = running(warp);
            }
            if (warp->polls) return true;
        }
    }
    return true;
}

static bool can_run(const Warp *warp) {
    for (int k = 0; k < warp->num_groups; k++)
        if (warp->groups[k].state == READY) return true;
    return false;
}

static void release(Block *block, uint32_t number) {
    BlockBarrier *barrier = &block->barriers[number];
    for (uint32_t w = 0; w < block->num_warps; w++)
        for (int k = 0; k < block->warps[w].num_groups; k++) {
            Group *group = &block->warps[w].groups[k];
            if (group->state != AT_BLOCK_BARRIER || group->barrier != number) continue;
            group->state = READY;
            group->pc++;
        }
    if (number >= NUM_BLOCK_BARRIERS) return;
    BlockBarrier *results = &block->barriers[0];  // B2R asks for what the last reduction gave
    results->result_kind = barrier->red_kind;
    results->result_count = barrier->red_count;
    results->result_and = barrier->red_and;
    results->result_or = barrier->red_or;
    barrier->arrived = barrier->expected = barrier->red_count = barrier->red_or = 0;
    barrier->red_and = 1;
}

// Open barriers at which as many threads are as are expected. Whether one was.
static bool open_barriers(Block *block) {
    bool opened = false;
    const uint32_t last = block->has_warp_groups ? NUM_BLOCK_BARRIERS + NUM_WARP_GROUPS : NUM_BLOCK_BARRIERS;
    for (uint32_t number = 0; number < last; number++) {
        uint32_t waiting = 0, alive = 0, whole_warps = 0;
        const uint32_t first = number < NUM_BLOCK_BARRIERS ? 0 : (number - NUM_BLOCK_BARRIERS) * WARPS_OF_GROUP;
        const uint32_t end = number < NUM_BLOCK_BARRIERS || first + WARPS_OF_GROUP > block->num_warps ? block->num_warps : first + WARPS_OF_GROUP;
        for (uint32_t w = first; w < end; w++) {
            const Warp *warp = &block->warps[w];
            uint32_t mine = 0;
            alive += (uint32_t)__builtin_popcount(warp->alive);
            for (int k = 0; k < warp->num_groups; k++)
                if (warp->groups[k].state == AT_BLOCK_BARRIER && warp->groups[k].barrier == number) mine |= warp->groups[k].mask;
            waiting += (uint32_t)__builtin_popcount(mine);
            whole_warps += mine ? LANES : 0;  // a warp counts whole
        }
        BlockBarrier *barrier = &block->barriers[number];
        if (!waiting) continue;
        if (barrier->expected ? whole_warps + barrier->arrived >= barrier->expected : waiting == alive) {
            release(block, number);
            opened = true;
        }
    }
    return opened;
}

static bool waits_for_cluster(const Warp *warp) {
    for (int k = 0; k < warp->num_groups; k++)
        if (warp->groups[k].state == AT_CLUSTER_BARRIER) return true;
    return false;
}

// Groups that wait go on where their lanes' arrival was in a phase that is complete.
static bool leave_cluster_barrier(Block *block) {
    bool left = false;
    for (uint32_t w = 0; w < block->num_warps; w++)
        for (int k = 0; k < block->warps[w].num_groups; k++) {
            Group *group = &block->warps[w].groups[k];
            if (group->state != AT_CLUSTER_BARRIER || group->mask & block->warps[w].at_cluster) continue;
            group->state = READY;
            group->pc++;
            left = true;
        }
    return left;
}

bool open_cluster(Cluster *cluster) {
    bool is_complete = true, left = false;
    for (uint32_t k = 0; k < cluster->size; k++)
        for (uint32_t w = 0; w < cluster->members[k]->num_warps; w++) {
            const Warp *warp = &cluster->members[k]->warps[w];
            is_complete &= (warp->alive & ~warp->at_cluster) == 0;
        }
    for (uint32_t k = 0; k < cluster->size; k++) {
        Block *block = cluster->members[k];
        for (uint32_t w = 0; is_complete && w < block->num_warps; w++) block->warps[w].at_cluster = 0;
        left |= leave_cluster_barrier(block);
    }
    return left;
}

static void begin_warp(Block *block, Warp *warp, uint32_t index) {
    const Launch *launch = block->launch;
    memset(warp->registers, 0, (block->num_registers + SLACK_ROWS) * sizeof *warp->registers);
    memset(warp->predicates, 0, sizeof warp->predicates);
    memset(warp->uniforms, 0, sizeof warp->uniforms);
    memset(warp->uniform_predicates, 0, sizeof warp->uniform_predicates);
    memset(warp->barriers, 0, sizeof warp->barriers);
    warp->predicates[PT] = warp->uniform_predicates[PT] = 0xffffffffu;
    if (warp->has_local) memset(warp->local, 0, (size_t)LANES * block->local_bytes);
    warp->has_local = warp->polls = false;
    warp->at_cluster = 0;
    warp->poll_pc = ~0u;
    warp->since = 0;
    warp->index = index;
    warp->alive = 0;
    EACH_LANE {
        uint32_t thread = index * LANES + (uint32_t)lane;
        if (thread < block->num_threads) warp->alive |= 1u << lane;
        warp->tid[0][lane] = thread % launch->block[0];
        warp->tid[1][lane] = thread / launch->block[0] % launch->block[1];
        warp->tid[2][lane] = thread / launch->block[0] / launch->block[1];
    }
    warp->groups[0] = (Group){warp->alive, 0, READY, 0, 0};
    warp->num_groups = 1;
    clear_record(&warp->record);
}

void tell_waiting(Block *block) {
    for (uint32_t w = 0; w < block->num_warps; w++) {
        const Warp *warp = &block->warps[w];
        if (!warp->num_groups) continue;
        const Group *group = &warp->groups[warp->num_groups - 1];
        Context at = {block, &block->warps[w], block->kernel->code + group->pc, group->mask};
        block->launch->error = STOP_WAITS;
        const char *what = group->state == READY                ? "asks again and again for what no block that can run writes"
                           : group->state == AT_CLUSTER_BARRIER ? "is at a barrier of the cluster that other blocks never reach"
                                                                : "is at a barrier that the others never reach";
        fail(&at, "block (%u,%u,%u) waits for ever: warp %u %s", block->ctaid[0], block->ctaid[1], block->ctaid[2], w, what);
        return;
    }
}

uint32_t local_bytes_of(const Kernel *kernel) { return (kernel->local_bytes + STACK_BYTES + 15) & ~15u; }

// Registers of a thread: all, where warps take others' as they run.
static uint32_t registers_of(const Kernel *kernel) {
    for (uint32_t k = 0; kernel->architecture >= 90 && k < kernel->num_instructions; k++)
        if (kernel->code[k].op == OP_SETMAXREG) return 255;
    return kernel->num_registers < 255 ? kernel->num_registers : 255;
}

Block *new_block(Launch *launch, const uint8_t *bank_zero, uint32_t bank_bytes) {
    const Kernel *kernel = launch->kernel;
    Block *block = calloc(1, sizeof *block);
    if (block == NULL) return NULL;
    block->launch = launch;
    block->kernel = kernel;
    block->num_threads = launch->block[0] * launch->block[1] * launch->block[2];
    block->num_warps = (block->num_threads + LANES - 1) / LANES;
    block->num_registers = registers_of(kernel);
    block->local_bytes = local_bytes_of(kernel);
    block->shared_bytes = kernel->shared_bytes + launch->dynamic_shared_bytes;
    memcpy(block->banks, kernel->banks, sizeof block->banks);
    memcpy(block->bank_bytes, kernel->bank_bytes, sizeof block->bank_bytes);
    block->banks[0] = bank_zero;
    block->bank_bytes[0] = bank_bytes;
    block->shared = calloc(1, block->shared_bytes + 16);
    block->warps = calloc(block->num_warps, sizeof *block->warps);
    bool whole = block->shared && block->warps;
    for (uint32_t w = 0; whole && w < block->num_warps; w++) {
        block->warps[w].registers = calloc(block->num_registers + SLACK_ROWS, sizeof *block->warps[w].registers);
        block->warps[w].local = calloc(LANES, block->local_bytes);
        whole = block->warps[w].registers && block->warps[w].local;
    }
    if (whole) return block;
    free_block(block);
    return NULL;
}

void free_block(Block *block) {
    for (uint32_t w = 0; block->warps && w < block->num_warps; w++) {
        free(block->warps[w].registers);
        free(block->warps[w].local);
        free_record(&block->warps[w].record);
    }
    free(block->warps);
    free(block->shared);
    free(block);
}

void begin_block(Block *block, const uint32_t ctaid[3]) {
    const uint32_t *grid = block->launch->grid;
    memcpy(block->ctaid, ctaid, sizeof block->ctaid);
    block->number = ((uint64_t)ctaid[2] * grid[1] + ctaid[1]) * grid[0] + ctaid[0];
    block->begun = block->executed;
    begin_record(block);
    block->watches = block->has_ended = false;
    block->fruitless = 0;
    block->changes = 0;
    if (block->shared_bytes) memset(block->shared, 0, block->shared_bytes);
    memset(block->barriers, 0, sizeof block->barriers);
    for (uint32_t number = 0; number < NUM_BLOCK_BARRIERS; number++) block->barriers[number].red_and = 1;
    for (uint32_t w = 0; w < block->num_warps; w++) begin_warp(block, &block->warps[w], w);
}

enum Turn run_turn(Block *block, uint64_t most) {
    const uint64_t first = block->executed;
    for (;;) {
        bool ran = false, left = false, asks = true, is_in_cluster = false;
        for (uint32_t w = 0; w < block->num_warps; w++) {
            Warp *warp = &block->warps[w];
            left |= warp->num_groups > 0;
            is_in_cluster |= waits_for_cluster(warp);
            if (!can_run(warp)) continue;
            ran = true;
            warp->polls = false;
            if (!run_warp(block, warp)) return TURN_FAILS;
            asks &= warp->polls;
        }
        if (!left) {
            block->has_ended = true;
            return block->launch->problem[0] ? TURN_FAILS : TURN_ENDS;
        }
        const bool opened = open_barriers(block) | (is_in_cluster && open_cluster(block->cluster));
        if (!opened && !ran && !is_in_cluster) {
            tell_waiting(block);
            return TURN_FAILS;
        }
        if (!opened && (!ran || asks)) return TURN_WAITS;
        if (block->executed - first >= most) return TURN_GOES_ON;
    }
}

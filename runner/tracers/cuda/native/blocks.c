// Runs a launch: its blocks in the order of the grid, the warps of a block in turns of bounded length.
#include <stdarg.h>

#include "warp.h"

enum { TURN = 4096, ROTATION = 1 << 16, STACK_BYTES = 1024, SLACK_ROWS = 4, FIRST_PARAMETER = 0x160 };

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
    uint32_t steps = 0, since = 0;
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
        if (block->records) record_instruction(&at);
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
                !execute_warpgroup(&at)) {
                block->launch->error = STOP_INSTRUCTION;
                fail(&at, "this instruction is not executed; please report its line of cuobjdump -sass");
            }
            if (problem[0]) return false;
        }
        group->pc++;
        if (++since == ROTATION && warp->num_groups > 1) {  // lanes that spin let others on
            Group self = *group;
            memmove(&warp->groups[1], &warp->groups[0], (size_t)(warp->num_groups - 1) * sizeof(Group));
            warp->groups[0] = self;
            group = running(warp);
            since = 0;
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
    BlockBarrier *results = &block->barriers[0];  // B2R asks for what the last reduction gave
    results->result_count = barrier->red_count;
    results->result_and = barrier->red_and;
    results->result_or = barrier->red_or;
    barrier->arrived = barrier->expected = barrier->red_count = barrier->red_or = 0;
    barrier->red_and = 1;
}

// Open barriers at which as many threads are as are expected. Whether one was.
static bool open_barriers(Block *block) {
    bool opened = false;
    for (uint32_t number = 0; number < NUM_BLOCK_BARRIERS; number++) {
        uint32_t waiting = 0, alive = 0, whole_warps = 0;
        for (uint32_t w = 0; w < block->num_warps; w++) {
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

static void begin_warp(Block *block, Warp *warp, uint32_t index) {
    const Launch *launch = block->launch;
    memset(warp->registers, 0, (block->num_registers + SLACK_ROWS) * sizeof *warp->registers);
    memset(warp->predicates, 0, sizeof warp->predicates);
    memset(warp->uniforms, 0, sizeof warp->uniforms);
    memset(warp->uniform_predicates, 0, sizeof warp->uniform_predicates);
    memset(warp->barriers, 0, sizeof warp->barriers);
    warp->predicates[PT] = warp->uniform_predicates[PT] = 0xffffffffu;
    warp->index = index;
    warp->alive = 0;
    EACH_LANE {
        uint32_t thread = index * LANES + (uint32_t)lane;
        if (thread < block->num_threads) warp->alive |= 1u << lane;
        warp->tid[0][lane] = thread % launch->block[0];
        warp->tid[1][lane] = thread / launch->block[0] % launch->block[1];
        warp->tid[2][lane] = thread / launch->block[0] / launch->block[1];
    }
    warp->groups[0] = (Group){warp->alive, 0, READY, 0};
    warp->num_groups = 1;
    clear_record(&warp->record);
}

static void tell_deadlock(Block *block) {
    for (uint32_t w = 0; w < block->num_warps; w++) {
        const Warp *warp = &block->warps[w];
        if (!warp->num_groups) continue;
        const Group *group = &warp->groups[warp->num_groups - 1];
        Context at = {block, &block->warps[w], block->kernel->code + group->pc, group->mask};
        block->launch->error = STOP_WAITS;
        fail(&at, "block (%u,%u,%u) waits for ever: threads of warp %u are at a barrier that the others never reach",
             block->ctaid[0], block->ctaid[1], block->ctaid[2], w);
        return;
    }
}

static bool run_block(Block *block) {
    if (block->shared_bytes) memset(block->shared, 0, block->shared_bytes);
    memset(block->barriers, 0, sizeof block->barriers);
    for (uint32_t number = 0; number < NUM_BLOCK_BARRIERS; number++) block->barriers[number].red_and = 1;
    for (uint32_t w = 0; w < block->num_warps; w++) begin_warp(block, &block->warps[w], w);
    for (;;) {
        bool ran = false, left = false;
        for (uint32_t w = 0; w < block->num_warps; w++) {
            Warp *warp = &block->warps[w];
            left |= warp->num_groups > 0;
            if (!can_run(warp)) continue;
            ran = true;
            if (!run_warp(block, warp)) return false;
        }
        if (!left) break;
        if (!open_barriers(block) && !ran) {
            tell_deadlock(block);
            return false;
        }
    }
    if (block->records) write_block(block);
    return !block->launch->problem[0];
}

// What code for sm_90 reads of clusters: their shape, the reciprocals of its last two numbers (rounded up, so that a
// quotient that is cut is right), how many there are, and the blocks of one. Here each block is a cluster.
static void put_clusters(uint8_t *bank, const Launch *launch) {
    const uint32_t shape[3] = {1, 1, 1}, blocks = 1;
    const float reciprocals[2] = {1, 1};
    memcpy(bank + 0x144, shape, sizeof shape);
    memcpy(bank + 0x154, reciprocals, sizeof reciprocals);
    memcpy(bank + 0x15c, launch->grid, sizeof launch->grid);
    memcpy(bank + 0x188, &blocks, sizeof blocks);
}

static uint8_t *bank_zero(const Launch *launch, uint32_t local_bytes, uint32_t *bytes) {
    const Kernel *kernel = launch->kernel;
    *bytes = kernel->parameter_offset + kernel->parameter_bytes + 4096;
    if (*bytes < 0x10000) *bytes = 0x10000;
    *bytes = (*bytes + 127) / 128 * 128;
    uint8_t *bank = aligned_alloc(128, *bytes);  // parameters have addresses, too, and keep their alignment
    if (bank == NULL) return NULL;
    memset(bank, 0, *bytes);
    if (kernel->architecture >= 90 && kernel->architecture < 100) {
        const uint64_t parameters = (uint64_t)(uintptr_t)bank + kernel->parameter_offset;
        memcpy(bank + 0x2c, &launch->dynamic_shared_bytes, 4);
        memcpy(bank + 0x198, &parameters, sizeof parameters);
        put_clusters(bank, launch);
    }
    memcpy(bank, launch->block, 12);
    memcpy(bank + 0xc, launch->grid, 12);
    memcpy(bank + 0x18, &launch->shared_base, 8);
    memcpy(bank + 0x20, &launch->local_base, 8);
    memcpy(bank + 0x28, &local_bytes, 4);
    if (kernel->parameter_bytes) memcpy(bank + kernel->parameter_offset, launch->parameters, kernel->parameter_bytes);
    return bank;
}

int sass_run(Launch *launch) {
    const Kernel *kernel = launch->kernel;
    Block block = {.launch = launch, .kernel = kernel, .records = launch->record != NULL,
                   .keeps_lanes = launch->record != NULL && launch->lanes != NULL};
    launch->problem[0] = 0;
    launch->error = 0;
    memset(launch->system_calls, 0, sizeof launch->system_calls);
    launch->warp_instructions = 0;
    block.num_threads = launch->block[0] * launch->block[1] * launch->block[2];
    block.num_warps = (block.num_threads + LANES - 1) / LANES;
    block.num_registers = kernel->num_registers < 255 ? kernel->num_registers : 255;
    block.local_bytes = (kernel->local_bytes + STACK_BYTES + 15) & ~15u;
    block.shared_bytes = kernel->shared_bytes + launch->dynamic_shared_bytes;
    memcpy(block.banks, kernel->banks, sizeof block.banks);
    memcpy(block.bank_bytes, kernel->bank_bytes, sizeof block.bank_bytes);
    uint32_t bank_bytes;
    uint8_t *bank = bank_zero(launch, block.local_bytes, &bank_bytes);
    block.banks[0] = bank;
    block.bank_bytes[0] = bank_bytes;
    block.shared = calloc(1, block.shared_bytes + 16);
    block.warps = calloc(block.num_warps, sizeof *block.warps);
    bool whole = bank && block.shared && block.warps;
    for (uint32_t w = 0; whole && w < block.num_warps; w++) {
        block.warps[w].registers = calloc(block.num_registers + SLACK_ROWS, sizeof *block.warps[w].registers);
        block.warps[w].local = calloc(LANES, block.local_bytes);
        whole = block.warps[w].registers && block.warps[w].local;
    }
    if (!whole) snprintf(launch->problem, sizeof launch->problem, "%s: no memory is left to run a block in", kernel->name);
    for (block.ctaid[2] = 0; whole && block.ctaid[2] < launch->grid[2]; block.ctaid[2]++)
        for (block.ctaid[1] = 0; whole && block.ctaid[1] < launch->grid[1]; block.ctaid[1]++)
            for (block.ctaid[0] = 0; whole && block.ctaid[0] < launch->grid[0]; block.ctaid[0]++) {
                whole = run_block(&block);
                block.number++;
            }
    launch->warp_instructions = block.executed;
    for (uint32_t w = 0; block.warps && w < block.num_warps; w++) {
        free(block.warps[w].registers);
        free(block.warps[w].local);
        free_record(&block.warps[w].record);
    }
    free(block.warps);
    free(block.shared);
    free(bank);
    return launch->problem[0] ? -1 : 0;
}

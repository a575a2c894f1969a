// Which lanes of a warp run: groups of lanes, convergence barriers, barriers of the block.
//
// Where lanes part, hardware runs the smaller group first, and what falls through where both are of one size (all
// divergent branches of stored traces of sm_80 and sm_90 do). Lanes meet again at BSYNC, which counts lanes that wait
// and are in the barrier's mask at that time, and at WARPSYNC, where each lane names those that it waits for.
#include "system.h"
#include "warp.h"
#include "words.h"

static void remove_group(Warp *warp, int place) {
    warp->num_groups--;
    memmove(&warp->groups[place], &warp->groups[place + 1], (size_t)(warp->num_groups - place) * sizeof(Group));
}

// The group that runs next, as the last one; NULL where all wait.
Group *running(Warp *warp) {
    int place = warp->num_groups - 1;
    while (place >= 0 && warp->groups[place].state != READY) place--;
    if (place < 0) return NULL;
    Group chosen = warp->groups[place];
    if (place != warp->num_groups - 1) {
        remove_group(warp, place);
        warp->groups[warp->num_groups++] = chosen;
    }
    return &warp->groups[warp->num_groups - 1];
}

static uint32_t waiting_at(const Warp *warp, uint32_t barrier) {
    uint32_t found = 0;
    for (int k = 0; k < warp->num_groups; k++)
        if (warp->groups[k].state == AT_CONVERGENCE && warp->groups[k].barrier == barrier) found |= warp->groups[k].mask;
    return found & warp->barriers[barrier];
}

// Lanes that wait at ``barrier`` and are in its mask leave their groups.
static void take_waiting(Warp *warp, uint32_t barrier) {
    for (int k = warp->num_groups - 1; k >= 0; k--) {
        Group *group = &warp->groups[k];
        if (group->state != AT_CONVERGENCE || group->barrier != barrier) continue;
        group->mask &= ~warp->barriers[barrier];
        if (!group->mask) remove_group(warp, k);
    }
}

// Lanes at WARPSYNC for which all are there that they name go on, those of one place together.
static void free_named(Warp *warp) {
    uint32_t there = 0, freed[LANES + 1];
    int count = 0;
    for (int k = 0; k < warp->num_groups; k++)
        if (warp->groups[k].state == AT_WARP_BARRIER) there |= warp->groups[k].mask;
    Group together[LANES + 1];
    for (int k = warp->num_groups - 1; k >= 0; k--) {
        const Group group = warp->groups[k];
        if (group.state != AT_WARP_BARRIER || group.named & warp->alive & ~there) continue;
        remove_group(warp, k);
        int same = 0;
        while (same < count && freed[same] != group.pc) same++;
        if (same == count) {
            freed[count] = group.pc;
            together[count++] = (Group){.pc = group.pc + 1, .state = READY};
        }
        together[same].mask |= group.mask;
    }
    while (count) warp->groups[warp->num_groups++] = together[--count];
}

// After lanes ended or left a barrier: those that waited only for them go on.
void free_waiting(Warp *warp) {
    free_named(warp);
    for (uint32_t barrier = 0; barrier < NUM_BARRIERS; barrier++) {
        uint32_t waiting = waiting_at(warp, barrier);
        if (!waiting || waiting != (warp->barriers[barrier] & warp->alive)) continue;
        Group freed = {.mask = waiting, .state = READY};
        for (int k = 0; k < warp->num_groups; k++)
            if (warp->groups[k].state == AT_CONVERGENCE && warp->groups[k].barrier == barrier) freed.pc = warp->groups[k].pc + 1;
        take_waiting(warp, barrier);
        warp->barriers[barrier] = 0;
        warp->groups[warp->num_groups++] = freed;
    }
}

static void part(const Context *at, Group *group, uint32_t taken, uint32_t target) {
    Warp *warp = at->warp;
    uint32_t fallen = group->mask & ~taken, next = group->pc + 1;
    if (!fallen) {
        group->pc = target;
    } else if (!taken) {
        group->pc = next;
    } else {
        record_divergence(at);
        bool taken_first = __builtin_popcount(taken) < __builtin_popcount(fallen);
        Group later = {taken_first ? fallen : taken, taken_first ? next : target, READY, 0, 0};
        Group sooner = {taken_first ? taken : fallen, taken_first ? target : next, READY, 0, 0};
        *group = later;
        warp->groups[warp->num_groups++] = sooner;
    }
}

// Bytes from the begin of the kernel's code, of an address of code; anything else as it is.
static int64_t in_code(const Kernel *kernel, int64_t to) {
    for (uint32_t k = 0; k < kernel->num_parts; k++) {
        const uint32_t offset = (uint32_t)to - kernel->parts[k].address;
        if (offset < kernel->parts[k].bytes) return (int64_t)kernel->parts[k].first * 16 + offset;
    }
    return to;
}

// Jump to where each lane's address says: an address of code, or bytes from the begin of the kernel's.
static void part_by_address(const Context *at, Group *group, const int64_t *bytes) {
    Warp *warp = at->warp;
    uint32_t left = at->mask, fallen = group->mask & ~at->mask;
    Group parts[LANES + 1];
    int count = 0;
    if (fallen) parts[count++] = (Group){fallen, group->pc + 1, READY, 0, 0};
    while (left) {
        int64_t to = bytes[lowest(left)];
        uint32_t same = 0;
        EACH_LANE if (left >> lane & 1 && bytes[lane] == to) same |= 1u << lane;
        left &= ~same;
        if (system_function(to)) {
            to = call_system(at, same, system_function(to));
            if (at->block->launch->problem[0]) return;
        }
        to = in_code(at->block->kernel, to);
        if (to < 0 || to % 16 || to / 16 >= at->block->kernel->num_instructions) {
            fail(at, "jumps to 0x%llx, which is outside the function", (unsigned long long)to);
            return;
        }
        parts[count++] = (Group){same, (uint32_t)(to / 16), READY, 0, 0};
    }
    if (count > 1) record_divergence(at);
    warp->num_groups--;  // ``group``, the last one
    while (count) {  // the largest lies deepest; the smallest runs first
        int most = 0;
        for (int k = 1; k < count; k++)
            if (__builtin_popcount(parts[k].mask) > __builtin_popcount(parts[most].mask)) most = k;
        warp->groups[warp->num_groups++] = parts[most];
        parts[most] = parts[--count];
    }
}

static enum Outcome converge(const Context *at, Group *group) {
    Warp *warp = at->warp;
    uint32_t barrier = at->instruction->operands[0].number;
    uint32_t wanted = warp->barriers[barrier] & warp->alive;
    if (!(wanted & group->mask)) {
        group->pc++;
        return GOES_ON;
    }
    uint32_t arrived = waiting_at(warp, barrier) | group->mask;
    if ((arrived & wanted) != wanted) {
        group->state = AT_CONVERGENCE;
        group->barrier = (uint8_t)barrier;
        return GOES_ON;
    }
    Group freed = {arrived, group->pc + 1, READY, 0, 0};
    warp->num_groups--;
    take_waiting(warp, barrier);
    warp->barriers[barrier] = 0;
    warp->groups[warp->num_groups++] = freed;
    return GOES_ON;
}

// WARPSYNC: lanes of a group may name different ones (tiles of cooperative groups).
static enum Outcome meet(const Context *at, Group *group) {
    Warp *warp = at->warp;
    uint32_t into[LANES], left = at->mask;
    const uint32_t *named = integer(at, 0, into);
    const Group whole = *group;
    for (int lane = 0; lane < LANES; lane++)
        if (at->mask >> lane & 1 && !(named[lane] & warp->alive & ~at->mask)) left &= ~(1u << lane);
    if (!left) {
        group->pc++;
        return GOES_ON;
    }
    warp->num_groups--;  // ``group``, the last one
    const uint32_t others = whole.mask & ~left;
    while (left) {
        uint32_t same = 0;
        const uint32_t wanted = named[lowest(left)];
        EACH_LANE if (left >> lane & 1 && named[lane] == wanted) same |= 1u << lane;
        left &= ~same;
        warp->groups[warp->num_groups++] = (Group){.mask = same, .pc = whole.pc, .state = AT_WARP_BARRIER, .named = wanted};
    }
    if (others) warp->groups[warp->num_groups++] = (Group){.mask = others, .pc = whole.pc + 1, .state = READY};
    free_named(warp);
    return GOES_ON;
}

static enum Outcome at_block_barrier(const Context *at, Group *group) {
    const Instruction *instruction = at->instruction;
    uint32_t first[LANES], second[LANES];
    uint32_t lane = lowest(at->mask), number = integer(at, 0, first)[lane] & (NUM_BLOCK_BARRIERS - 1);
    BlockBarrier *barrier = &at->block->barriers[number];
    if (instruction->operands[1].kind != OPERAND_NONE) {
        barrier->expected = integer(at, 1, second)[lane];
        if (instruction->operands[0].kind != OPERAND_IMMEDIATE && instruction->operands[1].kind != OPERAND_IMMEDIATE)
            barrier->expected = barrier->expected >> 16 & 0xfff;  // one register holds both, the number below
        if (instruction->operands[0].kind != OPERAND_IMMEDIATE || instruction->operands[1].kind != OPERAND_IMMEDIATE)
            record_meeting(at, number, barrier->expected, instruction->modifiers & BAR_ARV);
    }
    if (instruction->modifiers & BAR_RED) {
        uint32_t held = predicate(at, 2) & at->mask;
        barrier->red_kind = instruction->extra;
        barrier->red_count += (uint32_t)__builtin_popcount(held);
        barrier->red_and &= held == at->mask;
        barrier->red_or |= held != 0;
    }
    if (instruction->modifiers & BAR_ARV) {
        barrier->arrived += LANES;
        group->pc++;
        return WARP_WAITS;
    }
    group->state = AT_BLOCK_BARRIER;
    group->barrier = (uint8_t)number;
    return GOES_ON;
}

// WARPGROUP.ARRIVE and DEPBAR: the four warps of a group go on together. Their products are done one warp after the other,
// when each executes them, but what the warps wrote before ARRIVE is there, and none goes on behind DEPBAR before all are
// done: hardware executes the product of a group as one.
static enum Outcome at_warp_group(const Context *at, Group *group) {
    if (!at->mask) {
        group->pc++;
        return GOES_ON;
    }
    at->block->has_warp_groups = true;
    group->state = AT_BLOCK_BARRIER;
    group->barrier = (uint8_t)(NUM_BLOCK_BARRIERS + at->warp->index / WARPS_OF_GROUP);
    return GOES_ON;
}

// UCGABAR_ARV, UCGABAR_WAIT: the barrier of a cluster, at which threads arrive before they wait.
static enum Outcome at_cluster_barrier(const Context *at, Group *group) {
    if (at->instruction->op == OP_CLUSTER_WAIT && at->mask) {
        group->state = AT_CLUSTER_BARRIER;
        return WARP_WAITS;
    }
    at->warp->at_cluster |= at->mask;
    group->pc++;
    return GOES_ON;
}

bool is_control(uint32_t op) { return op <= OP_LAST_CONTROL; }

enum Outcome execute_control(const Context *at, Group *group) {
    const Instruction *instruction = at->instruction;
    Warp *warp = at->warp;
    uint32_t first[LANES];
    int64_t bytes[LANES];
    switch (instruction->op) {
    case OP_BRA: {
        uint32_t taken = at->mask;
        if (instruction->extra && taken) {
            const bool names = instruction->operands[0].kind != OPERAND_NONE;
            const uint32_t named = names ? integer(at, 0, first)[lowest(taken)] : 0xffffffffu;
            const bool are_together = (named & warp->alive) == group->mask;
            if (are_together == (instruction->extra == BRANCH_DIV)) taken = 0;
        } else if (instruction->operands[0].kind == OPERAND_PREDICATE || instruction->operands[0].kind == OPERAND_UNIFORM_PREDICATE)
            taken &= predicate(at, 0);
        if (instruction->modifiers & ANY_LANE && taken) taken = group->mask;
        part(at, group, taken, (uint32_t)instruction->target);
        return GOES_ON;
    }
    case OP_EXIT:
        warp->alive &= ~at->mask;
        group->mask &= ~at->mask;
        group->pc++;
        if (!group->mask) warp->num_groups--;
        if (at->mask) free_waiting(warp);
        return GOES_ON;
    case OP_CALL:  // to a fixed place; the return address was put into a register
        part(at, group, at->mask, (uint32_t)instruction->target);
        return GOES_ON;
    case OP_JUMP: {  // BRX, CALL and RET with a register: bytes from the printed label
        const uint32_t *low = plain(at, &instruction->operands[0], 0, first);
        EACH_LANE bytes[lane] = (int64_t)(int32_t)low[lane] + (int32_t)instruction->extra;
        part_by_address(at, group, bytes);
        return at->block->launch->problem[0] ? FAILED : GOES_ON;
    }
    case OP_BSSY:
        warp->barriers[instruction->operands[0].number] = at->mask;
        group->pc++;
        return GOES_ON;
    case OP_BSYNC: return converge(at, group);
    case OP_WARPSYNC: return meet(at, group);
    case OP_BREAK:
        warp->barriers[instruction->operands[0].number] &= ~at->mask;
        group->pc++;
        free_waiting(warp);
        return GOES_ON;
    case OP_BMOV_READ: {
        uint32_t barrier = instruction->operands[1].number;
        set(at, 0, broadcast(warp->barriers[barrier], first));
        if (instruction->modifiers & BMOV_CLEAR) warp->barriers[barrier] = 0;
        group->pc++;
        return GOES_ON;
    }
    case OP_BMOV_WRITE:
        if (at->mask) warp->barriers[instruction->operands[0].number] = integer(at, 1, first)[lowest(at->mask)];
        group->pc++;
        free_waiting(warp);
        return GOES_ON;
    case OP_BAR:
        if (!at->mask) { group->pc++; return GOES_ON; }
        return at_block_barrier(at, group);
    case OP_CLUSTER_ARRIVE: case OP_CLUSTER_WAIT: return at_cluster_barrier(at, group);
    case OP_WARPGROUP: return at_warp_group(at, group);
    case OP_PHASECHK: return check_phase(at, group);
    case OP_NANOSLEEP:
        group->pc++;
        return WARP_WAITS;
    case OP_TRAP:
        if (!at->mask) { group->pc++; return GOES_ON; }
        fail(at, "traps (an assertion failed, or __trap was called)");
        return FAILED;
    default: fail(at, "control instruction %u is not executed", instruction->op); return FAILED;
    }
}

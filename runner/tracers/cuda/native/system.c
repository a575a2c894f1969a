// Functions of the system that code calls without having them. They take their arguments from R4 on, give back R4 (and
// R5), and return to R20; what they do takes no time and is not recorded.
#include "system.h"
#include "warp.h"

enum { ARGUMENTS = 4, RETURN_ADDRESS = 20, MOST_SPEC = 48, MOST_STRING = 4096 };

static uint64_t argument(const Context *at, int lane, int first) {
    return (uint64_t)at->warp->registers[ARGUMENTS + first + 1][lane] << 32 | at->warp->registers[ARGUMENTS + first][lane];
}

static void give(const Context *at, int lane, uint64_t value) {
    at->warp->registers[ARGUMENTS][lane] = (uint32_t)value;
    at->warp->registers[ARGUMENTS + 1][lane] = (uint32_t)(value >> 32);
}

// Bytes that can be read from a generic address on, and where they stand in this process.
static const char *readable(const Context *at, int lane, uint64_t address, uint64_t *bytes) {
    const Block *block = at->block;
    const Launch *launch = block->launch;
    uint64_t low, high, offset = address & (WINDOW_BYTES - 1);
    *bytes = 0;
    if (address - launch->local_base < WINDOW_BYTES) {
        if (offset >= block->local_bytes) return NULL;
        *bytes = block->local_bytes - offset;
        return (const char *)at->warp->local + (size_t)lane * block->local_bytes + offset;
    }
    if (address - launch->shared_base < (uint64_t)WINDOW_BYTES * block->cluster->size) {
        const Block *of = block->cluster->members[(address - launch->shared_base) / WINDOW_BYTES];
        if (offset >= of->shared_bytes) return NULL;
        *bytes = of->shared_bytes - offset;
        return (const char *)of->shared + offset;
    }
    if (launch->find_allocation && launch->find_allocation(address, &low, &high)) {
        *bytes = high - address;
        return (const char *)(uintptr_t)address;
    }
    return NULL;
}

// A text at a generic address, or one that says that there is none.
static const char *text_at(const Context *at, int lane, uint64_t address, char *into) {
    uint64_t bytes;
    const char *from = readable(at, lane, address, &bytes);
    if (from == NULL) return "(null)";
    const size_t length = strnlen(from, bytes < MOST_STRING ? bytes : MOST_STRING - 1);
    memcpy(into, from, length < MOST_STRING ? length : MOST_STRING - 1);
    into[length < MOST_STRING ? length : MOST_STRING - 1] = 0;
    return into;
}

// The arguments of printf, as they stand one behind the other, each at a multiple of its size.
typedef struct {
    const char *from;
    uint64_t bytes, place;
} Arguments;

static uint64_t next(Arguments *arguments, uint64_t size) {
    uint64_t value = 0;
    arguments->place = (arguments->place + size - 1) / size * size;
    if (arguments->place + size <= arguments->bytes) memcpy(&value, arguments->from + arguments->place, size);
    arguments->place += size;
    return value;
}

static void print_one(const Context *at, int lane, const char *spec, char kind, bool is_long, Arguments *arguments) {
    char text[MOST_STRING];
    double number;
    uint64_t value;
    switch (kind) {
    case 'd': case 'i': case 'u': case 'o': case 'x': case 'X': case 'c':
        value = next(arguments, is_long ? 8 : 4);
        if (is_long)
            fprintf(stdout, spec, value);
        else
            fprintf(stdout, spec, (uint32_t)value);
        break;
    case 'p': fprintf(stdout, spec, (void *)(uintptr_t)next(arguments, 8)); break;
    case 's': fprintf(stdout, spec, text_at(at, lane, next(arguments, 8), text)); break;
    default:
        value = next(arguments, 8);
        memcpy(&number, &value, 8);
        fprintf(stdout, spec, number);
    }
}

// printf of one thread: its number of arguments, as CUDA gives it back.
static uint64_t print(const Context *at, int lane) {
    char format[MOST_STRING];
    uint64_t count = 0;
    Arguments arguments = {0};
    text_at(at, lane, argument(at, lane, 0), format);
    arguments.from = readable(at, lane, argument(at, lane, 2), &arguments.bytes);
    if (arguments.from == NULL) arguments.bytes = 0;
    for (const char *place = format; *place;) {
        if (*place != '%' || place[1] == '%') {
            fputc(*place, stdout);
            place += *place == '%' ? 2 : 1;
            continue;
        }
        const size_t length = strcspn(place + 1, "diouxXcpsfFeEgGaA") + 2;
        if (place[length - 1] == 0 || length >= MOST_SPEC) {  // no conversion: as it stands
            fputs(place, stdout);
            break;
        }
        char spec[MOST_SPEC];
        bool is_long = false;
        size_t kept = 0;
        for (size_t k = 0; k < length; k++) {
            if (place[k] == '*') {
                kept += (size_t)snprintf(spec + kept, sizeof spec - kept, "%d", (int)next(&arguments, 4));
                count++;
                if (kept + 4 >= sizeof spec) return count;
                continue;
            }
            is_long |= place[k] == 'l' || place[k] == 'j' || place[k] == 'z' || place[k] == 't';
            if (kept + 2 >= sizeof spec) return count;
            spec[kept++] = place[k];
        }
        spec[kept] = 0;
        print_one(at, lane, spec, place[length - 1], is_long, &arguments);
        count++;
        place += length;
    }
    return count;
}

static void assert_failed(const Context *at, int lane) {
    char message[MOST_STRING], file[MOST_STRING], function[MOST_STRING];
    const Warp *warp = at->warp;
    const uint32_t *of_block = at->block->ctaid;
    const char *what = text_at(at, lane, argument(at, lane, 0), message);
    fprintf(stderr, "%s:%u: %s: block: [%u,%u,%u], thread: [%u,%u,%u] Assertion `%s` failed.\n",
            text_at(at, lane, argument(at, lane, 2), file), warp->registers[ARGUMENTS + 4][lane],
            text_at(at, lane, argument(at, lane, 6), function), of_block[0], of_block[1], of_block[2],
            warp->tid[0][lane], warp->tid[1][lane], warp->tid[2][lane], what);
}

int64_t system_function(int64_t address) {
    const int64_t offset = address - (int64_t)(int32_t)(uint32_t)SYSTEM_FUNCTIONS;
    const bool is_one = offset > 0 && offset % SYSTEM_FUNCTION_SPACING == 0;
    return is_one && offset / SYSTEM_FUNCTION_SPACING <= SYSTEM_LAST ? offset / SYSTEM_FUNCTION_SPACING : 0;
}

int64_t call_system(const Context *at, uint32_t lanes, int64_t function) {
    Launch *launch = at->block->launch;
    if (at->block->tracker) {
        fail(at, "calls a function of the system, which one worker after the other does");
        return -1;
    }
    launch->system_calls[function]++;
    if (at->block->num_registers <= RETURN_ADDRESS) {
        fail(at, "calls a function of the system with too few registers");
        return -1;
    }
    EACH_LANE {
        if (!(lanes >> lane & 1)) continue;
        switch (function) {
        case SYSTEM_VPRINTF: at->warp->registers[ARGUMENTS][lane] = (uint32_t)print(at, lane); break;
        case SYSTEM_MALLOC: give(at, lane, launch->allocate ? launch->allocate(argument(at, lane, 0)) : 0); break;
        case SYSTEM_FREE:
            if (launch->release) launch->release(argument(at, lane, 0));
            memset(at->block->known, 0, sizeof at->block->known);
            break;
        default: assert_failed(at, lane);
        }
    }
    if (function == SYSTEM_ASSERT) {
        launch->error = STOP_ASSERT;
        fail(at, "an assertion failed");
        return -1;
    }
    return at->warp->registers[RETURN_ADDRESS][lowest(lanes)];
}

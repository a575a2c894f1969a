// Options of the driver's compiler and linker of PTX: those that ptxas has are its words, the others say how to log.
#include <string.h>

#include "driver/driver.h"

// Values up to 64 bits stand in the pointers themselves.
static unsigned number(void *value) { return (unsigned)(uintptr_t)value; }

static void *value_of(CUjit_option wanted, unsigned count, const CUjit_option *options, void *const *values) {
    for (unsigned k = 0; k < count; k++)
        if (options[k] == wanted) return values[k];
    return NULL;
}

void options_words(char *words, size_t room, unsigned count, const CUjit_option *options, void *const *values) {
    size_t done = 0;
    *words = 0;
    for (unsigned k = 0; k < count && done + 64 < room; k++) {
        const char *blank = done ? " " : "";
        switch (options[k]) {
            case CU_JIT_MAX_REGISTERS:
                if (number(values[k])) done += (size_t)snprintf(words + done, room - done, "%s-maxrregcount=%u", blank, number(values[k]));
                break;
            case CU_JIT_OPTIMIZATION_LEVEL:
                done += (size_t)snprintf(words + done, room - done, "%s-O%u", blank, number(values[k]));
                break;
            case CU_JIT_GENERATE_LINE_INFO:
                if (number(values[k])) done += (size_t)snprintf(words + done, room - done, "%s-lineinfo", blank);
                break;
            default: break;
        }
    }
}

static void tell(const char *text, CUjit_option buffer, CUjit_option size, unsigned count, const CUjit_option *options,
                 void *const *values) {
    char *into = value_of(buffer, count, options, values);
    const unsigned room = number(value_of(size, count, options, values));
    if (into && room) snprintf(into, room, "%s", text);
}

void options_tell(const char *told, unsigned count, const CUjit_option *options, void *const *values) {
    tell(told, CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES, count, options, values);
    tell("", CU_JIT_INFO_LOG_BUFFER, CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES, count, options, values);
}

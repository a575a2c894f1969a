// Functions of the system that code calls without having them: module.py gives them addresses in constant bank 4.
#ifndef MANYSCALE_SYSTEM_H
#define MANYSCALE_SYSTEM_H

#include "warp.h"

#define SYSTEM_FUNCTIONS 0x1fffd0000000ull
enum {
    SYSTEM_FUNCTION_SPACING = 16,
    SYSTEM_VPRINTF = 1,
    SYSTEM_MALLOC,
    SYSTEM_FREE,
    SYSTEM_ASSERT,
    SYSTEM_LAST = SYSTEM_ASSERT,
};

int64_t system_function(int64_t address);  // its number, 0 if there is none at the address (its lower word)
int64_t call_system(const Context *at, uint32_t lanes, int64_t function);  // where it returns to, -1: the launch stops

#endif

// How long an image of device code is, which is given by its address alone.
#include <stdlib.h>
#include <string.h>

#include "driver/driver.h"

enum { FAT_BINARY = 0xBA55ED50, WRAPPER = 0x466243B1 };

static uint64_t word(const uint8_t *at, int bytes) {
    uint64_t value = 0;
    for (int k = 0; k < bytes; k++) value |= (uint64_t)at[k] << (8 * k);
    return value;
}

// The end of an ELF file of 64 bits: of its tables and of what they name.
static size_t elf_bytes(const uint8_t *image) {
    enum { NO_BITS = 8 };
    const uint64_t segments = word(image + 32, 8), sections = word(image + 40, 8);
    const uint64_t segment = word(image + 54, 2), num_segments = word(image + 56, 2);
    const uint64_t section = word(image + 58, 2), num_sections = word(image + 60, 2);
    uint64_t end = sections + section * num_sections;
    if (segments + segment * num_segments > end) end = segments + segment * num_segments;
    for (uint64_t k = 0; k < num_sections; k++) {
        const uint8_t *at = image + sections + k * section;
        const uint64_t last = word(at + 24, 8) + word(at + 32, 8);
        if (word(at + 4, 4) != NO_BITS && last > end) end = last;
    }
    return end;
}

size_t image_bytes(const void *image) {
    const uint8_t *bytes = image;
    if (!memcmp(bytes, "\x7f" "ELF", 4)) return bytes[4] == 2 ? elf_bytes(bytes) : 0;
    if (word(bytes, 4) == FAT_BINARY) return fat_binary_bytes(image);
    if (word(bytes, 4) == WRAPPER) return 0;
    return strlen(image) + 1;
}

void *file_content(const char *path, size_t *bytes) {
    FILE *file = fopen(path, "rb");
    if (file == NULL) return NULL;
    char *content = NULL;
    size_t done = 0, room = 0;
    for (size_t got = 1; got;) {
        if (room - done < 2) content = realloc(content, room = room ? 2 * room : 1 << 16);
        if (content == NULL) break;
        got = fread(content + done, 1, room - done - 1, file);
        done += got;
    }
    fclose(file);
    if (content == NULL) return NULL;
    content[done] = 0;
    *bytes = done;
    return content;
}

// Module files, mapped with the memory of their modules at its address.
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime.h"

// The memory of a file's modules: each device has its own, of which that of one stands at its address.
typedef struct Image {
    struct Image *next;
    uint8_t *place;
    size_t bytes;
    const uint8_t *begin;  // what it holds at first
    uint8_t *kept[MOST_DEVICES];
    int device;
} Image;
static Image *images;

static void stop(const char *path, const char *why) {
    session_message("%s: %s; trace the program again", path, why);
    _exit(2);
}

const ModuleFile *module_file(const char *name, uint32_t first_kernel) {
    char path[4096];
    struct stat status;
    snprintf(path, sizeof path, "%s/%s", session_folder(), name);
    const int descriptor = open(path, O_RDONLY | O_CLOEXEC);
    if (descriptor < 0 || fstat(descriptor, &status)) stop(path, strerror(errno));
    void *mapped = mmap(NULL, (size_t)status.st_size, PROT_READ, MAP_PRIVATE, descriptor, 0);
    if (mapped == MAP_FAILED) stop(path, strerror(errno));
    const StoredHeader *header = mapped;
    if ((size_t)status.st_size < sizeof *header || memcmp(header->magic, MODULES_MAGIC, sizeof header->magic))
        stop(path, "is no file of modules of this version");
    if (header->image_bytes) {
        void *place = (void *)header->image_address;
        void *image = mmap(place, header->image_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_FIXED_NOREPLACE,
                           descriptor, (off_t)header->image);
        if (image != place) stop(path, "the addresses of its variables are taken");
        Image *one = calloc(1, sizeof *one);
        if (one == NULL) abort();
        *one = (Image){.next = images, .place = image, .bytes = header->image_bytes,
                       .begin = (const uint8_t *)mapped + header->image, .device = current_device()};
        images = one;
    }
    close(descriptor);
    ModuleFile *made = malloc(sizeof *made);
    if (made == NULL) abort();
    *made = (ModuleFile){mapped, header, (size_t)status.st_size, first_kernel};
    return made;
}

void module_file_close(const ModuleFile *file) {
    for (Image **at = &images; *at; at = &(*at)->next)
        if ((*at)->place == (uint8_t *)file->header->image_address) {
            Image *gone = *at;
            *at = gone->next;
            for (int k = 0; k < MOST_DEVICES; k++) free(gone->kept[k]);
            free(gone);
            break;
        }
    if (file->header->image_bytes) munmap((void *)file->header->image_address, file->header->image_bytes);
    munmap((void *)file->bytes, file->size);
    free((void *)file);
}

void modules_of_device(int device) {
    for (Image *one = images; one; one = one->next) {
        if (one->device == device) continue;
        uint8_t **keep = &one->kept[one->device];
        if (*keep == NULL) *keep = malloc(one->bytes);
        if (*keep == NULL) abort();
        memcpy(*keep, one->place, one->bytes);
        memcpy(one->place, one->kept[device] ? one->kept[device] : one->begin, one->bytes);
        managed_variables_stay(one->place, *keep, one->bytes);
        one->device = device;
    }
}

const char *module_text(const ModuleFile *file, uint64_t offset) { return (const char *)file->bytes + offset; }

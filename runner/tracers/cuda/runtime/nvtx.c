// NVTX ranges, which a program names in its source. Its NVTX is a header: where NVTX_INJECTION64_PATH names this library,
// the header loads it, calls InitializeInjectionNvtx2 and takes what it puts into the tables of calls (the interface of
// NVTX 2 and 3 for tools, nvtxDetail/nvtxTypes.h). Handles of domains are not looked into.
#include <stdlib.h>
#include <string.h>
#include <wchar.h>

#include "runtime.h"

enum { CALLBACKS = 1, MODULE_CORE = 1, MODULE_CORE2 = 5 };  // NVTX_ETID_, NVTX_CB_MODULE_
enum Core { START_EX = 4, START_A, START_W, END, PUSH_EX, PUSH_A, PUSH_W, POP };  // NVTX_CBID_CORE_
enum Core2 { DOMAIN_START_EX = 2, DOMAIN_END, DOMAIN_PUSH_EX, DOMAIN_POP, REGISTER_A = 10, REGISTER_W, CREATE_A, CREATE_W };
enum { MESSAGE_ASCII = 1, MESSAGE_UNICODE, MESSAGE_REGISTERED };

typedef struct {
    uint16_t version, size;
    uint32_t category;
    int32_t color_type;
    uint32_t color;
    int32_t payload_type, reserved;
    uint64_t payload;
    int32_t message_type;
    union {
        const char *ascii;       // also a string that was registered: a copy of it is its handle
        const wchar_t *unicode;
    } message;
} Attributes;
typedef void (*Pointer)(void);
typedef struct {
    size_t bytes;
    int (*functions)(int module, Pointer ***table, unsigned *size);
} Callbacks;

typedef struct {
    const void *domain;
    bool is_wanted;
} Pushed;
static _Thread_local Pushed *pushed;
static _Thread_local size_t num_pushed, room;
static uint64_t num_started;

// A name of other than ASCII characters: these become '?', which no name of --regions has.
static char *narrow(const wchar_t *name) {
    if (name == NULL) return NULL;
    const size_t length = wcslen(name);
    char *found = malloc(length + 1);
    for (size_t k = 0; found && k <= length; k++) found[k] = name[k] < 128 ? (char)name[k] : '?';
    return found;
}

static bool is_wanted(const char *name) { return name != NULL && region_is_wanted(name); }

static bool is_wide_wanted(const wchar_t *name) {
    char *found = narrow(name);
    const bool wanted = is_wanted(found);
    free(found);
    return wanted;
}

static bool is_event_wanted(const Attributes *event) {
    if (event == NULL) return false;
    if (event->message_type == MESSAGE_UNICODE) return is_wide_wanted(event->message.unicode);
    return (event->message_type == MESSAGE_ASCII || event->message_type == MESSAGE_REGISTERED) && is_wanted(event->message.ascii);
}

static int push(const void *domain, bool wanted) {
    if (num_pushed == room) {
        const size_t larger = room ? 2 * room : 16;
        Pushed *more = realloc(pushed, larger * sizeof *more);
        if (more == NULL) return -1;
        pushed = more;
        room = larger;
    }
    pushed[num_pushed++] = (Pushed){domain, wanted};
    if (wanted) region_of_thread(1);
    return (int)num_pushed - 1;
}

// Ranges of a domain nest in each other, whatever those of others do.
static int pop(const void *domain) {
    for (size_t k = num_pushed; k-- > 0;) {
        if (pushed[k].domain != domain) continue;
        if (pushed[k].is_wanted) region_of_thread(-1);
        memmove(pushed + k, pushed + k + 1, (num_pushed - k - 1) * sizeof *pushed);
        num_pushed--;
        return (int)k;
    }
    return -1;
}

// Its last bit says whether the range is wanted.
static uint64_t start(bool wanted) {
    LOCKED;
    if (wanted) region_of_process(1);
    return ++num_started << 1 | wanted;
}

static void end(uint64_t range) {
    LOCKED;
    if (range & 1) region_of_process(-1);
}

static uint64_t start_event(const Attributes *event) { return start(is_event_wanted(event)); }
static uint64_t start_ascii(const char *name) { return start(is_wanted(name)); }
static uint64_t start_unicode(const wchar_t *name) { return start(is_wide_wanted(name)); }
static int push_event(const Attributes *event) { return push(NULL, is_event_wanted(event)); }
static int push_ascii(const char *name) { return push(NULL, is_wanted(name)); }
static int push_unicode(const wchar_t *name) { return push(NULL, is_wide_wanted(name)); }
static int pop_any(void) { return pop(NULL); }
static uint64_t start_in(const void *domain, const Attributes *event) { (void)domain; return start_event(event); }
static void end_in(const void *domain, uint64_t range) { (void)domain; end(range); }
static int push_in(const void *domain, const Attributes *event) { return push(domain, is_event_wanted(event)); }
static const void *copied(const void *domain, const char *name) { (void)domain; return name ? strdup(name) : NULL; }
static const void *narrowed(const void *domain, const wchar_t *name) { (void)domain; return narrow(name); }
static const void *domain_of(const char *name) { return name ? strdup(name) : NULL; }
static const void *domain_of_wide(const wchar_t *name) { return narrow(name); }

typedef struct {
    unsigned number;
    Pointer function;
} Entry;
static const Entry core[] = {
    {START_EX, (Pointer)start_event}, {START_A, (Pointer)start_ascii}, {START_W, (Pointer)start_unicode},
    {END, (Pointer)end}, {PUSH_EX, (Pointer)push_event}, {PUSH_A, (Pointer)push_ascii}, {PUSH_W, (Pointer)push_unicode},
    {POP, (Pointer)pop_any},
};
static const Entry core2[] = {
    {DOMAIN_START_EX, (Pointer)start_in}, {DOMAIN_END, (Pointer)end_in}, {DOMAIN_PUSH_EX, (Pointer)push_in},
    {DOMAIN_POP, (Pointer)pop}, {REGISTER_A, (Pointer)copied}, {REGISTER_W, (Pointer)narrowed},
    {CREATE_A, (Pointer)domain_of}, {CREATE_W, (Pointer)domain_of_wide},
};

static bool put(const Callbacks *callbacks, int module, const Entry *calls, size_t count) {
    Pointer **table = NULL;
    unsigned size = 0;
    if (!callbacks->functions(module, &table, &size) || table == NULL) return false;
    for (size_t k = 0; k < count; k++)
        if (calls[k].number < size && table[calls[k].number]) *table[calls[k].number] = calls[k].function;
    return true;
}

// 1: the header calls what was put into its tables.
__attribute__((visibility("default"))) int InitializeInjectionNvtx2(const void *(*table_of)(uint32_t)) {
    const Callbacks *callbacks = table_of(CALLBACKS);
    if (callbacks == NULL || callbacks->bytes < sizeof *callbacks) return 0;
    return put(callbacks, MODULE_CORE, core, sizeof core / sizeof *core) &&
           put(callbacks, MODULE_CORE2, core2, sizeof core2 / sizeof *core2);
}

/* Basic blocks and memory accesses of an unmodified x86-64 or AArch64 program under QEMU's user-mode emulation: a TCG plugin.

   Arguments: out=FILE, or folder=DIR for a file PID.emulated; entry=OFFSET, to record only while a function runs (its
   entry, counted from the start of the program's code); limit=BYTES of the file; skip=LIBRARY whose code is not recorded, by
   its path or by how its file's name begins; marks=1: recording begins and ends, and segments end, where the tracer inside the program says so
   (MS_TELL of trace.h). The plugin interface of QEMU 6.0 to 8.1 (API version 1), as far as it is
   used, is declared here; distributions do not package its header.

   The file: "MSQEMU1\0", then chunks, each a header (struct chunk_header) and its content, zstd-compressed if zstd is
   there. Little endian.
   - definitions: lines of JSON;
   - blocks: translation blocks in the order of their numbers, from 0: uint64 address, uint32 instructions, uint32 bytes,
     one byte for the size of each instruction, the bytes of code;
   - words: uint64, one for each execution of a block (highest bit, and its number) and for each access: bits 0..47 its
     distance from the last access of the same instruction of the same block (0 before the first), 48..50 log2 of its
     bytes, 51 whether it stores, 52..60 the instruction's index. QEMU splits vector accesses into ones of 8 bytes. A
     chunk begins with an execution. All bits set: a segment ends, before an execution.
   - end: the plugin saw the end of the program; lines of JSON.

   Registers cannot be read in this API, so the end of a function is found by following calls and returns. Only the
   first thread is recorded. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- the plugin interface ---- */
typedef uint64_t plugin_id;
struct qemu_plugin_tb;
struct qemu_plugin_insn;
struct plugin_info {
    const char *target_name;
    struct { int minimum, current; } version;
    bool is_system;
    struct { int processors, most_processors; } system;
};
enum callback_registers { NO_REGISTERS };
enum access_kinds { READS_AND_WRITES = 3 };
extern void qemu_plugin_register_vcpu_tb_trans_cb(plugin_id, void (*)(plugin_id, struct qemu_plugin_tb *));
extern void qemu_plugin_register_vcpu_tb_exec_cb(struct qemu_plugin_tb *, void (*)(unsigned, void *),
                                                 enum callback_registers, void *);
extern void qemu_plugin_register_vcpu_insn_exec_cb(struct qemu_plugin_insn *, void (*)(unsigned, void *),
                                                   enum callback_registers, void *);
extern void *qemu_plugin_insn_haddr(const struct qemu_plugin_insn *);
extern void qemu_plugin_register_vcpu_mem_cb(struct qemu_plugin_insn *, void (*)(unsigned, uint32_t, uint64_t, void *),
                                             enum callback_registers, enum access_kinds, void *);
extern void qemu_plugin_register_atexit_cb(plugin_id, void (*)(plugin_id, void *), void *);
extern size_t qemu_plugin_tb_n_insns(const struct qemu_plugin_tb *);
extern uint64_t qemu_plugin_tb_vaddr(const struct qemu_plugin_tb *);
extern struct qemu_plugin_insn *qemu_plugin_tb_get_insn(const struct qemu_plugin_tb *, size_t);
extern const void *qemu_plugin_insn_data(const struct qemu_plugin_insn *);
extern size_t qemu_plugin_insn_size(const struct qemu_plugin_insn *);
extern unsigned qemu_plugin_mem_size_shift(uint32_t);
extern bool qemu_plugin_mem_is_store(uint32_t);
extern uint64_t qemu_plugin_start_code(void);
extern const char *qemu_plugin_path_to_binary(void);

#define EXPORT __attribute__((visibility("default")))
EXPORT extern int qemu_plugin_version;
int qemu_plugin_version = 1;
EXPORT int qemu_plugin_install(plugin_id, const struct plugin_info *, int, char **);

#define UNLIKELY(x) __builtin_expect(!!(x), 0)

/* ---- the file ---- */
#define CHUNK_MAGIC 0x4b51534du /* MSQK */
enum { DEFINITIONS, BLOCKS, WORDS, END };
struct chunk_header {
    uint32_t magic;
    uint16_t kind, codec; /* codec: 0 as it is, 1 zstd */
    uint64_t raw_bytes, stored_bytes;
};
#define MOST_WORDS (1u << 20)
#define MARGIN (1u << 16)  /* words that one block may write: 512 instructions of 128 accesses */
#define MOST_BLOCK_BYTES (1u << 20)

static int file = -1;
static uint64_t file_bytes, limit_bytes = UINT64_MAX;
static const char *stopped; /* why recording ended before the program did */
static void *zstd_context;
static size_t (*zstd_compress2)(void *, void *, size_t, const void *, size_t);
static size_t (*zstd_bound)(size_t);
static unsigned (*zstd_is_error)(size_t);

static uint64_t words[MOST_WORDS];
static uint32_t num_words;
static unsigned char block_bytes[MOST_BLOCK_BYTES];
static uint32_t num_block_bytes;

static void open_zstd(void) {
    void *library = dlopen("libzstd.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!library) return;
    void *(*create)(void) = (void *(*)(void))dlsym(library, "ZSTD_createCCtx");
    size_t (*set)(void *, int, int) = (size_t(*)(void *, int, int))dlsym(library, "ZSTD_CCtx_setParameter");
    zstd_compress2 = (size_t(*)(void *, void *, size_t, const void *, size_t))dlsym(library, "ZSTD_compress2");
    zstd_bound = (size_t(*)(size_t))dlsym(library, "ZSTD_compressBound");
    zstd_is_error = (unsigned (*)(size_t))dlsym(library, "ZSTD_isError");
    if (!create || !set || !zstd_compress2 || !zstd_bound || !zstd_is_error) return;
    zstd_context = create();
    if (!zstd_context) return;
    set(zstd_context, 100, 1); /* compression level */
    set(zstd_context, 201, 1); /* checksum */
}

static int write_all(const void *data, uint64_t bytes) {
    const char *next = data;
    while (bytes) {
        ssize_t written = write(file, next, bytes);
        if (written < 0 && errno == EINTR) continue;
        if (written <= 0) return -1;
        next += written;
        bytes -= (uint64_t)written;
    }
    return 0;
}

static void write_chunk(unsigned kind, const void *data, uint64_t bytes) {
    static unsigned char *packed;
    static uint64_t capacity;
    if (file < 0 || (stopped && kind != END) || !bytes) return;
    struct chunk_header header = {CHUNK_MAGIC, (uint16_t)kind, 0, bytes, bytes};
    const void *stored = data;
    if (zstd_context) {
        uint64_t bound = zstd_bound(bytes);
        if (bound > capacity) {
            free(packed);
            packed = malloc(bound);
            capacity = packed ? bound : 0;
        }
        size_t size = packed ? zstd_compress2(zstd_context, packed, capacity, data, bytes) : 0;
        if (packed && !zstd_is_error(size)) {
            header.codec = 1;
            header.stored_bytes = size;
            stored = packed;
        }
    }
    uint64_t total = sizeof header + header.stored_bytes;
    if (kind != END && file_bytes + total > limit_bytes) {
        stopped = "the limit of the file's size was reached";
        return;
    }
    if (write_all(&header, sizeof header) || write_all(stored, header.stored_bytes)) {
        stopped = errno == ENOSPC ? "the disk is full" : "the file could not be written";
        if (ftruncate(file, (off_t)file_bytes) == 0) lseek(file, (off_t)file_bytes, SEEK_SET);
        return;
    }
    file_bytes += total;
}

/* Blocks first: words name only blocks that stand before them. */
static void flush(void) {
    write_chunk(BLOCKS, block_bytes, num_block_bytes);
    num_block_bytes = 0;
    write_chunk(WORDS, words, 8ull * num_words);
    num_words = 0;
}

/* ---- blocks ---- */
enum { ON, CALL, RETURN };
struct instruction { uint64_t last_address; uint64_t index; /* shifted to its place in a word */ };
struct block {
    uint64_t word, address, end;
    int flow; /* of its last instruction */
    int is_entry;
    int owner;
    uint32_t num_instructions;
    struct instruction instructions[];
};

static int recording;
/* That is recorded now. QEMU before 8.0 sometimes calls for an access of an instruction that is over, when a later one
   accesses memory by a function of QEMU's own (target/i386: its list of callbacks is not cleared when a block ends). */
static const struct block *current;
static uint64_t entry; /* address of the function to record */
static uint64_t entry_offset;
static int has_entry, wants_entry; /* the former only while recording is possible */
static char program[4352]; /* its path, taken before it changes its folder */
static uint32_t num_blocks;
static uint64_t num_lost, num_other_threads;
static int64_t num_entries;
static pthread_mutex_t translating = PTHREAD_MUTEX_INITIALIZER;

static int is_arm; /* AArch64; else x86-64 */

static int flow_of(const unsigned char *code, size_t size) {
    size_t i = 0;
    if (is_arm) {
        uint32_t word = 0;
        memcpy(&word, code, size < 4 ? size : 4);
        if ((word & 0xfc000000u) == 0x94000000u || (word & 0xfffffc1fu) == 0xd63f0000u) return CALL; /* bl, blr */
        return (word & 0xfffffc1fu) == 0xd65f0000u ? RETURN : ON;
    }
    while (i < size && (memchr("\x26\x2e\x36\x3e\x64\x65\x66\x67\xf2\xf3", code[i], 10) || (code[i] & 0xf0) == 0x40)) i++;
    if (i >= size) return ON;
    if (code[i] == 0xe8) return CALL;
    if (code[i] == 0xff && i + 1 < size) {
        unsigned operation = code[i + 1] >> 3 & 7;
        return operation == 2 || operation == 3 ? CALL : ON;
    }
    return code[i] == 0xc3 || code[i] == 0xc2 || code[i] == 0xcb || code[i] == 0xca ? RETURN : ON;
}

/* ---- what is not the program's own ---- */
#define MOST_SKIPPED 8
static const char *skipped[MOST_SKIPPED]; /* libraries: paths, and beginnings of names */
static int num_skipped, hidden;
/* Of the program, of a library of the system's, or of one that is skipped: what those call of the system's is skipped,
   too. Ranges are of the emulator's own memory. */
enum { PROGRAM, SYSTEM, SKIPPED };
static struct range { uintptr_t low, high; int owner; } ranges[4096];
static int num_ranges;
static int is_for_skipped; /* a skipped library ran last, or called what runs */

static int is_skipped(const char *path) {
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    for (int i = 0; i < num_skipped; i++)
        if (strchr(skipped[i], '/') ? !strcmp(path, skipped[i]) : !strncmp(name, skipped[i], strlen(skipped[i]))) return 1;
    return 0;
}

static void read_ranges(void) {
    FILE *maps = fopen("/proc/self/maps", "r");
    char line[4600], path[4352];
    num_ranges = 0;
    if (!maps) return;
    while (num_ranges < 4096 && fgets(line, sizeof line, maps)) {
        unsigned long long start, end;
        path[0] = 0;
        if (sscanf(line, "%llx-%llx %*s %*s %*s %*s %4351[^\n]", &start, &end, path) < 2) continue;
        int is_system = !strncmp(path, "/lib", 4) || !strncmp(path, "/usr/lib", 8);
        int owner = is_skipped(path) ? SKIPPED : is_system ? SYSTEM : PROGRAM;
        ranges[num_ranges++] = (struct range){(uintptr_t)start, (uintptr_t)end, owner};
    }
    fclose(maps);
}

/* Whose code this is; the list of mappings is read again for what lies in none of them. */
static int owner_of(uintptr_t place) {
    for (int attempt = 0; attempt < 2; attempt++) {
        for (int i = 0; i < num_ranges; i++)
            if (place >= ranges[i].low && place < ranges[i].high) return ranges[i].owner;
        read_ranges();
    }
    return PROGRAM;
}

enum { HIDES, SHOWS, SEGMENT_ENDS, MARKS };
/* What the tracer says by an instruction that does nothing: nopl 0x4d5351xx(%rax); MARKS: another instruction. */
static int mark_of(const unsigned char *code, size_t size) {
    if (size != 7 || memcmp(code, "\x0f\x1f\x80", 3) || memcmp(code + 4, "\x51\x53\x4d", 3)) return MARKS;
    return code[3] < MARKS ? code[3] : MARKS;
}

/* ---- calls and returns ---- */
#define MOST_CALLS (1u << 16)
static uint64_t return_addresses[MOST_CALLS];
static uint32_t depth, entry_depth; /* depth wraps: of a deeper stack the oldest calls are forgotten */
static const struct block *before;

static void follow(const struct block *block) {
    const struct block *from = before;
    before = block;
    if (from && from->flow == CALL) {
        return_addresses[depth++ % MOST_CALLS] = from->end;
    } else if (from && from->flow == RETURN) {
        for (uint32_t down = 1; down <= depth && down <= MOST_CALLS; down++) {
            if (return_addresses[(depth - down) % MOST_CALLS] != block->address) continue;
            depth -= down; /* more than one: longjmp */
            break;
        }
        if (recording && depth < entry_depth) recording = 0;
    }
    if (block->is_entry && !recording) {
        recording = 1;
        entry_depth = depth;
        num_entries++;
    }
}

/* ---- callbacks ---- */
static void on_execution(unsigned thread, void *data) {
    const struct block *block = data;
    if (UNLIKELY(thread)) {
        if (!hidden) __atomic_add_fetch(&num_other_threads, 1, __ATOMIC_RELAXED);
        return;
    }
    if (has_entry) follow(block);
    current = NULL;
    if (block->owner == SKIPPED) is_for_skipped = 1;
    else if (block->owner == PROGRAM) is_for_skipped = 0;
    if (!recording || hidden || is_for_skipped) return;
    current = block;
    if (UNLIKELY(num_words > MOST_WORDS - MARGIN)) {
        pthread_mutex_lock(&translating);
        flush();
        if (stopped) recording = has_entry = 0;
        pthread_mutex_unlock(&translating);
    }
    if (UNLIKELY(!recording)) {
        current = NULL;
        return;
    }
    words[num_words++] = block->word;
}

static void on_mark(unsigned thread, void *data) {
    int mark = (int)(intptr_t)data;
    if (thread) return;
    if (mark != SEGMENT_ENDS) {
        hidden = mark == HIDES;
        return;
    }
    if (UNLIKELY(num_words == MOST_WORDS)) {
        pthread_mutex_lock(&translating);
        flush();
        pthread_mutex_unlock(&translating);
    }
    words[num_words++] = UINT64_MAX;
}

static void on_access(unsigned thread, uint32_t information, uint64_t address, void *data) {
    struct instruction *instruction = data;
    if (UNLIKELY(thread) || !current) return;
    if (UNLIKELY((uintptr_t)instruction - (uintptr_t)current->instructions >= current->num_instructions * sizeof *instruction))
        return;
    if (UNLIKELY(num_words == MOST_WORDS)) {
        num_lost++;
        return;
    }
    uint64_t distance = (address - instruction->last_address) & ((1ull << 48) - 1);
    instruction->last_address = address;
    words[num_words++] = distance | (uint64_t)(qemu_plugin_mem_size_shift(information) & 7) << 48 |
                         (uint64_t)qemu_plugin_mem_is_store(information) << 51 | instruction->index;
}

/* Code that is not recorded: followed as calls are, and it tells what the tracer says. */
static void skip(struct qemu_plugin_tb *translated, struct block *block, size_t number) {
    size_t bytes = 0;
    for (size_t i = 0; i < number; i++) {
        struct qemu_plugin_insn *one = qemu_plugin_tb_get_insn(translated, i);
        const unsigned char *code = qemu_plugin_insn_data(one);
        size_t size = qemu_plugin_insn_size(one);
        int mark = mark_of(code, size);
        if (mark != MARKS) qemu_plugin_register_vcpu_insn_exec_cb(one, on_mark, NO_REGISTERS, (void *)(intptr_t)mark);
        if (i + 1 == number) block->flow = flow_of(code, size);
        bytes += size;
    }
    block->end = block->address + bytes;
    qemu_plugin_register_vcpu_tb_exec_cb(translated, on_execution, NO_REGISTERS, block);
}

static void on_translation(plugin_id id, struct qemu_plugin_tb *translated) {
    (void)id;
    size_t number = qemu_plugin_tb_n_insns(translated), bytes = 0;
    if (file < 0 || !number || number > 512) return;
    struct block *block = calloc(1, sizeof *block + number * sizeof(struct instruction)); /* QEMU keeps using it */
    if (!block) return;
    pthread_mutex_lock(&translating);
    if (!num_blocks) {
        const char *path = qemu_plugin_path_to_binary();
        if (!path || !realpath(path, program) || strpbrk(program, "\"\\")) program[0] = 0;
        if (has_entry) entry = qemu_plugin_start_code() + entry_offset;
    }
    block->address = qemu_plugin_tb_vaddr(translated);
    block->num_instructions = (uint32_t)number;
    block->is_entry = has_entry && block->address == entry;
    uintptr_t place = num_skipped ? (uintptr_t)qemu_plugin_insn_haddr(qemu_plugin_tb_get_insn(translated, 0)) : 0;
    block->owner = place ? owner_of(place) : PROGRAM;
    if (block->owner == SKIPPED) {
        skip(translated, block, number);
        pthread_mutex_unlock(&translating);
        return;
    }
    block->word = 1ull << 63 | num_blocks++;
    if (num_block_bytes + 16 + 17 * number > MOST_BLOCK_BYTES) {
        write_chunk(BLOCKS, block_bytes, num_block_bytes);
        num_block_bytes = 0;
    }
    unsigned char *head = block_bytes + num_block_bytes, *sizes = head + 16, *code = sizes + number;
    for (size_t i = 0; i < number; i++) {
        struct qemu_plugin_insn *one = qemu_plugin_tb_get_insn(translated, i);
        size_t size = qemu_plugin_insn_size(one);
        memcpy(code + bytes, qemu_plugin_insn_data(one), size);
        sizes[i] = (unsigned char)size;
        if (i + 1 == number) block->flow = flow_of(code + bytes, size);
        bytes += size;
        block->instructions[i].index = (uint64_t)i << 52;
        qemu_plugin_register_vcpu_mem_cb(one, on_access, NO_REGISTERS, READS_AND_WRITES, &block->instructions[i]);
    }
    uint32_t counts[2] = {(uint32_t)number, (uint32_t)bytes};
    memcpy(head, &block->address, 8);
    memcpy(head + 8, counts, 8);
    num_block_bytes += (uint32_t)(16 + number + bytes);
    block->end = block->address + bytes;
    pthread_mutex_unlock(&translating);
    qemu_plugin_register_vcpu_tb_exec_cb(translated, on_execution, NO_REGISTERS, block);
}

/* Which files lie where: the guest's are among the emulator's own. */
static void write_mappings(void) {
    static char text[1 << 20];
    size_t used = 0;
    FILE *maps = fopen("/proc/self/maps", "r");
    if (!maps) return;
    char line[4600];
    while (fgets(line, sizeof line, maps)) {
        unsigned long long start, end, offset;
        char path[4352];
        if (sscanf(line, "%llx-%llx %*s %llx %*s %*s %4351[^\n]", &start, &end, &offset, path) != 4 || path[0] != '/') continue;
        if (strpbrk(path, "\"\\") || used + strlen(path) + 128 > sizeof text) continue;
        used += (size_t)snprintf(text + used, sizeof text - used,
                                 "{\"mapped\": \"%s\", \"start\": %llu, \"end\": %llu, \"offset\": %llu}\n", path, start, end, offset);
    }
    fclose(maps);
    write_chunk(DEFINITIONS, text, used);
}

static void on_exit_of_program(plugin_id id, void *data) {
    (void)id;
    (void)data;
    if (file < 0) return;
    recording = 0;
    current = NULL;
    pthread_mutex_lock(&translating);
    flush();
    write_mappings();
    char text[8192];
    int used = snprintf(text, sizeof text,
                        "{\"end\": true, \"program\": \"%s\", \"code\": %llu, \"entries\": %lld, \"lost\": %llu, "
                        "\"other_threads\": %llu, \"stopped\": \"%s\"}\n",
                        program, (unsigned long long)qemu_plugin_start_code(),
                        (long long)(wants_entry ? num_entries : -1), (unsigned long long)num_lost,
                        (unsigned long long)num_other_threads, stopped ? stopped : "");
    if (used > 0 && (size_t)used < sizeof text) write_chunk(END, text, (uint64_t)used);
    close(file);
    file = -1;
    pthread_mutex_unlock(&translating);
}

/* A child process is not recorded. */
static void in_child(void) {
    if (file >= 0) close(file);
    file = -1;
    recording = has_entry = 0;
    current = NULL;
    num_words = num_block_bytes = 0;
}

int qemu_plugin_install(plugin_id id, const struct plugin_info *information, int count, char **arguments) {
    const char *path = NULL;
    char named[4352];
    for (int i = 0; i < count; i++) {
        if (!strncmp(arguments[i], "out=", 4)) path = arguments[i] + 4;
        else if (!strncmp(arguments[i], "folder=", 7)) {
            snprintf(named, sizeof named, "%s/%d.emulated", arguments[i] + 7, (int)getpid());
            path = named;
        } else if (!strncmp(arguments[i], "skip=", 5) && num_skipped < MOST_SKIPPED) skipped[num_skipped++] = strdup(arguments[i] + 5);
        else if (!strcmp(arguments[i], "marks=1")) hidden = 1;
        else if (!strncmp(arguments[i], "limit=", 6)) limit_bytes = strtoull(arguments[i] + 6, NULL, 10);
        else if (!strncmp(arguments[i], "entry=", 6)) {
            has_entry = wants_entry = 1;
            entry_offset = strtoull(arguments[i] + 6, NULL, 0);
        } else {
            fprintf(stderr, "manyscale: the plugin knows no argument '%s'\n", arguments[i]);
            return 1;
        }
    }
    is_arm = !strcmp(information->target_name, "aarch64");
    if (information->is_system || (!is_arm && strcmp(information->target_name, "x86_64"))) {
        fprintf(stderr, "manyscale: the plugin is for qemu-x86_64 and qemu-aarch64, not for %s\n", information->target_name);
        return 1;
    }
    if (path) file = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
    if (file < 0 || write_all("MSQEMU1", 8)) {
        fprintf(stderr, "manyscale: %s: %s\n", path ? path : "no argument out=FILE", path ? strerror(errno) : "give one");
        return 1;
    }
    file_bytes = 8;
    recording = !has_entry;
    open_zstd();
    if (is_arm) {
        static const char target[] = "{\"target\": \"aarch64\"}\n";
        write_chunk(DEFINITIONS, target, sizeof target - 1);
    }
    pthread_atfork(NULL, NULL, in_child);
    qemu_plugin_register_vcpu_tb_trans_cb(id, on_translation);
    qemu_plugin_register_atexit_cb(id, on_exit_of_program, NULL);
    return 0;
}

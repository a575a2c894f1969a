// Device code of the program: what the compiler's entry points register is looked for by its names in the program's module
// file.
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime.h"

typedef struct {
    const void *host;
    const char *name;
    size_t bytes;
    void **managed;  // the host's pointer to it
    bool is_function;
} Registered;
typedef struct {
    const void *image;  // the fat binary
    Registered *entries;
    size_t num_entries;
    bool is_resolved;
} Binary;

// What the compiler's entry points are given (crt/host_defines.h, fatbinary_section.h).
typedef struct {
    int magic, version;
    const void *data;
    void *others;
} Wrapper;

static const ModuleFile *file;  // of the program and the libraries that it is linked with; or one that came later
static bool *is_used;  // of each module of the program's
static Function **functions;
static Variable **variables;
static size_t num_functions, num_variables;

#define TABLE(type, member) MODULE_TABLE(file, type, member)

static const char *text(uint64_t offset) { return module_text(file, offset); }

static const ModuleFile *of_program(void) {
    static const ModuleFile *found;
    if (found == NULL) {
        found = module_file("modules", 0);
        is_used = calloc(found->header->num_modules + 1, sizeof *is_used);
    }
    return found;
}

static bool has(const StoredModule *module, const Registered *entry) {
    const StoredKernel *kernels = TABLE(StoredKernel, kernels) + module->first_kernel;
    const StoredVariable *stored = TABLE(StoredVariable, variables) + module->first_variable;
    if (entry->is_function) {
        for (uint32_t k = 0; k < module->num_kernels; k++)
            if (!strcmp(text(kernels[k].name), entry->name)) return true;
        return false;
    }
    for (uint32_t k = 0; k < module->num_variables; k++)
        if (!strcmp(text(stored[k].name), entry->name)) return true;
    return false;
}

static bool has_all(const StoredModule *module, const Binary *binary) {
    for (size_t k = 0; k < binary->num_entries; k++)
        if (binary->entries[k].is_function && !has(module, &binary->entries[k])) return false;
    for (size_t k = 0; k < binary->num_entries; k++)  // one that no kernel uses may have been left out
        if (!binary->entries[k].is_function && has(module, &binary->entries[k])) return true;
    for (size_t k = 0; k < binary->num_entries; k++)
        if (binary->entries[k].is_function) return true;
    return false;
}

static void add_function(const Registered *entry, uint32_t number) {
    const StoredModule *module = TABLE(StoredModule, modules) + number;
    const StoredKernel *stored = TABLE(StoredKernel, kernels) + module->first_kernel;
    uint32_t index = module->first_kernel;
    while (strcmp(text(stored->name), entry->name)) stored++, index++;
    function_new(file, number, index, entry->host);
}

Function *function_new(const ModuleFile *from, uint32_t number, uint32_t index, const void *host) {
    const StoredModule *module = MODULE_TABLE(from, StoredModule, modules) + number;
    const StoredKernel *stored = MODULE_TABLE(from, StoredKernel, kernels) + index;
    Function *made = calloc(1, sizeof *made);
    Function **more = realloc(functions, (num_functions + 1) * sizeof *functions);
    if (made == NULL || more == NULL) abort();
    functions = more;
    functions[num_functions++] = made;
    *made = (Function){.host = host ? host : made, .stored = stored, .file = from, .module = number,
                       .index = from->first_kernel + index,
                       .parameters = MODULE_TABLE(from, StoredParameter, parameters) + stored->first_parameter,
                       .max_dynamic_shared = -1, .carveout = -1};
    made->kernel = (Kernel){.cluster = {stored->cluster[0], stored->cluster[1], stored->cluster[2]},
                            .name = module_text(from, stored->name),
                            .code = (const Instruction *)(from->bytes + stored->code),
                            .num_instructions = stored->num_instructions, .num_registers = stored->num_registers,
                            .shared_bytes = stored->shared_bytes, .local_bytes = stored->local_bytes,
                            .parameter_offset = stored->parameter_offset, .parameter_bytes = stored->parameter_bytes,
                            .architecture = module->architecture};
    CodePart *parts = calloc(stored->num_parts + 1, sizeof *parts);
    const StoredPart *given = MODULE_TABLE(from, StoredPart, parts) + stored->first_part;
    for (uint32_t k = 0; k < stored->num_parts; k++)
        parts[k] = (CodePart){module_text(from, given[k].name), (uint32_t)given[k].address, given[k].bytes, given[k].first};
    made->kernel.parts = parts;
    made->kernel.num_parts = stored->num_parts;
    for (int k = 0; k < NUM_BANKS; k++) {
        made->kernel.banks[k] = stored->bank_bytes[k] ? (const uint8_t *)stored->bank_address[k] : NULL;
        made->kernel.bank_bytes[k] = stored->bank_bytes[k];
    }
    return made;
}

void function_forget(const Function *function) {
    for (size_t k = 0; k < num_functions; k++)
        if (functions[k] == function) functions[k] = functions[--num_functions];
}

static void add_variable(const Registered *entry, const StoredModule *module) {
    const StoredVariable *stored = TABLE(StoredVariable, variables) + module->first_variable;
    Variable *made = calloc(1, sizeof *made);
    variables = realloc(variables, (num_variables + 1) * sizeof *variables);
    variables[num_variables++] = made;
    *made = (Variable){.host = entry->host, .bytes = entry->bytes, .is_managed = entry->managed != NULL};
    for (uint32_t k = 0; k < module->num_variables; k++)
        if (!strcmp(text(stored[k].name), entry->name))
            *made = (Variable){entry->host, (void *)stored[k].address, stored[k].bytes, stored[k].is_constant, made->is_managed};
    if (made->device == NULL) made->device = (void *)memory_allocate(entry->bytes, MEMORY_DEVICE, 0);  // no code uses it
    if (entry->managed) *entry->managed = made->device;
}

void managed_variables_stay(uint8_t *place, const uint8_t *from, size_t bytes) {
    for (size_t k = 0; k < num_variables; k++) {
        const size_t offset = (size_t)((uint8_t *)variables[k]->device - place);
        if (variables[k]->is_managed && offset < bytes) memcpy(place + offset, from + offset, variables[k]->bytes);
    }
}

static void take(const Binary *binary, uint32_t number) {
    const StoredModule *module = TABLE(StoredModule, modules) + number;
    if (module->bytes) memory_add(module->address, module->bytes, MEMORY_MODULE, 0);
    for (size_t k = 0; k < binary->num_entries; k++) {
        if (binary->entries[k].is_function)
            add_function(&binary->entries[k], number);
        else
            add_variable(&binary->entries[k], module);
    }
}

// Code that the command did not see: of a library that is loaded while the program runs, or of another program that it
// starts. The session makes a module file of it.
static bool take_arriving(const Binary *binary) {
    Arrival arrival;
    const size_t bytes = binary->image ? fat_binary_bytes(binary->image) : 0;
    if (bytes == 0) return false;
    if (arriving_load(binary->image, bytes, "", &arrival)) {
        session_message("device code that was loaded while the program ran: %s", arrival.told);
        return false;
    }
    file = arrival.file;
    for (uint32_t k = 0; k < file->header->num_modules; k++)
        if (has_all(TABLE(StoredModule, modules) + k, binary)) {
            take(binary, k);
            return true;
        }
    return false;
}

static void resolve(Binary *binary) {
    if (binary->is_resolved) return;
    binary->is_resolved = true;
    if (binary->num_entries == 0) return;
    file = of_program();
    for (uint32_t k = 0; k < file->header->num_modules; k++)
        if (!is_used[k] && has_all(TABLE(StoredModule, modules) + k, binary)) {
            is_used[k] = true;
            take(binary, k);
            return;
        }
    if (!take_arriving(binary))  // its use is an error, as CUDA has it
        session_message("no device code that can be run here has the kernel or variable %s", binary->entries[0].name);
}

static Binary *binaries[1024];
static size_t num_binaries;

static void resolve_all(void) {
    for (size_t k = 0; k < num_binaries; k++) resolve(binaries[k]);
}

Function *function_of(const void *host) {
    resolve_all();
    for (size_t k = 0; k < num_functions; k++)
        if (functions[k]->host == host) return functions[k];
    for (size_t k = 0; k < num_functions; k++)
        if (functions[k] == host) return functions[k];  // a cudaKernel_t, which is taken for a function, too
    return NULL;
}

const char *function_problem(const Function *function) { return module_text(function->file, function->stored->problem); }

const Variable *variable_of(const void *host) {
    resolve_all();
    for (size_t k = 0; k < num_variables; k++)
        if (variables[k]->host == host) return variables[k];
    return NULL;
}

// The compiler's entry points, as the toolkit's headers declare them (crt/host_runtime.h).

static void add(void **handle, Registered entry) {
    Binary *binary = (Binary *)handle;
    for (size_t k = 0; k < binary->num_entries; k++)
        if (binary->entries[k].host == entry.host) return;
    binary->entries = realloc(binary->entries, (binary->num_entries + 1) * sizeof *binary->entries);
    if (binary->entries == NULL) abort();
    binary->entries[binary->num_entries++] = entry;
}

void **__cudaRegisterFatBinary(void *wrapper) {
    LOCKED;
    Binary *made = calloc(1, sizeof *made);
    if (made == NULL || num_binaries == sizeof binaries / sizeof *binaries) {
        session_message("the program has more than %zu units with device code; link them as one", num_binaries);
        _exit(2);
    }
    made->image = wrapper ? ((const Wrapper *)wrapper)->data : NULL;
    binaries[num_binaries++] = made;
    return (void **)made;
}

void __cudaRegisterFatBinaryEnd(void **handle) {
    LOCKED;
    resolve((Binary *)handle);
}

void __cudaUnregisterFatBinary(void **handle) { (void)handle; }

void __cudaRegisterFunction(void **handle, const char *host, char *device_function, const char *name, int thread_limit,
                            uint3 *thread, uint3 *block, dim3 *block_size, dim3 *grid_size, int *warp_size) {
    LOCKED;
    (void)device_function, (void)thread_limit, (void)thread, (void)block, (void)block_size, (void)grid_size, (void)warp_size;
    add(handle, (Registered){.host = host, .name = name, .is_function = true});
}

void __cudaRegisterVar(void **handle, char *host, char *address, const char *name, int is_external, size_t bytes,
                       int is_constant, int is_global) {
    LOCKED;
    (void)address, (void)is_external, (void)is_constant, (void)is_global;
    add(handle, (Registered){.host = host, .name = name, .bytes = bytes});
}

void __cudaRegisterManagedVar(void **handle, void **host, char *address, const char *name, int is_external, size_t bytes,
                              int is_constant, int is_global) {
    LOCKED;
    (void)address, (void)is_external, (void)is_constant, (void)is_global;
    add(handle, (Registered){.host = host, .name = name, .bytes = bytes, .managed = host});
}

char __cudaInitModule(void **handle) {
    LOCKED;
    resolve((Binary *)handle);
    return 1;
}

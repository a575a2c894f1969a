// The module file that module.py writes and modules.c maps: device code of a program, at final addresses. All numbers
// are little-endian, offsets count from the file's begin.
#ifndef MANYSCALE_CUDA_MODULES_H
#define MANYSCALE_CUDA_MODULES_H

#include "sass.h"

#define MODULES_MAGIC "MSCUDA02"

typedef struct {
    char magic[8];
    uint32_t num_modules, num_kernels, num_variables, num_parameters, num_parts, padding;
    uint64_t modules, kernels, variables, parameters, parts;  // offsets of the tables
    uint64_t image, image_bytes, image_address;        // memory of all modules: where it stands in the file, and at run time
} StoredHeader;

typedef struct {  // of one cubin
    uint32_t architecture;
    uint32_t first_kernel, num_kernels;
    uint32_t first_variable, num_variables;
    uint32_t padding;
    uint64_t address, bytes;  // of its variables and constant banks
} StoredModule;

typedef struct {
    uint64_t name;  // offset of a text that ends with a zero
    uint64_t code;  // offset of Instruction[num_instructions]
    uint64_t problem;  // offset of a text that says why it cannot be run, 0 for none
    uint32_t num_instructions, num_registers;
    uint32_t shared_bytes, shared_reserved;  // static, of a block: with what the system takes of it, and that alone
    uint32_t local_bytes;
    uint32_t parameter_offset, parameter_bytes, first_parameter, num_parameters;
    uint32_t max_threads;  // of a block
    uint32_t first_part, num_parts;  // of its code: functions that have addresses
    uint64_t bank_address[NUM_BANKS];
    uint32_t bank_bytes[NUM_BANKS];
    uint32_t cluster[3], padding;  // blocks of a cluster that it is compiled for, zeros: any
} StoredKernel;

typedef struct {
    uint64_t name, address, bytes;
    uint32_t is_constant, padding;
} StoredVariable;

typedef struct {
    uint32_t offset, bytes;
} StoredParameter;

typedef struct {
    uint64_t name, address;
    uint32_t bytes, first;  // index of its first instruction in the kernel's code
} StoredPart;

#endif

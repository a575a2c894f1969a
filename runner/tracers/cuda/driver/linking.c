// The driver's linker: PTX and machine code are collected, and made into one module's machine code.
#include <stdlib.h>
#include <string.h>

#include "driver/driver.h"

struct CUlinkState_st {
    char *files;  // names in the session's folder, each with a blank before it
    char words[256];
    void *made;
    unsigned num_options;
    CUjit_option *options;
    void **values;
};

CUresult cuLinkCreate_v2(unsigned count, CUjit_option *options, void **values, CUlinkState *into) {
    IN_CONTEXT;
    if (into == NULL) return CUDA_ERROR_INVALID_VALUE;
    CUlinkState made = calloc(1, sizeof *made);
    if (made == NULL) return CUDA_ERROR_OUT_OF_MEMORY;
    made->files = strdup("");
    made->num_options = count;
    made->options = calloc(count + 1, sizeof *options);
    made->values = calloc(count + 1, sizeof *values);
    if (count) memcpy(made->options, options, count * sizeof *options);
    if (count) memcpy(made->values, values, count * sizeof *values);
    options_words(made->words, sizeof made->words, count, options, values);
    *into = made;
    return CUDA_SUCCESS;
}

static CUresult told(CUlinkState state, const Arrival *arrival) {
    session_message("device code cannot be linked: %s", arrival->told);
    options_tell(arrival->told, state->num_options, state->options, state->values);
    return (CUresult)arrival->error;
}

CUresult cuLinkAddData_v2(CUlinkState state, CUjitInputType type, void *content, size_t bytes, const char *name,
                          unsigned count, CUjit_option *options, void **values) {
    IN_CONTEXT;
    (void)name, (void)count, (void)options, (void)values;
    Arrival arrival;
    if (state == NULL || content == NULL || bytes == 0) return CUDA_ERROR_INVALID_VALUE;
    if (type != CU_JIT_INPUT_PTX && type != CU_JIT_INPUT_CUBIN && type != CU_JIT_INPUT_OBJECT)
        return refused("cuLinkAddData of fat binaries, libraries and NVVM's code");
    if (arriving_write(content, bytes, &arrival)) return told(state, &arrival);
    char *files = NULL;
    if (asprintf(&files, "%s %s", state->files, arrival.name) < 0) return CUDA_ERROR_OUT_OF_MEMORY;
    free(state->files);
    state->files = files;
    return CUDA_SUCCESS;
}

CUresult cuLinkAddFile_v2(CUlinkState state, CUjitInputType type, const char *path, unsigned count, CUjit_option *options,
                          void **values) {
    IN_CONTEXT;
    size_t bytes = 0;
    void *content = path ? file_content(path, &bytes) : NULL;
    if (content == NULL) return CUDA_ERROR_FILE_NOT_FOUND;
    const CUresult result = cuLinkAddData_v2(state, type, content, bytes, path, count, options, values);
    free(content);
    return result;
}

CUresult cuLinkComplete(CUlinkState state, void **into, size_t *bytes) {
    IN_CONTEXT;
    Arrival arrival;
    char path[4400];
    size_t size = 0;
    if (state == NULL || into == NULL) return CUDA_ERROR_INVALID_VALUE;
    if (*state->files == 0) return CUDA_ERROR_INVALID_IMAGE;
    if (arriving_link(state->files, state->words, &arrival)) return told(state, &arrival);
    snprintf(path, sizeof path, "%.4000s/%s", session_folder(), arrival.name);
    free(state->made);
    state->made = file_content(path, &size);
    if (state->made == NULL) return CUDA_ERROR_UNKNOWN;
    options_tell("", state->num_options, state->options, state->values);
    *into = state->made;
    if (bytes) *bytes = size;
    return CUDA_SUCCESS;
}

CUresult cuLinkDestroy(CUlinkState state) {
    ENTERED;
    if (state == NULL) return CUDA_ERROR_INVALID_HANDLE;
    free(state->files);
    free(state->made);
    free(state->options);
    free(state->values);
    free(state);
    return CUDA_SUCCESS;
}

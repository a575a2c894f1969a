// The logits of llm.c's GPT-2 in bfloat16 (train_gpt2.cu, MIT licence, which stands elsewhere):
//     bf16 MODEL TOKENS RESULT B T 0
// RESULT has them as float32 (B, T, V); the words are those of fp32.cu, and there are no steps of training.
#include <cuda_runtime.h>

#if CUDART_VERSION >= 13000  // llm.c gives the number of a device, as before CUDA 13
inline cudaError_t cudaMemAdvise(const void *at, size_t bytes, cudaMemoryAdvise advice, int device) {
    cudaMemLocation where = {};
    where.type = device == cudaCpuDeviceId ? cudaMemLocationTypeHost : cudaMemLocationTypeDevice;
    where.id = device == cudaCpuDeviceId ? 0 : device;
    return cudaMemAdvise(at, bytes, advice, where);
}
#endif

#define TESTING
#include "train_gpt2.cu"

#include <vector>

static void write_from_device(FILE *file, const floatX *from, size_t count) {
    std::vector<floatX> copied(count);
    cudaCheck(cudaMemcpy(copied.data(), from, count * sizeof(floatX), cudaMemcpyDeviceToHost));
    std::vector<float> widened(copied.begin(), copied.end());
    fwrite(widened.data(), sizeof(float), count, file);
}

int main(int count, char **words) {
    if (count != 7) return fprintf(stderr, "bf16 MODEL TOKENS RESULT B T 0\n"), 2;
    int B = atoi(words[4]), T = atoi(words[5]);
    char nothing[1] = "";
    multi_gpu_config = multi_gpu_config_init(1, 0, 1, nothing, nothing, nothing);
    common_start(false, true);
    GPT2 model;
    gpt2_init_common(&model);
    gpt2_build_from_checkpoint(&model, words[1]);
    std::vector<int> tokens(2 * B * T);
    FILE *file = fopenCheck(words[2], "rb");
    freadCheck(tokens.data(), sizeof(int), tokens.size(), file);
    fcloseCheck(file);
    int *inputs = tokens.data(), V = model.config.vocab_size, Vp = model.config.padded_vocab_size;
    set_zero_configs(&multi_gpu_config, 0, model.num_parameters);
    gpt2_allocate_state(&model, B, T);

    file = fopenCheck(words[3], "wb");
    gpt2_forward(&model, inputs, B, T);
    for (int each = 0; each < B * T; each++) write_from_device(file, model.acts.output + (size_t)each * Vp, V);
    fcloseCheck(file);
    gpt2_free(&model);
    common_free(model);
    multi_gpu_config_free(&multi_gpu_config);
    return 0;
}

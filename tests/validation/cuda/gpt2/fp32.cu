// One step of training after another of llm.c's GPT-2 in single precision (train_gpt2_fp32.cu, MIT licence, which stands
// elsewhere): logits of a forward pass; then losses of STEPS steps, the gradients of the first, and its losses per token.
//     fp32 MODEL TOKENS RESULT B T STEPS
// TOKENS has B x T inputs and as many targets (int32). RESULT has float32: logits (B, T, V), losses (B, T), gradients in
// the order of the parameters of MODEL (llm.c's checkpoint), the mean loss of each step.
#define TESTING
#include "train_gpt2_fp32.cu"

#include <vector>

static void write_from_device(FILE *file, const float *from, size_t count) {
    std::vector<float> copied(count);
    cudaCheck(cudaMemcpy(copied.data(), from, count * sizeof(float), cudaMemcpyDeviceToHost));
    fwrite(copied.data(), sizeof(float), count, file);
}

int main(int count, char **words) {
    if (count != 7) return fprintf(stderr, "fp32 MODEL TOKENS RESULT B T STEPS\n"), 2;
    int B = atoi(words[4]), T = atoi(words[5]), steps = atoi(words[6]);
    cublasCheck(cublasCreate(&cublas_handle));
    cublas_compute_type = CUBLAS_COMPUTE_32F;
    cublasCheck(cublasSetMathMode(cublas_handle, CUBLAS_DEFAULT_MATH));
    GPT2 model;
    gpt2_build_from_checkpoint(&model, words[1]);
    std::vector<int> tokens(2 * B * T);
    FILE *file = fopenCheck(words[2], "rb");
    freadCheck(tokens.data(), sizeof(int), tokens.size(), file);
    fcloseCheck(file);
    int *inputs = tokens.data(), *targets = inputs + B * T, V = model.config.vocab_size, Vp = model.config.padded_vocab_size;

    file = fopenCheck(words[3], "wb");
    gpt2_forward(&model, inputs, NULL, B, T);
    for (int each = 0; each < B * T; each++) write_from_device(file, model.acts.output + (size_t)each * Vp, V);
    std::vector<float> losses;
    for (int step = 0; step < steps; step++) {
        gpt2_forward(&model, inputs, targets, B, T);
        gpt2_zero_grad(&model);
        gpt2_backward(&model);
        if (step == 0) {
            fwrite(model.cpu_losses, sizeof(float), B * T, file);
            write_from_device(file, model.grads_memory, model.num_parameters);
        }
        gpt2_update(&model, 1e-3f, 0.9f, 0.999f, 1e-8f, 0.01f, step + 1);
        cudaCheck(cudaDeviceSynchronize());
        losses.push_back(model.mean_loss);
    }
    fwrite(losses.data(), sizeof(float), losses.size(), file);
    fcloseCheck(file);
    gpt2_free(&model);
    cublasCheck(cublasDestroy(cublas_handle));
    return 0;
}

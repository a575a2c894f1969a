/* Instructions of x86-64: chains, of which each waits for the one before, and streams, of which none does. */
#ifndef MANYSCALE_INSTRUCTIONS_H
#define MANYSCALE_INSTRUCTIONS_H

#define TWICE(text) text text
#define TIMES8(text) TWICE(TWICE(TWICE(text)))
#define TIMES16(text) TWICE(TIMES8(text))
#define TIMES96(text) TIMES16(text) TIMES16(text) TIMES16(text) TIMES16(text) TIMES16(text) TIMES16(text)
#define INTEGERS(one) one("r8") one("r9") one("r10") one("r11") one("r12") one("r13") one("r14") one("r15")
#define VECTORS(one) one("xmm0") one("xmm1") one("xmm2") one("xmm3") one("xmm4") one("xmm5") one("xmm6") \
    one("xmm7") one("xmm8") one("xmm9") one("xmm10") one("xmm11")
#define FILL(register) "movapd %%xmm12, %%" register "\n"

static const double a_little_more_than_one = 1.0000001;
enum { SELF = 512 };
static char scratch[4096] __attribute__((aligned(4096)));

/* 96 times `body`, of `units` instructions each, per round. xmm12 = xmm13 = 1.0000001, xmm14 = 0. */
#define KERNEL(name, units, body) \
    static long name(long number, long rounds) { \
        (void)number; \
        long left = rounds; \
        char *memory = scratch; \
        uint64_t dividend = 0x9e3779b97f4, divisor = 1000, quotient = dividend; \
        __asm__ volatile("movddup %[value], %%xmm12\n movapd %%xmm12, %%xmm13\n xorpd %%xmm14, %%xmm14\n" \
            VECTORS(FILL) "jmp 2f\n 9: ret\n .p2align 6\n 2:\n" body "dec %[left]\n jnz 2b\n" \
            : [left] "+r"(left), "+a"(quotient) \
            : [value] "m"(a_little_more_than_one), [memory] "r"(memory), [dividend] "r"(dividend), \
              [divisor] "r"(divisor), [source] "S"(1l) \
            : "memory", "cc", "rdx", "r8", "r9", "r10", "r11", "r12", "r13", "r14", "r15", "xmm0", "xmm1", "xmm2", \
              "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10", "xmm11", "xmm12", "xmm13", "xmm14"); \
        return rounds * (units); \
    }
#define INTEGER_CHAIN(operation) TIMES96(operation " %%rsi, %%r8\n")
#define VECTOR_CHAIN(operation) TIMES96(operation " %%xmm12, %%xmm0\n")

#define ADD(register) "add %%rsi, %%" register "\n"
#define MULTIPLY(register) "imul %%rsi, %%" register "\n"
#define MOVE(register) "mov %%rsi, %%" register "\n"
#define ZERO(register) "xor %%" register ", %%" register "\n"
#define LOAD(register) "mov (%[memory]), %%" register "\n"
#define STORE(register) "mov %%" register ", (%[memory])\n"
#define LOAD_VECTOR(register) "movaps (%[memory]), %%" register "\n"
#define STORE_VECTOR(register) "movaps %%" register ", (%[memory])\n"
#define ADDSD(register) "addsd %%xmm12, %%" register "\n"
#define MULSD(register) "mulsd %%xmm12, %%" register "\n"
#define FMASD(register) "vfmadd231sd %%xmm12, %%xmm13, %%" register "\n"
#define DIVSD(register) "divsd %%xmm12, %%" register "\n"
#define SQRTSD(register) "sqrtsd %%xmm12, %%" register "\n"
#define PADDD(register) "paddd %%xmm12, %%" register "\n"
#define CONVERT(register) "cvtdq2ps %%xmm12, %%" register "\n"
#define DIVIDE "xor %%edx, %%edx\n div %[divisor]\n"

KERNEL(int_alu_latency, 96, INTEGER_CHAIN("add"))
KERNEL(int_alu_throughput, 128, TIMES16(INTEGERS(ADD)))
KERNEL(int_mul_latency, 96, INTEGER_CHAIN("imul"))
KERNEL(int_mul_throughput, 128, TIMES16(INTEGERS(MULTIPLY)))
KERNEL(int_div_latency, 16, TIMES16(DIVIDE "add %[dividend], %%rax\n"))
KERNEL(int_div_throughput, 16, TIMES16("mov %[dividend], %%rax\n" DIVIDE))
KERNEL(fp_add_latency, 96, VECTOR_CHAIN("addsd"))
KERNEL(fp_add_throughput, 192, TIMES16(VECTORS(ADDSD)))
KERNEL(fp_mul_latency, 96, VECTOR_CHAIN("mulsd"))
KERNEL(fp_mul_throughput, 192, TIMES16(VECTORS(MULSD)))
KERNEL(fp_fma_latency, 96, TIMES96("vfmadd231sd %%xmm12, %%xmm13, %%xmm0\n"))
KERNEL(fp_fma_throughput, 192, TIMES16(VECTORS(FMASD)))
KERNEL(fp_div_latency, 96, VECTOR_CHAIN("divsd"))
KERNEL(fp_div_throughput, 96, TIMES8(VECTORS(DIVSD)))
/* back to the same value by two logic operations of one cycle each, which the reader of the figure takes off */
KERNEL(fp_sqrt_latency, 96, TIMES96("sqrtsd %%xmm0, %%xmm0\n andpd %%xmm14, %%xmm0\n orpd %%xmm12, %%xmm0\n"))
KERNEL(fp_sqrt_throughput, 96, TIMES8(VECTORS(SQRTSD)))
KERNEL(fp_other_latency, 96, TIMES96("cvtdq2ps %%xmm0, %%xmm0\n"))
KERNEL(fp_other_throughput, 192, TIMES16(VECTORS(CONVERT)))
KERNEL(simd_int_latency, 96, VECTOR_CHAIN("paddd"))
KERNEL(simd_int_throughput, 192, TIMES16(VECTORS(PADDD)))
KERNEL(move_latency, 192, TIMES96("mov %%r8, %%r9\n mov %%r9, %%r8\n"))
KERNEL(move_throughput, 128, TIMES16(INTEGERS(MOVE)))
KERNEL(branch_taken, 96, TIMES96("jmp 1f\n .p2align 4\n 1:\n"))
KERNEL(branch_not_taken, 96, "xor %%edx, %%edx\n" TIMES96("jnz 9b\n"))
KERNEL(call_and_return, 96, /* below what the compiler may keep under the stack pointer */
    "lea -128(%%rsp), %%rsp\n jmp 3f\n .p2align 4\n 4: ret\n 3:\n" TIMES96("call 4b\n") "lea 128(%%rsp), %%rsp\n")
KERNEL(nop, 96, TIMES96("nop\n"))
KERNEL(zero, 128, TIMES16(INTEGERS(ZERO)))
KERNEL(mixed, 192, TIMES16("add %%rsi, %%r8\n paddd %%xmm12, %%xmm0\n mov %%rsi, %%r9\n add %%rsi, %%r10\n"
    "paddd %%xmm12, %%xmm1\n mov %%rsi, %%r11\n add %%rsi, %%r12\n paddd %%xmm12, %%xmm2\n mov %%rsi, %%r13\n"
    "add %%rsi, %%r14\n paddd %%xmm12, %%xmm3\n mov %%rsi, %%r15\n"))
KERNEL(load_throughput, 128, TIMES16(INTEGERS(LOAD)))
KERNEL(store_throughput, 128, TIMES16(INTEGERS(STORE)))
KERNEL(vector_load_throughput, 192, TIMES16(VECTORS(LOAD_VECTOR)))
KERNEL(vector_store_throughput, 192, TIMES16(VECTORS(STORE_VECTOR)))
KERNEL(access_throughput, 192, TIMES16("mov (%[memory]), %%r8\n mov 8(%[memory]), %%r9\n mov %%rsi, 64(%[memory])\n"
    "mov 16(%[memory]), %%r10\n mov 24(%[memory]), %%r11\n mov %%rsi, 72(%[memory])\n"
    "mov 32(%[memory]), %%r12\n mov 40(%[memory]), %%r13\n mov %%rsi, 80(%[memory])\n"
    "mov 48(%[memory]), %%r14\n mov 56(%[memory]), %%r15\n mov %%rsi, 88(%[memory])\n"))
/* scratch + SELF holds the address of scratch, so this changes no register; a load, and a move between the files */
KERNEL(vector_load_latency, 96, TIMES96("movq 512(%[memory]), %%xmm0\n movq %%xmm0, %[memory]\n"))
KERNEL(cross_latency, 192, TIMES96("movq %%r8, %%xmm0\n movq %%xmm0, %%r8\n"))
KERNEL(cross_throughput, 192, TIMES96("movq %%rsi, %%xmm0\n movq %%xmm1, %%r8\n"))
KERNEL(forward_integer, 96, TIMES96("mov %%r8, (%[memory])\n mov (%[memory]), %%r8\n"))
KERNEL(forward_fp, 96, TIMES96("movsd %%xmm0, (%[memory])\n movsd (%[memory]), %%xmm0\n"))
#define FORWARD(at, a, b) "movsd %%xmm0, " at "(%[memory])\n movsd " at "(%[memory]), %%xmm" a "\n movsd " at \
    "(%[memory]), %%xmm" b "\n"
KERNEL(forward_throughput, 128, TIMES16(FORWARD("0", "1", "2") FORWARD("8", "3", "4") FORWARD("16", "5", "6")
    FORWARD("24", "7", "8")))

/* A branch that follows bits of memory, all zero or at random, which no predictor knows beforehand. */
enum { MOST_BITS = 1 << 18 };
static char bits[MOST_BITS];

static int prepare_bits(int random) {
    for (size_t i = 0; i < MOST_BITS; i++)
        bits[i] = random && random_below(1000) < 500;
    return 1;
}
static int prepare_constant(long number) { return prepare_bits(0 * number); }
static int prepare_random(long number) { return prepare_bits(1 + 0 * number); }
static long branch_on_bits(long number, long rounds) {
    static size_t place;
    (void)number;
    long taken = 0;
    for (long i = 0; i < rounds * 64; i++, place = (place + 1) % MOST_BITS)
        __asm__ volatile("cmpb $0, %1\n jz 1f\n add $1, %0\n 1:\n" : "+r"(taken) : "m"(bits[place]) : "cc");
    return rounds * 64;
}

static long string_copy(long number, long rounds) { /* units: bytes */
    (void)number;
    for (long i = 0; i < rounds; i++) {
        void *from = bits, *to = bits + 16384;
        long count = 8192;
        __asm__ volatile("rep movsb" : "+S"(from), "+D"(to), "+c"(count)::"memory");
    }
    return rounds * 8192;
}

static int has_fma(long number) { return !number && __builtin_cpu_supports("fma"); }

/* Two chains of misses with `number` other instructions between them: both are in flight at once as long as the
 * reorder buffer holds what lies between (H. Wong, Measuring Reorder Buffer Capacity, 2013). Integer and vector
 * instructions take turns, so that neither register file ends first; nops and comparisons may be fused. */
static void (*window_code)(void **, long);

static int prepare_filled(long number, int vectors_only) {
    static const unsigned char first[] = {0x48, 0x8b, 0x0f, 0x48, 0x8b, 0x57, 0x08}; /* rcx, rdx: the two places */
    static const unsigned char last[] = {0x48, 0x89, 0x0f, 0x48, 0x89, 0x57, 0x08, 0xc3};
    if (number < 1 || number > 4096 || !prepare_parallel(2))
        return 0;
    size_t bytes = 65536;
    unsigned char *code = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (code == MAP_FAILED)
        return 0;
    unsigned char *at = code;
    memcpy(at, first, sizeof first);
    at += sizeof first;
    unsigned char *loop = at;
    for (int chain = 0; chain < 2; chain++) {
        static const unsigned char load[2][3] = {{0x48, 0x8b, 0x09}, {0x48, 0x8b, 0x12}};
        memcpy(at, load[chain], 3);
        at += 3;
        static const unsigned char filler[2][4] = {{0x44, 0x8d, 0x40, 0x01}, {0x66, 0x0f, 0xfe, 0xc1}};
        for (long i = 0; i < number; i++) { /* lea 1(rax), r8d; paddd xmm1, xmm0 */
            memcpy(at, filler[vectors_only || i % 2], 4);
            at += 4;
        }
    }
    static const unsigned char count[] = {0x48, 0xff, 0xce, 0x0f, 0x85}; /* dec rsi; jnz loop */
    memcpy(at, count, sizeof count);
    at += sizeof count;
    int32_t back = (int32_t)(loop - (at + 4));
    memcpy(at, &back, 4);
    at += 4;
    memcpy(at, last, sizeof last);
    if (mprotect(code, bytes, PROT_READ | PROT_EXEC)) {
        munmap(code, bytes);
        return 0;
    }
    if (window_code)
        munmap((void *)(uintptr_t)window_code, bytes);
    window_code = (void (*)(void **, long))(uintptr_t)code;
    return 1;
}
static int prepare_window(long number) { return prepare_filled(number, 0); }
static int prepare_vector_window(long number) { return prepare_filled(number, 1); }

static long window(long number, long rounds) {
    (void)number;
    window_code(chains, rounds);
    return rounds;
}

#endif

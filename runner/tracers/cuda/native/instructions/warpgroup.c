// Products of a group of four warps (wgmma): D[64, N] = A[64, K] x B[K, N] + D, as the PTX ISA's "Asynchronous warpgroup
// level matrix multiply-accumulate instructions" has them. A warp computes the 16 rows that are its own when it executes
// the instruction, and not later: hardware may read shared memory and write D until the group is waited for, and a
// program that touches either before that waits is wrong there and right here.
#include "access.h"
#include "elements.h"
#include "sparse.h"
#include "warp.h"

enum { ROWS = 16, COLUMNS = 256, CHUNK = 16, WORDS = 16, DEPTH = 64 };

// What ``extra`` holds. ``words``: of 32 bits that a row of B has.
typedef struct {
    uint32_t left, right;  // kinds of elements
    int columns, depth, words;
    bool is_half;          // the accumulator
    bool negates[2], turns[2];  // A, B
    bool is_sparse;        // of A half the elements are there
    int selector;
} Shape;

static Shape shape_of(const Instruction *instruction) {
    const uint32_t extra = instruction->extra;
    const uint32_t left = extra & 15, is_sparse = extra >> 19 & 1;
    return (Shape){
        .left = left, .right = extra >> 4 & 15, .columns = 8 * (int)(extra >> 8 & 63), .depth = (256 << is_sparse) / bits_of(left),
        .words = 8 << is_sparse, .is_sparse = is_sparse, .selector = (int)(extra >> 20 & 3),
        .is_half = extra >> 14 & 1, .negates = {extra >> 15 & 1, extra >> 16 & 1}, .turns = {extra >> 17 & 1, extra >> 18 & 1},
    };
}

// A matrix in shared memory, in bytes. ``width``: chunks of a row of the swizzle's pattern, 1 where there is none.
typedef struct {
    uint32_t start, leading, stride, width;
} Descriptor;

static bool descriptor_of(const Context *at, uint32_t number, Descriptor *into) {
    static const uint32_t widths[] = {1, 8, 4, 2};
    const uint64_t bits = (uint64_t)uniform_of(at->warp, number + 1) << 32 | uniform_of(at->warp, number);
    *into = (Descriptor){(bits & 0x3fff) << 4, (bits >> 16 & 0x3fff) << 4, (bits >> 32 & 0x3fff) << 4, widths[bits >> 62]};
    if (!(bits >> 49 & 7)) return true;
    at->block->launch->error = STOP_INSTRUCTION;
    fail(at, "a matrix descriptor (0x%llx) with a base offset is not executed", (unsigned long long)bits);
    return false;
}

// The chunk that ``offset`` bytes from the matrix's begin lie in: the swizzle turns chunks by the address's bits 7 to 9.
static const uint8_t *chunk_at(const Context *at, const Descriptor *matrix, uint32_t offset) {
    uint32_t address = matrix->start + offset;
    address ^= (address >> 7 & (matrix->width - 1)) << 4;
    const uint8_t *place = shared_place(at->block, address | at->block->rank << 24, CHUNK);
    if (place == NULL) {
        at->block->launch->error = STOP_ADDRESS;
        fail(at, "a matrix descriptor gives shared address 0x%x, outside of what is allocated", address);
    }
    return place;
}

// Row ``row`` of a matrix whose rows lie along K: its two or four chunks. Eight rows make a core matrix.
static bool row_along(const Context *at, const Descriptor *matrix, int row, int words, uint32_t into[WORDS]) {
    const uint32_t first = (uint32_t)(row / 8) * matrix->stride + (uint32_t)(row % 8) * CHUNK * matrix->width;
    for (uint32_t chunk = 0; chunk < (uint32_t)words / 4; chunk++) {
        const uint8_t *from = chunk_at(at, matrix, first + chunk * (matrix->width == 1 ? matrix->leading : CHUNK));
        if (from == NULL) return false;
        memcpy(into + 4 * chunk, from, CHUNK);
    }
    return true;
}

// Eight elements of 16 bits of column ``k``, from row 8 * ``group`` on, of a matrix whose columns lie together.
static const uint8_t *rows_across(const Context *at, const Descriptor *matrix, int group, int k) {
    const uint32_t width = matrix->width, piece = (uint32_t)group, within = (uint32_t)k % 8, eighth = (uint32_t)k / 8;
    if (width == 1) return chunk_at(at, matrix, piece * matrix->stride + within * CHUNK + eighth * matrix->leading);
    return chunk_at(at, matrix, piece / width * matrix->leading + piece % width * CHUNK + within * CHUNK * width + eighth * matrix->stride);
}

// Rows ``first`` to ``first + count - 1`` of A, or columns of B, as ``words`` words of each: [count][WORDS].
static bool gather(const Context *at, const Descriptor *matrix, bool turns, int first, int count, int words, uint32_t (*into)[WORDS]) {
    if (!turns) {
        for (int row = 0; row < count; row++)
            if (!row_along(at, matrix, first + row, words, into[row])) return false;
        return true;
    }
    for (int k = 0; k < 2 * words; k++)
        for (int group = 0; group < count / 8; group++) {
            const uint8_t *from = rows_across(at, matrix, first / 8 + group, k);
            if (from == NULL) return false;
            for (int row = 0; row < 8; row++) memcpy((uint8_t *)into[8 * group + row] + 2 * k, from + 2 * row, 2);
        }
    return true;
}

// A's rows of this warp from four registers, whose places are those of the products of one warp.
static void gather_registers(const Context *at, uint32_t into[ROWS][WORDS]) {
    uint32_t tmp[LANES];
    for (int r = 0; r < 4; r++) {
        const uint32_t *values = plain(at, &at->instruction->operands[1], r, tmp);
        EACH_LANE into[(lane >> 2) + 8 * (r % 2)][4 * (r / 2) + (lane & 3)] = values[lane];
    }
}

static void expand(const Context *at, const Shape *shape, uint32_t left[ROWS][WORDS]) {
    uint32_t tmp[LANES], stored[WORDS];
    const uint32_t *metadata = plain(at, &at->instruction->operands[5], 0, tmp);
    const bool is_narrow = bits_of(shape->left) <= 8;
    for (int row = 0; row < ROWS; row++) {
        memcpy(stored, left[row], sizeof stored);
        expand_row(metadata, is_narrow, is_narrow ? 16 : 8, shape->selector, row, stored, left[row]);
    }
}

static bool operands_of(const Context *at, const Shape *shape, uint32_t left[ROWS][WORDS], uint32_t (*right)[WORDS]) {
    const Operand *from = at->instruction->operands;
    Descriptor matrix;
    const uint32_t number = from[2].number;  // A's descriptor stands there, B's behind it, even where A's is not used
    if (from[1].kind == OPERAND_REGISTER) {
        gather_registers(at, left);
    } else {
        const int first = ROWS * (int)(at->warp->index % 4);
        if (!descriptor_of(at, number, &matrix) || !gather(at, &matrix, shape->turns[0], first, ROWS, 8, left)) return false;
    }
    if (shape->is_sparse) expand(at, shape, left);
    if (!descriptor_of(at, number + 2, &matrix)) return false;
    if (shape->is_sparse && matrix.width == 2 && !shape->turns[1]) {
        at->block->launch->error = STOP_INSTRUCTION;
        fail(at, "a sparse product with a swizzle of 32 bytes, narrower than a row of B, is not executed");
        return false;
    }
    return gather(at, &matrix, shape->turns[1], 0, shape->columns, shape->words, right);
}

// Registers of D: those of products of 16 x 8, one beside the other.
static inline int row_of(int lane, int i) { return (lane >> 2) + 8 * (i >> 1 & 1); }
static inline int column_of(int lane, int i) { return 8 * (i >> 2) + 2 * (lane & 3) + (i & 1); }

static void read_sums(const Context *at, const Shape *shape, double (*sums)[COLUMNS]) {
    uint32_t tmp[LANES];
    for (int i = 0; i < shape->columns / (shape->is_half ? 4 : 2); i++) {
        const uint32_t *values = plain(at, &at->instruction->operands[3], i, tmp);
        if (shape->is_half)
            EACH_LANE {
                sums[row_of(lane, 2 * i)][column_of(lane, 2 * i)] = half_value((uint16_t)values[lane]);
                sums[row_of(lane, 2 * i)][column_of(lane, 2 * i + 1)] = half_value((uint16_t)(values[lane] >> 16));
            }
        else
            EACH_LANE {
                float value;
                memcpy(&value, &values[lane], 4);
                sums[row_of(lane, i)][column_of(lane, i)] = value;
            }
    }
}

static void write_sums(const Context *at, const Shape *shape, double (*sums)[COLUMNS]) {
    uint32_t into[LANES];
    for (int i = 0; i < shape->columns / (shape->is_half ? 4 : 2); i++) {
        if (shape->is_half)
            EACH_LANE {
                const double *pair = &sums[row_of(lane, 2 * i)][column_of(lane, 2 * i)];
                into[lane] = (uint32_t)half_of(pair[1]) << 16 | half_of(pair[0]);
            }
        else
            EACH_LANE into[lane] = single_bits(sums[row_of(lane, i)][column_of(lane, i)]);
        set_word(at, &at->instruction->operands[0], i, into);
    }
}

// Products are exact in a double, sums are rounded to 53 bits, and the result once to its own type, as those of a warp.
static void multiply(const Context *at, const Shape *shape, uint32_t left[ROWS][WORDS], uint32_t (*right)[WORDS], bool adds) {
    double a[ROWS][DEPTH], across[DEPTH], b[DEPTH][COLUMNS], sums[ROWS][COLUMNS];
    for (int row = 0; row < ROWS; row++) numbers_of(left[row], shape->words, shape->left, a[row]);
    for (int column = 0; column < shape->columns; column++) {
        numbers_of(right[column], shape->words, shape->right, across);
        for (int k = 0; k < shape->depth; k++) b[k][column] = across[k];
    }
    const double sign = shape->negates[0] != shape->negates[1] ? -1 : 1;
    if (adds) read_sums(at, shape, sums);
    else memset(sums, 0, sizeof sums);
    for (int row = 0; row < ROWS; row++)
        for (int k = 0; k < shape->depth; k++) {
            const double factor = sign * a[row][k];
            for (int column = 0; column < shape->columns; column++) sums[row][column] += factor * b[k][column];
        }
    write_sums(at, shape, sums);
}

static void count_bits(const Shape *shape, uint32_t left[ROWS][WORDS], uint32_t (*right)[WORDS], int32_t (*sums)[COLUMNS]) {
    for (int row = 0; row < ROWS; row++)
        for (int column = 0; column < shape->columns; column++)
            for (int word = 0; word < 8; word++) sums[row][column] += __builtin_popcount(left[row][word] & right[column][word]);
}

static void multiply_bytes(const Shape *shape, uint32_t left[ROWS][WORDS], uint32_t (*right)[WORDS], int32_t (*sums)[COLUMNS]) {
    int32_t a[ROWS][DEPTH], across[DEPTH], b[DEPTH][COLUMNS];
    for (int row = 0; row < ROWS; row++) integers_of(left[row], shape->words, shape->left, a[row]);
    for (int column = 0; column < shape->columns; column++) {
        integers_of(right[column], shape->words, shape->right, across);
        for (int k = 0; k < shape->depth; k++) b[k][column] = across[k];
    }
    for (int row = 0; row < ROWS; row++)
        for (int k = 0; k < shape->depth; k++)
            for (int column = 0; column < shape->columns; column++) sums[row][column] += a[row][k] * b[k][column];
}

static void multiply_integers(const Context *at, const Shape *shape, uint32_t left[ROWS][WORDS], uint32_t (*right)[WORDS], bool adds) {
    int32_t sums[ROWS][COLUMNS] = {0};
    uint32_t tmp[LANES], into[LANES];
    if (shape->left == ELEMENT_B1) count_bits(shape, left, right, sums);
    else multiply_bytes(shape, left, right, sums);
    for (int i = 0; i < shape->columns / 2; i++) {
        const uint32_t *values = plain(at, &at->instruction->operands[3], i, tmp);
        EACH_LANE {
            int64_t sum = (adds ? (int64_t)(int32_t)values[lane] : 0) + sums[row_of(lane, i)][column_of(lane, i)];
            if (at->instruction->modifiers & SATURATES) sum = sum < INT32_MIN ? INT32_MIN : sum > INT32_MAX ? INT32_MAX : sum;
            into[lane] = (uint32_t)sum;
        }
        set_word(at, &at->instruction->operands[0], i, into);
    }
}

// Operands: D, A's registers or none, the uniform registers of the descriptors, C (D or zero), whether C is added, and
// of a sparse A its metadata.
static void multiply_group(const Context *at) {
    const Shape shape = shape_of(at->instruction);
    uint32_t left[ROWS][WORDS], right[COLUMNS][WORDS];
    if (at->mask != 0xffffffffu) {
        at->block->launch->error = STOP_INSTRUCTION;
        fail(at, "a product of a group of warps is executed by a part of a warp");
        return;
    }
    const bool adds = predicate(at, 4) & 1 && at->instruction->operands[3].number != NO_ROW;
    if (!operands_of(at, &shape, left, right)) return;
    switch (shape.left) {
    case ELEMENT_S8: case ELEMENT_U8: case ELEMENT_B1: multiply_integers(at, &shape, left, right, adds); return;
    default: multiply(at, &shape, left, right, adds);
    }
}

bool execute_warpgroup(const Context *at) {
    if (at->instruction->op != OP_WGMMA) return false;
    multiply_group(at);
    return true;
}

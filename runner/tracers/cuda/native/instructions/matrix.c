// Matrix instructions of a warp, and how their fragments are loaded, stored and turned. Fragments lie over the lanes as
// the PTX ISA says ("Matrix fragments for mma"): lane = 4 * group + own; words of 32 bits of a row of A, or of a column
// of B, go round the four lanes of a group.
#include "access.h"
#include "elements.h"
#include "sparse.h"
#include "warp.h"

enum { ROWS = 16, COLUMNS = 8, WORDS = 16, DEPTH = 128 };

// What ``extra`` holds of a product.
typedef struct {
    uint32_t left, right;  // kinds of elements
    int depth, halves;     // of A's columns; of eight rows each
    bool is_half;          // the accumulator
    bool intersects;       // bits: AND, else XOR
    bool is_sparse;        // of A half the elements are there
    int selector;
} Shape;

static Shape shape_of(const Instruction *instruction) {
    uint32_t extra = instruction->extra;
    return (Shape){extra & 15, extra >> 4 & 15, (int)(extra >> 8 & 0x1ff), extra >> 17 & 1 ? 2 : 1, extra >> 18 & 1, extra >> 19 & 1,
                   extra >> 20 & 1, (int)(extra >> 21 & 3)};
}

// Words of A by rows and of B by columns: register r of A holds the rows of half r % halves.
static void gather(const Context *at, const Shape *shape, uint32_t left[ROWS][WORDS], uint32_t right[COLUMNS][WORDS]) {
    uint32_t tmp[LANES];
    int groups = shape->depth * bits_of(shape->left) / 128;  // of four words
    for (int r = 0; r < (shape->is_sparse ? groups / 2 : groups) * shape->halves; r++) {
        const uint32_t *values = plain(at, &at->instruction->operands[1], r, tmp);
        EACH_LANE left[(lane >> 2) + 8 * (r % shape->halves)][4 * (r / shape->halves) + (lane & 3)] = values[lane];
    }
    for (int r = 0; r < groups; r++) {
        const uint32_t *values = plain(at, &at->instruction->operands[2], r, tmp);
        EACH_LANE right[lane >> 2][4 * r + (lane & 3)] = values[lane];
    }
    if (!shape->is_sparse) return;
    const uint32_t *metadata = plain(at, &at->instruction->operands[4], 0, tmp);
    const bool is_narrow = bits_of(shape->left) <= 8;
    for (int row = 0; row < ROWS; row++) {
        uint32_t stored[WORDS];
        memcpy(stored, left[row], sizeof stored);
        expand_row(metadata, is_narrow, groups * (is_narrow ? 4 : 2), shape->selector, row, stored, left[row]);
    }
}

// The lane's accumulator i of 32 (or 64) bits: its row and column.
static inline int row_of(int lane, int i) { return (lane >> 2) + 8 * (i >> 1); }
static inline int column_of(int lane, int i) { return 2 * (lane & 3) + (i & 1); }

static void read_sums(const Context *at, const Shape *shape, double sums[ROWS][COLUMNS]) {
    uint32_t tmp[LANES];
    int registers = shape->is_half ? shape->halves : 2 * shape->halves;
    for (int i = 0; i < registers; i++) {
        const uint32_t *values = plain(at, &at->instruction->operands[3], i, tmp);
        EACH_LANE {
            float value;
            memcpy(&value, &values[lane], 4);
            if (!shape->is_half) {
                sums[row_of(lane, i)][column_of(lane, i)] = value;
                continue;
            }
            sums[row_of(lane, 2 * i)][column_of(lane, 0)] = half_value((uint16_t)values[lane]);
            sums[row_of(lane, 2 * i)][column_of(lane, 1)] = half_value((uint16_t)(values[lane] >> 16));
        }
    }
}

static void write_sums(const Context *at, const Shape *shape, double sums[ROWS][COLUMNS]) {
    uint32_t into[LANES];
    int registers = shape->is_half ? shape->halves : 2 * shape->halves;
    for (int i = 0; i < registers; i++) {
        if (shape->is_half)
            EACH_LANE {
                const double *row = sums[row_of(lane, 2 * i)];
                into[lane] = (uint32_t)half_of(row[column_of(lane, 1)]) << 16 | half_of(row[column_of(lane, 0)]);
            }
        else
            EACH_LANE into[lane] = single_bits(sums[row_of(lane, i)][column_of(lane, i)]);
        set_word(at, &at->instruction->operands[0], i, into);
    }
}

// HMMA: products are exact in a double, sums are rounded to 53 bits, and the result once to its own type. What
// hardware does between is not published: it aligns the terms of a few products and cuts off what lies below.
static void multiply(const Context *at) {
    Shape shape = shape_of(at->instruction);
    uint32_t left[ROWS][WORDS], right[COLUMNS][WORDS];
    double a[ROWS][DEPTH], across[COLUMNS][DEPTH], b[DEPTH][COLUMNS], sums[ROWS][COLUMNS];
    int words = shape.depth * bits_of(shape.left) / 32;
    gather(at, &shape, left, right);
    for (int row = 0; row < 8 * shape.halves; row++) numbers_of(left[row], words, shape.left, a[row]);
    for (int column = 0; column < COLUMNS; column++) numbers_of(right[column], words, shape.right, across[column]);
    for (int k = 0; k < shape.depth; k++)
        for (int column = 0; column < COLUMNS; column++) b[k][column] = across[column][k];
    read_sums(at, &shape, sums);
    for (int row = 0; row < 8 * shape.halves; row++) {
        double sum[COLUMNS];
        memcpy(sum, sums[row], sizeof sum);
        for (int k = 0; k < shape.depth; k++)
            for (int column = 0; column < COLUMNS; column++) sum[column] += a[row][k] * b[k][column];
        memcpy(sums[row], sum, sizeof sum);
    }
    write_sums(at, &shape, sums);
}

static void multiply_bits(const Shape *shape, uint32_t left[ROWS][WORDS], uint32_t right[COLUMNS][WORDS],
                          int32_t sums[ROWS][COLUMNS]) {
    for (int row = 0; row < 8 * shape->halves; row++)
        for (int column = 0; column < COLUMNS; column++)
            for (int word = 0; word < shape->depth / 32; word++) {
                uint32_t a = left[row][word], b = right[column][word];
                sums[row][column] += __builtin_popcount(shape->intersects ? a & b : a ^ b);
            }
}

static void multiply_parts(const Shape *shape, uint32_t left[ROWS][WORDS], uint32_t right[COLUMNS][WORDS],
                           int32_t sums[ROWS][COLUMNS]) {
    int32_t a[ROWS][DEPTH], across[COLUMNS][DEPTH], b[DEPTH][COLUMNS];
    int words = shape->depth * bits_of(shape->left) / 32;
    for (int row = 0; row < 8 * shape->halves; row++) integers_of(left[row], words, shape->left, a[row]);
    for (int column = 0; column < COLUMNS; column++) integers_of(right[column], words, shape->right, across[column]);
    for (int k = 0; k < shape->depth; k++)
        for (int column = 0; column < COLUMNS; column++) b[k][column] = across[column][k];
    for (int row = 0; row < 8 * shape->halves; row++)
        for (int k = 0; k < shape->depth; k++)
            for (int column = 0; column < COLUMNS; column++) sums[row][column] += a[row][k] * b[k][column];
}

// IMMA, BMMA: sums wrap, or saturate; those of the products alone are far below 2^31.
static void multiply_integers(const Context *at) {
    Shape shape = shape_of(at->instruction);
    uint32_t left[ROWS][WORDS], right[COLUMNS][WORDS], tmp[LANES], into[2 * ROWS / 8][LANES];
    int32_t sums[ROWS][COLUMNS] = {0};
    gather(at, &shape, left, right);
    if (shape.left == ELEMENT_B1) multiply_bits(&shape, left, right, sums);
    else multiply_parts(&shape, left, right, sums);
    for (int i = 0; i < 2 * shape.halves; i++) {
        const uint32_t *values = plain(at, &at->instruction->operands[3], i, tmp);
        EACH_LANE {
            int64_t sum = (int64_t)(int32_t)values[lane] + sums[row_of(lane, i)][column_of(lane, i)];
            if (at->instruction->modifiers & SATURATES) sum = sum < INT32_MIN ? INT32_MIN : sum > INT32_MAX ? INT32_MAX : sum;
            into[i][lane] = (uint32_t)sum;
        }
    }
    for (int i = 0; i < 2 * shape.halves; i++) set_word(at, &at->instruction->operands[0], i, into[i]);
}

static void doubles(const Context *at, int place, int pair, double *into) {
    uint32_t first[LANES], second[LANES];
    const Operand *operand = &at->instruction->operands[place];
    const uint32_t *low = plain(at, operand, 2 * pair, first), *high = plain(at, operand, 2 * pair + 1, second);
    EACH_LANE {
        uint64_t bits = (uint64_t)high[lane] << 32 | low[lane];
        memcpy(&into[lane], &bits, 8);
    }
}

// DMMA: a chain of fused products, from A's first column on.
static void multiply_doubles(const Context *at) {
    Shape shape = shape_of(at->instruction);
    double a[ROWS][16], b[16][COLUMNS], sums[4][LANES], tmp[LANES];
    for (int r = 0; r < shape.depth / 4 * shape.halves; r++) {
        doubles(at, 1, r, tmp);
        EACH_LANE a[(lane >> 2) + 8 * (r % shape.halves)][4 * (r / shape.halves) + (lane & 3)] = tmp[lane];
    }
    for (int r = 0; r < shape.depth / 4; r++) {
        doubles(at, 2, r, tmp);
        EACH_LANE b[4 * r + (lane & 3)][lane >> 2] = tmp[lane];
    }
    for (int i = 0; i < 2 * shape.halves; i++) {
        doubles(at, 3, i, sums[i]);
        for (int k = 0; k < shape.depth; k++)
            EACH_LANE sums[i][lane] = fma(a[row_of(lane, i)][k], b[k][column_of(lane, i)], sums[i][lane]);
    }
    for (int i = 0; i < 2 * shape.halves; i++) {
        uint32_t low[LANES], high[LANES];
        EACH_LANE {
            uint64_t bits;
            memcpy(&bits, &sums[i][lane], 8);
            if (isnan(sums[i][lane])) bits = 0xfff8000000000000ull;
            low[lane] = (uint32_t)bits, high[lane] = (uint32_t)(bits >> 32);
        }
        set_word(at, &at->instruction->operands[0], 2 * i, low);
        set_word(at, &at->instruction->operands[0], 2 * i + 1, high);
    }
}

enum { TRANSPOSED = 1 << 8 };

// The places of a matrix of 8 x 8 halves, by its rows, that two halves of a lane have: a row's word, or of the
// transposed matrix two elements of a column.
static uint32_t from_rows(uint16_t rows[8][8], int lane, bool transposed) {
    int group = lane >> 2, own = 2 * (lane & 3);
    if (transposed) return (uint32_t)rows[own + 1][group] << 16 | rows[own][group];
    return (uint32_t)rows[group][own + 1] << 16 | rows[group][own];
}

static void into_rows(uint16_t rows[8][8], int lane, bool transposed, uint32_t word) {
    int group = lane >> 2, own = 2 * (lane & 3);
    *(transposed ? &rows[own][group] : &rows[group][own]) = (uint16_t)word;
    *(transposed ? &rows[own + 1][group] : &rows[group][own + 1]) = (uint16_t)(word >> 16);
}

// LDSM d, [address] and STSM [address], a: eight lanes give the rows of each matrix.
static void move_matrices(const Context *at, bool is_load) {
    const Instruction *instruction = at->instruction;
    int matrices = (int)(instruction->extra & 0xff);
    bool transposed = instruction->extra & TRANSPOSED;
    uint64_t addresses[LANES];
    uint32_t words[4][LANES], tmp[LANES];
    addresses_of(at, &instruction->operands[is_load ? 1 : 0], addresses);
    for (int matrix = 0; matrix < matrices; matrix++) {
        uint16_t rows[8][8];
        if (!is_load) {
            const uint32_t *values = plain(at, &instruction->operands[1], matrix, tmp);
            EACH_LANE into_rows(rows, lane, transposed, values[lane]);
        }
        for (int row = 0; row < 8; row++) {
            int lane = 8 * matrix + row;
            uint8_t *place = place_of(at, SPACE_SHARED, addresses[lane], lane);
            if (place == NULL) return;
            if (is_load) memcpy(rows[row], place, 16);
            else memcpy(place, rows[row], 16);
        }
        if (is_load) EACH_LANE words[matrix][lane] = from_rows(rows, lane, transposed);
    }
    for (int matrix = 0; is_load && matrix < matrices; matrix++) set_word(at, &instruction->operands[0], matrix, words[matrix]);
    Context given = *at;
    if (matrices < 4) given.mask &= (1u << 8 * matrices) - 1;
    record_accesses(&given, addresses, SPACE_SHARED);
    record_addresses(at, addresses);
}

// MOVM d, a: a matrix of halves is transposed between the lanes.
static void turn(const Context *at) {
    uint16_t rows[8][8];
    uint32_t tmp[LANES], into[LANES];
    const uint32_t *values = plain(at, &at->instruction->operands[1], 0, tmp);
    EACH_LANE into_rows(rows, lane, false, values[lane]);
    EACH_LANE into[lane] = from_rows(rows, lane, true);
    set(at, 0, into);
}

bool execute_matrix(const Context *at) {
    switch (at->instruction->op) {
    case OP_HMMA: multiply(at); return true;
    case OP_IMMA:
    case OP_BMMA: multiply_integers(at); return true;
    case OP_DMMA: multiply_doubles(at); return true;
    case OP_LDSM: move_matrices(at, true); return true;
    case OP_STSM: move_matrices(at, false); return true;
    case OP_MOVM: turn(at); return true;
    default: return false;
    }
}

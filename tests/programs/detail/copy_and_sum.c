/* copy_and_sum: 4 MiB that are copied, as tinymembench's "C copy" does, and read, 8 bytes at a time. */
#include <stdint.h>
#include <stdio.h>

enum { WORDS = 1 << 19 };

__attribute__((noinline)) void copy(int64_t *restrict to, const int64_t *restrict from, int bytes) {
    while ((bytes -= 64) >= 0) {
        int64_t t1 = *from++, t2 = *from++, t3 = *from++, t4 = *from++;
        *to++ = t1, *to++ = t2, *to++ = t3, *to++ = t4;
        t1 = *from++, t2 = *from++, t3 = *from++, t4 = *from++;
        *to++ = t1, *to++ = t2, *to++ = t3, *to++ = t4;
    }
}

__attribute__((noinline)) int64_t sum(const int64_t *from) {
    int64_t a = 0, b = 0, c = 0, d = 0;
    for (const int64_t *end = from + WORDS; from < end; from += 8) {
        a += from[0], b += from[1], c += from[2], d += from[3];
        a += from[4], b += from[5], c += from[6], d += from[7];
    }
    return a + b + c + d;
}

static int64_t source[WORDS], target[WORDS];

int main(void) {
    copy(target, source, sizeof source);
    printf("%lld\n", (long long)sum(target));
    return 0;
}

"""Programs whose two functions take known shares of the CPU time: they print both as they measured them, in seconds."""

from __future__ import annotations

C = """
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
    return time.tv_sec + 1e-9 * time.tv_nsec;
}
__attribute__((noinline)) double alpha(long n)
{
    double sum = 0;
    for (long i = 1; i < n; i++)
        sum += 1.0 / i;
    return sum;
}
__attribute__((noinline)) double beta(long n)
{
    double sum = 0;
    for (long i = 1; i < n; i++)
        sum += (double)(i ^ (i >> 3)) * 0.5;
    return sum;
}
int main(int count, char **words)
{
    long alphas = atol(words[1]), betas = atol(words[2]);
    volatile double sink;
    double begin = now(), middle;
    for (long k = 0; k < alphas; k++)
        sink = alpha(2000000 + k);
    middle = now();
    for (long k = 0; k < betas; k++)
        sink = beta(2000000 + k);
    printf("%.6f %.6f\\n", middle - begin, now() - middle);
    return count > 3 ? atoi(words[3]) : 0;
}
"""

# py-spy samples by the wall clock and leaves samples out when it is late: functions that take turns suffer alike.
PYTHON = """
import time

def alpha(n):
    total = 0
    for i in range(n):
        total += i * i
    return total

def beta(n):
    total = 0
    for i in range(n):
        total -= i * i
    return total

first = second = 0.0
for _ in range(40):
    begin = time.process_time()
    alpha(300_000)
    middle = time.process_time()
    beta(100_000)
    first, second = first + middle - begin, second + time.process_time() - middle
print(f"{first:.6f} {second:.6f}")
"""

# Loops with calls: Java's compiler leaves places to take samples in them.
JAVA = """
import java.lang.management.ManagementFactory;
public class Phases {
    static long mix(long x) { x ^= x << 13; x ^= x >>> 7; return x ^ x << 17; }
    static long alpha(long n) { long s = 1; for (long i = 0; i < n; i++) s = mix(s + i); return s; }
    static long beta(long n) { long s = 1; for (long i = 0; i < n; i++) s = mix(s ^ i); return s; }
    static double now() { return ManagementFactory.getThreadMXBean().getCurrentThreadCpuTime() * 1e-9; }
    public static void main(String[] words) {
        long sink = 0;
        double begin = now();
        for (int k = 0; k < 30; k++) sink += alpha(10000000);
        double middle = now();
        for (int k = 0; k < 10; k++) sink += beta(10000000);
        System.out.printf("%.6f %.6f%n", middle - begin, now() - middle);
        if (sink == 7) System.out.println();
    }
}
"""

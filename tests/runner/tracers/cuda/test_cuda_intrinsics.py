"""Functions of CUDA's headers, compiled by nvcc for four architectures and at two levels of optimisation, against exact
arithmetic: each architecture has its own instructions for many of them."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest

pytestmark = [pytest.mark.slow, pytest.mark.theory]
_NUMBER = 256
_M = 0xFFFFFFFF


def _signed(value: int, bits: int = 32) -> int:
    value &= (1 << bits) - 1
    return value - (1 << bits) if value >> (bits - 1) else value


def _parts(word: int, bits: int, signed: bool) -> list[int]:
    found = [word >> shift & ((1 << bits) - 1) for shift in range(0, 32, bits)]
    return [_signed(each, bits) for each in found] if signed else found


def _packed(values: list[int], bits: int) -> int:
    return sum((each & ((1 << bits) - 1)) << bits * place for place, each in enumerate(values))


def _dot(a: int, b: int, signed: bool) -> int:
    return sum(x * y for x, y in zip(_parts(a, 8, signed), _parts(b, 8, signed), strict=True))


def _simd(compute: Callable[[int, int], int], bits: int, signed: bool) -> Callable[[int, int, int], int]:
    def of(a: int, b: int, _: int) -> int:
        pairs = zip(_parts(a, bits, signed), _parts(b, bits, signed), strict=True)
        return _packed([compute(x, y) for x, y in pairs], bits)

    return of


def _clipped(bits: int, signed: bool) -> Callable[[int], int]:
    least, most = (-(1 << bits - 1), (1 << bits - 1) - 1) if signed else (0, (1 << bits) - 1)
    return lambda x: min(max(x, least), most)


def _integers() -> dict[str, Callable[[int, int, int], int]]:
    """By expressions of unsigned a, b and c."""
    found: dict[str, Callable[[int, int, int], int]] = {
        "__brev(a)": lambda a, b, c: int(f"{a:032b}"[::-1], 2),
        "__clz(a)": lambda a, b, c: 32 - a.bit_length(),
        "__ffs(a)": lambda a, b, c: (a & -a).bit_length(),
        "__popc(a)": lambda a, b, c: a.bit_count(),
        "__funnelshift_l(a, b, c)": lambda a, b, c: (b << 32 | a) << (c & 31) >> 32,
        "__funnelshift_lc(a, b, c)": lambda a, b, c: (b << 32 | a) << min(c, 32) >> 32,
        "__funnelshift_r(a, b, c)": lambda a, b, c: (b << 32 | a) >> (c & 31),
        "__funnelshift_rc(a, b, c)": lambda a, b, c: (b << 32 | a) >> min(c, 32),
        "__umulhi(a, b)": lambda a, b, c: a * b >> 32,
        "__mulhi(a, b)": lambda a, b, c: _signed(a) * _signed(b) >> 32,
        "__umul24(a, b)": lambda a, b, c: (a & 0xFFFFFF) * (b & 0xFFFFFF),
        "__mul24(a, b)": lambda a, b, c: _signed(a, 24) * _signed(b, 24),
        "__sad(a, b, c)": lambda a, b, c: abs(_signed(a) - _signed(b)) + c,
        "__usad(a, b, c)": lambda a, b, c: abs(a - b) + c,
        "__hadd(a, b)": lambda a, b, c: _signed(a) + _signed(b) >> 1,
        "__rhadd(a, b)": lambda a, b, c: _signed(a) + _signed(b) + 1 >> 1,
        "__uhadd(a, b)": lambda a, b, c: a + b >> 1,
        "__urhadd(a, b)": lambda a, b, c: a + b + 1 >> 1,
        "a / (b | 1)": lambda a, b, c: a // (b | 1),
        "a % (b | 1)": lambda a, b, c: a % (b | 1),
        "(int)a / (int)(b | 1)": lambda a, b, c: math.trunc(Fraction(_signed(a), _signed(b | 1))),
        "(int)a % (int)(b | 1)": lambda a, b, c: int(math.fmod(_signed(a), _signed(b | 1))),
        "min((int)a, (int)b)": lambda a, b, c: min(_signed(a), _signed(b)),
        "max(a, b)": lambda a, b, c: max(a, b),
        "__byte_perm(a, b, c)": lambda a, b, c: _packed([(b << 32 | a) >> 8 * (c >> 4 * k & 7) for k in range(4)], 8),
        "__dp4a(a, b, c)": lambda a, b, c: c + _dot(a, b, False),
        "__dp4a((int)a, (int)b, (int)c)": lambda a, b, c: c + _dot(a, b, True),
        "__viaddmax_s32(a, b, c)": lambda a, b, c: max(_signed(a + b), _signed(c)),
        "__vimax3_s32(a, b, c)": lambda a, b, c: max(_signed(a), _signed(b), _signed(c)),
        "__vimin3_u32(a, b, c)": lambda a, b, c: min(a, b, c),
        "(int)(((long long)a << 32 | b) / (int)(c | 1))":
            lambda a, b, c: math.trunc(Fraction(_signed(a << 32 | b, 64), _signed(c | 1))),
        "(unsigned)(((unsigned long long)a << 32 | b) % (((unsigned long long)b << 32 | c) | 1))":
            lambda a, b, c: (a << 32 | b) % ((b << 32 | c) | 1),
    }  # fmt: skip
    for bits, lanes in ((16, 2), (8, 4)):
        mask = (1 << bits) - 1
        for sign, signed in (("s", True), ("u", False)):
            clip = _clipped(bits, signed)
            found |= {
                f"__vadd{sign}s{lanes}(a, b)": _simd(lambda x, y, clip=clip: clip(x + y), bits, signed),
                f"__vsub{sign}s{lanes}(a, b)": _simd(lambda x, y, clip=clip: clip(x - y), bits, signed),
                f"__vmax{sign}{lanes}(a, b)": _simd(max, bits, signed),
                f"__vmin{sign}{lanes}(a, b)": _simd(min, bits, signed),
                f"__vabsdiff{sign}{lanes}(a, b)": _simd(lambda x, y: abs(x - y), bits, signed),
                f"__vcmpgt{sign}{lanes}(a, b)": _simd(lambda x, y, mask=mask: mask * (x > y), bits, signed),
                f"__vsetle{sign}{lanes}(a, b)": _simd(lambda x, y: int(x <= y), bits, signed),
                f"__vsad{sign}{lanes}(a, b)": lambda a, b, c, bits=bits, signed=signed: sum(
                    abs(x - y) for x, y in zip(_parts(a, bits, signed), _parts(b, bits, signed), strict=True)),
            }  # fmt: skip
        found |= {
            f"__vadd{lanes}(a, b)": _simd(lambda x, y: x + y, bits, False),
            f"__vsub{lanes}(a, b)": _simd(lambda x, y: x - y, bits, False),
            f"__vavgu{lanes}(a, b)": _simd(lambda x, y: x + y + 1 >> 1, bits, False),
            f"__vhaddu{lanes}(a, b)": _simd(lambda x, y: x + y >> 1, bits, False),
            f"__vneg{lanes}(a)": _simd(lambda x, y: -x, bits, True),
            f"__vabs{lanes}(a)": _simd(lambda x, y: abs(x), bits, True),
        }
    return found


def _rounded(exact: Fraction, mode: str, kind: type) -> float:
    """To a float of ``kind``, ``mode`` rn, rz, ru or rd: found beside the nearest of the host."""
    near = kind(float(exact))
    while Fraction(float(near)) > exact and np.nextafter(near, kind(-math.inf)) >= exact:
        near = np.nextafter(near, kind(-math.inf))
    around = [np.nextafter(near, kind(-math.inf)), near, np.nextafter(near, kind(math.inf))]
    below = max(each for each in around if Fraction(float(each)) <= exact)
    above = min(each for each in around if Fraction(float(each)) >= exact)
    if mode == "rn":
        least = min(abs(Fraction(float(each)) - exact) for each in (below, above))
        best = [each for each in (below, above) if abs(Fraction(float(each)) - exact) == least]
        return float(best[0]) if len(set(map(float, best))) == 1 else float(_even(best, kind))
    down = mode == "rd" or (mode == "rz" and exact > 0)
    return float(below if down else above)


def _even(pair: list[np.floating], kind: type) -> np.floating:
    words = [int(np.array([each], kind).view(f"u{np.dtype(kind).itemsize}")[0]) for each in pair]
    return pair[0] if not words[0] & 1 else pair[1]


def _floats() -> dict[str, Callable[[Fraction, Fraction, Fraction], Fraction]]:
    """By operations, without their rounding; of three numbers."""
    return {
        "__fadd": lambda x, y, z: x + y, "__fsub": lambda x, y, z: x - y, "__fmul": lambda x, y, z: x * y,
        "__fdiv": lambda x, y, z: x / y, "__fmaf": lambda x, y, z: x * y + z, "__frcp": lambda x, y, z: 1 / x,
    }  # fmt: skip


def _source(integers: list[str], floats: list[str]) -> str:
    words = "\n".join(f"    o[{k} * n + t] = (unsigned)({each});" for k, each in enumerate(integers))
    numbers = "\n".join(f"    p[{k} * n + t] = {each};" for k, each in enumerate(floats))
    return f"""
#include <cstdio>
#include <cuda_fp16.h>
__global__ void integers(const unsigned *i, unsigned *o, int n) {{
    int t = threadIdx.x;
    unsigned a = i[3 * t], b = i[3 * t + 1], c = i[3 * t + 2];
{words}
}}
__global__ void numbers(const float *f, double *p, int n) {{
    int t = threadIdx.x;
    float x = f[3 * t], y = f[3 * t + 1], z = f[3 * t + 2];
{numbers}
}}
int main(int, char **names) {{
    enum {{ N = {_NUMBER} }};
    unsigned *i, *o;
    float *f;
    double *p;
    cudaMallocManaged(&i, 12 * N), cudaMallocManaged(&f, 12 * N);
    cudaMallocManaged(&o, 4 * N * {len(integers)}), cudaMallocManaged(&p, 8 * N * {len(floats)});
    FILE *in = fopen(names[1], "rb");
    if (fread(i, 12, N, in) + fread(f, 12, N, in) != 2 * N) return 1;
    integers<<<1, N>>>(i, o, N);
    numbers<<<1, N>>>(f, p, N);
    if (cudaDeviceSynchronize()) return 1;
    FILE *out = fopen(names[2], "wb");
    fwrite(o, 4 * N, {len(integers)}, out), fwrite(p, 8 * N, {len(floats)}, out);
    return fclose(out);
}}
"""


def _operands() -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(20)
    words = random.integers(0, 1 << 32, (_NUMBER, 3), np.uint32)
    edges = np.array([0, 1, 2, 31, 32, 33, 0x7FFFFFFF, 0x80000000, 0x80008000, 0x7FFF8080, 0xFF00FF, _M], np.uint32)
    words[:144] = np.array([[a, b, edges[(k + m) % 12]] for k, a in enumerate(edges) for m, b in enumerate(edges)])
    numbers = (random.uniform(-1, 1, (_NUMBER, 3)) * 2.0 ** random.uniform(-20, 20, (_NUMBER, 3))).astype(np.float32)
    return words, numbers


@pytest.mark.parametrize(("architecture", "level"), [(75, 3), (80, 0), (86, 3), (90, 3)])
def test_functions_of_the_headers(nvcc, trace, shown, tmp_path, architecture, level):
    integers, floats = _integers(), _floats()
    modes = [(name, mode) for name in floats for mode in ("rn", "rz", "ru", "rd")]
    arguments = {"__fmaf": "x, y, z", "__frcp": "x"}
    calls = [f"{name}_{mode}({arguments.get(name, 'x, y')})" for name, mode in modes]
    flags = (f"-arch=sm_{architecture}", f"-Xptxas=-O{level}")
    program = nvcc(f"intrinsics-{architecture}", _source(list(integers), calls), *flags)
    words, numbers = _operands()
    (tmp_path / "in").write_bytes(words.tobytes() + numbers.tobytes())
    command = [str(program), str(tmp_path / "in"), str(tmp_path / "out")]
    status, _, told, _ = trace(command, "--as", shown(architecture))
    assert status == 0, told
    found = (tmp_path / "out").read_bytes()
    split = 4 * _NUMBER * len(integers)
    for name, row in zip(integers, np.frombuffer(found[:split], np.uint32).reshape(-1, _NUMBER), strict=True):
        expected = [integers[name](*map(int, each)) & _M for each in words]
        assert row.tolist() == expected, name
    exact = [tuple(Fraction(float(x)) for x in each) for each in numbers]
    for (name, mode), row in zip(modes, np.frombuffer(found[split:]).reshape(-1, _NUMBER), strict=True):
        expected = [_rounded(floats[name](*each), mode, np.float32) for each in exact]
        assert row.tolist() == expected, (name, mode)

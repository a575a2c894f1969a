"""Workers leave the bytes in memory and in records that one of them leaves, whatever the blocks do to each other."""

from __future__ import annotations

import ctypes
import struct
from pathlib import Path

import numpy as np
import pytest
import sass_programs

from manyscale.runner.tracers.cuda.sass import decode

BLOCKS, THREADS = 1500, 64
CHUNK = 1 << 12  # instructions of a worker before they are compared
WORDS = 1 << 18
FIRST = [
    "S2R R0, SR_TID.X",
    "S2R R1, SR_CTAID.X",
    f"IMAD R1, R1, {THREADS:#x}, R0",
    "IMAD R5, R1, 0x3, RZ",
]
# R6 is what a thread knows: it depends on all that it read; [R2] is the word that the table chooses
NEXT = ["IADD3 R5, R5, 0x1, RZ", "IMAD.WIDE.U32 R2, R4, 0x4, c[0x0][0x168]"]
CHOOSE = "IMAD.WIDE.U32 R8, R5, 0x4, c[0x0][0x160]"
OPERATIONS = {
    "read": ["LDG.E R7, [R2.64]", "IMAD R6, R6, 0x5, R7"],
    "write": ["STG.E [R2.64], R6"],
    "write a byte": ["STG.E.U8 [R2.64], R6"],
    "write two": ["LOP3.LUT R2, R2, 0xfffffff8, RZ, 0xc0, !PT", "STG.E.64 [R2.64], R6"],
    "write the same": ["STG.E [R2.64], R10"],
    "add": ["RED.E.ADD.STRONG.GPU [R2.64], R6"],
    "add one": ["RED.E.ADD.STRONG.GPU [R2.64], R10"],
    "maximum": ["RED.E.MAX.S32.STRONG.GPU [R2.64], R6"],
    "take": ["ATOMG.E.ADD.STRONG.GPU PT, R7, [R2.64], R6", "IMAD R6, R6, 0x5, R7"],
    "add a float": ["RED.E.ADD.F32.FTZ.RN.STRONG.GPU [R2.64], R6"],
    "exchange": ["ATOMG.E.EXCH.STRONG.GPU PT, R7, [R2.64], R6", "IMAD R6, R6, 0x5, R7"],
}


class Machine:
    """Runs kernels in which each thread does what ``names`` say to words that a table chooses."""

    def __init__(self, sass: ctypes.CDLL, folder: Path) -> None:
        self._sass, self._folder = sass, folder
        self.table = np.zeros((BLOCKS * THREADS, 3), np.uint32)
        self.memory, self.known = np.zeros(WORDS, np.uint32), np.zeros(BLOCKS * THREADS, np.uint32)
        self._kernels: list[sass_programs.Kernel] = []  # each has an address of its own
        self._libc = ctypes.CDLL(None)
        self._libc.fopen.restype = ctypes.c_void_p
        self._libc.fclose.argtypes = [ctypes.c_void_p]

    def run(self, names: list[str], workers: int) -> tuple[bytes, list[int]]:
        """What is left: memory, what threads know, record and lanes; and the chunks that were kept, and ran again."""
        lines = [*FIRST, "MOV R6, R1", "MOV R10, 0x1"]
        for name in names:
            lines += [CHOOSE, "LDG.E R4, [R8.64]", *NEXT, *OPERATIONS[name]]
        lines += ["IMAD.WIDE.U32 R2, R1, 0x4, c[0x0][0x170]", "STG.E [R2.64], R6", "EXIT"]
        decoded = decode.decode(lines, [16 * k for k in range(len(lines))], [0] * len(lines), 80)
        assert decoded.unknown == {}
        code = np.ascontiguousarray(decoded.code)
        self.memory[:], self.known[:] = np.arange(WORDS), 0
        kernel = sass_programs.Kernel(
            name=b"kernel", code=code.ctypes.data, num_instructions=len(code), num_registers=16,
            parameter_offset=0x160, parameter_bytes=24, architecture=80,
        )  # fmt: skip
        self._kernels.append(kernel)
        given = struct.pack("<QQQ", *(each.ctypes.data for each in (self.table, self.memory, self.known)))
        parameters = ctypes.create_string_buffer(given, len(given))
        paths = [self._folder / name for name in ("record", "lanes")]
        files = [self._libc.fopen(str(path).encode(), b"wb") for path in paths]
        launch = sass_programs.Launch(
            kernel=ctypes.pointer(kernel), grid=(BLOCKS, 1, 1), block=(THREADS, 1, 1),
            parameters=ctypes.addressof(parameters), local_base=0x7E01 << 32, shared_base=0x7E00 << 32, num_sms=1,
            record=files[0], lanes=files[1], workers=workers, chunk=CHUNK, most_resident=64,
        )  # fmt: skip
        assert self._sass.sass_run(ctypes.byref(launch)) == 0, launch.problem
        for file in files:
            self._libc.fclose(file)
        assert launch.warp_instructions == len(lines) * BLOCKS * THREADS // 32
        left = [self.memory.tobytes(), self.known.tobytes(), *(path.read_bytes() for path in paths)]
        return b"".join(left), list(launch.chunks)


@pytest.fixture(scope="module")
def machine(sass, tmp_path_factory) -> Machine:
    return Machine(sass, tmp_path_factory.mktemp("workers"))


def chosen(pattern: str, random: np.random.Generator) -> np.ndarray:
    """Words of a block's own, of them all but a few, or of all alike. Pairs of words do not reach a neighbour's."""
    own = np.arange(BLOCKS * THREADS)[:, None] // THREADS * 40 + random.integers(0, 40, (BLOCKS * THREADS, 3))
    anywhere = random.integers(0, WORDS, own.shape)
    share = {"apart": 0, "seldom": 1e-4, "everywhere": 1}[pattern]
    return np.where(random.random(own.shape) < share, anywhere, own)


@pytest.mark.parametrize("pattern", ["apart", "seldom", "everywhere"])
@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(1, 6))])
def test_any_number_of_workers_leaves_the_same(machine, pattern, seed):
    random = np.random.default_rng([seed, len(pattern)])
    names = list(random.choice(list(OPERATIONS), 3))
    machine.table[:] = chosen(pattern, random)
    expected, chunks = machine.run(names, 1)
    assert chunks == [0, 0]
    for workers in (2, 3):
        left, chunks = machine.run(names, workers)
        assert left == expected, (names, workers)
        assert sum(chunks) > 0
        assert pattern != "apart" or chunks[1] == 0


def test_what_commutes_or_is_the_same_is_no_conflict(machine):
    machine.table[:] = np.random.default_rng(1).integers(0, 1000, machine.table.shape)
    counts = np.bincount(machine.table.ravel(), minlength=WORDS)
    for names, expected in (
        (["add one"] * 3, np.arange(WORDS) + counts),
        (["write the same"] * 3, np.where(counts > 0, 1, np.arange(WORDS))),
    ):
        _, chunks = machine.run(names, 2)
        assert machine.memory.tolist() == expected.tolist()
        assert chunks[0] > 0
        assert chunks[1] == 0


@pytest.mark.parametrize("name", ["read", "take", "add a float", "exchange", "write"])
def test_what_depends_on_the_order_is_as_by_one(machine, name):
    """All threads meet in one word, which the others write."""
    machine.table[:] = 77
    expected, _ = machine.run(["write", name, "write"], 1)
    for _ in range(3):
        left, chunks = machine.run(["write", name, "write"], 2)
        assert left == expected
        assert sum(chunks) > 0


class Saved(ctypes.Structure):
    """As track.h has it; a mutex of zeros is open."""

    _fields_ = [
        ("mutex", ctypes.c_uint64 * 5),
        ("slots", ctypes.c_void_p),
        ("num_slots", ctypes.c_uint32),
        ("count", ctypes.c_uint32),
        ("all", ctypes.c_void_p),
        ("room", ctypes.c_uint32),
    ]


class Tracker(ctypes.Structure):
    _fields_ = [
        ("slots", ctypes.c_void_p),
        ("num_slots", ctypes.c_uint32),
        ("count", ctypes.c_uint32),
        ("all", ctypes.c_void_p),
        ("room", ctypes.c_uint32),
        ("made", ctypes.c_uint32),
        ("last", ctypes.c_void_p),
        ("saved", ctypes.POINTER(Saved)),
        ("find_allocation", ctypes.c_void_p),
    ]


class Tracked:
    """Two workers that touch the words of some memory by turns."""

    def __init__(self, sass: ctypes.CDLL) -> None:
        self.sass, self.saved = sass, Saved()
        self.memory = np.arange(1000, dtype=np.uint32)
        self.trackers = [Tracker(saved=ctypes.pointer(self.saved)) for _ in range(2)]
        self.sass.tracks_meet.restype = ctypes.c_bool

    def does(self, worker: int, what: str, word: int, value: int = 0) -> None:
        tracker, address = ctypes.byref(self.trackers[worker]), ctypes.c_uint64(self.memory.ctypes.data + 4 * word)
        if what == "reads":
            self.sass.track_read(tracker, address, 4)
        elif what == "writes":
            self.sass.track_written(tracker, address, ctypes.byref(ctypes.c_uint32(value)), 4)
            self.memory[word] = value
        elif what == "updates":
            self.sass.track_updated(tracker, address, 4)
            self.memory[word] += value
        else:
            self.sass.track_reduced(tracker, address, 4, {"adds": 0, "takes the maximum": 2}[what])
            self.memory[word] += value

    @property
    def meet(self) -> bool:
        one, other = (ctypes.byref(each) for each in self.trackers)
        return bool(self.sass.tracks_meet(one, other) or self.sass.tracks_meet(other, one))

    def undo(self) -> None:
        pointers = (ctypes.POINTER(Tracker) * 2)(*(ctypes.pointer(each) for each in self.trackers))
        self.sass.tracks_undo(pointers, 2, ctypes.byref(self.saved))


@pytest.mark.parametrize(
    ("first", "second", "meet"),
    [
        ("reads", "reads", False),
        ("reads", "writes", True),
        ("reads", "updates", True),
        ("reads", "adds", True),
        ("writes", "writes", True),
        ("writes", "writes the same", False),
        ("writes", "updates", True),
        ("writes", "adds", True),
        ("updates", "updates", True),
        ("updates", "adds", True),
        ("adds", "adds", False),
        ("adds", "takes the maximum", True),
    ],
)
def test_what_two_workers_do_to_a_word(sass, first, second, meet):
    """What one does decides what the other finds, or does not; to another word it never does. All can be undone."""
    for swapped in (False, True):
        for word in (500, 501):
            tracked = Tracked(sass)
            one, other = (1, 0) if swapped else (0, 1)
            tracked.does(one, first, 500, 5)
            same = second.endswith(" the same")
            tracked.does(other, second.removesuffix(" the same"), word, 5 if same else 6)
            assert tracked.meet == (meet and word == 500)
            tracked.undo()
            assert tracked.memory.tolist() == list(range(1000))


def test_many_words_are_known_and_undone(sass):
    tracked = Tracked(sass)
    tracked.memory = np.arange(1 << 21, dtype=np.uint32)
    words = np.random.default_rng(2).integers(0, 1 << 21, 5000)
    for word in words.tolist():
        tracked.does(word % 2, "writes", word, 7)
        tracked.does(word % 2, "reads", word)
    assert not tracked.meet
    tracked.undo()
    assert (tracked.memory == np.arange(1 << 21)).all()
    tracked.does(int(words[0] + 1) % 2, "reads", int(words[0]))
    assert tracked.meet

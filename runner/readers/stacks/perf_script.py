"""Reader for call stacks as ``perf script`` prints them (Linux perf), plain or compressed.

A sample is a header, ``comm pid/tid [cpu] time: period event:``, then a line ``address symbol+offset (object)`` per
frame from the innermost outwards, then an empty line. All of the header but the time, or the tid and the event, may be
missing (``perf script -F``, and perf up to 3.2, which prints no time). Without call stacks (``perf record`` without
``-g``) the only frame stands in the header's line.

Snapshots are the samples of the event ``instructions`` if there are any, else of a CPU clock, else of ``cycles``, else
of the first event; samples of the other events become counters of the units (so ``perf record -g -e
instructions -e cycles`` gives the cycles per instruction of each unit).

Assumptions: a frame is a symbol, whatever object it is in; a frame without a symbol is its object's file name in
brackets, as are all such frames of the object. Lists of branches (``-F brstack``) and registers behind the frames are
no frames. An inlined function is a frame as any other. The times have a common
clock, perf's. A tid is one thread: the kernel gave none twice in the run.

Cost: one pass in Python, about a microsecond a line; equal lines are taken apart once.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import IO, TYPE_CHECKING, Final

from manyscale.runner.errors import UserError
from manyscale.runner.readers import bounds
from manyscale.runner.readers.archive import guarded, open_stream, read_head
from manyscale.runner.readers.options import DEFAULT_OPTIONS, ReadOptions
from manyscale.runner.readers.stacks.profile import SAMPLES, UNKNOWN, Profile
from manyscale.runner.readers.stacks.units import DEFAULT_RULES, NO_CPU, UnitRules

if TYPE_CHECKING:
    from manyscale.models.workload import Workload

NAME: Final = "perf-script"
KEEPS_THREADS: Final = True  # read takes options.threads and options.idle
_HEAD_BYTES: Final = 1 << 16
_LONGEST: Final = 1 << 16  # characters of a line
_WORD: Final = re.compile(r"\S+")
# A comm may have blanks and numbers, but no time: all behind it is fixed to the right. No event begins with a digit.
_CPU: Final = r"(?:\[(?P<cpu>\d+)\]\s+)?"
_TIME: Final = r"(?:[A-Z]{1,4}\s+)?(?P<time>\d+\.\d{3,9}):\s*"  # behind the mode (-F misc)
_WHO: Final = rf"(?:(?P<pid>\d+|-1)/)?(?P<tid>\d+|-1)\s+{_CPU}"
_TIMED: Final = re.compile(_WHO + _TIME)
_WITHOUT_THREAD: Final = re.compile(rf"(?P<pid>(?!))?(?P<tid>(?!))?(?<=\s){_CPU}{_TIME}")
_UNTIMED: Final = re.compile(rf"{_WHO}(?P<time>(?!))?")
_WHAT: Final = re.compile(r"(?:(?P<period>\d+)\s+)?(?P<event>[^\s\d:](?:\S*[^\s:])?):+(?:\s+(?P<rest>.*))?")
_A_TIME: Final = re.compile(r"\d\.\d+:")
_HEXADECIMAL: Final = frozenset("0123456789abcdef")
# perf pads an address to 16 places
_ADDRESS: Final = re.compile(r"\s+(?P<address>[0-9a-f]+)(?:\s+\((?P<object>.*)\))?")
_SOURCE_LINE: Final = re.compile(r"  \S.*:\d+")
# a core's event, an event with settings, an event with modifiers
_OF_CORE: Final = re.compile(r"cpu\w*/([a-zA-Z][\w.-]*)/[a-zA-Z]*")
_WITH_SETTINGS: Final = re.compile(r"((?!cpu[/_])[\w.-]+)/[^/]*/[a-zA-Z]*")
_WITH_MODIFIERS: Final = re.compile(r"([^:]+(?::[^:]+)?):[ukhGHpPSDIWeb]+")
# of -F brstack and brstacksym (from/to/predicted/in transaction/aborted/cycles), and of -F iregs and uregs
_BRANCH: Final = re.compile(r"/[PMN-]/[X-]/[A-]/\d")
_REGISTERS: Final = re.compile(r"\s*ABI:\d")
_TABBED_FRAME: Final = re.compile(r"\t\s*[0-9a-f]{4,16} \S")
_ONLY_FRAME: Final = re.compile(r"\s*[0-9a-f]+\s+\S[^(]*\(.*")
_PERF_DATA: Final = (b"PERFILE2", b"PERFFILE")


def can_read(path: Path) -> bool:
    """Whether the file starts as the text of ``perf script``, or is a recording itself (which ``read`` refuses)."""
    head = read_head(path, _HEAD_BYTES)
    if head is None:
        return False
    if head.startswith(_PERF_DATA):
        return True
    lines = head.decode(errors="replace").splitlines()
    first = next((row for row, line in enumerate(lines) if line.strip() and not line.startswith("#")), None)
    return first is not None and _is_sample(lines, first)


def resembles(path: Path) -> int | None:
    """The first line that is the header of a sample or, behind a tabulator, a frame, if one is."""
    lines = (read_head(path, _HEAD_BYTES) or b"").decode(errors="replace").splitlines()
    rows = (row for row, line in enumerate(lines) if _TABBED_FRAME.match(line) or _is_sample(lines, row))
    return next((row + 1 for row in rows), None)


def _is_sample(lines: list[str], row: int) -> bool:
    """Whether the line is the header of a sample: by its time, which has a form of its own, and else by its frame."""
    found = _header(lines[row])
    if found is None:
        return False
    following = lines[row + 1] if row + 1 < len(lines) else ""
    if found["time"] is not None:
        return found["event"] is not None or _frame(following) is not None
    return _only_frame(found["rest"] or "") is not None or re.match(r"\s+[0-9a-f]{4,16}\s+\S", following) is not None


def reads_one_file(path: Path) -> bool:
    return path.is_file()


def read(path: Path, options: ReadOptions = DEFAULT_OPTIONS, *, rules: UnitRules = DEFAULT_RULES) -> Workload:
    """The workload of one profile, all processes in rank 0 (of ``options`` those of threads count). Raises UserError
    with file and line for text that ``perf script`` does not print."""
    from manyscale.runner.readers.stacks.tables import workload

    profile = Profile()
    collect(path, profile, 0)
    return workload(profile, path, path.name.split(".")[0], 1, rules.chosen(options), NAME)


def collect(path: Path, profile: Profile, rank: int, code_bytes: int = 0) -> None:
    """Add the samples of a file to a profile as those of a rank. ``code_bytes``: a frame is so many bytes of the code
    of a symbol (0: a symbol)."""
    with guarded(path), open_stream(path) as stream:
        _Parser(path, profile, rank, code_bytes).run(_lines(path, stream))


def _lines(path: Path, stream: IO[bytes]) -> Iterator[str]:
    head = True
    for line in stream:
        if head and line.startswith(_PERF_DATA):
            raise UserError(
                f"{path}: this is a recording; print it with 'perf script -i {path.name}' and give that text"
            )
        head = False
        yield line.decode(errors="replace").rstrip("\r\n")


Header = dict[str, str | None]  # comm, pid, tid, cpu, time, period, event, rest


def _header(line: str) -> Header | None:
    """The parts of a sample's first line, None for another line. O(characters): who ran is tried at each word once."""
    if line.startswith("\t"):
        return None
    found = _header_by(_TIMED, line) or _header_by(_WITHOUT_THREAD, line)
    return found if found is not None or _A_TIME.search(line) else _header_by(_UNTIMED, line)


def _header_by(pattern: re.Pattern[str], line: str) -> Header | None:
    first = comm_end = -1
    for word in _WORD.finditer(line):
        who = pattern.match(line, word.start())
        if who is not None:
            what = _WHAT.fullmatch(line, who.end())
            if what is not None or (who["time"] is not None and who.end() == len(line)):
                named = what.groupdict() if what is not None else dict.fromkeys(("period", "event", "rest"))
                return {**who.groupdict(), **named, "comm": line[first:comm_end] if first >= 0 else None}
        first = word.start() if first < 0 else first
        comm_end = word.end()
    return None


def _frame(line: str, code_bytes: int = 0) -> str | None:
    """The name of a frame, or None for a line that is none."""
    bare = _ADDRESS.fullmatch(line)
    if bare is not None and len(line[: bare.end("address")].lstrip("\t")) >= 16:
        return _object_name(bare["object"]) + _part(bare["address"], code_bytes)
    if not line[:1].isspace() or not line.strip() or line.count("(") != line.count(")"):
        return None
    text = line.lstrip()
    address, _, rest = text.partition(" ") if " " in text else text.partition("\t")
    if rest.strip() and address and _HEXADECIMAL.issuperset(address):
        text = rest.lstrip()
    symbol, found = _without_object(text)
    before, plus, offset = symbol.rpartition("+0x")
    part = _part(address, code_bytes) if _HEXADECIMAL.issuperset(address) else ""
    if plus and before and offset and _HEXADECIMAL.issuperset(offset):
        symbol, part = before, _part(offset, code_bytes)
    return (_object_name(found) if symbol == UNKNOWN else symbol) + part


def _part(offset: str, code_bytes: int) -> str:
    """Which part of so many bytes an offset, in hexadecimal digits, lies in."""
    return f"+0x{int(offset, 16) // code_bytes * code_bytes:x}" if code_bytes else ""


def _without_object(text: str) -> tuple[str, str | None]:
    """A symbol, and the object in round brackets, which may hold one more pair, behind a blank."""
    if not text.endswith(")"):
        return text, None
    opening = text.rfind("(", 0, -1)
    if ")" in text[opening:-1]:  # a pair within
        opening = text.rfind("(", 0, max(opening, 0))
        if text.count(")", opening + 1, len(text) - 1) != 1:
            return text, None
    symbol = text[: max(opening, 0)]
    if opening < 0 or not symbol.strip() or not symbol[-1].isspace():
        return text, None
    return symbol.rstrip(), text[opening + 1 : -1]


def _only_frame(rest: str, code_bytes: int = 0) -> str | None:
    """The name of the frame that stands in the header, before its branches; None for other text."""
    branch = _BRANCH.search(rest)
    frame = rest[: branch.start()].rpartition(" ")[0].rstrip() if branch else rest
    is_frame = frame.rstrip().endswith(")") and _ONLY_FRAME.fullmatch(frame)
    return _frame(f" {frame}", code_bytes) if is_frame else None


def _object_name(path: str | None) -> str:
    name = (path or "").removesuffix(" (deleted)").rsplit("/", 1)[-1].strip("[]")
    return f"[{name}]" if name else UNKNOWN


class _Parser:
    """The lines of one file, one after another."""

    def __init__(self, path: Path, profile: Profile, rank: int, code_bytes: int) -> None:
        self.path = path
        self.code_bytes = code_bytes
        self.profile = profile
        self.rank = rank
        self.frames: dict[str, int] = {}  # of lines already seen
        self.pending: Header | None = None
        self.number = 0  # of its line
        self.stack: list[int] = []
        self.num_without_stack = 0
        self.without_period: set[str] = set()
        self.by_comm: dict[str, int] = {}  # threads of samples without a tid

    def run(self, lines: Iterator[str]) -> None:
        number = 0
        for number, line in enumerate(lines, 1):
            if len(line) > _LONGEST:
                raise UserError(f"{self.path}:{number}: has {len(line)} characters, more than perf script prints")
            if self.pending is not None and line[:1] in " \t" and line.strip():
                self._add_frame(number, line)
            elif not line.strip():
                self._finish()
            elif not line.startswith("#"):
                self._start(number, line)
        self._finish()
        if len(self.without_period) > 1:
            raise UserError(
                f"{self.path}: has samples of several events ({', '.join(sorted(self.without_period))}) and not how "
                "much each stands for; print with 'perf script -F +period'"
            )
        from manyscale.models.workload.notes import informs

        if self.by_comm:
            text = "samples name no thread (tid): all of one command are one thread"
            self.profile.notes.append(informs("threads-merged", text, self.path.name))
        if self.num_without_stack:
            text = f"{self.num_without_stack} samples without a stack are the frame {UNKNOWN}"
            self.profile.notes.append(informs("samples-without-stack", text, self.path.name, self.num_without_stack))

    def _start(self, number: int, line: str) -> None:
        self._finish()
        self.number = number
        self.pending = _header(line)
        if self.pending is None:
            raise UserError(
                f"{self.path}:{number}: is neither the header of a sample (comm pid/tid [cpu] time: period event:) nor "
                f"a frame; print with 'perf script -F comm,pid,tid,cpu,time,period,event,ip,sym,dso'; got {line[:60]!r}"
            )
        rest = self.pending["rest"]
        if rest and rest.strip():
            name = _only_frame(rest, self.code_bytes)
            if name is not None:  # else the text of a tracepoint
                self.stack.append(self.profile.frame(name))

    def _add_frame(self, number: int, line: str) -> None:
        frame = self.frames.get(line)
        if frame is None:
            if self.stack and _SOURCE_LINE.fullmatch(line) and not line.startswith("\t"):
                return  # where the frame's line is (-F srcline)
            if _BRANCH.search(line) or _REGISTERS.match(line):
                return
            name = _frame(line, self.code_bytes)
            if name is None:
                if _header(line) is not None:  # perf pads short comms to 16 places
                    self._start(number, line)
                    return
                raise UserError(
                    f"{self.path}:{number}: is no frame (address symbol+offset (object)); got {line[:60]!r}"
                )
            if not line.startswith("\t") and _header(line) is not None:
                self._start(number, line)
                return
            frame = self.frames[line] = self.profile.frame(name)
        self.stack.append(frame)

    def _finish(self) -> None:
        found = self.pending
        if found is None:
            return
        if not self.stack:
            self.num_without_stack += 1
            self.stack.append(self.profile.frame(UNKNOWN))
        profile = self.profile
        place = f"{self.path}:{self.number}"
        name = (found["comm"] or found["tid"] or "").strip()
        if found["tid"] is None:
            thread = self.by_comm.setdefault(name, -2 - len(self.by_comm))
        else:
            thread = bounds.whole(found["tid"], place, "the thread", -1)
        profile.names[self.rank, thread] = name
        if found["time"] is None:
            profile.has_common_clock = False
        period = found["period"]
        event_name = _event_name(found["event"])
        if period is None:
            self.without_period.add(event_name)
        event = profile.event(event_name if period is not None else SAMPLES)
        profile.add(
            self.rank,
            thread,
            bounds.whole(_nanoseconds(found["time"]), place, "the time"),
            profile.stack(reversed(self.stack)),
            cpu=bounds.whole(found["cpu"], place, "the core") if found["cpu"] is not None else NO_CPU,
            event=event,
            count=bounds.whole(period, place, "the period") if period is not None else 1,
        )
        self.pending = None
        self.stack = []


def _event_name(text: str | None) -> str:
    """An event without modifiers and settings: ``cpu/instructions/u``, ``instructions:ppp`` and
    ``instructions/period=1000/`` are all ``instructions``."""
    name = text or SAMPLES
    found = _OF_CORE.fullmatch(name) or _WITH_SETTINGS.fullmatch(name) or _WITH_MODIFIERS.fullmatch(name)
    return found[1] if found else name


def _nanoseconds(text: str | None) -> int:
    if text is None:
        return 0
    seconds, _, fraction = text.partition(".")
    return int(seconds[:30]) * 10**9 + int(fraction.ljust(9, "0"))

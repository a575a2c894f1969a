"""State of TaskPoint and the parameters that it runs by; taskpoint/decisions.py says what it is."""

from __future__ import annotations

from typing import Annotated, Final, Literal, NamedTuple, Self

import numpy as np
from pydantic import Field, model_validator

from manyscale.models.workload.parameters import Count, CountOrNone, Strict

FAST: Final = 0  # what `decide` returns
DETAILED: Final = 1

# state.now[0].mode
WARMING: Final = 0
SAMPLING: Final = 1
FORWARDING: Final = 2

# state.role[instance]
NOT_BEGUN: Final = 0
EMPTY: Final = 1  # no instructions
FORWARDED: Final = 2  # by valid samples
FORWARDED_BY_ALL: Final = 3  # by the history of all
WARM_UP: Final = 4  # in detail
SURPLUS: Final = 5  # in detail, begun while sampling after enough others of its class (admit: start)
CANDIDATE: Final = 6  # in detail, begun while sampling; still so at the end: it ended too late
VALID: Final = 7  # in detail, a valid sample
RARE: Final = 8  # in detail, of a class that is not worth sampling

REASONS: Final = ("period", "busy cores", "new class", "no history")
PERIOD, BUSY, NEW_CLASS, NO_HISTORY = range(4)
_NEVER: Final = 1 << 50
TOTAL, PER_THREAD, BUSY_CORES = range(3)
_CONFIDENCE: Final = 0.95


class TaskPointParameters(Strict):
    """The source's parameters, at its values: ``warm_up`` W, instances per core at the start; ``resample_warm_up``
    before each resampling; ``history`` H; ``period`` P, or "lazy"; ``cut_off``, instances per core that end without one
    of a rare class beginning.

    Choices, with what they cost. The source's own are ``finish``, ``all``, ``seen``, ``ipc``, as by default, and beside
    these ``per-thread``, busy_change 0 and busy_persistence 0.

    ``settle``: the first period, four times as long after each resampling by period, up to ``period``; 0: it is
    ``period`` from the beginning. What a program does first is seldom typical: caches fill, cores fall out of step; a
    lazy run never notices. Costs log4 (instances per core / settle) resamplings.
    ``stagger``: once they have settled, periods are drawn from [1 - stagger, 1 + stagger] times P, always the same
    ones: where instances differ in turn, equal periods may meet the same kind each time.
    ``rare``: the classes with the fewest instructions, up to this share of all instructions, are always done in detail,
    beside everything else: they never make others be sampled again.
    ``count``: how "instances per core" is counted. ``per-thread``: every core has done its number; a core without work
    then keeps all others in detail for good. ``total``: the number times the cores, by any of them; few busy cores
    each do many. ``busy``: times the most cores that were busy since detail began; cheapest where few are.
    ``admit``: which instances are samples. ``finish``: those that end while sampling goes on; the short ones end
    first, so they are favoured, and cores that begin together sample the same moment. ``start``: the first that begin,
    H or one per core, whichever is more (all cores are in detail anyway); no such bias, and detail lasts until the
    longest of them has ended.
    ``scope``: what is sampled again when an instance has no history. ``all``: every class, all cores in detail; with
    many classes that is most of the run. ``class``: instances of that class alone; its samples see neighbours that make
    no memory accesses, so contention is missing from them.
    ``complete``: which classes must be full. ``seen``: all seen since the program began; one that never comes back
    makes each resampling run into the cut-off. ``current``: those met since detail began; one that comes later goes by
    the history of all.
    ``mean``: of a class's samples. ``ipc``: arithmetic mean of their IPC; too few cycles where IPC varies, by a share
    of about the square of its coefficient of variation. ``cycles``: all their work over all their cycles; weighs
    samples by their size.
    ``busy_change``: share by which the number of busy cores must differ from its mean while sampling, in
    ``busy_persistence`` times as many consecutive beginnings as cores are busy, to force resampling; "never": it
    does not. Below 2, the beginning of a parallel phase, when core after core gets work, is taken for a change.
    ``busy_change: levels``: a class has histories of its own for every number of busy cores, to the nearest power of
    two, so that each is sampled once, however often the number changes, and none forgets what another has sampled.
    ``longest``: instances per core that end while sampling goes on, after which it ends whatever is not full.
    ``target``: relative half-width (95 %) of a class's mean rate at which it counts as sampled; H grows until then, to
    at most ``most_history``. Stopping once a spread looks small makes intervals a little too narrow.
    """

    warm_up: CountOrNone = 2
    """Instances per core that are simulated at the start and are no samples."""
    resample_warm_up: CountOrNone = 1
    """The same before each resampling."""
    history: Count = 4
    """How many samples each class keeps."""
    period: Count | Literal["lazy"] = 250
    """Instances per core that are fast-forwarded before all are sampled again; `lazy` never samples again by period."""
    settle: CountOrNone = 0
    """The first period; each resampling makes it four times as long, up to `period`. 0: it is `period` from the
    beginning."""
    stagger: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """Periods are drawn from 1 - stagger to 1 + stagger times `period`, so that they do not keep step with the
    program."""
    rare: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """The share of all instructions up to which the smallest classes are always simulated."""
    cut_off: Count = 5
    """Instances per core that end without one of a rare class beginning, after which sampling ends."""
    longest: Count | None = None
    """Instances per core that end while sampling goes on, after which it ends in any case. By default there is no
    limit."""
    count: Literal["total", "per-thread", "busy"] = "total"
    """How instances per core are counted: `total`, `per-thread`, or by the most cores that were `busy`."""
    admit: Literal["finish", "start"] = "finish"
    """Which instances are samples: those that `finish` while sampling goes on, or the first that `start`."""
    scope: Literal["all", "class"] = "all"
    """What is sampled again where an instance has no history: `all` classes, or its `class` alone."""
    complete: Literal["seen", "current"] = "seen"
    """Which classes must be full before sampling ends: all that were `seen`, or those met since detail began
    (`current`)."""
    mean: Literal["ipc", "cycles"] = "ipc"
    """The mean of a class's samples: of their `ipc`, or all their work over all their `cycles`."""
    busy_change: Annotated[float, Field(ge=0, allow_inf_nan=False)] | Literal["never", "levels"] = 0.25
    """The relative change of the number of busy cores that forces resampling; `never`; or `levels`, where each power of
    two has histories of its own."""
    busy_persistence: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 2.0
    """For how many beginnings per busy core the change must last."""
    target: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None
    """The relative half-width (95 %) of a class's mean rate at which it counts as sampled. By default the number of
    samples decides."""
    most_history: Count = 64
    """The most samples that a class keeps where `target` is given."""
    correct: Literal["explained", "always"] = "explained"
    """Whether the model corrects a class's mean where it explains the spread of its samples (`explained`), or
    `always`."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.target is not None and self.most_history < self.history:
            raise ValueError(f"most_history is {self.most_history}; it must be at least history, {self.history}")
        if self.target is not None and self.history < 2:
            raise ValueError("history is 1; a target needs at least 2 samples to show a spread")
        return self


DEFAULT_PARAMETERS: Final = TaskPointParameters()


class TaskPoint(NamedTuple):
    """State. Results per instance: ``cpi`` cycles per instruction (of a fast-forwarded one from its beginning on, of
    one done in detail once it has ended), ``role``, ``round`` (1 for the first detail, one more with each resampling;
    of a fast-forwarded one that of its samples) and ``support`` (number of samples it was fast-forwarded by)."""

    class_of: np.ndarray  # int32[instances]
    instructions: np.ndarray  # int64[instances]
    model_cpi: np.ndarray  # float64[instances], [1] without a model
    cpi: np.ndarray  # float64[instances]
    role: np.ndarray  # uint8[instances]
    round: np.ndarray  # int32[instances]
    support: np.ndarray  # int32[instances]
    rule: np.ndarray  # record[1]
    now: np.ndarray  # record[1]
    classes: np.ndarray  # record[classes]
    valid: np.ndarray  # float64[classes, H, 3]: model cycles, detailed cycles, instructions of samples
    all: np.ndarray  # the same
    core_done: np.ndarray  # int64[cores]: instances that count for the end of warm-up, then for the cut-off
    core_forwarded: np.ndarray  # int64[cores]: since detail ended
    student: np.ndarray  # float64[]: t quantile by number of samples
    resamples: np.ndarray  # int64[reasons]


_RULE: Final = np.dtype(
    [
        ("warm_up", "i8"), ("history", "i8"), ("most_history", "i8"), ("period", "i8"), ("cut_off", "i8"),
        ("count", "i8"), ("admit_start", "i8"), ("scope_class", "i8"), ("current", "i8"), ("of_cycles", "i8"),
        ("busy_change", "f8"), ("busy_persistence", "f8"), ("target", "f8"), ("resample_warm_up", "i8"),
        ("correct_explained", "i8"), ("settle", "i8"), ("stagger", "f8"),
        ("levels", "i8"),  # of busy cores
        ("longest", "i8"),
    ]
)  # fmt: skip
# wanting: classes that must become full and are not. done: as core_done, of all cores; cores_done: cores that have
# done their number. most_busy: since detail began. sampled: instances that ended while sampling went on. busy_sum,
# busy_count: of beginnings while sampling.
_NOW: Final = np.dtype(
    [
        ("mode", "i8"), ("round", "i8"), ("wanting", "i8"), ("done", "i8"), ("cores_done", "i8"), ("most_busy", "i8"),
        ("busy_sum", "i8"), ("busy_count", "i8"), ("deviations", "i8"), ("forwarded", "i8"),
        ("period", "i8"), ("next_period", "i8"), ("sampled", "i8"),
    ]
)  # fmt: skip
# round: of the valid samples. met: last round in which it was wanted. admitted: begun as samples; limit: how many may.
_CLASS: Final = np.dtype(
    [
        ("num_begun", "i8"), ("round", "i8"), ("met", "i8"), ("full", "i8"), ("sampling", "i8"), ("warm_left", "i8"),
        ("admitted", "i8"), ("limit", "i8"), ("ended", "i8"), ("num_valid", "i8"), ("next_valid", "i8"),
        ("num_all", "i8"), ("next_all", "i8"), ("rate", "f8"), ("rate_of_all", "f8"),
        ("by_model", "i8"), ("is_rare", "i8"),
    ]
)  # fmt: skip


def new_taskpoint(
    class_of_instance: np.ndarray,
    instructions: np.ndarray,
    model_cycles_per_instruction: np.ndarray | None,
    num_cores: int,
    parameters: TaskPointParameters = DEFAULT_PARAMETERS,
) -> TaskPoint:
    """State before the first instance.

    ``class_of_instance`` int[instances] from 0, ``instructions`` int64[instances]; ``model_cycles_per_instruction``
    float64[instances] for equation 5.1, or None. Raises ValueError for arrays that do not fit, a negative class or
    number of instructions, a model that is not positive where there are instructions, and no cores.
    """
    class_of = np.ascontiguousarray(class_of_instance, np.int32)
    instructions = np.ascontiguousarray(instructions, np.int64)
    model = np.ones(1) if model_cycles_per_instruction is None else model_cycles_per_instruction
    model = np.ascontiguousarray(model, np.float64)
    _check_arrays(class_of, instructions, model, model_cycles_per_instruction is not None, num_cores)
    count = len(class_of)
    levels = 1 + (2 * num_cores // 3).bit_length() if parameters.busy_change == "levels" else 1
    total = np.bincount(class_of, instructions)
    class_of = class_of * np.int32(levels)
    num_classes = len(total) * levels
    most = int(np.bincount(class_of[instructions > 0], minlength=1).max(initial=0))
    least = max(parameters.history, num_cores) if parameters.admit == "start" else parameters.history
    history = least if parameters.target is None else max(least, parameters.most_history)
    capacity = max(min(history, most), 1)
    state = TaskPoint(
        class_of=class_of,
        instructions=instructions,
        model_cpi=model,
        cpi=np.zeros(count),
        role=np.zeros(count, np.uint8),
        round=np.zeros(count, np.int32),
        support=np.zeros(count, np.int32),
        rule=_rule(parameters),
        now=np.zeros(1, _NOW),
        classes=np.zeros(num_classes, _CLASS),
        valid=np.zeros((num_classes, capacity, 3)),
        all=np.zeros((num_classes, min(capacity, least), 3)),
        core_done=np.zeros(num_cores, np.int64),
        core_forwarded=np.zeros(num_cores, np.int64),
        student=_student(capacity if parameters.target is not None else 1),
        resamples=np.zeros(len(REASONS), np.int64),
    )
    state.now["round"] = 1
    state.now["period"] = state.now["next_period"] = min(parameters.settle or _NEVER, int(state.rule["period"][0]))
    state.now["mode"] = WARMING if parameters.warm_up else SAMPLING
    state.classes["round"] = 1
    state.rule["history"], state.rule["most_history"] = least, history
    state.classes["limit"] = least
    state.rule["levels"] = levels
    state.classes["is_rare"] = np.repeat(_rare(total, parameters.rare), levels)
    return state


def _rare(instructions: np.ndarray, share: float) -> np.ndarray:
    """bool[classes]: the smallest ones that make up to ``share`` of all."""
    order = np.argsort(instructions, kind="stable")
    result = np.zeros(len(instructions), bool)
    result[order] = np.cumsum(instructions[order]) <= share * instructions.sum()
    return result


def _check_arrays(
    class_of: np.ndarray, instructions: np.ndarray, model: np.ndarray, has_model: bool, num_cores: int
) -> None:
    if num_cores < 1:
        raise ValueError(f"{num_cores} cores; at least one is needed")
    if len(class_of) != len(instructions) or (has_model and len(model) != len(class_of)):
        beside = f" and {len(model)} of the model" if has_model else ""
        what = f"{len(class_of)} classes, {len(instructions)} numbers of instructions{beside}"
        raise ValueError(f"{what}: one of each per task instance is needed")
    if np.any(class_of < 0):
        raise ValueError(f"task instance {int(np.argmax(class_of < 0))} has no class")
    if np.any(instructions < 0):
        raise ValueError(f"task instance {int(np.argmax(instructions < 0))} has a negative number of instructions")
    wrong = ~(np.isfinite(model) & (model > 0)) & ((instructions > 0) if has_model else True)
    if np.any(wrong):
        row = int(np.argmax(wrong))
        raise ValueError(f"task instance {row}: {model[row]} cycles per instruction of the model are not more than 0")


def _rule(parameters: TaskPointParameters) -> np.ndarray:
    rule = np.zeros(1, _RULE)
    for name in ("warm_up", "resample_warm_up", "cut_off", "busy_persistence", "settle", "stagger"):
        rule[name] = getattr(parameters, name)
    rule["longest"] = _NEVER if parameters.longest is None else parameters.longest
    rule["period"] = _NEVER if parameters.period == "lazy" else parameters.period
    rule["count"] = {"total": TOTAL, "per-thread": PER_THREAD, "busy": BUSY_CORES}[parameters.count]
    rule["admit_start"] = parameters.admit == "start"
    rule["scope_class"] = parameters.scope == "class"
    rule["current"] = parameters.complete == "current"
    rule["of_cycles"] = parameters.mean == "cycles"
    rule["busy_change"] = np.inf if isinstance(parameters.busy_change, str) else parameters.busy_change
    rule["correct_explained"] = parameters.correct == "explained"
    rule["target"] = np.inf if parameters.target is None else parameters.target
    return rule


def _student(most: int) -> np.ndarray:
    """float64[most + 1]: two-sided t quantile of so many samples; infinite below two."""
    if most < 2:
        return np.full(most + 1, np.inf)
    from scipy.special import stdtrit

    quantile = stdtrit(np.arange(1, most), (1 + _CONFIDENCE) / 2)
    return np.concatenate(([np.inf, np.inf], quantile))

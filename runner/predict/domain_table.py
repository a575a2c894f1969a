"""docs/models/domains.md, from the models' domains.

``python -m manyscale.runner.predict.domain_table > docs/models/domains.md`` writes it.
"""

from __future__ import annotations

from collections.abc import Iterator

from manyscale.models.workload.domain import APART, FEATURES, TAKES, Domain, LeavesOut, Stance
from manyscale.runner.registry import lookup, names

_HEAD = """# Domains: what models take, leave out and refuse

No model takes everything into account. Each declares its *domain*: for everything that a run may have, whether the
model takes it, leaves it out, or refuses to give a number. This page is made from these declarations
(`models/workload/domain.py`), from which the notes on results and their tests come, too.

Of what a run has, each model says one of these:

- **takes**: it is in the number;
- **changes**, **informs**, **forbids**: it is left out, and a note of that severity says so, with the code in the first
  column; whether the time is too short or too long for it stands in brackets, where that is known;
- **refuses**: there is no number;
- a dash: the model is not of this; another row says what it makes of it.
"""


def markdown() -> str:
    """The page."""
    return _HEAD + "".join(_level(level) for level in FEATURES)


def _level(level: str) -> str:
    models = {name: domain for name in names(level) if isinstance(domain := lookup(level, name).DOMAIN, Domain)}
    lines = [f"\n## model: {{{level}: ...}}\n", f"| code | of a run | {' | '.join(f'`{name}`' for name in models)} |"]
    lines.append("| --- " * (2 + len(models)) + "|")
    for feature, text in FEATURES[level].items():
        stances = " | ".join(_shown(domain.features[feature]) for domain in models.values())
        lines.append(f"| `{feature}` | {text} | {stances} |")
    lines += ["", "Keys of a target that are read, and what a run must have for them to play a part:", ""]
    return "\n".join([*lines, *_reads(models, level)]) + "\n"


def _reads(models: dict[str, Domain], level: str) -> Iterator[str]:
    for name, domain in models.items():
        keys = [f"`{key}`" + (f" ({' or '.join(needs)})" if needs else "") for key, needs in domain.reads.items()]
        yield f"- `{level}: {name}`: {', '.join(keys)}"


def _shown(stance: Stance) -> str:
    if isinstance(stance, LeavesOut):
        errs = f" ({stance.errs})" if stance.errs else ""
        return f"**{stance.severity}**: {stance.text}{errs}"
    return {TAKES: "takes", APART: "-"}[stance] if isinstance(stance, str) else f"**refuses**: {stance.text}"


if __name__ == "__main__":
    print(markdown(), end="")

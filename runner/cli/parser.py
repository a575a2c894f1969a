"""The parser: what is typed, what help shows of it, and what is said of words that it does not know.

argparse does it: it comes with Python and loads in 10 ms. Click, Typer and rich-argparse would each load in more time
than ``--help`` takes, and none of them shows commands by their purpose, keeps the former names of options, or suggests
the nearest name of an option, without as many lines as stand here.
"""

from __future__ import annotations

import argparse
import re
import shutil
import sys
import textwrap
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, NoReturn

from manyscale.models.spelling import closest, unknown

_CHOICE: Final = re.compile(
    r"argument (?P<option>.+?): invalid choice: (?P<typed>'.*'|\".*\") \(choose from (?P<rest>.*)\)"
)
_TYPE: Final = re.compile(r"argument (?P<option>.+?): invalid (?P<type>\w+) value: (?P<typed>.*)")
_UNKNOWN: Final = re.compile(r"unrecognized arguments: (?P<words>.*)", re.DOTALL)
_MISSING: Final = re.compile(r"the following arguments are required: (?P<options>.*)")
_NO_VALUE: Final = re.compile(r"argument (?P<option>.+?): expected (?P<count>.*)")
_NOUNS: Final = {"int": "whole number", "float": "number"}


class Parser(argparse.ArgumentParser):
    """Errors in one line, as those of the commands: what was typed, and what would be right."""

    def __init__(self, *words: Any, groups: Mapping[str, Mapping[str, str]] | None = None, **options: Any) -> None:
        super().__init__(*words, **options)
        self._groups = groups
        self._former: dict[str, tuple[str, str]] = {}
        self.table: Callable[[], str] | None = None  # stands below the help
        self.told: list[str] = []  # to be said when the command has done its work

    def add_former(self, old: str, new: str, before: str = "") -> None:
        """The former name of an option, which works for one release and says so. ``before``: what stands before its
        values in those of ``new``."""
        self._former[old] = (new, before)

    def error(self, message: str) -> NoReturn:
        told = self._told(message)
        self.exit(2, f"manyscale: {told}{'' if told.endswith('?') else ';'} see {self.prog} --help\n")

    def parse_args(self, args: Any = None, namespace: Any = None) -> Any:
        found, left = self.parse_known_args(self._renamed(sys.argv[1:] if args is None else list(args)), namespace)
        if left:
            _of(self, getattr(found, "command", None)).error(f"unrecognized arguments: {' '.join(left)}")
        return found

    def _renamed(self, words: list[str]) -> list[str]:
        """``words`` with options by the names that they have now."""
        former = getattr(_of(self, next((word for word in words if not word.startswith("-")), None)), "_former", {})
        renamed: list[str] = []
        before = ""
        for place, word in enumerate(words):
            if word == "--":
                return renamed + words[place:]
            option, equals, value = word.partition("=")
            if not before and option in former:
                new, before = former[option]
                now = f"{new} {before}..." if before else new
                self.told.append(f"{option} is {now} now; its former name goes with the next release")
                renamed.append(f"{new}={before}{value}" if equals else new)
                before = "" if equals else before
            else:
                renamed.append(f"{before}{word}")
                before = ""
        return renamed

    def _told(self, message: str) -> str:
        """argparse's message in the words of the others."""
        if match := _CHOICE.fullmatch(message):
            typed, known = match["typed"][1:-1], self._choices(match["option"])
            if match["option"] in ("COMMAND", "command"):
                return unknown("command", typed, known)
            near = _meant(typed, known)
            return f"{_last(match['option'])} {typed}: is none of {', '.join(known)}{near}"
        if match := _TYPE.fullmatch(message):
            return (
                f"{_last(match['option'])} {match['typed'][1:-1]}: is not a {_NOUNS.get(match['type'], match['type'])}"
            )
        if match := _UNKNOWN.fullmatch(message):
            word = match["words"].split()[0]
            known = [option for action in self._actions for option in action.option_strings if option.startswith("--")]
            if word.startswith("-") and word != "-":
                return f"unknown option {word.partition('=')[0]!r}{_meant(word.partition('=')[0], known)}"
            return f"{word!r} is one word too many"
        if match := _MISSING.fullmatch(message):
            return f"{match['options']}: must be given"
        if match := _NO_VALUE.fullmatch(message):
            return f"{match['option']}: {match['count'].replace('argument', 'value')} must stand behind it"
        return message.removeprefix("argument ")

    def _choices(self, option: str) -> list[str]:
        for action in self._actions:
            if option in ("/".join(action.option_strings), action.metavar, action.dest):
                return [str(each) for each in action.choices or ()]
        return []

    def format_help(self) -> str:
        """With the commands by their purpose, where there are any."""
        if self._groups is not None:
            return _help_of_all(self, self._groups)
        return super().format_help() + ("" if self.table is None else f"\n{self.table()}\n")


def _of(parser: argparse.ArgumentParser, command: str | None) -> argparse.ArgumentParser:
    """The parser of a command, ``parser`` without one."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction) and command in action.choices:
            found: argparse.ArgumentParser = action.choices[command]
            return found
    return parser


def _meant(word: str, known: Iterable[str]) -> str:
    near = closest(word, known)
    return "" if near is None else f"; did you mean {near!r}?"


def _last(option: str) -> str:
    """The long form of ``-o/--output``."""
    return option.rpartition("/")[2]


def _help_of_all(parser: argparse.ArgumentParser, groups: Mapping[str, Mapping[str, str]]) -> str:
    width = min(shutil.get_terminal_size().columns, 100)
    lines = [f"usage: {parser.prog} COMMAND ...", "", *textwrap.wrap(parser.description or "", width)]
    column = 4 + max(len(name) for group in groups.values() for name in group)
    for title, commands in groups.items():
        lines += ["", f"{title}:"]
        for name, text in commands.items():
            first, *rest = textwrap.wrap(text, width - column)
            lines += [f"  {name:<{column - 2}}{first}", *(" " * column + each for each in rest)]
    lines += ["", "options:"]
    for action in parser._actions:
        if action.option_strings:
            lines.append(f"  {', '.join(action.option_strings):<{column - 2}}{action.help}")
    lines += ["", *textwrap.wrap(parser.epilog or "", width)]
    return "\n".join(lines).rstrip() + "\n"


def typed_keys(options: argparse.Namespace) -> dict[str, str]:
    """Keys of a study that options stand for, and these as they were typed."""
    keys: dict[str, str] = {}
    plain = {"workload": "workload.path", "format": "workload.format", "time": "workload.time",
             "launch": "workload.launches", "flop_rate": "workload.flop_rate", "time_unit": "workload.time_unit",
             "application": "workload.application", "target": "target", "seed": "seed"}  # fmt: skip
    for option, key in plain.items():
        if getattr(options, option, None) is not None:
            keys[key] = f"--{option.replace('_', '-')}"
    for option in ("model", "sampling"):
        given = getattr(options, option, None)
        for text in given if isinstance(given, list) else ():
            level, _, value = text.partition("=")
            keys[f"{option}.{level.strip()}"] = f"--{option} {level.strip()}={value}"
    if getattr(options, "what_if", None):
        keys["sweep.what_if"] = "--what-if"
    for text in getattr(options, "assignments", ()):
        key = text.partition("=")[0].strip()
        keys[key] = f"--set {key}"
    return keys


def in_words_typed(place: str, key: str, problem: str, options: argparse.Namespace) -> str | None:
    """What is wrong with a key that an option stands for, naming the option; None for one that was not typed."""
    for typed, option in reversed(typed_keys(options).items()):
        inside = key == typed or key.startswith(f"{typed}.")
        if inside or typed.startswith(f"{key}."):
            deeper = key.removeprefix(typed).lstrip(".") if inside else ""
            named = f"--set {key}" if option.startswith("--set ") else f"{option}: {deeper}" if deeper else option
            at = place.partition(": sweep ")[2]
            return f"{named}: {problem}" + (f" (at {at})" if at else "")
    return None

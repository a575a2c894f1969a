"""``manyscale completion``: the script by which a shell completes the words of a command line, and what it completes.

A shell calls this program for each completion (argcomplete): nothing is loaded for it but the parser and lists of
names.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

SHELLS: Final = ("bash", "zsh", "fish")
_LEVELS: Final = {  # levels of --model and --sampling, and the seams of their names
    "model": {"cpu": "cpu", "gpu": "gpu", "network": "network"},
    "sampling": {
        "ranks": "rank-sampler", "iterations": "iteration-sampler", "tasks": "task-sampler",
        "launches": "launch-sampler", "blocks": "block-sampler", "intervals": "interval-sampler",
    },
}  # fmt: skip
WHAT_IFS: Final = ("ideal-network", "zero-latency", "infinite-bandwidth", "perfect-balance")  # study/what_if.py's
_METHODS: Final = {
    "plan": ("interval-sampler", "launch-sampler"), "evaluate": ("interval-sampler", "launch-sampler", "task-sampler"),
}  # fmt: skip


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("shell", choices=SHELLS, help="the shell that reads the script")
    parser.epilog = (
        'To use it now and in every new shell, put this line into ~/.bashrc or ~/.zshrc: eval "$(manyscale completion '
        'bash)" (or zsh); into ~/.config/fish/config.fish: manyscale completion fish | source.'
    )


def run(options: argparse.Namespace) -> int:
    """Print the script."""
    from argcomplete.shell_integration import shellcode

    print(shellcode(["manyscale"], shell=options.shell), end="")
    return 0


def is_asked() -> bool:
    """Whether a shell asks this process for completions."""
    return "_ARGCOMPLETE" in os.environ


def complete(parser_of: Callable[[str | None], argparse.ArgumentParser]) -> None:
    """Answer the shell, and end the process. ``parser_of``: the parser that knows the options of a command."""
    import argcomplete

    words = os.environ["COMP_LINE"][: int(os.environ["COMP_POINT"])].split()[1:]
    command = next((word for word in words if not word.startswith("-")), None)
    parser = parser_of(command)
    _with_names(parser, command)
    argcomplete.autocomplete(parser, always_complete_options="long")


def _with_names(parser: argparse.ArgumentParser, command: str | None) -> None:
    """Give the parser's actions what completes their values; all others complete paths."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            if command in action.choices:
                _with_names(action.choices[command], command)
        elif (names := _names_for(action, command)) is not None:
            action.completer = names  # type: ignore[attr-defined]


def _names_for(action: argparse.Action, command: str | None) -> Callable[..., Iterable[str]] | None:
    """What completes an action's values: ``completer(prefix, **_)``."""
    for option in (*(each.lstrip("-") for each in action.option_strings), action.dest):
        if option in ("target", "base"):
            return _with_paths(_targets, (".yaml", ".cfg"))
        if option == "format":
            return _of_seam("reader")
        if option == "to":
            return _of_seam("trace-writer")
        if option == "executor":
            return lambda prefix, **_: ["auto", *_of_seam("executor")(prefix=prefix)]
        if (option in _LEVELS and action.metavar == "LEVEL=METHOD") or option == "model":
            return _by_level(_LEVELS[option])
        if option == "method" and command in _METHODS:
            return _of_seams(_METHODS[command])
        if option == "what-if":
            return _what_ifs
        if option in ("study", "cases") and not action.option_strings:
            return _with_paths(_studies, (".yaml",)) if option == "study" else lambda prefix, **_: _cases()
        if option in ("trace", "traces") and not action.option_strings and command == "predict":
            return _with_paths(_memory_traces)
    return None


def _with_paths(names: Callable[[], Iterable[str]], ends: Iterable[str] = ()) -> Callable[..., Iterable[str]]:
    def completer(prefix: str, **_: Any) -> Iterator[str]:
        from argcomplete.completers import FilesCompleter

        yield from names()
        yield from FilesCompleter(ends)(prefix)

    return completer


def _of_seam(seam: str) -> Callable[..., list[str]]:
    return _of_seams((seam,))


def _of_seams(seams: Iterable[str]) -> Callable[..., list[str]]:
    def completer(prefix: str, **_: Any) -> list[str]:
        from manyscale.runner.registry import names

        return list(dict.fromkeys(name for seam in seams for name in names(seam)))

    return completer


def _by_level(seams: dict[str, str]) -> Callable[..., list[str]]:
    def completer(prefix: str, **_: Any) -> list[str]:
        level, equals, _rest = prefix.partition("=")
        if not equals:
            return [f"{level}=" for level in seams]
        if level not in seams:
            return []
        from manyscale.runner.registry import names

        return [f"{level}={name}" for name in names(seams[level])]

    return completer


def _what_ifs(prefix: str, **_: Any) -> list[str]:
    return [*WHAT_IFS, *(f"faster:{level}:" for level in ("region", "rank", "phase", "cluster"))]


def _targets() -> Iterable[str]:
    from manyscale.runner.shipped import shipped_targets

    return shipped_targets()


def _studies() -> Iterable[str]:
    from manyscale.runner.shipped import studies

    return studies()


def _memory_traces() -> Iterable[str]:
    from manyscale.runner.shipped import memory_traces

    return memory_traces()


def _cases() -> Iterable[str]:
    from manyscale.runner.shipped import validation_cases

    return validation_cases()

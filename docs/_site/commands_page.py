"""The page of every command and option, from the command line's own parser."""

from __future__ import annotations

import argparse
import textwrap
from typing import Final

from markdown_cells import cell, code, table

from manyscale.runner import cli

_HEAD: Final = """# Commands

Everything that the command `manyscale` does is a sub-command of it, and every sub-command says what it takes with
`--help`. This page is that help, made from the program itself. A command ends with exit status 0 if it did what it was
asked for, 1 if a run failed, 2 for bad input, 130 or 143 if it was interrupted or terminated.

"""


def page() -> str:
    """Markdown of all commands, in the order of ``manyscale --help``."""
    names = list(cli.COMMANDS)
    listed = table(("command", "what it does"), ((f"[{name}](#{name})", cell(cli.COMMANDS[name])) for name in names))
    return _HEAD + listed + "".join(_command(name) for name in names)


def _command(name: str) -> str:
    parser = parser_of(name)
    shown = [action for action in parser._actions if action.help != argparse.SUPPRESS and action.dest != "help"]
    usage = textwrap.fill(" ".join(_plain_usage(parser).split()), 100, subsequent_indent="    ", break_on_hyphens=False)
    parts = [f"\n## {name}\n", f"{cell(parser.description or '')}\n", f"```text\n{usage}\n```\n"]
    groups = [
        [action for action in shown if not action.option_strings],
        [each for each in shown if each.option_strings],
    ]
    for title, actions in zip(("argument", "option"), groups, strict=True):
        if actions:
            rows = [(code(_spelling(action)), cell(_help(action, parser)), _default(action)) for action in actions]
            parts.append(table((title, "meaning", "default"), rows))
    if parser.epilog:
        parts.append(f"{cell(parser.epilog)}\n")
    return "\n".join(parts)


def parser_of(name: str) -> argparse.ArgumentParser:
    """The parser of one command."""
    for action in cli._parser(name)._actions:
        if isinstance(action, argparse._SubParsersAction):
            found: argparse.ArgumentParser = action.choices[name]
            return found
    raise LookupError(name)


def _plain_usage(parser: argparse.ArgumentParser) -> str:
    text = parser.format_usage()
    for escape in ("\x1b",):  # colours, from Python 3.14 on
        if escape in text:
            raise ValueError("usage is coloured; set NO_COLOR")
    return text.removeprefix("usage: ")


def _spelling(action: argparse.Action) -> str:
    words = ", ".join(action.option_strings)
    if action.nargs == 0:
        return words
    value = action.metavar or (
        "{" + ",".join(map(str, action.choices)) + "}" if action.choices else action.dest.upper()
    )
    value = " ".join(value) if isinstance(value, tuple) else value
    return f"{words} {value}" if words else value


def _help(action: argparse.Action, parser: argparse.ArgumentParser) -> str:
    return (action.help or "") % {**vars(action), "prog": parser.prog}


def _default(action: argparse.Action) -> str:
    """What help text does not say already."""
    given = action.default
    if given in (None, False, argparse.SUPPRESS, (), []) or "default" in (action.help or "") or action.nargs == 0:
        return ""
    return code(given)

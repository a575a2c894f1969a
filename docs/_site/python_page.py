"""The page of the Python interface: every public name, from its docstring."""

from __future__ import annotations

import inspect
from typing import Final

import manyscale

_HEAD: Final = """# Python

Everything that the commands do is a function of the package, too. A result shows itself in a notebook, gives its tables
as pandas data frames, and writes no file unless it is asked to. This page lists every public name, made from its
docstring.

What begins with an underscore, or is not listed here, may change in any version. A public name that is to go stays for
one more release, with a warning.

"""


def page() -> str:
    """Markdown with an instruction to mkdocstrings for each name, functions first."""
    names = [name for name in manyscale.__all__ if not name.startswith("__")]
    found = {name: getattr(manyscale, name) for name in names}
    functions = [name for name, each in found.items() if inspect.isfunction(each)]
    errors = [name for name, each in found.items() if inspect.isclass(each) and issubclass(each, BaseException)]
    others = [name for name, each in found.items() if inspect.isclass(each) and name not in errors]
    parts = [_HEAD]
    for title, chosen in (("Functions", functions), ("Results and other classes", others), ("Errors", errors)):
        parts.append(f"## {title}\n")
        parts += [
            f"::: {found[name].__module__}.{found[name].__qualname__}\n    options:\n"
            f"      heading: manyscale.{name}\n      toc_label: {name}\n      heading_level: 3\n"
            for name in chosen
        ]
    return "\n".join(parts)

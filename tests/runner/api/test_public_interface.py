"""What is public is listed in ``public_interface.txt``, names and signatures: a change of it is meant, or fails here.

``python tests/runner/api/test_public_interface.py`` writes the listing anew, when it is meant.
"""

from __future__ import annotations

import ast
import inspect
import subprocess
import sys
from dataclasses import fields, is_dataclass
from pathlib import Path

import pytest

import manyscale

LISTING = Path(__file__).with_name("public_interface.txt")
ASKED = (  # by the users of the Python interface
    "run", "sweep", "what_if", "compare", "pop", "plan", "evaluate", "profile", "predict", "trace", "convert",
    "calibrate", "extrapolate", "scaling", "examples", "UserError",
)  # fmt: skip


def _parameter(each: inspect.Parameter) -> str:
    default = "" if each.default is inspect.Parameter.empty else f"={each.default!r}"
    return f"{each.name}{default}"


def _lines(name: str) -> list[str]:
    """A name, and of a function its parameters with their defaults, of a class its own public members."""
    found = getattr(manyscale, name)
    if inspect.isclass(found):
        own = {*vars(found), *(each.name for each in (fields(found) if is_dataclass(found) else ()))}
        members = sorted(member for member in own if not member.startswith("_"))
        return [f"class {name}: {', '.join(members)}"]
    if not callable(found):
        return [name]
    parameters = inspect.signature(found).parameters.values()
    positional = [_parameter(each) for each in parameters if each.kind is not inspect.Parameter.KEYWORD_ONLY]
    keywords = [_parameter(each) for each in parameters if each.kind is inspect.Parameter.KEYWORD_ONLY]
    star = ["*"] if keywords else []
    return [f"{name}({', '.join(positional)})", *(f"  {each}" for each in (*star, *keywords))]


def listing() -> str:
    return "".join(f"{line}\n" for name in sorted(manyscale.__all__) for line in _lines(name))


@pytest.mark.contract
def test_the_public_interface_is_the_listed_one() -> None:
    assert listing().splitlines() == LISTING.read_text().splitlines()


@pytest.mark.contract
def test_what_users_ask_for_is_there() -> None:
    assert set(ASKED) <= set(manyscale.__all__)
    assert set(manyscale.__all__) <= set(dir(manyscale))


@pytest.mark.contract
def test_type_checkers_see_every_name() -> None:
    """Those that are loaded on first use are imported under TYPE_CHECKING, from where they are loaded."""
    source = Path(manyscale.__file__).read_text()
    seen = {}
    body = ast.parse(source).body
    (guarded,) = (node.body for node in body if isinstance(node, ast.If))
    for node in (*body, *guarded):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("manyscale"):
            seen |= {alias.name: node.module for alias in node.names}
    assert set(manyscale.__all__) == set(seen)
    for name, module in manyscale._PLACES.items():
        assert seen[name] == f"manyscale.runner.{module}"


@pytest.mark.contract
@pytest.mark.parametrize("name", [name for name in manyscale.__all__ if not name.startswith("__")])
def test_everything_public_says_what_it_is(name: str) -> None:
    documented = inspect.getdoc(getattr(manyscale, name))
    assert documented
    assert documented.endswith(".")


@pytest.mark.contract
def test_import_loads_nothing_heavy() -> None:
    code = (
        "import sys, manyscale; print([name for name in ('numpy', 'pyarrow', 'pandas', 'numba', 'plotly', 'pydantic', "
        "'yaml', 'tqdm', 'ray') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.contract
def test_what_is_unknown_is_no_attribute() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'simulate'"):
        _ = manyscale.simulate


if __name__ == "__main__":
    LISTING.write_text(listing())

"""Files that are read by others than Python: citation, container, conda recipe, and pages beside the README."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml
from packaging.requirements import Requirement

ROOT = Path(__file__).parents[1]
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
VERSION = re.findall(r'__version__ = "(.*)"', (ROOT / "runner" / "version.py").read_text())[0]

pytestmark = pytest.mark.contract


def loaded(path: str) -> dict[str, Any]:
    return dict(yaml.safe_load((ROOT / path).read_text()))


def instructions(path: Path) -> list[tuple[str, str]]:
    """Of a Dockerfile: (instruction, what stands behind it), lines joined and comments left out."""
    lines = [line for line in path.read_text().splitlines() if not line.lstrip().startswith("#")]
    joined = "\n".join(lines).replace("\\\n", " ")
    return [(word, rest.strip()) for word, _, rest in (line.partition(" ") for line in joined.splitlines() if line)]


def test_the_citation_is_valid_and_of_this_version() -> None:
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.citation-file-format"]
    done = subprocess.run([*command, str(ROOT / "CITATION.cff")], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    citation = loaded("CITATION.cff")
    assert str(citation["version"]) == VERSION
    assert citation["license"] == PROJECT["license"]


def test_the_citation_names_the_source_of_each_method() -> None:
    notes = [reference["notes"] for reference in loaded("CITATION.cff")["references"]]
    text = " ".join(notes)
    methods = ("MUSA", "TaskPoint", "TBPoint", "GPUMech", "SimProf", "SimPoint", "SBBV", "CCV", "AMM")
    assert [method for method in methods if method not in text] == []
    folders = re.findall(r"`(.*?)`", text)
    assert folders
    assert [folder for folder in folders if not (ROOT / folder).is_dir()] == []


def test_the_container_runs_the_command_without_rights_from_a_wheel_with_kernels() -> None:
    found = instructions(ROOT / "Dockerfile")
    stages = [number for number, (word, _) in enumerate(found) if word == "FROM"]
    assert len(stages) == 2
    build, final = found[stages[0] : stages[1]], found[stages[1] :]
    assert any(word == "RUN" and "MANYSCALE_KERNELS=all pip wheel" in rest for word, rest in build)
    users = [rest for word, rest in final if word == "USER"]
    assert users
    assert users[-1].partition(":")[0] not in ("root", "0")
    assert [json.loads(rest) for word, rest in final if word == "ENTRYPOINT"] == [["manyscale"]]
    assert not [rest for word, rest in final if word == "COPY"]  # no sources in the image
    (extra,) = re.findall(r"/wheels/\*\.whl\)\[(\w+)\]", "".join(rest for _, rest in final))
    assert PROJECT["optional-dependencies"][extra] == ["ray[default]>=2.49"]  # KubeRay submits a job to it
    versions = [rest.partition("=")[2] for word, rest in found if word == "ARG" and rest.startswith("PYTHON=")]
    assert f"Programming Language :: Python :: {versions[0]}" in PROJECT["classifiers"]


def test_the_container_is_built_of_what_a_build_needs() -> None:
    """What .dockerignore lets through."""
    lines = (ROOT / ".dockerignore").read_text().splitlines()
    assert lines[0] == "*"
    let_through = {line[1:] for line in lines if line.startswith("!")}
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]
    folders = {path.partition("/")[0] for path in settings["package-dir"].values()}
    needed = folders | {"pyproject.toml", "MANIFEST.in", "constraints.txt", "tests/data", PROJECT["readme"]}
    assert needed | set(PROJECT["license-files"]) == let_through
    assert [path for path in let_through if not (ROOT / path).exists()] == []


def test_the_conda_recipe_says_what_pyproject_says() -> None:
    recipe = loaded(".ci/conda/recipe.yaml")
    assert recipe["context"]["version"] == VERSION
    assert f">={recipe['context']['python_min']}" == PROJECT["requires-python"]
    assert recipe["about"]["license"] == PROJECT["license"]
    assert recipe["about"]["summary"] == PROJECT["description"]
    assert recipe["about"]["license_file"] == PROJECT["license-files"]
    ((name, place),) = PROJECT["scripts"].items()
    assert recipe["build"]["python"]["entry_points"] == [f"{name} = {place}"]
    on_conda = {"PyYAML": "pyyaml", "xxhash": "python-xxhash", "ray": "ray-core"}
    required = [Requirement(line) for line in PROJECT["dependencies"]]
    wanted = {on_conda.get(each.name, each.name): each.specifier for each in required}
    given = [line.partition(" ") for line in recipe["requirements"]["run"] if not line.startswith("python >=")]
    given += [line.partition(" ") for line in recipe["requirements"]["run_constraints"]]
    assert {name: Requirement(f"x{bounds}").specifier for name, _, bounds in given} == wanted


@pytest.mark.parametrize("page", ["CONTRIBUTING.md", "SECURITY.md"])
def test_links_of_a_page_beside_the_readme_lead_somewhere(page: str) -> None:
    targets = re.findall(r"\]\(([^)#:]+)\)", (ROOT / page).read_text())
    assert [target for target in targets if not (ROOT / target).exists()] == []


def test_benches_lie_where_they_are_run() -> None:
    (command,) = re.findall(r"^pytest -m bench (.*)$", (ROOT / ".ci" / "run").read_text(), re.MULTILINE)
    places = [ROOT / place for place in command.split()]
    marked = [path for path in (ROOT / "tests").rglob("test_*.py") if re.search(r"mark\.bench\b", path.read_text())]
    assert marked
    assert [path for path in marked if not any(path.is_relative_to(place) for place in places)] == []

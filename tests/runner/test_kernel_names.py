"""Mangled names: what c++filt of GNU binutils 2.40 prints of them, and the function alone."""

from __future__ import annotations

import pytest

from manyscale.runner import kernel_names
from manyscale.runner.kernel_names import demangled, function_name

NAMES = [
    ("_Z6KernelP4NodePiPbS2_S2_S1_i", "Kernel(Node*, int*, bool*, bool*, bool*, int*, int)", "Kernel"),
    ("_Z3addIfEvPT_i", "void add<float>(float*, int)", "add<float>"),
    ("_ZN12_GLOBAL__N_11kILi4EfEEvPT0_", "void (anonymous namespace)::k<4, float>(float*)",
     "(anonymous namespace)::k<4, float>"),
    ("_ZNK3foocvbEv", "foo::operator bool() const", "foo::operator bool"),
    ("_ZN3fooclEi", "foo::operator()(int)", "foo::operator()"),
    ("_ZN3foolsEi", "foo::operator<<(int)", "foo::operator<<"),
    ("_ZZ4mainENKUlfE_clEf", "main::{lambda(float)#1}::operator()(float) const", "main::{lambda(float)#1}::operator()"),
    ("_Z1gv.part.0", "g() [clone .part.0]", "g"),
]  # fmt: skip


@pytest.mark.parametrize(("mangled", "whole", "function"), NAMES)
def test_names_are_those_of_the_source(mangled: str, whole: str, function: str) -> None:
    assert demangled(mangled) == whole
    assert function_name(mangled) == function_name(whole) == function


@pytest.mark.parametrize("name", ["ampere_sgemm_128x64_tn", "kernel", "_Znonsense", "", "_Z\0", "_Z3addIfEvPT_i\udcff"])
def test_what_is_not_mangled_stays(name: str) -> None:
    assert demangled(name) == name
    assert function_name(name) == name


def test_profilers_write_parameters_of_templates_with_their_types() -> None:
    assert function_name("void foo<int, (bool)1>(int*, float)") == "foo<int, (bool)1>"


def test_names_stay_where_there_is_no_runtime(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel_names, "_RUNTIMES", ("libnone.so.6",))
    for each in (demangled, kernel_names._runtime, function_name):
        each.cache_clear()
    try:
        assert demangled("_Z3addIfEvPT_i") == function_name("_Z3addIfEvPT_i") == "_Z3addIfEvPT_i"
    finally:
        for each in (demangled, kernel_names._runtime, function_name):
            each.cache_clear()

"""Where NVIDIA's compilers are looked for, and what is said where they are not."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from manyscale.runner.errors import UserError
from manyscale.runner.tracers.cuda import compiler, device_code, generate
from manyscale.runner.tracers.cuda.compiler import Toolkit


@pytest.fixture
def fake(tmp_path, monkeypatch):
    """A toolkit with headers alone, the only one that is found: ``fake(version)``."""

    def make(version: int) -> Toolkit:
        (tmp_path / "include").mkdir(exist_ok=True)
        (tmp_path / "include" / "cuda_runtime_api.h").write_text(f"#define CUDART_VERSION {version}\n")
        monkeypatch.setattr(compiler, "_homes", lambda: iter([tmp_path]))
        monkeypatch.setenv("PATH", "")
        return Toolkit(tmp_path)

    return make


def test_nothing_installed_names_the_extra(monkeypatch, tmp_path):
    monkeypatch.setattr(compiler, "_homes", lambda: iter([tmp_path]))
    with pytest.raises(UserError, match=r"no CUDA compiler is installed .*pip install 'manyscale\[cuda\]'"):
        compiler.toolkit()


def test_another_main_version_is_named(fake):
    kit = fake(12040)
    assert compiler.toolkit(12) == kit
    with pytest.raises(UserError, match=r"runtime of CUDA 13, and here is CUDA 12 in .*; .*CUDA_HOME"):
        compiler.toolkit(13)


def test_missing_tools_and_libraries_name_the_extra(fake, tmp_path):
    kit = fake(13010)
    with pytest.raises(UserError, match=r"has no cuobjdump.*manyscale\[cuda\]"):
        kit.tool("cuobjdump")
    with pytest.raises(UserError, match=r"has no libcudart\.so\.13.*manyscale\[cuda\]"):
        compiler.flags(kit, tmp_path)


@pytest.mark.parametrize(
    ("version", "name"), [(11080, "libcudart.so.11.0"), (12060, "libcudart.so.12"), (13050, "libcudart.so.13")]
)
def test_names_of_shared_runtimes(version, name):
    """Those that NVIDIA's libraries have."""
    assert generate.soname(version) == name
    assert generate.version_script(version).startswith(f"{name} {{ global: cuda*; __cuda*;")


def test_what_is_not_there_is_made_of_the_headers(tmp_path):
    (tmp_path / "cuda_runtime_api.h").write_text(
        "#define cudaHere_v1 cudaOther\n"
        "    #define cudaRenamed   cudaRenamed_v2\n"
        "    #define cudaCopy __CUDART_API_PTDS(cudaCopy)\n"
        "extern __host__ cudaError_t CUDARTAPI cudaHere(int a);\n"
        "extern __host__ cudaError_t CUDARTAPI cudaRenamed(int a);\n"
        "extern __host__ __cudart_builtin__ cudaError_t CUDARTAPI cudaCopy(int a);\n"
    )
    (tmp_path / "driver_types.h").write_text(
        "enum cudaError {\n    cudaSuccess = 0,\n    cudaErrorInvalidPtx = 218,\n"
        "    cudaErrorECCUncorrectable = 214 };\n"
    )
    made = generate.source(tmp_path, ["cudaError_t cudaHere(int a) {\n"])
    assert 'int cudaRenamed_v2(void) { return not_supported("cudaRenamed"); }' in made
    assert "cudaHere" not in made
    assert 'case 218: return "invalid ptx";' in made
    assert 'case 214: return "ecc uncorrectable";' in made
    assert generate.aliases(tmp_path) == {"cudaCopy_ptds": "cudaCopy"}


def test_listings_are_kept_by_what_they_list_and_by_the_tool(tmp_path):
    (tmp_path / "bin").mkdir()
    tool, asked = tmp_path / "bin" / "cuobjdump", tmp_path / "asked"
    script = f'#!/bin/sh\necho "$2" >> {asked}\ncat "$2"\n'
    tool.write_text(script)
    tool.chmod(0o755)
    kit = Toolkit(tmp_path)

    def listed(name: str, content: str) -> str:
        (tmp_path / name).write_text(content)
        return device_code.disassembled(SimpleNamespace(path=tmp_path / name), kit, tmp_path / "cache")

    assert [listed("one", "a"), listed("two", "b"), listed("one", "a"), listed("two", "a")] == ["a", "b", "a", "a"]
    assert asked.read_text().split() == ["one", "two"]
    (kept,) = [path for path in (tmp_path / "cache" / "cuda-listings").iterdir() if path.stat().st_size > 0][:1]
    kept.write_bytes(b"damaged")
    assert [listed("one", "a"), listed("two", "b")] == ["a", "b"]
    assert len(asked.read_text().split()) == 3
    tool.write_text(script + "# another version\n")
    assert listed("one", "a") == "a"
    assert len(asked.read_text().split()) == 4

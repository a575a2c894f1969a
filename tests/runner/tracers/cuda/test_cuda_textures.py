"""A program with textures and surfaces: what it reads is computed here from what it wrote, by the rules of NVIDIA's
programming guide, "Texture Fetching"."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from manyscale.runner.readers import workload_folder

PROGRAM = (Path(__file__).parents[3] / "programs" / "cuda_textures.cu").read_text()
WIDTH, HEIGHT, DEPTH = 40, 20, 3
COLOURS = [[0, 51, 102, 255], [255, 0, 0, 0], [1, 2, 3, 4], [5, 6, 7, 8], *[[0] * 4] * 4]


def plane(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """The plane x + WIDTH y at texels, which a linear filter continues; clamped to its texels."""
    return np.clip(x - 0.5, 0, WIDTH - 1) + WIDTH * np.clip(y - 0.5, 0, HEIGHT - 1)


def expected() -> dict[str, np.ndarray]:
    t = np.arange(64)
    filtered = plane(0.25 * t + 0.5, 0.125 * t + 1.0)
    copied = np.zeros((HEIGHT, WIDTH))
    copied[2:12, 2:22] = np.arange(WIDTH * HEIGHT).reshape(HEIGHT, WIDTH)[:10, :20]
    pick = np.arange(32)
    deep = t % WIDTH + WIDTH * (t % HEIGHT) + WIDTH * HEIGHT * (t % DEPTH)
    near = np.arange(8)
    around = [(-1, 0), (0, 0), (0, -1), (-1, -1)]  # of the texels before and behind, from the lower left
    gathered = [np.clip(near + x, 0, None) + WIDTH * np.clip(near + y, 0, None) for x, y in around]
    return {
        "linear": np.where(t < 40, t, 0),
        "pitched": filtered,
        "array": filtered,
        "chosen": np.where(pick % 2, copied[2, pick], pick + 2 * WIDTH),
        "bytes": np.array(COLOURS * 2, np.float32).ravel() / np.float32(255),
        "solid": deep,
        "layers": deep,
        "line": np.clip(t / 2 - 0.5, 0, WIDTH - 1),
        "gathered": np.column_stack(gathered).ravel(),
    }


@pytest.mark.slow
def test_what_textures_give(nvcc, trace, shown):
    codes = [f"-gencode=arch=compute_{each},code=sm_{each}" for each in (75, 80, 86, 90)]
    program = nvcc("textures", PROGRAM, *codes)
    for architecture in (75, 80, 86, 90):
        status, printed, told, folder = trace([str(program)], "--as", shown(architecture))
        assert status == 0, told
        lines = dict(line.partition(" ")[::2] for line in printed)
        for name, values in expected().items():
            np.testing.assert_allclose(np.array(lines[name].split(), float), values, rtol=1e-6, err_msg=name)
        assert lines["surface"] == "right"
        ending = ["texture: cudaErrorInvalidFilterSetting", "cudaErrorInvalidValue", "32 0 40 20 0 10"]
        assert printed[10:15] == [*ending, "cudaErrorInvalidValue", "cudaErrorNotSupported"]
        assert "cudaMalloc3DArray with cudaArrayCubemap is not supported" in told
        workload = workload_folder.read(folder)
        linear = workload.gpu.trace(1)
        read = (linear.static.space == 1) & (linear.static.access == 1) & (linear.static.unit == 8)
        rows = np.flatnonzero([linear.static.opcodes[each].startswith("TLD") for each in linear.static.opcode])
        assert read[rows].all()
        # 64 threads of two warps read 40 integers in rows of 32 bytes: four sectors, and one
        assert linear.accesses[np.isin(linear.instruction, rows)].tolist() == [4, 1]
        folder.rename(folder.with_name(str(architecture)))

"""Device code that a traced program brings while it runs: what NVRTC, Triton or Numba compiled, a file that it loads,
or the kernels of a library that is opened. The program's process (``runtime/arriving.c``) writes the code into a file
of the trace's folder and asks over a socket for the module file of it.

A request is a line of words: ``load FILE [ptxas' words]`` or ``link MADE [ptxas' words] FILES``, with names in the
folder; the answer is ``done MODULE_FILE FIRST_KERNEL`` (of ``link`` ``done MADE 0``) or ``failed ERROR TEXT`` with the
error's number in CUDA.
"""

from __future__ import annotations

import re
import shutil
import socket
import struct
import subprocess
import tempfile
import threading
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Final

from manyscale.runner.errors import UserError
from manyscale.runner.tracers.cuda import device_code
from manyscale.runner.tracers.cuda.compiler import Toolkit
from manyscale.runner.tracers.cuda.cubin import Cubin
from manyscale.runner.tracers.cuda.module import MODULES, ModuleFiles
from manyscale.runner.tracers.cuda.sass import listing
from manyscale.runner.tracers.cuda.sass.listing import Listing

INVALID_IMAGE: Final = 200  # by the numbers of CUDA's errors
NO_BINARY_FOR_GPU: Final = 209
INVALID_PTX: Final = 218
UNKNOWN: Final = 999
_FATBIN: Final = struct.pack("<I", 0xBA55ED50)
_ELF: Final = b"\x7fELF"
_TARGET: Final = re.compile(r"^\s*\.target\s+sm_(\d+)([af]?)", re.MULTILINE)
_MOST_OF_REQUEST: Final = 1 << 16

Code = list[tuple[Cubin, dict[str, Listing]]]


class _RefusedError(Exception):
    def __init__(self, error: int, text: str) -> None:
        super().__init__(text)
        self.error = error


class ArrivingCode:
    """Answers the processes of a traced program, one request at a time, while the ``with`` block runs."""

    def __init__(self, files: ModuleFiles, capability: int, kit: Toolkit, folder: Path, cache: Path) -> None:
        self._files, self._capability, self._kit, self._folder = files, capability, kit, folder.resolve()
        self._cache = cache
        self._count = 0
        self._error: Exception | None = None

    def __enter__(self) -> Path:
        """The socket. Raises UserError where it cannot be made."""
        self._place = Path(tempfile.mkdtemp(prefix="manyscale-"))
        path = self._place / "code"
        self._listener = socket.socket(socket.AF_UNIX)
        try:
            self._listener.bind(str(path))
        except OSError as error:
            self._listener.close()
            shutil.rmtree(self._place, ignore_errors=True)
            raise UserError(f"{path}: no socket can be made there ({error}); set TMPDIR to a short path") from None
        self._listener.listen(64)
        self._thread = threading.Thread(target=self._serve, name="manyscale-arriving-code", daemon=True)
        self._thread.start()
        return path

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)  # wakes the thread
        self._thread.join()
        self._listener.close()
        shutil.rmtree(self._place, ignore_errors=True)
        if self._error is not None and error is None:
            raise self._error

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            with connection, suppress(OSError):  # of a process that died
                try:
                    answer = self.answer(_line(connection))
                except OSError:
                    raise
                except Exception as error:  # the program must not wait for ever; it is raised when the block ends
                    self._error = error
                    answer = f"failed {UNKNOWN} {type(error).__name__}: {_one_line(error)}"
                connection.sendall(f"{answer}\n".encode())

    def answer(self, request: str) -> str:
        """What a request is answered."""
        action, *words = request.split(" ")
        try:
            if action == "load" and words:
                return self._loaded(self._file(words[0]), words[1:])
            if action == "link" and words:
                made = self._file(words[0])
                options = [word for word in words[1:] if word.startswith("-")]
                self._link(made, [self._file(word) for word in words[1:] if not word.startswith("-")], options)
                return f"done {made.relative_to(self._folder)} 0"
        except _RefusedError as error:
            return f"failed {error.error} {_one_line(error)}"
        except (UserError, OSError) as error:
            return f"failed {INVALID_IMAGE} {_one_line(error)}"
        return f"failed {INVALID_IMAGE} {request[:60]!r} is no request"

    def _file(self, name: str) -> Path:
        path = (self._folder / name).resolve()
        if not path.is_relative_to(self._folder):
            raise _RefusedError(INVALID_IMAGE, f"{name}: is no file of the trace")
        return path

    def _loaded(self, path: Path, options: Sequence[str]) -> str:
        self._count += 1
        code = self._code(path, options)
        name = f"{MODULES}-{self._count}"
        first = self._files.add(code, name)
        return f"done {name} {first}"

    def _code(self, path: Path, options: Sequence[str]) -> Code:
        head = path.open("rb").read(4)
        if head == _FATBIN:
            named = path.rename(path.with_name(path.name + ".fatbin"))
            try:
                with tempfile.TemporaryDirectory(dir=self._place) as scratch:
                    found = device_code.extract([named], self._capability, self._kit, Path(scratch))
                    return [
                        (each, listing.functions(device_code.disassembled(each, self._kit, self._cache)))
                        for each in found
                    ]
            except UserError as error:
                raise _RefusedError(NO_BINARY_FOR_GPU, str(error)) from None
        if head != _ELF:
            path = self._assembled(path, options)
        return [self._of_cubin(path)]

    def _of_cubin(self, path: Path) -> tuple[Cubin, dict[str, Listing]]:
        named = path.rename(path.with_name(path.name + ".cubin"))
        text = device_code.disassembled(Cubin(named, self._capability), self._kit, self._cache)
        architecture = max(listing.architectures(text), default=self._capability)
        if architecture // 10 != self._capability // 10 or architecture > self._capability:
            told = (
                f"a module has machine code for sm_{architecture}, and the GPU that is shown is of compute capability"
            )
            raise _RefusedError(NO_BINARY_FOR_GPU, f"{told} {self._capability / 10}")
        cubin = Cubin(named, architecture)
        if not cubin.is_linked:
            raise _RefusedError(INVALID_IMAGE, "a module is not linked: it was compiled with -dc or -rdc=true")
        return cubin, listing.functions(text)

    def _assembled(self, path: Path, options: Sequence[str]) -> Path:
        """What ptxas makes of PTX, a text that may end with a zero byte."""
        content = path.read_bytes().split(b"\0")[0]
        source = path.with_name(path.name + ".ptx")
        source.write_bytes(content)
        made = path.with_name(path.name + ".made")
        target = self._target(content.decode(errors="replace"))
        self._run("ptxas", [f"-arch={target}", *options, str(source), "-o", str(made)], INVALID_PTX)
        return made

    def _target(self, text: str) -> str:
        """The architecture that PTX is compiled for: that of the GPU, with the features that it asks for."""
        match = _TARGET.search(text)
        if match is None:
            raise _RefusedError(INVALID_IMAGE, "a module is neither machine code, a fat binary nor PTX")
        return f"sm_{self._capability}{match[2] if int(match[1]) == self._capability else ''}"

    def _link(self, made: Path, files: Sequence[Path], options: Sequence[str]) -> None:
        """One module of several: PTX and machine code that may call each other's functions."""
        objects = []
        for number, path in enumerate(files):
            head = path.open("rb").read(4)
            if head == _FATBIN:
                raise _RefusedError(INVALID_IMAGE, "a fat binary cannot be linked; give its PTX or machine code")
            whole = ["-c"] if len(files) > 1 else []
            assembled = path if head == _ELF else self._assembled(path, [*whole, *options])
            objects.append(shutil.copyfile(assembled, made.with_name(f"{made.name}-{number}.cubin")))
        if len(objects) == 1:
            shutil.copyfile(objects[0], made)
        else:
            words = [f"-arch=sm_{self._capability}", *map(str, objects), "-o", str(made)]
            self._run("nvlink", words, INVALID_IMAGE)

    def _run(self, tool: str, words: Sequence[str], error: int) -> None:
        done = subprocess.run([str(self._kit.tool(tool)), *words], capture_output=True, text=True, check=False)
        if done.returncode:
            raise _RefusedError(error, f"{tool}: {done.stderr or done.stdout}")


def _line(connection: socket.socket) -> str:
    found = b""
    while not found.endswith(b"\n") and len(found) < _MOST_OF_REQUEST:
        more = connection.recv(4096)
        if not more:
            break
        found += more
    return found.decode(errors="replace").rstrip("\n")


def _one_line(error: Exception) -> str:
    return " | ".join(line.strip() for line in str(error).splitlines() if line.strip())[:1000]

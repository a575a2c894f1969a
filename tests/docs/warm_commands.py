"""``manyscale`` as the pages' commands find it: a command is a child of one process, which has run an example already;
loading what that takes is most of a short command's time.

``warm_commands`` starts that process, and gives a folder for the PATH: its command ``manyscale`` hands words, folder,
environment and streams over, and ends as the child does. Where the environment would make another Python of it
(``PYTHONPATH``, ...), it is the installed command.
"""

from __future__ import annotations

import gc
import io
import json
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Final

_EXAMPLE: Final = ("run", "lulesh-8", "--executor", "local", "-o", "example")
_AT_START: Final = ("PYTHON", "NUMBA_", "LD_", "OMP_", "OPENBLAS_")  # such variables are read when Python starts
_COMMAND: Final = """#!{python} -IS
import json, os, signal, socket, sys
if {{name: value for name, value in os.environ.items() if name.startswith({at_start})}} != {expected}:
    os.execv({installed!r}, [{installed!r}, *sys.argv[1:]])
server = socket.socket(socket.AF_UNIX)
server.connect({address!r})
socket.send_fds(server, [b"-"], [0, 1, 2])
answers = server.makefile("rwb")
answers.write(json.dumps([sys.argv[1:], os.getcwd(), dict(os.environ)]).encode() + b"\\n")
answers.flush()
child = int(answers.readline())
for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
    signal.signal(number, lambda number, _frame: os.kill(child, number))
status = int(answers.readline())
if status < 0:
    os.kill(os.getpid(), signal.SIGKILL)
os._exit(status)
"""


@contextmanager
def warm_commands(folder: Path, environment: Mapping[str, str]) -> Iterator[Path]:
    """``folder`` with the command, for commands in an ``environment`` that starts Python alike."""
    installed = shutil.which("manyscale", path=str(Path(sys.executable).parent))
    assert installed is not None
    address = str(folder / "socket")
    command = [sys.executable, __file__, address]
    with subprocess.Popen(
        command, env=dict(environment), stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=folder
    ) as process:  # it ends with its input
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        expected = {name: value for name, value in environment.items() if name.startswith(_AT_START)}
        text = _COMMAND.format(
            python=sys.executable, at_start=_AT_START, expected=expected, installed=installed, address=address
        )
        (folder / "manyscale").write_text(text)
        (folder / "manyscale").chmod(0o755)
        yield folder
        process.communicate()


def _serve(address: str) -> None:
    """Until the input ends; returns in the child that is to be a command, with its words in ``sys.argv``."""
    from manyscale.runner.cli import main

    with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
        assert main(_EXAMPLE) == 0
    gc.freeze()
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(address)
    listener.listen()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for those that wait for commands
    print("ready", flush=True)
    while True:
        ready, _, _ = select.select([listener, sys.stdin], [], [])
        if sys.stdin in ready:
            os._exit(0)
        connection, _ = listener.accept()
        if os.fork() == 0:
            listener.close()
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            _command(connection)
            return
        connection.close()


def _command(connection: socket.socket) -> None:
    """Returns in a child that is the command; here it is waited for."""
    _, streams, _, _ = socket.recv_fds(connection, 1, 3)
    with connection, connection.makefile("rwb") as asked:
        words, folder, environment = json.loads(asked.readline())
        child = os.fork()
        if child:
            asked.write(b"%d\n" % child)
            asked.flush()
            _, status = os.waitpid(child, 0)
            asked.write(b"%d\n" % os.waitstatus_to_exitcode(status))
            asked.flush()
            os._exit(0)
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    sys.argv = ["manyscale", *words]


if __name__ == "__main__":
    _serve(sys.argv[1])
    from manyscale.runner.entry import process

    sys.exit(process())

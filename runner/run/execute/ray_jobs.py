"""Runs that are submitted to a Ray cluster's Jobs interface, from a machine that need not be a node of it."""

from __future__ import annotations

import asyncio
import logging
import os
import shlex
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from manyscale.runner import extras
from manyscale.runner.errors import RunError, UserError
from manyscale.runner.run.execute.ray_join import HOW_TO_START, refusal, use_token
from manyscale.runner.run.execute.ray_workers import first_line

DASHBOARD_PORT: Final = 8265  # of a head node, unless its start command names another
MOST_BYTES: Final = 500 * 2**20  # that Ray takes of a working directory
_TALKATIVE: Final = (
    "ray.dashboard.modules.dashboard_sdk",
    "ray.dashboard.modules.job.sdk",
    "ray._private.runtime_env.packaging",
)


class Jobs:
    """The Jobs interface at ``address``, such as http://HEAD:8265. Raises UserError where none answers, or where it
    does not take the token that is here."""

    def __init__(self, address: str) -> None:
        extras.require("ray", "manyscale submit")
        extras.require("aiohttp", "manyscale submit")
        parts = urlsplit(address)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise UserError(
                f"--dashboard {address}: is not the address of a cluster's dashboard; write http://HEAD:{DASHBOARD_PORT}"
            )
        self._address = address.rstrip("/")
        os.environ.pop("RAY_ADDRESS", None)  # Ray would prefer them to what was asked for
        os.environ.pop("RAY_API_SERVER_ADDRESS", None)
        use_token()
        self._client = self._ask(self._connect)

    def _connect(self) -> Any:
        from ray.job_submission import JobSubmissionClient

        for name in _TALKATIVE:
            logging.getLogger(name).setLevel(logging.ERROR)
        return JobSubmissionClient(self._address)

    def _ask(self, question: Callable[[], Any]) -> Any:
        """The answer. Raises UserError instead of what Ray and its HTTP client raise."""
        import requests
        from ray import exceptions

        try:
            return question()
        except getattr(exceptions, "AuthenticationError", ()):  # older ones have no tokens
            raise UserError(f"{self._address}: {refusal()}") from None
        except (ConnectionError, requests.exceptions.RequestException):
            raise UserError(
                f"{self._address}: no dashboard of a Ray cluster answers; {HOW_TO_START} --dashboard-host=0.0.0.0 "
                "(its installation needs ray[default])"
            ) from None
        except (RuntimeError, ValueError) as error:
            raise UserError(f"{self._address}: the Ray cluster does not take jobs ({first_line(error)})") from None

    def submit(self, words: Sequence[str], folder: Path | None) -> str:
        """Send a command, and the files that it works on; returns the job's name. Raises UserError."""
        environment: dict[str, Any] = {}
        if folder is not None:
            environment = {"working_dir": str(folder), "excludes": _left_out(folder)}
            os.environ["RAY_RUNTIME_ENV_IGNORE_GITIGNORE"] = "1"  # traces are often named there
        command = shlex.join(words)
        return str(self._ask(lambda: self._client.submit_job(entrypoint=command, runtime_env=environment)))

    def follow(self, job: str, tell: Callable[[str], None]) -> int:
        """Tell what a job prints until it ends; returns its exit status. Raises RunError where the cluster is lost."""
        try:
            asyncio.run(self._tail(job, tell))
            found = self._client.get_job_info(job)
        except Exception as error:  # of aiohttp, requests or Ray, as the connection breaks here or there
            raise RunError(
                f"{self._address}: the cluster's head does not answer any more ({first_line(error)}); once it does, "
                f"look at the job with: {self.look(job)}; if the cluster is gone, submit again with --resume"
            ) from None
        if found.status == "SUCCEEDED":
            return 0
        if found.driver_exit_code:
            return int(found.driver_exit_code)
        raise RunError(f"{job}: the job {str(found.status).lower()} ({found.message}); submit again with --resume")

    async def _tail(self, job: str, tell: Callable[[str], None]) -> None:
        async for text in self._client.tail_job_logs(job):
            tell(text)

    def look(self, job: str) -> str:
        """The command that shows what a job prints."""
        return f"ray job logs --follow --address {self._address} {job}"

    def stop(self, job: str) -> str:
        """The command that ends a job."""
        return f"ray job stop --address {self._address} {job}"


def _left_out(folder: Path) -> list[str]:
    """What stays here of a folder, in .gitignore's words: all whose names begin with a dot. Raises UserError if more
    is left than Ray takes, before it is packed."""
    left_out: list[str] = []
    total, largest = 0, (0, "")
    for root, folders, files in os.walk(folder):
        where = os.path.relpath(root, folder)
        left_out += [os.path.normpath(f"/{where}/{name}") for name in (*folders, *files) if name.startswith(".")]
        folders[:] = [name for name in folders if not name.startswith(".")]
        paths = [os.path.join(root, name) for name in files if not name.startswith(".")]
        sizes = [(os.path.getsize(path), os.path.basename(path)) for path in paths if os.path.isfile(path)]
        total += sum(size for size, _ in sizes)
        largest = max([largest, *sizes])
        if total > MOST_BYTES:
            raise UserError(
                f"{folder}: what lies beside the study travels with it, and is more than {MOST_BYTES >> 20} MiB "
                f"({largest[1]}: {largest[0] >> 20} MiB); give the study a folder of its own, and "
                "name large traces by a path that the cluster sees"
            )
    return left_out

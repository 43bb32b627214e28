"""The demo's child processes: the embedded cluster and the scheduler, started, observed, and always ended.

Children run in their own sessions, so that Ctrl-C reaches them only through the demo, which ends them in order. Their
output is written to files; the last output of a failed child becomes part of the error.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import socket
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path

#: The program of all children, distinguished by its arguments.
PROGRAM = (sys.executable, "-m", "agent_scheduler")
_TAIL = 2000


class ProcessError(Exception):
    """A child that did not start, or ended by itself; the text has its last output."""


class Child:
    """One running child. `log` contains its output."""

    def __init__(self, name: str, process: asyncio.subprocess.Process, log: Path) -> None:
        self.name = name
        self.log = log
        self._process = process

    @property
    def pid(self) -> int:
        return self._process.pid

    def check(self) -> None:
        """Raise `ProcessError` if the child no longer runs."""
        code = self._process.returncode
        if code is not None:
            how = f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
            said = self.log.read_text(errors="replace")[-_TAIL:].strip()
            raise ProcessError(f"the {self.name} {how}" + (f"; its last words:\n{said}" if said else ""))

    async def died(self) -> None:
        """Wait until the child ends, and raise `ProcessError`."""
        await self._process.wait()
        self.check()

    async def ready(self, probe: Callable[[], Awaitable[bool]], *, seconds: float) -> None:
        """Wait until `probe` returns True. Raises `ProcessError` if the child ends first, or after `seconds`."""
        try:
            async with asyncio.timeout(seconds):
                while not await probe():
                    self.check()
                    await asyncio.sleep(0.05)
        except TimeoutError:
            said = self.log.read_text(errors="replace")[-_TAIL:].strip()
            raise ProcessError(
                f"the {self.name} was not ready after {seconds:g} s; its last words:\n{said or '(none)'}"
            ) from None

    async def stop(self, *, grace: float) -> None:
        """Send SIGTERM, and SIGKILL after `grace` seconds. Idempotent."""
        if self._process.returncode is not None:
            return
        self._process.terminate()
        try:
            async with asyncio.timeout(grace):
                await self._process.wait()
        except TimeoutError:
            self._process.kill()
            await self._process.wait()


@asynccontextmanager
async def child(
    name: str,
    arguments: Sequence[str],
    *,
    log: Path,
    grace: float = 5.0,
    python: str = "",
    environment: Mapping[str, str] | None = None,
) -> AsyncIterator[Child]:
    """Run `python -m agent_scheduler ARGUMENTS` for as long as the block lasts, also if it raises.

    `python` is another interpreter than this one. `environment` has variables besides those of this process.
    """
    with log.open("wb") as output:
        process = await asyncio.create_subprocess_exec(
            *(PROGRAM if not python else (python, *PROGRAM[1:])),
            *arguments,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env={**os.environ, **(environment or {})},
            start_new_session=True,
        )
    running = Child(name, process, log)
    try:
        yield running
    finally:
        # Also while the demo itself is being canceled: a child must not outlive it.
        await asyncio.shield(running.stop(grace=grace))


#: Below the range that systems use for outgoing connections, which could take a free port before the process that
#: should listen there.
_PORTS = range(20_000, 32_768)


def free_port() -> int:
    """Return a free port. Raises ProcessError if a hundred are taken."""
    for port in random.sample(_PORTS, 100):
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
    raise ProcessError("a hundred ports between 20000 and 32767 were tried, and all are taken")

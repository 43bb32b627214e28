"""Children as processes of the operating system: this program once more, with one end of a socket pair."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
from asyncio.subprocess import Process
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

import structlog

from agent_scheduler.config import load_text
from agent_scheduler.runtime import Runtime
from agent_scheduler.telemetry.logs import setup

from .channel import Channel
from .child import Child
from .wire import Hello, Order, read_order

#: Of `run`, and not for people: which open file is the way to the supervisor.
OPTION: Final = "--process-channel"

#: A script that is installed takes no modules from the directory that it is started in, and `python -m` does. Children
#: do as this process.
_MODULES: Final = ("-P",) if sys.flags.safe_path or sys.modules["__main__"].__spec__ is None else ()


class _Spawned:
    def __init__(self, process: Process) -> None:
        self._process = process

    async def ended(self) -> int:
        return await self._process.wait()

    def kill(self) -> None:
        with suppress(ProcessLookupError):
            self._process.kill()


class Spawner:
    """Starts children that see the same command line as this process, for whoever looks at the list of processes."""

    def __init__(self, arguments: Sequence[str]) -> None:
        self._arguments = tuple(arguments)

    async def __call__(self, number: int) -> tuple[_Spawned, socket.socket]:
        ours, theirs = socket.socketpair()
        with theirs:
            try:
                process = await asyncio.create_subprocess_exec(
                    sys.executable,
                    *_MODULES,
                    *("-m", "agent_scheduler"),
                    *self._arguments,
                    f"{OPTION}={theirs.fileno()}",
                    stdin=asyncio.subprocess.DEVNULL,
                    pass_fds=[theirs.fileno()],
                    # What a terminal sends to all processes in front is the supervisor's to see to.
                    start_new_session=True,
                )
            except BaseException:
                ours.close()
                raise
        return _Spawned(process), ours


async def run_child(channel: int) -> int:
    """A child's whole life; gives the exit code. `channel`: the open file that it was started with."""
    loop = asyncio.get_running_loop()
    # Who sends it to all processes of this name means the supervisor, which says what follows.
    for number in (signal.SIGHUP, signal.SIGUSR2):
        signal.signal(number, signal.SIG_IGN)
    told: asyncio.Queue[Order] = asyncio.Queue()
    # Nobody is left to write for: nothing that is under way is worth finishing, and nobody would hear of it.
    way: Channel[Order] = Channel(read_order, told=told.put_nowait, ended=lambda: os._exit(1))
    await way.over(socket.socket(fileno=channel))
    hello = await told.get()
    assert isinstance(hello, Hello), "the first word"
    configuration = load_text(hello.configuration, source="the supervisor's configuration")
    structlog.contextvars.bind_contextvars(process=hello.number)
    setup(level=configuration.logging.level, log_format=configuration.logging.format)
    child = Child(way, hello)
    child.runtime = Runtime(configuration, identity=hello.identity, part=child)
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, child.runtime.stop)
    way.told = child.told
    while not told.empty():
        child.told(told.get_nowait())
    return await child.runtime.run(signals=False)

"""The children as processes: each is started, heard, ended for its silence, and started again when it has ended.

Invariant: when `run` is over, however it ends, no child runs.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable, Collection
from typing import Final, Protocol

import structlog

from agent_scheduler.kube.retry import Backoff, Timing

from .channel import Channel
from .wire import Alive, Hello, Lead, Order, Report, read_report

_log = structlog.get_logger(__name__)

#: Seconds after which a child that answers nothing is taken to stand still: it holds nodes and pods that others could
#: see to.
_SILENCE: Final = 30.0
#: Seconds from the end of the way to a child until it is killed, should it still run.
_LINGERS: Final = 5.0
#: Before a child that has ended is started again; from the beginning for one that was up for so many seconds.
_AGAIN: Final = Backoff(initial=0.5, cap=30.0)
_WAS_UP: Final = 60.0


class Spawned(Protocol):
    """A process that was started."""

    async def ended(self) -> int:
        """Its exit code, once it has one. May be asked at any time."""

    def kill(self) -> None:
        """End it at once. Without effect on one that has ended."""


#: Starts the child of a number, which is to speak over the other end of the socket.
Spawn = Callable[[int], Awaitable[tuple[Spawned, socket.socket]]]


class _Child:
    """One start of a child. `unanswered`: how often it has been told how long it may write since it last answered."""

    def __init__(self, process: Spawned) -> None:
        self.process = process
        self.channel: Channel[Report] | None = None
        self.over = asyncio.Event()
        self.unanswered = 0


class Children:
    """Owner of the processes."""

    def __init__(
        self,
        count: int,
        *,
        spawn: Spawn,
        hello: Callable[[int], Hello],
        until: Callable[[], float],
        beat: float,
        heard: Callable[[int, Report], None],
        gone: Callable[[int, bool], None],
        timing: Timing,
    ) -> None:
        """`hello`: the first word to a child. `until`: until when all may write, see `Lead`, which is said every `beat`
        seconds. `gone`: a child has ended, and whether it had been asked to."""
        self._count = count
        self._spawn = spawn
        self._hello = hello
        self._until = until
        self._beat_seconds = beat
        self._heard = heard
        self._gone = gone
        self._timing = timing
        self._running: dict[int, _Child] = {}
        self._ending = asyncio.Event()
        #: Set when `run` is over.
        self._over = asyncio.Event()

    @property
    def running(self) -> Collection[int]:
        return self._running.keys()

    def say(self, number: int, order: Order) -> None:
        """To a child; without effect if it does not run."""
        child = self._running.get(number)
        if child is not None and child.channel is not None:
            child.channel.say(order)

    def say_to_all(self, order: Order) -> None:
        for number in sorted(self._running):
            self.say(number, order)

    def end(self) -> None:
        """From now on none is started again: `run` returns when all have ended. Asking them to is the caller's."""
        self._ending.set()

    async def ended(self, seconds: float) -> bool:
        """Start none again, and wait for those that run, at most so long; whether all have ended."""
        self.end()
        try:
            async with asyncio.timeout(seconds):
                await self._over.wait()
        except TimeoutError:
            return False
        return True

    def kill(self) -> None:
        """All at once, and for good."""
        self.end()
        for child in self._running.values():
            child.process.kill()

    async def run(self) -> None:
        """Keep them running until `end`."""
        try:
            async with asyncio.TaskGroup() as tasks:
                beating = tasks.create_task(self._beat())
                keeping = [tasks.create_task(self._keep(number)) for number in range(self._count)]
                await asyncio.wait(keeping)
                beating.cancel()
        finally:
            self.kill()
            self._over.set()

    async def _beat(self) -> None:
        while True:
            for number, child in list(self._running.items()):
                if child.unanswered * self._beat_seconds >= _SILENCE:
                    _log.error("child is silent", child=number, seconds=_SILENCE)
                    child.process.kill()
                child.unanswered += 1
                self.say(number, Lead(self._until()))
            await self._timing.sleep(self._beat_seconds)

    async def _keep(self, number: int) -> None:
        failures = 0
        while not self._ending.is_set():
            began = self._timing.clock()
            code = await self._run_once(number)
            asked = self._ending.is_set()
            self._gone(number, asked)
            if asked:
                return
            failures = 1 if self._timing.clock() - began > _WAS_UP else failures + 1
            pause = _AGAIN.delay(failures, self._timing.rng)
            _log.error("child ended", child=number, code=code, again_in_seconds=round(pause, 1))
            waiting = asyncio.ensure_future(self._timing.sleep(pause))
            ending = asyncio.ensure_future(self._ending.wait())
            await asyncio.wait({waiting, ending}, return_when=asyncio.FIRST_COMPLETED)
            waiting.cancel()
            ending.cancel()

    async def _run_once(self, number: int) -> int | str:
        """The exit code, or why it could not be started."""
        try:
            process, end = await self._spawn(number)
        except OSError as error:
            return str(error)
        child = _Child(process)
        child.channel = Channel(
            read_report, told=lambda report: self._hear(number, child, report), ended=child.over.set
        )
        ended = asyncio.ensure_future(process.ended())
        try:
            await child.channel.over(end)
            if self._ending.is_set():
                # All that ran were asked to end, or were killed, without this one.
                process.kill()
                return await ended
            child.channel.say(self._hello(number))
            # Not before: whoever speaks to all that run must not come before the first word.
            self._running[number] = child
            child.channel.say(Lead(self._until()))
            over = asyncio.ensure_future(child.over.wait())
            try:
                await asyncio.wait({over, ended}, return_when=asyncio.FIRST_COMPLETED)
                # It ends by itself when the way does; only one that stands still does not. What it had said before its
                # end is still heard.
                await asyncio.wait({over, ended}, timeout=_LINGERS)
            finally:
                over.cancel()
            process.kill()
            return await ended
        finally:
            process.kill()
            child.channel.close()
            ended.cancel()
            self._running.pop(number, None)

    def _hear(self, number: int, child: _Child, report: Report) -> None:
        if isinstance(report, Alive):
            child.unanswered = 0
        self._heard(number, report)

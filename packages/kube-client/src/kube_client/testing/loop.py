"""An event loop with virtual time, in which a seed determines the order of tasks.

Nothing waits for the real clock: when no task is ready, time jumps to the next timer, so an hour costs only its events.
asyncio runs ready callbacks in the order in which they became ready; real processes, threads and sockets guarantee no
such order, so a world can request random orders (`unfair`). The callbacks and timers of a stopped process (`freeze`:
SIGSTOP, a suspended machine) wait until it continues.

Invariant: with the same seed, the same callbacks run in the same order at the same times, on every Python. For that,
tasks hash by their number: asyncio keeps them in sets, whose order would otherwise depend on addresses.

It depends on private parts of asyncio's base loop that are the same from 3.11 to 3.13 (`_ready`, `_run_once`,
`_scheduled`, `_selector`).
"""

from __future__ import annotations

import asyncio
import math
import random
from collections import deque
from collections.abc import Callable, Coroutine
from contextvars import Context, ContextVar
from typing import Any, cast

#: The process of a task, for `freeze`; tasks inherit it. Empty for the world itself.
PROCESS: ContextVar[str] = ContextVar("simulated_process", default="")

#: The number of turns without progress of time after which the loop raises `Deadlock`.
_MOST_TURNS = 200_000

#: The start of a world, in seconds of its monotonic clock.
START = 1000.0


class Deadlock(RuntimeError):
    """The awaited event can never happen; the message lists the waiting tasks.

    Nothing is ready and no timer is set, or timers are set again and again for the current time.
    """


class SimTask(asyncio.Task[Any]):
    """A task that hashes by its number, so that a set of tasks has a fixed order."""

    _number = 0
    #: The process that it belongs to.
    process = ""

    def __hash__(self) -> int:
        return self._number


class SimLoop(asyncio.BaseEventLoop):
    """The loop; `unfair` is the probability, at each turn, that ready callbacks run in a random order.

    A turn takes up to `turn` seconds, so that outside events fall between the steps of the code under test.
    """

    # Private attributes of asyncio's base loop that typeshed does not declare.
    _ready: deque[asyncio.Handle]
    _scheduled: list[asyncio.TimerHandle]

    def __init__(self, seed: int, *, unfair: float = 0.0, turn: float = 0.0) -> None:
        super().__init__()
        self._rng = random.Random(seed)
        self._time = START
        self._unfair = unfair
        self._turn = turn
        self._clock_resolution = 1e-9
        self._selector = self
        self._tasks_made = 0
        #: Process -> the end of its freeze, and its callbacks that are ready meanwhile.
        self._frozen: dict[str, float] = {}
        self._held: list[asyncio.Handle] = []
        self.turns = 0
        #: Seconds after which unfinished work is considered stuck.
        self.limit = math.inf
        #: The last turn before which time advanced, and that time.
        self._moved = (0, START)
        #: Errors of callbacks that were not handled, and of failed tasks that were never awaited.
        self.complaints: list[str] = []
        self.set_task_factory(cast(Any, self._make_task))
        self.set_exception_handler(self._complain)

    # -- what a world asks for

    def freeze(self, process: str, seconds: float) -> None:
        """Stop all callbacks of `process` for `seconds`. The server completes the requests that it has received."""
        self._frozen[process] = max(self._time + seconds, self._frozen.get(process, 0.0))
        self.call_later(seconds, self._thaw)

    def frozen(self, process: str) -> bool:
        return self._frozen.get(process, 0.0) > self._time

    def _thaw(self) -> None:
        held, self._held = self._held, []
        self._ready.extend(held)

    def jump(self, seconds: float) -> None:
        """Advance time at once, between two instructions, as after a suspension of the whole machine."""
        self._time += seconds

    def next_timer(self) -> float | None:
        """Return the time of the next timer that was not canceled."""
        return min((timer.when() for timer in self._scheduled if not timer.cancelled()), default=None)

    def waiting(self) -> list[str]:
        """Return one line per unfinished task with what it waits for."""
        lines = []
        for task in sorted(asyncio.all_tasks(self), key=hash):
            frames = []
            awaited: Any = task.get_coro()
            while awaited is not None:
                frame = getattr(awaited, "cr_frame", None) or getattr(awaited, "ag_frame", None)
                if frame is not None:
                    frames.append(f"{frame.f_code.co_qualname}:{frame.f_lineno}")
                awaited = getattr(awaited, "cr_await", None) or getattr(awaited, "ag_await", None)
            process = task.process if isinstance(task, SimTask) else ""
            lines.append(f"{process or 'world'} {task.get_name()}: {' > '.join(frames) or task!r}")
        return lines

    def run_in_executor(  # type: ignore[override]
        self, executor: Any, call: Callable[..., Any], *arguments: Any
    ) -> asyncio.Future[Any]:
        """Execute `call` immediately: there are no threads."""
        done = self.create_future()
        try:
            done.set_result(call(*arguments))
        except Exception as error:
            done.set_exception(error)
        return done

    async def shutdown_default_executor(self, timeout: float | None = None) -> None:  # noqa: ASYNC109
        pass

    # -- what asyncio's base loop asks for

    def time(self) -> float:
        return self._time

    def select(self, timeout: float | None) -> list[Any]:
        if timeout is None:
            raise Deadlock("nothing can happen any more\n" + "\n".join(self.waiting()))
        if timeout > 0:
            self._time = max(self._time, self._scheduled[0].when())
            if self._time > START + self.limit:
                self.limit, after = math.inf, self.limit
                raise Deadlock(f"not over after {after:g} s\n" + "\n".join(self.waiting()))
        return []

    def _process_events(self, events: list[Any]) -> None:
        pass

    def _write_to_self(self) -> None:
        pass

    def _run_once(self) -> None:
        self.turns += 1
        if self._time != self._moved[1]:
            self._moved = self.turns, self._time
        elif self.turns - self._moved[0] > _MOST_TURNS:
            # Cleanup may continue to run.
            self._moved = self.turns, self._time
            raise Deadlock("time stands still\n" + "\n".join(self.waiting()))
        ready = self._ready
        if ready and self._turn:
            self._time += self._rng.random() * self._turn
        if self._frozen:
            self._hold_back(ready)
        if len(ready) > 1 and self._unfair and self._rng.random() < self._unfair:
            handles = list(ready)
            self._rng.shuffle(handles)
            ready.clear()
            ready.extend(handles)
        super()._run_once()  # type: ignore[misc]

    def _hold_back(self, ready: deque[asyncio.Handle]) -> None:
        now = self._time
        self._frozen = {process: until for process, until in self._frozen.items() if until > now}
        for _ in range(len(ready)):
            handle = ready.popleft()
            context: Context | None = handle._context  # type: ignore[attr-defined]
            if context is not None and context.get(PROCESS, "") in self._frozen:
                self._held.append(handle)
            else:
                ready.append(handle)

    def _make_task(self, loop: asyncio.AbstractEventLoop, coroutine: Coroutine[Any, Any, Any], **more: Any) -> SimTask:
        self._tasks_made += 1
        task = SimTask.__new__(SimTask)
        task._number = self._tasks_made
        context: Context | None = more.get("context")
        task.process = PROCESS.get() if context is None else context.get(PROCESS, "")
        name = more.pop("name", None) or f"task {self._tasks_made}"
        task.__init__(coroutine, loop=loop, name=name, **more)  # type: ignore[misc]
        return task

    def _complain(self, _loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        self.complaints.append(f"{context.get('message')}: {error!r}" if error else str(context.get("message")))

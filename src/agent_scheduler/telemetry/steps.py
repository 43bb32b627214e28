"""Measures the steps of the event loop by kind: what is done without a wait, and therefore delays everything else.

Nothing is kept for a step except the longest of its kind and the number of long ones.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Generator
from functools import partial
from math import inf
from typing import Any, Final, Generic, Literal, TypeVar, get_args

from agent_scheduler.engine.events.signals import Signal
from agent_scheduler.telemetry.families import Families

T = TypeVar("T")

#: decision: one cycle of a worker; watch: changes that arrived together; session: the part of a session between two
#: waits; reconcile: the same of a controller's pass over one object; review: the response to one AdmissionReview.
StepKind = Literal["decision", "watch", "session", "reconcile", "review"]
#: Seconds above which a step is long.
LONG: Final = 0.05


class LoopSteps:
    """The longest step of each kind, and the numbers of long ones. Owned by the metrics of its process."""

    def __init__(self, families: Families) -> None:
        longest = families.gauge(
            "agent_scheduler_longest_step_seconds",
            "The longest step of the event loop since the start of the process, by kind.",
            "kind",
        )
        long = families.counter(
            "agent_scheduler_long_steps_total", "Steps of the event loop of more than 50 ms, by kind.", "kind"
        )
        self._longest = {kind: longest.labels(kind) for kind in get_args(StepKind)}
        self._long = {kind: long.labels(kind) for kind in get_args(StepKind)}
        #: A step has lasted more than `too_long` seconds, and at least `LONG`.
        self.was_too_long: Signal[[]] = Signal()
        self.too_long = inf

    def of(self, kind: StepKind) -> Callable[[float], None]:
        """Return the function that receives the durations of steps of a kind, in seconds."""
        longest, long = self._longest[kind], self._long[kind]

        def took(seconds: float) -> None:
            if seconds > longest.value:
                longest.set(seconds)
            if seconds > LONG:
                long.inc()
                if seconds > self.too_long:
                    self.was_too_long()

        return took


class Stepwise(Generic[T], Awaitable[T]):
    """Awaits a coroutine, and reports how long each of its steps takes: from one wait to the next.

    `begins` and `ended` are called before and after each step.
    """

    def __init__(
        self,
        work: Coroutine[Any, Any, T],
        took: Callable[[float], None],
        *,
        clock: Callable[[], float],
        begins: Callable[[], None],
        ended: Callable[[], None],
    ) -> None:
        self._work = work
        self._took = took
        self._clock = clock
        self._begins, self._ended = begins, ended

    def __await__(self) -> Generator[Any, Any, T]:
        work, took, clock = self._work, self._took, self._clock
        go_on: Callable[[], Any] = partial(work.send, None)
        while True:
            began = clock()
            self._begins()
            try:
                waits_for = go_on()
            except StopIteration as end:
                found: T = end.value
                return found
            finally:
                took(clock() - began)
                self._ended()
            try:
                go_on = partial(work.send, (yield waits_for))
            except BaseException as error:
                go_on = partial(work.throw, error)

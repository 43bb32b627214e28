"""One session from its beginning to its result, with what each stage of it took, and what is kept of the last one."""

from __future__ import annotations

from collections.abc import Callable, Generator
from datetime import datetime
from typing import NamedTuple

from agent_scheduler.engine.session.close import Result, close
from agent_scheduler.engine.session.session import Session, Stage
from agent_scheduler.engine.state.queueusage import QueueUsage


class Held(NamedTuple):
    """A session that came to its end. Kept until the next one has, for those who ask."""

    session: Session
    result: Result
    ended: datetime


def hold(
    session: Session, usage: QueueUsage, *, clock: Callable[[], float], spent: dict[Stage, float]
) -> Generator[None, None, Result]:
    """A step at a time; the seconds of each step are added to those of its stage."""
    steps = _steps(session, usage)
    while True:
        began = clock()
        try:
            next(steps)
        except StopIteration as end:
            result: Result = end.value
            return result
        stage = session.stage
        spent[stage] = spent.get(stage, 0.0) + clock() - began
        yield


def _steps(session: Session, usage: QueueUsage) -> Generator[None, None, Result]:
    yield from session.run()
    return (yield from close(session, usage.book, usage.gated.given_back))

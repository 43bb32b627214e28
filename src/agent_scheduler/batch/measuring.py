"""Runs one session to its result and measures the time of each stage."""

from __future__ import annotations

from collections.abc import Callable, Generator
from datetime import datetime
from typing import NamedTuple

from agent_scheduler.engine.queues.usage import QueueUsage
from agent_scheduler.engine.session.close import SessionResult, close
from agent_scheduler.engine.session.session import Session, Stage


class EndedSession(NamedTuple):
    """An ended session. The last one is kept to explain why pods and groups wait."""

    session: Session
    result: SessionResult
    ended: datetime


def hold(
    session: Session, usage: QueueUsage, *, clock: Callable[[], float], spent: dict[Stage, float]
) -> Generator[None, None, SessionResult]:
    """Run the session and its close in steps, and add the seconds of each step to those of its stage in `spent`."""
    steps = _steps(session, usage)
    while True:
        began = clock()
        try:
            next(steps)
        except StopIteration as end:
            result: SessionResult = end.value
            return result
        stage = session.stage
        spent[stage] = spent.get(stage, 0.0) + clock() - began
        yield


def _steps(session: Session, usage: QueueUsage) -> Generator[None, None, SessionResult]:
    yield from session.run()
    return (yield from close(session, usage.book, usage.gated.given_back))

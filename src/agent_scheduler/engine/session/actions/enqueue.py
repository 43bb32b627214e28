"""Which groups are let into their queues: Pending becomes Inqueue (`pkg/scheduler/actions/enqueue`)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ...gangs.group import INQUEUE
from ..worklist import Worklist

if TYPE_CHECKING:
    from ..session import Session


def enqueue(session: Session) -> Iterator[None]:
    """A group that asks for no resources is let in without a question."""
    tiers = session.tiers
    work = Worklist(tiers, session.queues)
    for job in session.fresh:
        jobs = work.know(job.queue)
        if job.is_pending:
            jobs.push(job)
        yield
    while work.queues:
        queue = work.queues.pop()
        jobs = work.know(queue.name)
        if not jobs:
            continue
        job = jobs.pop()
        if job.min_resources is None or tiers.enqueueable(job):
            tiers.enqueued(job)
            job.phase = INQUEUE
        work.queues.push(queue)
        yield

"""Jobs are begun without a task where that is possible, so many at a time, and are all begun or handed over."""

from __future__ import annotations

import asyncio

from agent_scheduler.binding.at_once import AtOnce
from tests.virtual import virtual_time


class Jobs:
    """Owner of the connections: a job is begun on one that is idle, and one that is handed over opens one."""

    def __init__(self, *, idle: int, at_most: int = 3) -> None:
        self.idle = idle
        self.begun: list[int] = []
        self.handed_over: list[int] = []
        self.at_once: AtOnce[int] = AtOnce(self._begin, self.handed_over.append, at_most=at_most)

    def _begin(self, job: int) -> bool:
        if not self.idle:
            return False
        self.idle -= 1
        self.begun.append(job)
        return True

    def end(self) -> None:
        self.idle += 1
        self.at_once.over()


@virtual_time
async def test_no_more_are_under_way_than_may_be_and_the_next_begins_when_one_ends() -> None:
    jobs = Jobs(idle=9)
    jobs.at_once.add(0)
    assert not jobs.begun
    jobs.at_once.start()
    for job in range(1, 6):
        jobs.at_once.add(job)
    assert jobs.begun == [0, 1, 2]
    jobs.end()
    jobs.end()
    assert jobs.begun == [0, 1, 2, 3, 4] and not jobs.handed_over


@virtual_time
async def test_what_finds_no_connection_opens_one_and_the_rest_wait_for_these() -> None:
    jobs = Jobs(idle=0)
    jobs.at_once.start()
    for job in range(8):
        jobs.at_once.add(job)
    assert jobs.handed_over == [0, 1, 2] and not jobs.begun
    jobs.idle = 2
    await asyncio.sleep(0.03)
    # Two found the connections that were opened; one more is opened for the next.
    assert jobs.begun == [3, 4] and jobs.handed_over == [0, 1, 2, 5]
    while len(jobs.begun) < 4:
        jobs.end()
    assert jobs.begun == [3, 4, 6, 7]


@virtual_time
async def test_a_server_that_never_answers_keeps_no_job_waiting() -> None:
    jobs = Jobs(idle=0, at_most=2)
    jobs.at_once.start()
    for job in range(6):
        jobs.at_once.add(job)
    await asyncio.sleep(60)
    assert jobs.handed_over == [*range(6)]


@virtual_time
async def test_what_was_not_begun_is_given_back_at_the_end() -> None:
    jobs = Jobs(idle=1, at_most=1)
    jobs.at_once.start()
    for job in range(4):
        jobs.at_once.add(job)
    assert [*jobs.at_once.stop()] == [1, 2, 3] and not jobs.at_once.runs
    jobs.end()
    jobs.at_once.add(4)
    assert jobs.begun == [0]

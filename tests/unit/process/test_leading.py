"""Who leads: what is done with the leases when the work ends or cannot be done, and how a process ends by that."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import AsyncMock, Mock

import pytest

from agent_scheduler.config.load import load_text
from agent_scheduler.process.base import run_to_end
from agent_scheduler.process.leading import CannotLead, after_lease_duration, elector_of, lead, leases_of
from agent_scheduler.serving.sources import ServingError
from kube_client.errors import StoreWentBack
from kube_client.lease import LeadershipOverrun
from kube_client.leases import LeaseLost, Leases
from kube_client.retry import REAL
from kube_client.transport import Transport

HEAD = "apiVersion: agent-scheduler/v1\nkind: SchedulerConfiguration\n"


class Log:
    def __init__(self) -> None:
        self.said: list[tuple[str, str, dict[str, Any]]] = []

    def __getattr__(self, level: str) -> Callable[..., None]:
        return lambda what, **more: self.said.append((level, what, more))

    @property
    def problems(self) -> list[tuple[str, str]]:
        return [(what, str(more.get("problem", ""))) for _, what, more in self.said]


class Leading:
    """`lead` over leases `a` and `b`, whose electors hold them at once. `ends`: how the work does each time; what is
    raised, or None."""

    def __init__(self, *ends: Exception | None) -> None:
        self.ends = list(ends)
        #: Each change of a lease's metric, and what happened, in their order.
        self.seen: list[str] = []
        self.log = Log()
        self.leases = cast(Leases, SimpleNamespace(names=("a", "b"), run=self._run))

    async def _run(self, held: Callable[[], Awaitable[None]]) -> None:
        await held()
        self.seen.append("released")

    async def work(self) -> None:
        self.seen.append("work")
        end = self.ends.pop(0)
        if end is not None:
            raise end

    async def lead(self, *, stands_back: bool) -> None:
        async def back_off() -> None:
            self.seen.append("stands back")

        await lead(
            self.leases,
            self.work,
            status=lambda name: SimpleNamespace(set=lambda value: self.seen.append(f"{name} {value}")),
            overrun=lambda: self.seen.append("overrun"),
            log=cast(Any, self.log),
            events=None,
            back_off=back_off if stands_back else None,
        )


NONE = ["a 0", "b 0"]
ONCE = ["a 1", "b 1", "work", "a 0", "b 0", "released"]


async def test_the_metric_is_1_while_the_work_is_done() -> None:
    it = Leading(None)
    await it.lead(stands_back=True)
    assert it.seen == NONE + ONCE


async def test_who_cannot_do_the_work_gives_the_leases_back_and_tries_again_later() -> None:
    it = Leading(CannotLead("no list of pods"), CannotLead("no list of nodes"), None)
    await it.lead(stands_back=True)
    assert it.seen == [*NONE, *ONCE, "stands back", *ONCE, "stands back", *ONCE]
    given_back = "leases released"
    assert it.log.problems == [(given_back, "no list of pods"), (given_back, "no list of nodes")]


async def test_who_cannot_do_the_work_and_may_not_try_again_ends() -> None:
    it = Leading(CannotLead("no list of pods"))
    with pytest.raises(CannotLead, match="no list of pods"):
        await it.lead(stands_back=False)
    assert it.seen == NONE + ONCE


async def test_work_that_outlasts_its_lease_is_ended_with_nothing_more_being_run() -> None:
    it = Leading(LeadershipOverrun("too long"))
    with pytest.raises(LeadershipOverrun):
        await it.lead(stands_back=True)
    assert it.seen[-1] == "overrun" and it.log.problems == [("leadership overrun", "too long")]


async def test_others_have_the_time_of_a_lease_to_take_it() -> None:
    times = "leaderElection: {leaseDuration: 7s, renewDeadline: 5s, retryPeriod: 1s}\n"
    timing = Mock(sleep=AsyncMock())
    await after_lease_duration(load_text(HEAD + times), timing)()
    timing.sleep.assert_awaited_once_with(7.0)


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("leaderElection: {leaderElect: false}\n", []),
        ("leaderElection: {leaderElect: true, resourceName: one, resourceNamespace: ns}\n", ["ns/one"]),
        (
            "leaderElection: {leaderElect: true, resourceName: one, resourceNamespace: ns}\n"
            "sharding: {mode: hard, name: s, leaseNamespace: shards}\n",
            ["ns/one", "shards/nodeshard-s"],
        ),
        ("sharding: {mode: soft, name: s, leaseNamespace: shards}\n", ["shards/nodeshard-s"]),
    ],
    ids=["alone", "elected", "elected in a shard", "in a shard"],
)
def test_the_leases_without_which_nothing_is_written(text: str, names: list[str]) -> None:
    told: list[tuple[str, str]] = []
    leases = leases_of(
        load_text(HEAD + text),
        cast(Transport, None),
        identity="me",
        timing=REAL,
        on_new_leader=lambda lease, holder: told.append((lease, holder)),
    )
    assert [f"{each.namespace}/{each.name}" for each in leases.references] == names
    assert list(leases.names) == [name.partition("/")[2] for name in names]
    for elector in leases._electors.values():
        elector._on_new_leader("somebody")
    assert told == [(name.partition("/")[2], "somebody") for name in names]


@pytest.mark.parametrize(("deadline", "timeout"), [("5s", 2.5), ("10s", 5.0), ("12s", 5.0)])
def test_a_request_may_fail_once_before_its_lease_has_to_be_renewed(deadline: str, timeout: float) -> None:
    election = load_text(HEAD + f"leaderElection: {{renewDeadline: {deadline}}}\n").leader_election
    elector = elector_of(
        election,
        cast(Transport, None),
        namespace="ns",
        name="n",
        identity="me",
        namespace_from="",
        timing=REAL,
        on_new_leader=lambda _: None,
    )
    assert elector._config.request_timeout == timeout


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (LeaseLost("lease one is held by another"), "lease lost"),
        (StoreWentBack("the list", listed="1", known="2"), "store went back"),
        (ServingError("port 1 is taken"), "cannot serve"),
        (ValueError("a fault"), "stopped by a failure"),
    ],
)
async def test_a_process_that_its_tasks_end_says_why_once_for_each(error: Exception, said: str) -> None:
    log = Log()

    async def work() -> None:
        raise ExceptionGroup("outer", [ExceptionGroup("inner", [error]), error])

    assert await end(work, log) == (2 if said == "cannot serve" else 1)
    assert [(level, what) for level, what, _ in log.said] == [("error", said)] * 2


async def test_work_that_ends_in_order_ends_the_process_with_0() -> None:
    assert await end(partial(asyncio.sleep, 0), Log()) == 0


async def test_what_is_no_failure_of_the_tasks_is_not_taken_for_one() -> None:
    async def work() -> None:
        raise BaseExceptionGroup("outer", [KeyboardInterrupt()])

    with pytest.raises(BaseExceptionGroup):
        await end(work, Log())


async def end(work: Callable[[], Awaitable[None]], log: Log) -> int:
    nothing: dict[str, Any] = {"stop": lambda: None, "at_once": lambda: None, "signals": False}
    return await run_to_end(work, log=cast(Any, log), **nothing)

"""Replicas with a lease: one schedules, the others wait, and one of them follows when it ends or stands still."""

from __future__ import annotations

import signal
from collections.abc import AsyncIterator
from datetime import datetime
from typing import Any

import pytest

from tests.support.picture import Picture

from .conftest import Start
from .plane import ControlPlane
from .processes import Scheduler

#: Seconds of a lease, and those in which its leader has to renew it. A leader that cannot do that ends, as it should:
#: on a machine that is twenty times as slow, 4 s were not enough for one renewal.
DURATION, DEADLINE = 15, 12


@pytest.fixture
async def lease(plane: ControlPlane) -> AsyncIterator[Picture]:
    """The leases of the run's namespace."""
    path = f"/apis/coordination.k8s.io/v1/namespaces/{plane.namespace}/leases"
    async with Picture(plane.transport, path) as leases:
        yield leases


class Replicas:
    """Schedulers that share one lease."""

    def __init__(self, plane: ControlPlane, start: Start, leases: Picture) -> None:
        self.plane = plane
        self._start = start
        self.leases = leases
        self._replicas: list[Scheduler] = []

    async def start(self, *names: str) -> None:
        """All at once; they are ready, and which one leads is open."""
        for name in names:
            replica = self._start(
                name,
                flags=[
                    "--leader-elect",
                    *("--leader-elect-lease-duration", f"{DURATION}s"),
                    *("--leader-elect-renew-deadline", f"{DEADLINE}s"),
                    *("--leader-elect-retry-period", "300ms"),
                    *("--leader-elect-resource-namespace", self.plane.namespace),
                ],
            )
            self._replicas.append(replica)
        for replica in self._replicas:
            await replica.ready()

    async def ordered(self) -> list[Scheduler]:
        """Those that no test has ended, the leader first. All of them run, and one leads."""
        for each in self._replicas:
            each.check()
        (leader,) = await self._replicas[0].until(
            lambda: [each for each in self._replicas if leads(each)], "leader"
        )
        return [leader, *(each for each in self._replicas if each is not leader)]

    def leaves(self, replica: Scheduler) -> None:
        """The test ends it, or stops it."""
        self._replicas.remove(replica)

    def states(self) -> list[dict[str, Any]]:
        """Every state of the lease that was seen, as its spec. Its name is the scheduler's by default."""
        return [
            each["spec"]
            for each in self.leases.history
            if each["metadata"]["name"] == self.plane.scheduler_name
        ]

    def holders(self) -> list[str]:
        """Who held the lease, in order, "" for nobody."""
        found: list[str] = []
        for spec in self.states():
            holder = spec.get("holderIdentity") or ""
            if not found or found[-1] != holder:
                found.append(holder)
        return found

    async def followed(self, count: int) -> str:
        """The holder, once the lease has had so many holders, nobody not counted."""

        def holder() -> str:
            known = [each for each in self.holders() if each]
            return known[-1] if len(known) >= count and self.holders()[-1] else ""

        return await self.leases.until(holder, f"holder number {count}")

    async def bind_one(self, name: str) -> str:
        """Who bound a pod that was just made: the instance in its event."""
        await self.plane.add_pod(name)
        await self.plane.bound(name)
        event = await self.plane.event(name, "Scheduled")
        return str(event["reportingInstance"])


def writes(scheduler: Scheduler) -> float:
    """Binds, conditions and events that it has sent."""
    return (
        scheduler.metric("agent_scheduler_bind_outcomes_total")
        + scheduler.metric("agent_scheduler_status_writes_total")
        + scheduler.metric("agent_scheduler_events_total")
    )


def instant(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


def leads(scheduler: Scheduler) -> bool:
    return scheduler.metric("leader_election_master_status") == 1


@pytest.fixture
async def replicas(plane: ControlPlane, start: Start, lease: Picture) -> Replicas:
    await plane.add_node("n", cpu="16")
    return Replicas(plane, start, lease)


@pytest.mark.promise("S9")
async def test_the_lease_is_handed_over_by_a_leader_that_ends_and_waited_for_after_one_that_stands_still(
    replicas: Replicas,
) -> None:
    plane = replicas.plane
    await replicas.start("a", "b", "c")
    first, *others = await replicas.ordered()
    leader = await replicas.followed(1)
    assert await replicas.bind_one("one") == leader
    for standby in others:
        assert not leads(standby)
        assert writes(standby) == 0
    replicas.leaves(first)
    assert await first.terminate() == 0
    follower = await replicas.followed(2)
    assert await replicas.bind_one("two") == follower
    # Handed over, not waited for: in between it was nobody's.
    assert replicas.holders() == [leader, "", follower]

    second, third = await replicas.ordered()
    assert writes(third) == 0
    replicas.leaves(second)
    second.send(signal.SIGSTOP)
    try:
        # Made while nobody leads; the standby has seen them before it leads.
        names = [f"p{number}" for number in range(20)]
        await plane.add_pods(names)
        last_one = await replicas.followed(3)
        assert replicas.holders() == [leader, "", follower, last_one]
        last = [spec for spec in replicas.states() if spec["holderIdentity"] == follower][-1]
        took = next(spec for spec in replicas.states() if spec["holderIdentity"] == last_one)
        assert instant(took["acquireTime"]) - instant(last["renewTime"]) >= DURATION
        assert took["leaseTransitions"] == last["leaseTransitions"] + 1
    finally:
        second.send(signal.SIGCONT)
    # It writes nothing more, and a supervisor starts it again with nothing of its old picture.
    assert await second.ended() == 1
    assert second.records("lease lost") or second.records("leadership overrun")
    assert "Traceback" not in second.said()
    await plane.bound(*names)
    for name in names:
        event = await plane.event(name, "Scheduled")
        assert event["reportingInstance"] == last_one
        assert len(plane.told(name, "Scheduled")) == 1
    bound = "agent_scheduler_bind_outcomes_total"
    await third.until(lambda: third.metric(bound, outcome="bound") == 20, "20 binds")
    assert third.metric(bound) == 20

"""Replicas with a lease: one schedules and the others wait; one of them follows if it ends or is stopped."""

from __future__ import annotations

import signal
from datetime import datetime
from itertools import groupby
from typing import Any

import pytest

from tests.support.picture import Picture

from .conftest import Start
from .plane import ControlPlane
from .processes import Scheduler

#: Seconds of a lease, and those in which its leader must renew it. A leader that cannot renew it ends, as it should:
#: on a machine that is twenty times as slow, 4 s were not enough for one renewal.
DURATION, DEADLINE = 15, 12


BINDS = "agent_scheduler_bind_outcomes_total"
#: Binds, conditions and events that a scheduler has sent.
WRITES = (BINDS, "agent_scheduler_status_writes_total", "agent_scheduler_events_total")
FLAGS = (
    *("--leader-elect", "--leader-elect-lease-duration", f"{DURATION}s", "--leader-elect-renew-deadline"),
    *(f"{DEADLINE}s", "--leader-elect-retry-period", "300ms", "--leader-elect-resource-namespace"),
)


class Lease:
    """The states of the schedulers' lease that were seen. The lease has by default the scheduler's name."""

    def __init__(self, name: str, leases: Picture) -> None:
        self._name = name
        self._leases = leases

    def states(self) -> list[dict[str, Any]]:
        return [each["spec"] for each in self._leases.history if each["metadata"]["name"] == self._name]

    def holders(self) -> list[str]:
        """Return the holders of the lease in order, "" for none."""
        return [holder for holder, _ in groupby(each.get("holderIdentity") or "" for each in self.states())]

    async def followed(self, count: int) -> str:
        """Return the holder, once the lease has had `count` holders."""

        def holder() -> str:
            known = self.holders()
            return known[-1] if sum(map(bool, known)) >= count else ""

        return await self._leases.until(holder, f"holder number {count}")


def instant(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


async def ordered(replicas: list[Scheduler]) -> list[Scheduler]:
    """Return the replicas, the leader first. All run, one leads, and the others have written nothing."""
    for each in replicas:
        each.check()
    leading = "leader_election_master_status"
    (leader,) = await replicas[0].until(lambda: [each for each in replicas if each.metric(leading)], "leader")
    others = [each for each in replicas if each is not leader]
    assert [each.name for each in others if any(map(each.metric, WRITES))] == []
    return [leader, *others]


@pytest.mark.promise("S9")
async def test_the_lease_is_handed_over_by_a_leader_that_ends_and_waited_for_after_one_that_stands_still(
    plane: ControlPlane, start: Start
) -> None:
    await plane.add_node("n", cpu="16")
    path = f"/apis/coordination.k8s.io/v1/namespaces/{plane.namespace}/leases"
    async with Picture(plane.transport, path) as leases:
        replicas = [start(name, flags=[*FLAGS, plane.namespace]) for name in ("a", "b", "c")]
        for replica in replicas:
            await replica.ready()
        await followed(plane, Lease(plane.scheduler_name, leases), replicas)


async def followed(plane: ControlPlane, lease: Lease, replicas: list[Scheduler]) -> None:
    async def bind_one(name: str) -> str:
        """Create a pod and return the instance that bound it, from its event."""
        await plane.add_pod(name)
        await plane.bound(name)
        return str((await plane.event(name, "Scheduled"))["reportingInstance"])

    first, *others = await ordered(replicas)
    leader = await lease.followed(1)
    assert await bind_one("one") == leader
    assert (await ordered(replicas))[0] is first
    assert await first.terminate() == 0
    follower = await lease.followed(2)
    assert await bind_one("two") == follower
    # The leader released the lease: between both it had no holder.
    assert lease.holders() == [leader, "", follower]

    second, third = await ordered(others)
    second.send(signal.SIGSTOP)
    try:
        # Created while there is no leader; the standby has seen the pods before it leads.
        names = [f"p{number}" for number in range(20)]
        await plane.add_pods(names)
        last_one = await lease.followed(3)
        assert lease.holders() == [leader, "", follower, last_one]
        last = [spec for spec in lease.states() if spec["holderIdentity"] == follower][-1]
        took = next(spec for spec in lease.states() if spec["holderIdentity"] == last_one)
        assert instant(took["acquireTime"]) - instant(last["renewTime"]) >= DURATION
        assert took["leaseTransitions"] == last["leaseTransitions"] + 1
    finally:
        second.send(signal.SIGCONT)
    # It writes nothing more and ends, so that a supervisor starts it again without its outdated state.
    assert await second.ended() == 1
    assert second.records("lease lost") or second.records("leadership overrun")
    assert "Traceback" not in second.said()
    await plane.bound(*names)
    for name in names:
        event = await plane.event(name, "Scheduled")
        assert event["reportingInstance"] == last_one
        assert len(plane.told(name, "Scheduled")) == 1
    await third.until(lambda: third.metric(BINDS, outcome="bound") == 20, "20 binds")
    assert third.metric(BINDS) == 20

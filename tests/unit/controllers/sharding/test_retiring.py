"""When a shard that is no longer configured may be deleted, on a clock that the test turns."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from agent_scheduler.controllers.sharding.retiring import HOLDERLESS, SETTLED, Retirement
from agent_scheduler.controllers.sharding.store import Shard
from agent_scheduler.kube.retry import Timing
from agent_scheduler.kube.transport import OutcomeUnknown, Response
from agent_scheduler.shards.holders import Holders

USED = Shard(name="s", uid="u", resource_version="1", ours=True, desired=frozenset(), used=True)
UNUSED = Shard(name="s", uid="u", resource_version="1", ours=True, desired=frozenset(), used=False)


class Leases:
    """An API server that has one lease, or none."""

    def __init__(self) -> None:
        self.lease: Mapping[str, Any] | None = None
        self.status = 200
        self.now = 100.0
        self.asked: list[str] = []

    async def request(self, method: str, path: str, **_: Any) -> Response:
        self.asked.append(f"{method} {path}")
        if self.status == 0:
            raise OutcomeUnknown("no answer")
        if self.status != 200:
            return Response(self.status, b"{}", {})
        if self.lease is None:
            details = {"name": "nodeshard-s", "kind": "leases"}
            missing = {"kind": "Status", "apiVersion": "v1", "reason": "NotFound", "details": details}
            return Response(404, json.dumps(missing).encode(), {})
        return Response(200, json.dumps(self.lease).encode(), {})

    def renewed(self, version: str, holder: str = "somebody", seconds: int = 15) -> None:
        self.lease = {
            "kind": "Lease",
            "apiVersion": "coordination.k8s.io/v1",
            "metadata": {"name": "nodeshard-s", "uid": "l", "resourceVersion": version},
            "spec": {"holderIdentity": holder, "leaseDurationSeconds": seconds, "renewTime": version},
        }


def retirement(leases: Leases) -> Retirement:
    timing = Timing(clock=lambda: leases.now)
    holders = Holders(leases, namespace="ns", lease_duration=15.0, fence=60.0, timing=timing)  # type: ignore[arg-type]
    made = Retirement(holders, clock=timing.clock)
    made.only([USED])
    return made


async def test_an_unused_shard_goes_when_nothing_of_it_has_changed_for_a_while() -> None:
    leases = Leases()
    leaving = retirement(leases)
    assert not await leaving.may_go(UNUSED)
    leases.now += SETTLED - 0.1
    assert not await leaving.may_go(UNUSED)
    changed = Shard(name="s", uid="u", resource_version="2", ours=True, desired=frozenset(), used=False)
    assert not await leaving.may_go(changed)
    leases.now += SETTLED - 0.1
    assert not await leaving.may_go(changed)
    leases.now += 0.1
    assert await leaving.may_go(changed)
    assert leases.asked == []


async def test_a_shard_in_use_stays_while_its_lease_is_renewed_and_goes_when_it_has_ended_for_long() -> None:
    leases = Leases()
    leaving = retirement(leases)
    for version in range(5):
        leases.renewed(str(version))
        assert not await leaving.may_go(USED)
        leases.now += 74.0
    assert not await leaving.may_go(USED)
    leases.now += 1.0
    assert await leaving.may_go(USED)
    assert set(leases.asked) == {"GET /apis/coordination.k8s.io/v1/namespaces/ns/leases/nodeshard-s"}


async def test_a_released_lease_is_nobodys() -> None:
    leases = Leases()
    leaving = retirement(leases)
    leases.renewed("1", holder="")
    assert not await leaving.may_go(USED)
    leases.now += 60.0
    assert await leaving.may_go(USED)


async def test_a_scheduler_without_a_lease_has_a_while_to_leave() -> None:
    leases = Leases()
    leaving = retirement(leases)
    assert not await leaving.may_go(USED)
    leases.now += HOLDERLESS - 1.0
    assert not await leaving.may_go(USED)
    leases.now += 1.0
    assert await leaving.may_go(USED)


async def test_what_cannot_be_asked_is_no_reason_to_delete() -> None:
    leases = Leases()
    leaving = retirement(leases)
    for status in (0, 403, 500):
        leases.status = status
        leases.now += 1000.0
        assert not await leaving.may_go(USED)


async def test_a_shard_that_is_configured_again_begins_anew_when_it_is_to_go_once_more() -> None:
    leases = Leases()
    leaving = retirement(leases)
    assert not await leaving.may_go(UNUSED)
    leases.now += SETTLED
    leaving.only([])
    leaving.only([UNUSED])
    assert not await leaving.may_go(UNUSED)

"""The wait for devices by itself, in virtual time: how it ends, when, and what is told of it."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any, cast

import pytest

from agent_scheduler.binding.device_waits import DeviceWaits
from agent_scheduler.binding.runtime import Runtime
from agent_scheduler.cluster import changes
from agent_scheduler.cluster.resource_claims import ResourceClaims
from agent_scheduler.engine.dra.catalogue import Devices
from agent_scheduler.engine.dra.records import FINALIZER
from agent_scheduler.engine.dra.reservation import ReservedClaim, ReservedClaims
from agent_scheduler.engine.state.podclaims import PodRef
from kube_client.retry import Timing
from kube_client.testing.virtual import virtual_time
from tests.support import objects
from tests.support.devices import claim_of

POD = PodRef("default", "p", "uid-p")
BEGAN = datetime(2026, 1, 1, tzinfo=UTC)


class Waiting:
    """A pod whose claim, allocated as many `seconds_ago`, has a device each of the drivers `a` and `b`, and whoever
    waits for them, for 60 s at most."""

    def __init__(self, *, seconds_ago: float = 0.0) -> None:
        loop = asyncio.get_running_loop()
        start = loop.time()
        self.devices = Devices()
        self.claims = ResourceClaims(self.devices, cast(Any, SimpleNamespace(move_all=lambda *_event: None)))
        self.version = 4
        self.is_wanted = True
        #: Events of the pod, and what was observed: (driver, how it ended, seconds).
        self.told: list[str] = []
        self.awaited: list[tuple[str, str, float]] = []
        observer = SimpleNamespace(
            devices_awaited=lambda _profile, driver, how, seconds: self.awaited.append((driver, how, round(seconds, 3)))
        )
        messenger = SimpleNamespace(waits_for_devices=lambda _pod, node: self.told.append(node))
        runtime = Runtime(
            transport=cast(Any, None),
            timing=Timing(clock=loop.time, now=lambda: BEGAN + timedelta(seconds=loop.time() - start)),
            observer=cast(Any, observer),
            messenger=cast(Any, messenger),
        )
        self.waits = DeviceWaits(runtime, self.claims)
        self.at = (BEGAN - timedelta(seconds=seconds_ago)).strftime("%Y-%m-%dT%H:%M:%SZ")
        self.show()
        self.reservation = ReservedClaims(POD, "n1", (self.part("c"),))
        self._ending: asyncio.Task[str] | None = None

    def show(self, *reports: tuple[str, str], allocated: bool = True, name: str = "c", uid: str = "") -> None:
        """The watch shows the claim with these conditions, each of a driver and True."""
        self.version += 1
        conditions = {"bindingConditions": ["Up"], "bindingFailureConditions": ["Down"]}
        where = {"pool": "n1", "device": "gpu-0"}
        results = [{"request": "r", "driver": driver, **where, **conditions} for driver in ("a", "b")]
        kinds: dict[str, list[objects.Object]] = {}
        for driver, kind in reports:
            kinds.setdefault(driver, []).append(objects.condition(kind, "True", "R", "m"))
        status = {
            "allocation": {"allocationTimestamp": self.at, "devices": {"results": results}},
            "devices": [{"driver": driver, **where, "conditions": of} for driver, of in kinds.items()],
        }
        about = {"finalizers": [FINALIZER], "uid": uid or f"uid-{name}"}
        claim = claim_of(name, version=self.version, status=status if allocated else {}, metadata=about)
        self.claims.kinds()[2].set(claim)

    def part(self, name: str) -> ReservedClaim:
        holding = self.devices.allocation(("default", name))
        assert holding is not None
        return ReservedClaim(("default", name), f"uid-{name}", None, holding)

    async def begin(self) -> None:
        pod = cast(Any, SimpleNamespace(uid=POD.uid, scheduler_name="agent-scheduler"))
        wait = self.waits.wait(pod, self.reservation, timeout=60.0, wanted=lambda: self.is_wanted)
        self._ending = asyncio.create_task(wait)
        await asyncio.sleep(0.5)

    @property
    def goes_on(self) -> bool:
        assert self._ending is not None
        return not self._ending.done()

    async def end(self) -> str:
        """What went wrong; nothing more is waited for than what is there already."""
        assert self._ending is not None
        return await self._ending


@pytest.fixture(autouse=True)
def _is_woken(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody who waits looks again by himself."""
    monkeypatch.setattr(changes, "_LOOK_AGAIN", 3600.0)
    monkeypatch.setitem(cast(Any, changes.wait_for_change.__kwdefaults__), "within", 3600.0)


@virtual_time
async def test_that_a_pod_waits_is_told_once_however_often_its_claim_changes() -> None:
    world = Waiting()
    await world.begin()
    assert world.told == ["n1"]
    world.show(("a", "Up"))
    await asyncio.sleep(1.0)
    world.show(("a", "Up"), ("b", "Other"))
    await asyncio.sleep(1.0)
    assert world.goes_on and world.awaited == []
    world.show(("a", "Up"), ("b", "Up"))
    assert await world.end() == ""
    assert world.told == ["n1"]
    assert world.awaited == [("a", "success", 2.5), ("b", "success", 2.5)]


@virtual_time
async def test_the_time_counts_from_the_allocation_also_for_a_scheduler_that_came_later() -> None:
    world = Waiting(seconds_ago=50)
    await world.begin()
    await asyncio.sleep(9.0)
    world.show()
    await asyncio.sleep(0)
    assert world.goes_on
    await asyncio.sleep(1.0)
    world.show(("a", "Up"))
    assert await world.end() == "device binding timeout: claim=c"
    assert world.awaited[0] == ("a", "timeout", 10.5)


@pytest.mark.parametrize(
    ("kind", "shown", "wanted", "ended", "awaited"),
    [
        ("Down", {}, True, 'device binding failed: claim=c, reason=R, message="m"', ("failure", 0.5)),
        ("Up", {}, True, "device binding timeout: claim=c", ("timeout", 60.0)),
        # Nobody's success or failure.
        ("Up", {"allocated": False}, True, "resourceclaim default/c was deallocated", None),
        ("Up", {"uid": "another"}, True, "resourceclaim default/c does not exist any more", None),
        ("Up", {}, False, "the pod no longer waits", None),
    ],
    ids=["failed", "late", "deallocated", "another of the name", "not wanted"],
)
@virtual_time
async def test_how_the_wait_ends_otherwise(
    kind: str, shown: dict[str, Any], wanted: bool, ended: str, awaited: tuple[str, float] | None
) -> None:
    world = Waiting()
    await world.begin()
    world.is_wanted = wanted
    world.show(("a", kind), **shown)
    assert await world.end() == ended
    assert world.awaited == ([(driver, *awaited) for driver in "ab"] if awaited else [])


@virtual_time
@pytest.mark.parametrize(("names", "late"), [("dc", "d"), ("cd", "d")])
async def test_all_claims_are_waited_for_and_the_one_that_is_late_is_named(names: str, late: str) -> None:
    world = Waiting()
    world.show(name="d")
    world.reservation = ReservedClaims(POD, "n1", tuple(world.part(name) for name in names))
    await world.begin()
    world.show(("a", "Up"), ("b", "Up"))
    await asyncio.sleep(1.0)
    assert world.goes_on
    assert await world.end() == f"device binding timeout: claim={late}"

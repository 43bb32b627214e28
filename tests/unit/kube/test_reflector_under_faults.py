"""The reflector against an API server that misbehaves in every way that it can.

Whatever a watch goes through, the handler may rely on what the reflector promises at each change, and once the
faults are over, what was delivered is what the server has.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

import orjson
import pytest

from agent_scheduler.kube.reflector import WatchTimes
from agent_scheduler.kube.retry import Backoff
from agent_scheduler.kube.watch_events import Change, ChangeType
from agent_scheduler.objects.wire import Pod
from embedded_kubernetes.fault_plan import WATCH_KINDS, plan_of
from embedded_kubernetes.faults import Injector
from tests.support.embedded import PODS, EmbeddedCluster, embedded_cluster, until

from .test_reflector import World

#: Each fault, and how many watches or lists it strikes.
FAULTS: dict[str, tuple[int, dict[str, Any]]] = {
    "clean ends at any byte": (12, {"close": {"bytes": 1, "spread": 3000}}),
    "resets at any byte": (12, {"reset": {"bytes": 1, "spread": 3000}}),
    "ends between events": (12, {"close": {"events": 1, "spread": 3}}),
    "a storm of watches that end at once": (12, {"close": {"events": 0}}),
    "silence for ever": (4, {"stall": {"events": 1, "spread": 3}}),
    "silence inside of a line": (4, {"stall": {"bytes": 500, "spread": 3000, "lasts": "200ms"}}),
    "too old in the middle": (8, {"expire": {"events": 1, "spread": 3}}),
    "deletions lost": (8, {"loseDelete": {}}),
    "several deletions lost": (4, {"loseDelete": {"deletions": 3}}),
    "everything twice": (50, {"duplicate": {"every": 1}}),
    "the past once more": (50, {"replay": {"events": 3, "last": 5}}),
    "half a line": (8, {"truncate": {"events": 1}}),
    "no JSON": (8, {"garble": {"events": 1}}),
    "a type that there is not": (8, {"unknownType": {"events": 1}}),
    "fields that nobody knows": (50, {"unknownFields": {"bytes": 200_000}}),
    "everything later": (50, {"hold": {"back": "100ms"}}),
    "too old when opened": (8, {"error": {"status": 410}}),
    "too many watches": (8, {"error": {"status": 429}}),
    "a server that is down": (8, {"error": {"status": 503}}),
    "a reset before the answer": (8, {"drop": {}}),
    "a reset instead of the answer": (8, {"lose": {}}),
    "no answer": (3, {"hang": {}}),
    "watches and lists from the past": (12, {"stale": {"versions": 5}}),
}


def test_every_fault_of_watches_is_among_them() -> None:
    assert {next(iter(fault)) for _, fault in FAULTS.values()} >= set(WATCH_KINDS)


class View(World):
    """What the handler was given, with what it may rely on checked at each change."""

    def __init__(self) -> None:
        super().__init__([], [])

    def handle(self, batch: list[Change[Pod]]) -> None:
        for change in batch:
            new, old = (
                int(each.metadata.resource_version) if each else 0 for each in (change.object, change.old)
            )
            assert new > old or change.type is ChangeType.DELETED
        super().handle(batch)


async def live(cluster: EmbeddedCluster, turns: Iterable[int]) -> None:
    """Pods come, change, go, and come again under their names. Of some only one event ever tells."""
    for turn in turns:
        for number in range(3):
            await cluster.add_pod(f"stays{turn}-{number}")
        for number in range(3):
            await cluster.add_pod(f"p{turn}-{number}")
        await cluster.bind(f"p{turn}-0", "n")
        now = {"gracePeriodSeconds": 0}
        for number in (0, 1):
            await cluster.ask("DELETE", f"{PODS}/p{turn}-{number}", now)
        await cluster.add_pod(f"p{turn}-1")
        if turn > 1:
            await cluster.ask("DELETE", f"{PODS}/p{turn - 2}-2", now)
        await asyncio.sleep(0.05)


#: One for each way in which a view may come to differ: a cut, silence, an old version, a lost event, an old list.
ALWAYS = ("resets at any byte", "silence for ever", "too old in the middle", "deletions lost", "half a line")


@pytest.mark.parametrize(
    "what", [each if each in ALWAYS else pytest.param(each, marks=pytest.mark.wide) for each in FAULTS]
)
async def test_what_was_handed_over_is_what_the_server_has(what: str) -> None:
    strikes, fault = FAULTS[what]
    match: dict[str, Any] = {"path": "/api/v1/pods"}
    if "stale" not in fault:
        match["verbs"] = ["watch"]
    # One list in a row that is too old is refused; more than three are taken for a restored backup.
    often = {"every": 2} if "stale" in fault else {}
    rule = {"match": match, "first": strikes, "fault": fault, **often}
    injector = Injector(plan_of(orjson.dumps({"seed": 3, "rules": [rule]}).decode()))
    async with embedded_cluster(disturb=injector) as cluster:
        view = View()
        times = WatchTimes(
            shortest=1,
            longest=2,
            # A watch that is taken for dead now and then would hide what others lose.
            stall=0.4 if "stall" in fault or "hang" in fault else None,
            list_timeout=0.4,
            backoff=Backoff(initial=0.01, cap=0.05),
        )
        async with view.run(times=times, transport=cluster.transport, page_size=4):
            # From here on every event is of a watch.
            await until(lambda: view.counts.get("watch"), seconds=120)
            await live(cluster, range(8))

            async def agreed() -> bool:
                assert not view.task.done(), view.task.exception()
                pods = await cluster.pods()
                return view.names == {name: pods[name]["metadata"]["resourceVersion"] for name in pods}

            await until(agreed, seconds=120)
            assert injector.fired[next(iter(fault))] > 0
            # It goes on from there, with no list for each change.
            await live(cluster, [8])
            await until(agreed, seconds=120)

"""The self-check reports nothing if all is well, and reports faults exactly."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from agent_scheduler.engine.decide.ranking import REFUSED
from agent_scheduler.engine.selfcheck import Difference
from agent_scheduler.fastpath import checking
from agent_scheduler.fastpath.checking import Report
from agent_scheduler.fastpath.scheduler import FastPath
from embedded_kubernetes.errors import ApiError
from embedded_kubernetes.requests import Disturbance, Request
from tests.support.embedded import EmbeddedCluster, embedded_cluster, until
from tests.support.running import scheduling


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checking, "SETTLES", 0.05)


@asynccontextmanager
async def world(**server: Any) -> AsyncIterator[tuple[EmbeddedCluster, FastPath]]:
    """Yield two nodes, a pod on one of them, one that fits nowhere, one that is gated, and one of another scheduler."""
    async with embedded_cluster(**server) as cluster:
        for name in ("n1", "n2"):
            await cluster.add_node(name, cpu="1")
        async with scheduling(cluster.transport) as running:
            fast_path = running.fast_path
            await cluster.add_pod("bound")
            await cluster.add_pod("large", cpu="2")
            await cluster.add_pod("gated", schedulingGates=[{"name": "example.com/g"}])
            await cluster.add_pod("foreign", scheduler="another")
            await until(lambda: cluster.condition("large"))
            await until(lambda: len(fast_path.cluster.pods) == 4 and fast_path.ledger.placements)
            await until(lambda: not fast_path.ledger.assumed)
            yield cluster, fast_path


def lines(report: Report) -> list[str]:
    return [f"{each.where}: {each.kind} {each.name}: {each.problem}" for each in report.differences]


async def said(fast_path: FastPath) -> list[str]:
    return lines(await fast_path.selfcheck.run())


def uid(fast_path: FastPath, name: str) -> str:
    return next(pod.uid for pod in fast_path.cluster.pods.values() if pod.name == name)


@pytest.mark.promise("L13")
async def test_where_all_is_well_nothing_is_said_and_everything_was_looked_at() -> None:
    async with world() as (_, fast_path):
        report = await fast_path.selfcheck.run()
        assert (lines(report), report.unsettled, report.not_listed) == ([], (), {})
        assert (report.checked["Node"], report.checked["Pod"], report.checked["ClassView"]) == (2, 4, 2)
        assert {"PersistentVolume", "ResourceClaim", "Namespace", "CSIStorageCapacity"} <= report.checked.keys()


@pytest.mark.promise("L13")
async def test_in_the_midst_of_a_burst_nothing_is_said_either() -> None:
    async with world() as (cluster, fast_path):
        await cluster.add_node("big", cpu="64")

        async def burst() -> None:
            for number in range(60):
                await cluster.add_pod(f"p{number}", cpu="10m")

        creating = asyncio.create_task(burst())
        for _ in range(3):
            assert await said(fast_path) == []
        await creating


async def test_a_waiting_pod_that_the_queue_lost_is_found() -> None:
    """The bind may be mistaken for that of a deleted pod, though the API server has the pod waiting."""
    async with world() as (_, fast_path):
        fast_path.queue.delete(uid(fast_path, "large"))
        report = await fast_path.selfcheck.run()
        assert report.differences == (Difference("queue", "Pod", "default/large", "does not have it, and it waits"),)


async def test_a_pod_in_flight_that_nothing_is_under_way_for_is_found() -> None:
    async with world() as (cluster, fast_path):
        fast_path.stop(grace=2.0)
        await fast_path.binder.drained()
        await cluster.add_pod("held")
        await until(lambda: len(fast_path.cluster.pods) == 5)
        assert fast_path.queue.where(uid(fast_path, "held")) is not None
        places = fast_path.queue.places
        places.in_flight.start(places.active.pop())
        assert await said(fast_path) == ["queue: Pod default/held: has it in flight, and nothing is under way for it"]
        fast_path.queue.done(uid(fast_path, "held"))


async def test_room_that_is_taken_for_nobody_is_found() -> None:
    async with world() as (_, fast_path):
        pod = fast_path.cluster.pods[uid(fast_path, "large")]
        fast_path.ledger.assume(pod, fast_path.ledger.rows["n1"])
        assert await said(fast_path) == [
            "ledger: Pod : assumes 1 pods on nodes, and only 0 are being bound",
            "ledger: Pod default/large: assumes it on node n1, and it is not in flight",
        ]
        fast_path.ledger.forget(pod.uid)


@pytest.mark.parametrize(
    ("node", "problem"),
    [("n1", "counts it on node n1, and it is gone"), ("n2", "counts it on node n2, and it is gone")],
)
async def test_a_pod_that_is_gone_and_still_counted_is_found(node: str, problem: str) -> None:
    async with world() as (cluster, fast_path):
        gone = fast_path.cluster.pods[uid(fast_path, "bound")]
        await cluster.end_pod("bound")
        await until(lambda: len(fast_path.cluster.pods) == 3)
        # The deletion never reached the ledger.
        fast_path.ledger.set_pod(gone, node)
        fast_path._informers._reflectors["Pod"].view.known[gone.uid] = gone
        assert await said(fast_path) == [
            "informer: Pod default/bound: has it, and it is gone",
            f"ledger: Pod default/bound: {problem}",
        ]
        fast_path.ledger.remove_pod(gone.uid)


async def test_a_watch_that_does_not_tell_is_found_by_the_versions() -> None:
    async with world() as (cluster, fast_path):
        reflector = fast_path._informers._reflectors["Node"]
        before = reflector.get(fast_path.ledger.node("n1").uid)  # type: ignore[union-attr]
        patch = {"spec": {"unschedulable": True}}
        await cluster.merge("/api/v1/nodes/n1", patch)
        await until(lambda: fast_path.ledger.node("n1").unschedulable)  # type: ignore[union-attr]
        assert before is not None
        newer = fast_path.ledger.node("n1")
        assert newer is not None
        reflector.view.known[before.uid] = before
        fast_path.ledger.set_node(before)
        assert await said(fast_path) == [
            f"informer: Node n1: has version {before.resource_version}, the API server {newer.resource_version}"
        ]


@pytest.mark.parametrize("number", [1, checking._ONE_BY_ONE + 1])
async def test_however_many_differ_all_are_looked_at_again_before_anything_is_said(number: int) -> None:
    """A few objects are read one by one, and many with a list; the watch has delivered all of them by then."""
    async with world() as (cluster, fast_path):
        for index in range(number):
            await cluster.add_pod(f"w{index}", scheduler="another")
        known = fast_path._informers._reflectors["Pod"].view.known
        await until(lambda: len(known) == 4 + number)
        hidden = {uid: known.pop(uid) for uid in list(known) if known[uid].name.startswith("w")}
        read_again, asked = fast_path.selfcheck._read_again, []

        async def brought(kind: Any, before: Any) -> Any:
            asked.append(len(before))
            known.update(hidden)
            return await read_again(kind, before)

        fast_path.selfcheck._read_again = brought  # type: ignore[method-assign]
        assert (await said(fast_path), asked[0]) == ([], number)


async def test_books_that_differ_from_what_was_watched_are_found() -> None:
    async with world() as (cluster, fast_path):
        await cluster.ask(
            "POST", "/apis/storage.k8s.io/v1/storageclasses", {"metadata": {"name": "s"}, "provisioner": "x"}
        )
        await until(lambda: fast_path.cluster.catalogue.classes)
        assert await said(fast_path) == []
        del fast_path.cluster.catalogue.classes["s"]
        assert await said(fast_path) == ["catalog: StorageClass s: has a different version of it than the watch"]


@pytest.mark.parametrize("kept", ["score", "refusal"])
async def test_kept_answers_that_are_not_what_plugins_say_now_are_found(kept: str) -> None:
    async with world() as (_, fast_path):
        (views,) = fast_path._workers[0].views
        cls = fast_path.cluster.pods[uid(fast_path, "bound")].cls
        ranked = views.of(cls).ranked(fast_path.snapshot.columns, ())
        row = fast_path.ledger.rows["n1"]
        was = int(ranked[row])
        ranked[row] = REFUSED if kept == "refusal" else was + 7
        (line,) = await said(fast_path)
        if kept == "refusal":
            assert line == "view: Node n1: profile agent-scheduler: kept as refused, now it passes"
        else:
            # With two nodes either may be reported as the different one.
            assert line.startswith("view: Node n") and ": score kept as " in line


async def test_a_snapshot_that_lags_is_found() -> None:
    async with world() as (_, fast_path):
        fast_path.snapshot.refresh()
        fast_path.snapshot.columns.version[fast_path.ledger.rows["n2"]] -= 1
        (problem,) = await said(fast_path)
        assert problem.startswith("snapshot:  : node n2: is at change ")


async def test_a_kind_that_cannot_be_listed_is_said_and_the_others_are_checked() -> None:
    refusing = False

    def refuse(request: Request) -> Disturbance | None:
        if refusing and request.path == "/api/v1/persistentvolumes":
            return Disturbance(error=ApiError(403, "Forbidden", "no"))
        return None

    async with world(disturb=refuse) as (_, fast_path):
        refusing = True
        report = await fast_path.selfcheck.run()
        assert list(report.not_listed) == ["PersistentVolume"]
        assert report.not_listed["PersistentVolume"].endswith("403 Forbidden: no")
        assert report.checked["Pod"] == 4 and lines(report) == []


async def test_what_changes_all_the_time_is_no_difference() -> None:
    """The pod's version here is always the one before the last."""
    async with world() as (cluster, fast_path):
        reflector = fast_path._informers._reflectors["Pod"]
        which = uid(fast_path, "foreign")
        older = reflector.get(which)
        original = fast_path.selfcheck._problems

        def lagging(kind: Any, informer: Any, each: str, fresh: Any) -> Any:
            if each == which and fresh is not None:
                reflector.view.known[which] = older
            return original(kind, informer, each, fresh)

        fast_path.selfcheck._problems = lagging  # type: ignore[method-assign]
        going = True

        async def change() -> None:
            number = 0
            while going:
                number += 1
                body = {"metadata": {"annotations": {"n": str(number)}}}
                await cluster.merge("/api/v1/namespaces/default/pods/foreign", body)

        changing = asyncio.create_task(change())
        await asyncio.sleep(0.02)
        report = await fast_path.selfcheck.run()
        going = False
        await changing
        assert (lines(report), report.unsettled) == ([], ("Pod default/foreign",))

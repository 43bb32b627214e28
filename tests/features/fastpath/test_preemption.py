"""A pod gets the room of others of lower priority: what is written, in which order, and what goes wrong."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from agent_scheduler.cluster.cluster import Cluster
from agent_scheduler.engine.state.podinfo import PodInfo
from agent_scheduler.kube.transport import Response
from tests.support.embedded import PODS, EmbeddedCluster, embedded_cluster, until
from tests.support.running import Running, scheduling

HIGH = "system-cluster-critical"
HIGHEST = "system-node-critical"
TERMINATING = "not eligible due to a terminating pod on the nominated node."


async def full_node(
    cluster: EmbeddedCluster, name: str = "n1", *, pods: int = 2, prefix: str = "low"
) -> None:
    """A node of 2 CPUs, and pods of no priority that fill it."""
    await cluster.add_node(name, cpu="2")
    for number in range(pods):
        pod = f"{prefix}-{number}"
        await cluster.add_pod(pod, cpu=f"{2000 // pods}m", labels={"app": prefix})
        await cluster.bind(pod, name)


async def settled(running: Running, pods: int) -> None:
    await until(lambda: len(running.fast_path.ledger.placements) == pods)


async def object_of(cluster: EmbeddedCluster, name: str) -> dict[str, Any]:
    found: dict[str, Any] = await cluster.ask("GET", f"{PODS}/{name}")
    return found


async def has_node(cluster: EmbeddedCluster, name: str) -> str | None:
    node: str | None = (await object_of(cluster, name))["spec"].get("nodeName")
    return node


async def end(cluster: EmbeddedCluster, name: str) -> None:
    """What a kubelet does when a pod's containers have stopped."""
    await cluster.ask("DELETE", f"{PODS}/{name}?gracePeriodSeconds=0")


async def leaving(cluster: EmbeddedCluster) -> set[str]:
    return {name for name, pod in (await cluster.pods()).items() if pod["metadata"].get("deletionTimestamp")}


async def test_victims_are_told_why_and_deleted_and_the_pod_takes_their_room() -> None:
    async with embedded_cluster() as cluster:
        await full_node(cluster)
        async with scheduling(cluster.transport, initial_backoff=0.05) as running:
            await settled(running, 2)
            await cluster.add_pod("high", cpu="2", priorityClassName=HIGH)
            await until(lambda: running.reports.counts["victims"] == 2)
            victims = await until(lambda: leaving(cluster))
            assert await until(lambda: _all(cluster, 2)) == {"low-0", "low-1"}, victims
            for name in ("low-0", "low-1"):
                conditions = (await object_of(cluster, name))["status"]["conditions"]
                (target,) = [each for each in conditions if each["type"] == "DisruptionTarget"]
                assert (target["status"], target["reason"]) == ("True", "PreemptionByScheduler")
                assert target["message"] == "agent-scheduler: preempting to accommodate a higher priority pod"
            high = await until(lambda: _nominated(cluster, "high"))
            assert high["status"]["nominatedNodeName"] == "n1"
            condition = await cluster.condition("high")
            assert condition is not None
            assert condition["message"] == "0/1 nodes are available: 1 Insufficient cpu."
            for name in ("low-0", "low-1"):
                await end(cluster, name)
            await until(cluster.placed)
            assert await until(lambda: _placed_on(cluster, "high")) == "n1"
            events = await cluster.ask("GET", "/apis/events.k8s.io/v1/namespaces/default/events")
            told = {
                (each["regarding"]["name"], each["type"], each["action"], each["note"])
                for each in events["items"]
                if each["reason"] == "Preempted"
            }
            uid = high["metadata"]["uid"]
            assert told == {
                (name, "Normal", "Preempting", f"Preempted by pod {uid} on node n1")
                for name in ("low-0", "low-1")
            }
            assert running.reports.failures == []


async def _all(cluster: EmbeddedCluster, number: int) -> set[str] | None:
    found = await leaving(cluster)
    return found if len(found) == number else None


async def _nominated(cluster: EmbeddedCluster, name: str) -> dict[str, Any] | None:
    pod = await object_of(cluster, name)
    return pod if pod["status"].get("nominatedNodeName") else None


async def _placed_on(cluster: EmbeddedCluster, name: str) -> str | None:
    return (await cluster.placed()).get(name)


async def test_nobody_else_is_evicted_while_victims_are_leaving() -> None:
    async with embedded_cluster() as cluster:
        await full_node(cluster, "n1", pods=2, prefix="a")
        await full_node(cluster, "n2", pods=2, prefix="b")
        async with scheduling(cluster.transport, initial_backoff=0.01, max_backoff=0.01) as running:
            await settled(running, 4)
            await cluster.add_pod("high", cpu="2", priorityClassName=HIGH)
            victims = await until(lambda: _all(cluster, 2))
            # One of two has ended: that is an event, and there is no room yet.
            await end(cluster, sorted(victims)[0])
            await until(lambda: _says(cluster, "high", TERMINATING))
            assert await leaving(cluster) == {sorted(victims)[1]}
            assert running.reports.counts["victims"] == 2
            await end(cluster, sorted(victims)[1])
            assert await until(lambda: _placed_on(cluster, "high"))
            assert len(await cluster.placed()) == 3


async def _says(cluster: EmbeddedCluster, name: str, what: str) -> bool:
    condition = await cluster.condition(name)
    return condition is not None and what in condition["message"]


async def test_the_room_is_kept_from_pods_of_lower_priority_and_not_from_higher_ones() -> None:
    async with embedded_cluster() as cluster:
        await full_node(cluster, pods=1)
        patient = {"initial_backoff": 60.0, "max_backoff": 60.0, "pop_from_backoff": False}
        async with scheduling(cluster.transport, **patient) as running:
            await settled(running, 1)
            await cluster.add_pod("high", cpu="2", priorityClassName=HIGH)
            await until(lambda: _nominated(cluster, "high"))
            await until(lambda: _all(cluster, 1))
            await end(cluster, "low-0")
            await settled(running, 0)
            # The room is there, and the pod that it is for backs off.
            await cluster.add_pod("plain", cpu="1")
            condition = await until(lambda: cluster.condition("plain"))
            assert condition["message"].startswith("0/1 nodes are available: 1 Insufficient cpu.")
            await cluster.add_pod("higher", cpu="1", priorityClassName=HIGHEST)
            assert await until(lambda: _placed_on(cluster, "higher"))


async def test_a_budget_decides_which_node_is_emptied() -> None:
    async with embedded_cluster() as cluster:
        await full_node(cluster, "n1", pods=1, prefix="kept")
        await full_node(cluster, "n2", pods=1, prefix="spare")
        await cluster.ask(
            "POST",
            "/apis/policy/v1/namespaces/default/poddisruptionbudgets",
            {
                "metadata": {"name": "kept"},
                "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "kept"}}},
            },
        )
        async with scheduling(cluster.transport) as running:
            await settled(running, 2)
            await cluster.add_pod("high", cpu="2", priorityClassName=HIGH)
            assert await until(lambda: _all(cluster, 1)) == {"spare-0"}


class Refusing:
    """A transport on which deletions are answered with a status of choice."""

    def __init__(self, cluster: EmbeddedCluster, status: int) -> None:
        self._transport = cluster.transport
        self.status = status
        self.deletions = 0

    async def request(self, method: str, path: str, **more: Any) -> Response:
        if method == "DELETE":
            self.deletions += 1
            return Response(self.status, b'{"kind":"Status","apiVersion":"v1","status":"Failure"}', {})
        return await self._transport.request(method, path, **more)

    def __getattr__(self, name: str) -> Any:
        if name == "request_if":
            raise AttributeError(name)
        return getattr(self._transport, name)


@pytest.mark.promise("L8")
async def test_an_eviction_that_is_refused_ends_the_nomination() -> None:
    async with embedded_cluster() as cluster:
        await full_node(cluster, pods=1)
        transport = Refusing(cluster, 403)
        patient = {"initial_backoff": 60.0, "max_backoff": 60.0, "pop_from_backoff": False}
        async with scheduling(transport, **patient) as running:  # type: ignore[arg-type]
            await settled(running, 1)
            await cluster.add_pod("high", cpu="2", priorityClassName=HIGH)
            await until(lambda: running.reports.problems)
            assert "default/low-0: 403" in running.reports.problems[0]
            queue = running.fast_path.queue
            await until(lambda: queue.pending().unschedulable == 1 and not queue.nominator.nominated)
            await until(lambda: not len(running.fast_path._messages.status))
            assert "nominatedNodeName" not in (await object_of(cluster, "high"))["status"]
            assert await leaving(cluster) == set()
            assert transport.deletions == 1


class Forestalling:
    """Whom somebody else has deleted just before each eviction."""

    def __init__(self, cluster: EmbeddedCluster) -> None:
        self._transport = cluster.transport
        self._cluster = cluster
        self.gone = ""

    async def request(self, method: str, path: str, **more: Any) -> Response:
        if b"PreemptionByScheduler" in (more.get("body") or b"") and not self.gone:
            self.gone = path.removesuffix("/status").rpartition("/")[2]
            await end(self._cluster, self.gone)
        return await self._transport.request(method, path, **more)

    def __getattr__(self, name: str) -> Any:
        if name == "request_if":
            raise AttributeError(name)
        return getattr(self._transport, name)


async def test_of_a_victim_that_was_gone_before_its_eviction_nobody_says_that_it_was_preempted() -> None:
    async with embedded_cluster() as cluster:
        await full_node(cluster, pods=1)
        transport = Forestalling(cluster)
        async with scheduling(transport) as running:  # type: ignore[arg-type]
            await settled(running, 1)
            await cluster.add_pod("high", cpu="2", priorityClassName=HIGH)
            assert await until(lambda: _placed_on(cluster, "high")) == "n1"
            assert transport.gone == "low-0"
            await running.stop(grace=5.0)
        events = await cluster.ask("GET", "/apis/events.k8s.io/v1/namespaces/default/events")
        reasons = {(each["regarding"]["name"], each["reason"]) for each in events["items"]}
        assert ("high", "Scheduled") in reasons and ("low-0", "Preempted") not in reasons


class ThreeShortBackoffs:
    def delay(self, failed: int, _rng: Callable[[], float]) -> float:
        return 0.05 if failed <= 3 else 60.0


async def test_victims_are_tried_again_after_a_rest_in_which_the_pod_may_go_elsewhere(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("agent_scheduler.binding.preemption._EVICTION_BACKOFF", ThreeShortBackoffs())
    async with embedded_cluster() as cluster:
        await full_node(cluster, pods=1)
        transport = Refusing(cluster, 403)
        async with scheduling(transport, initial_backoff=0.05, max_backoff=0.05) as running:  # type: ignore[arg-type]
            await settled(running, 1)
            await cluster.add_pod("high", cpu="2", priorityClassName=HIGH)
            await until(lambda: transport.deletions == 4 and running.fast_path.preemption._backing_off)
            deletions, attempts = transport.deletions, running.reports.attempts["unschedulable"]
            await cluster.add_node("small", cpu="1")
            (uid,) = running.fast_path.preemption._backing_off
            running.fast_path.queue.activate((uid,))
            await until(lambda: running.reports.attempts["unschedulable"] > attempts)
            assert transport.deletions == deletions
            await cluster.add_node("n2", cpu="2")
            assert await until(lambda: _placed_on(cluster, "high")) == "n2"
        assert running.reports.failures == []


async def test_victims_that_the_watch_has_not_shown_to_be_leaving_count_as_leaving(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    set_pod = Cluster.set_pod

    def late(self: Cluster, pod: PodInfo) -> None:
        if not pod.deleting and not pod.preempted:
            set_pod(self, pod)

    monkeypatch.setattr(Cluster, "set_pod", late)
    async with embedded_cluster() as cluster:
        await full_node(cluster, "n1", pods=1, prefix="a")
        await full_node(cluster, "n2", pods=1, prefix="b")
        async with scheduling(cluster.transport, initial_backoff=0.01, max_backoff=0.01) as running:
            await settled(running, 2)
            await cluster.add_pod("high", cpu="2", priorityClassName=HIGH)
            await until(lambda: _all(cluster, 1))
            (uid,) = [uid for uid, pod in running.fast_path.cluster.pods.items() if pod.name == "high"]
            await until(lambda: not running.fast_path.preemption._gate.gated)
            running.fast_path.queue.activate((uid,))
            await until(lambda: _says(cluster, "high", TERMINATING))
            assert running.reports.counts["victims"] == 1


class SilentAfterEviction:
    """A transport whose watches of pods bring nothing more once a pod was evicted, and do not end, either."""

    def __init__(self, cluster: EmbeddedCluster) -> None:
        self._transport = cluster.transport
        self.deletions = 0

    async def request(self, method: str, path: str, **more: Any) -> Response:
        # What it brings is no news to a watch that begins after it.
        self.deletions += method == "DELETE"
        return await self._transport.request(method, path, **more)

    @asynccontextmanager
    async def stream(self, path: str, *, read_timeout: float) -> AsyncIterator[Any]:
        begun = self.deletions
        async with self._transport.stream(path, read_timeout=read_timeout) as batches:

            async def wait_for_change() -> AsyncIterator[Any]:
                async for lines in batches:
                    if "/pods" in path and self.deletions > begun:
                        await asyncio.Event().wait()
                    yield lines

            yield wait_for_change()

    def __getattr__(self, name: str) -> Any:
        if name in ("start", "request_if"):
            raise AttributeError(name)
        return getattr(self._transport, name)


async def test_nobody_else_is_evicted_while_the_watch_is_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agent_scheduler.binding.preemption._SEEN_WITHIN", 0.05)
    async with embedded_cluster() as cluster:
        await full_node(cluster, "n1", pods=1, prefix="a")
        await full_node(cluster, "n2", pods=1, prefix="b")
        silent = SilentAfterEviction(cluster)
        async with scheduling(silent, initial_backoff=0.01, max_backoff=0.01) as running:  # type: ignore[arg-type]
            await settled(running, 2)
            await cluster.add_pod("high", cpu="2", priorityClassName=HIGH)
            await until(lambda: silent.deletions)
            (victim,) = await until(lambda: leaving(cluster))
            await end(cluster, victim)
            await until(lambda: has_node(cluster, "high"))
            assert silent.deletions == 1
            assert running.reports.counts["victims"] == 1


async def test_victims_that_are_leaving_already_are_only_waited_for() -> None:
    async with embedded_cluster() as cluster:
        await full_node(cluster, pods=1)
        await cluster.ask("DELETE", f"{PODS}/low-0")
        assert await leaving(cluster) == {"low-0"}
        transport = Refusing(cluster, 403)
        async with scheduling(transport, initial_backoff=0.05) as running:  # type: ignore[arg-type]
            await settled(running, 1)
            await cluster.add_pod("high", cpu="2", priorityClassName=HIGH)
            await until(lambda: _nominated(cluster, "high"))
            await end(cluster, "low-0")
            assert await until(lambda: _placed_on(cluster, "high")) == "n1"
            assert transport.deletions == 0


async def test_a_more_important_pod_takes_the_room_and_the_other_looks_elsewhere() -> None:
    async with embedded_cluster() as cluster:
        await full_node(cluster, pods=1)
        async with scheduling(cluster.transport) as running:
            await settled(running, 1)
            await cluster.add_pod("high", cpu="2", priorityClassName=HIGH)
            await until(lambda: _nominated(cluster, "high"))
            await cluster.add_pod("higher", cpu="2", priorityClassName=HIGHEST)
            await until(lambda: _nominated(cluster, "higher"))
            await until(lambda: _is_not_nominated(cluster, "high"))
            assert running.fast_path.queue.nominator.pods_for("n1")[0].name == "higher"


async def test_evictions_for_a_pod_whose_node_a_more_important_one_took_are_called_off() -> None:
    async with embedded_cluster() as cluster:
        await full_node(cluster, pods=1)
        async with scheduling(cluster.transport) as running:
            await settled(running, 1)
            preemption, outcomes, free = running.fast_path.preemption, {}, asyncio.Event()
            evict = preemption._evict

            async def slow(victim: Any, *, wanted: Any, **more: Any) -> Any:
                who = "higher" if outcomes else "high"
                outcomes[who] = None
                await free.wait()
                outcomes[who] = await evict(victim, wanted=wanted, **more)
                return outcomes[who]

            preemption._evict = slow  # type: ignore[method-assign, assignment]
            await cluster.add_pod("high", cpu="2", priorityClassName=HIGH)
            await until(lambda: "high" in outcomes)
            await cluster.add_pod("higher", cpu="2", priorityClassName=HIGHEST)
            await until(lambda: "higher" in outcomes)
            free.set()
            await until(lambda: all(outcomes.values()))
            assert {who: outcome.value for who, (outcome, _) in outcomes.items()} == {
                "high": "called off",
                "higher": "deleted",
            }


async def _is_not_nominated(cluster: EmbeddedCluster, name: str) -> bool:
    return await _nominated(cluster, name) is None


async def test_a_pod_that_is_gone_has_nobody_evicted() -> None:
    async with embedded_cluster() as cluster:
        await full_node(cluster, pods=2)
        async with scheduling(cluster.transport) as running:
            await settled(running, 2)
            preemption = running.fast_path.preemption
            evict = preemption._evict

            async def after_the_pod_is_deleted(victim: Any, **more: Any) -> Any:
                await cluster.ask("DELETE", f"{PODS}/high")
                pods = running.fast_path.cluster.pods
                await until(lambda: all(pod.name != "high" for pod in pods.values()))
                outcomes.append(await evict(victim, **more))
                return outcomes[-1]

            outcomes: list[Any] = []
            preemption._evict = after_the_pod_is_deleted  # type: ignore[method-assign, assignment]
            await cluster.add_pod("high", cpu="1", priorityClassName=HIGH)
            await until(lambda: outcomes)
            assert [outcome.value for outcome, _ in outcomes] == ["called off"]
            assert await leaving(cluster) == set()


@pytest.mark.parametrize("priority", [None, HIGH])
async def test_a_pod_that_eviction_cannot_help_says_so(priority: str | None) -> None:
    async with embedded_cluster() as cluster:
        await full_node(cluster, pods=1)
        async with scheduling(cluster.transport) as running:
            await settled(running, 1)
            more = {"priorityClassName": priority} if priority else {}
            await cluster.add_pod("large", cpu="3", **more)
            condition = await until(lambda: cluster.condition("large"))
            assert condition["message"] == (
                "0/1 nodes are available: 1 Insufficient cpu. no new claims to deallocate, "
                "preemption: 0/1 nodes are available: 1 Preemption is not helpful for scheduling."
            )
            assert running.reports.counts["preemption attempts"] == 1
            assert running.reports.counts["victims"] == 0

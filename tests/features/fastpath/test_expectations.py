"""A pod's expected node is reported while its claims are written, only for such pods, and nominations are followed."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from agent_scheduler.binding.messenger import Expectations
from agent_scheduler.binding.result import ScheduleResult
from kube_client.transport import Response, Transport
from tests.support.device_cluster import devices
from tests.support.embedded import PODS, EmbeddedCluster, embedded_cluster, until
from tests.support.running import Running, scheduling
from tests.support.transports import Through, failure
from tests.support.volume_cluster import storage


async def nominated(cluster: EmbeddedCluster, name: str) -> str:
    status: dict[str, Any] = (await cluster.pods())[name].get("status") or {}
    return str(status.get("nominatedNodeName") or "")


class Listening(Through):
    """Records the writes in their order, and refuses nominations if it `forbids` them."""

    def __init__(self, inner: Transport, *, forbids: bool = False) -> None:
        super().__init__(inner)
        self.forbids = forbids
        self.writes: list[tuple[str, bytes]] = []

    async def request(self, method: str, path: str, **more: Any) -> Response:
        body = more.get("body") or b""
        if method != "GET" and "/events" not in path:
            self.writes.append((f"{method} {path.partition('/namespaces/')[2]}", body))
        if self.forbids and b"nominatedNodeName" in body:
            return failure(403, "Forbidden")
        return await self.inner.request(method, path, **more)

    def about(self, name: str) -> list[str]:
        return [what for what, _ in self.writes if f"pods/{name}/" in what]


async def test_while_a_claim_is_provisioned_its_pod_says_where_it_will_be() -> None:
    async with storage(controller=False) as world, scheduling(world.cluster.transport) as running:
        cluster = world.cluster
        await world.add_class("late")
        await world.add_nodes("n1")
        await world.add_claim("c")
        await world.add_pod("p", "c")

        async def told() -> bool:
            return await nominated(cluster, "p") == "n1"

        await until(told)
        uid = (await cluster.pods())["p"]["metadata"]["uid"]
        known = running.fast_path.cluster
        await until(lambda: known.pods[uid].nominated_node_name == "n1")
        # Its room there is already counted; no other pod has to leave it once more.
        assert not known.queue.nominator.nominated
        assert not await cluster.is_bound("p")
        world.play()
        await until(lambda: cluster.is_bound("p"))
        # Clear the nomination, as kube-apiserver does at a bind.
        assert await nominated(cluster, "p") == ""


async def test_one_write_before_all_others_tells_it_and_pods_without_claims_have_none() -> None:
    async with devices("n1") as found:
        await found.add_claim("c")
        transport = Listening(found.cluster.transport)
        async with scheduling(transport) as running:
            await found.add_pod("claims", claim="c")
            await until(lambda: found.cluster.is_bound("claims"))
            await found.cluster.add_pod("plain")
            await until(lambda: found.cluster.is_bound("plain"))
            await until(lambda: running.reports.attempts["scheduled"] == 2)
    assert transport.about("claims") == ["PATCH default/pods/claims/status", "POST default/pods/claims/binding"]
    assert transport.about("plain") == ["POST default/pods/plain/binding"]
    first, *others = [what for what, _ in transport.writes if "claims" in what]
    assert first == "PATCH default/pods/claims/status"
    assert any("resourceclaims/c" in what for what in others)


async def test_what_comes_of_telling_it_changes_nothing() -> None:
    async with devices("n1") as found:
        await found.add_claim("c")
        transport = Listening(found.cluster.transport, forbids=True)
        async with scheduling(transport) as running:
            await found.add_pod("p", claim="c")
            await until(lambda: found.cluster.is_bound("p"))
            await until(lambda: running.reports.attempts["scheduled"] == 1)
            await found.audit()
            assert running.reports.problems == []
    assert sum(b"nominatedNodeName" in body for _, body in transport.writes) == 1


async def test_an_attempt_that_fails_leaves_it_told_and_the_next_one_begins_there() -> None:
    """The pod's volumes were provisioned for that node. kube-scheduler does the same."""
    async with devices("n1", "n2") as found:
        await found.add_claim("c")
        cluster = found.cluster
        refusing = Refusing(cluster.transport)
        async with scheduling(refusing, initial_backoff=0.05, max_backoff=0.05) as running:
            await found.add_pod("p", claim="c")
            told = await until(lambda: nominated(cluster, "p"))
            assert told in ("n1", "n2")
            # An attempt that began before the nomination was known would choose again.
            await _seen(running, "p", told)
            refusing.answers.set()
            await until(lambda: running.reports.problems)
            assert await nominated(cluster, "p") == told
            queue = running.fast_path.cluster.queue
            uid = (await cluster.pods())["p"]["metadata"]["uid"]
            await until(lambda: queue.nominator.nominated.get(uid, "") == told)
            refusing.lets = True
            await until(lambda: cluster.is_bound("p"))
            assert (await cluster.placed())["p"] == told
            await found.audit()


class Refusing(Through):
    """Refuses writes of claims once it `answers`, until it `lets` them."""

    def __init__(self, inner: Transport) -> None:
        self.inner, self.lets, self.answers = inner, False, asyncio.Event()

    async def request(self, method: str, path: str, **more: Any) -> Response:
        if method == "PATCH" and "/resourceclaims/" in path and not self.lets:
            await self.answers.wait()
            return failure(403, "Forbidden")
        return await self.inner.request(method, path, **more)


async def test_a_node_that_others_nominate_a_pod_to_is_where_it_goes_if_it_fits() -> None:
    async with embedded_cluster() as cluster, scheduling(cluster.transport) as running:
        await cluster.add_node("full", labels={"pool": "full"})
        await cluster.add_node("empty")
        await cluster.add_pod("first", cpu="2", nodeSelector={"pool": "full"})
        await until(lambda: cluster.is_bound("first"))
        # The profile packs, so that it would choose the fuller node.
        await cluster.add_pod("p", schedulingGates=[{"name": "hold"}])
        told = {"status": {"nominatedNodeName": "empty"}}
        await cluster.merge(f"{PODS}/p/status", told)
        await _seen(running, "p", "empty")
        await cluster.merge(f"{PODS}/p", {"spec": {"schedulingGates": None}})
        await until(lambda: cluster.is_bound("p"))
        assert (await cluster.placed())["p"] == "empty"
        assert await nominated(cluster, "p") == ""


async def test_room_on_a_node_that_others_nominate_a_pod_to_is_kept_from_its_equals() -> None:
    async with embedded_cluster() as cluster, scheduling(cluster.transport) as running:
        await cluster.add_node("n1", cpu="2")
        await cluster.add_pod("expected", cpu="2", schedulingGates=[{"name": "hold"}])
        told = {"status": {"nominatedNodeName": "n1"}}
        await cluster.merge(f"{PODS}/expected/status", told)
        await _seen(running, "expected", "n1")
        await cluster.add_pod("other", cpu="1")
        await until(lambda: running.reports.attempts["unschedulable"] >= 1)
        assert not await cluster.is_bound("other")


class Telling:
    """Records the requests for a pod that is about to go to n1, in its last known state, or None if it is deleted."""

    def __init__(self) -> None:
        known = {"uid": "u", "namespace": "ns", "name": "p", "resource_version": "7"}
        self.pod = cast(Any, SimpleNamespace(**known, node_name="", nominated_node_name=""))
        self.decided = self.pod
        self.sent: list[tuple[str, Any]] = []
        self.asked: list[bool] = []

    async def patch(self, path: str, body: bytes, *, wanted: Callable[[], bool], repeats: bool) -> None:
        assert not repeats
        self.sent.append((path, json.loads(body)))
        self.asked.append(wanted())

    async def tell(self, *, wanted: bool = True) -> None:
        cluster = cast(Any, SimpleNamespace(pods={} if self.pod is None else {"u": self.pod}))
        expectations = Expectations(cluster, cast(Any, self.patch))
        await expectations.tell(self.decided, "n1", lambda: wanted)


@pytest.mark.parametrize(
    ("node", "nominated", "said"),
    [("", "", True), ("", "another", True), ("", "n1", False), ("n2", "", False), ("n2", "another", False)],
)
async def test_it_is_told_unless_that_is_said_already_or_the_pod_has_a_node(
    node: str, nominated: str, said: bool
) -> None:
    telling = Telling()
    telling.pod.node_name, telling.pod.nominated_node_name = node, nominated
    await telling.tell()
    body = {"metadata": {"uid": "u", "resourceVersion": "7"}, "status": {"nominatedNodeName": "n1"}}
    assert telling.sent == ([("/api/v1/namespaces/ns/pods/p/status", body)] if said else [])


async def test_nothing_is_told_of_a_pod_that_is_gone() -> None:
    telling = Telling()
    telling.pod = None
    await telling.tell()
    assert telling.sent == []


@pytest.mark.parametrize("wanted", [True, False])
async def test_it_is_sent_once_at_most_and_not_for_a_pod_that_no_longer_waits(wanted: bool) -> None:
    """A second request would be sent after other pods had their turn."""
    telling = Telling()
    await telling.tell(wanted=wanted)
    assert telling.asked == [wanted]


async def _seen(running: Running, name: str, node: str) -> None:
    pods = running.fast_path.cluster.pods
    await until(lambda: any(pod.name == name and pod.nominated_node_name == node for pod in pods.values()))


@pytest.mark.promise("S16")
async def test_a_node_is_passed_over_when_somebody_was_nominated_to_it_meanwhile() -> None:
    async with embedded_cluster() as cluster, scheduling(cluster.transport, workers=1) as running:
        fast_path = running.fast_path
        for name in ("n1", "n2"):
            await cluster.add_node(name, cpu="2")
        await until(lambda: len(fast_path.ledger.rows) == 2)
        await cluster.add_pod("big", cpu="3", priorityClassName="system-cluster-critical")
        await until(lambda: running.reports.attempts["unschedulable"])
        (big,) = fast_path.cluster.pods.values()
        submit, nominated = fast_path.binder.submit, []

        def nominate_and_submit(result: ScheduleResult) -> None:
            """Nominate between decision and bind."""
            if not nominated:
                nominated.append(result.placement.candidates[0].node_name)
                fast_path.queue.nominator.add(big, nominated[0])
            submit(result)

        fast_path.binder.submit = nominate_and_submit  # type: ignore[method-assign]
        await cluster.add_pod("a", cpu="1")
        placed = await until(cluster.placed)
        assert placed["a"] != nominated[0]

"""Pods that ask for devices as an extended resource, from the watch to the bind, with the embedded API."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

import pytest

from embedded_kubernetes.device_driver import DRIVER, EXTENDED_RESOURCE
from kube_client.transport import Response
from tests.support.device_cluster import CLAIMS, RESOURCE, Devices, devices, nothing_assumed
from tests.support.embedded import until
from tests.support.objects import container as made
from tests.support.running import scheduling
from tests.support.transports import Refusing, Through, failure

ANNOTATION = "resource.kubernetes.io/extended-resource-claim"
IMPLICIT = f"deviceclass.resource.kubernetes.io/{DRIVER}"


def container(name: str = "c", number: int = 1, resource: str = EXTENDED_RESOURCE) -> dict[str, Any]:
    amounts = {resource: str(number)}
    return made(name, requests={"cpu": "100m", **amounts}, limits=amounts)


async def add_pod(found: Devices, name: str, *containers: dict[str, Any], **spec: Any) -> Any:
    return await found.cluster.add_pod(name, containers=list(containers) or [container()], **spec)


async def offer(found: Devices, node: str, number: int, resource: str = EXTENDED_RESOURCE) -> None:
    """Let the node offer the resource itself, as with a device plugin."""
    amounts = {"cpu": "4", "memory": "8Gi", "pods": "110", resource: str(number)}
    status = {"status": {"allocatable": amounts, "capacity": amounts}}
    await found.cluster.merge(f"/api/v1/nodes/{node}/status", status)


async def told(found: Devices, pod: str) -> Any:
    return (await found.cluster.pods())[pod]["status"].get("extendedResourceClaimStatus")


async def audit(found: Devices, *names: str) -> None:
    """Assert that these pods have a valid claim each for kubelets and the claim controller, and no others exist."""
    claims, pods = await found.claims(), await found.cluster.pods()
    assert len(claims) == len(names)
    for name in names:
        pod = pods[name]
        uid, status = pod["metadata"]["uid"], pod["status"]["extendedResourceClaimStatus"]
        claim = claims[status["resourceClaimName"]]
        metadata = claim["metadata"]
        assert metadata["annotations"] == {ANNOTATION: "true"}
        assert metadata["generateName"] == f"{name}-extended-resources-"
        assert metadata["name"].startswith(metadata["generateName"])
        (owner,) = metadata["ownerReferences"]
        assert (owner["kind"], owner["name"], owner["uid"], owner["controller"]) == ("Pod", name, uid, True)
        assert metadata["finalizers"] == ["resource.kubernetes.io/delete-protection"]
        assert [each["uid"] for each in claim["status"]["reservedFor"]] == [uid]
        results = claim["status"]["allocation"]["devices"]["results"]
        assert {each["pool"] for each in results} == {pod["spec"]["nodeName"]}
        asked = {each["name"]: each["exactly"] for each in claim["spec"]["devices"]["requests"]}
        assert {each["request"] for each in results} == asked.keys()
        assert {each["requestName"] for each in status["requestMappings"]} == asked.keys()
    await found.devices_in_use()


@pytest.mark.promise("S17", "S18")
@pytest.mark.parametrize(("resource", "place"), [(EXTENDED_RESOURCE, 0), (IMPLICIT, 1)])
async def test_devices_meet_a_resource_that_no_node_offers(resource: str, place: int) -> None:
    async with devices("n1", "n2") as found, scheduling(found.cluster.transport) as running:
        for index in range(4):
            await add_pod(found, f"p{index}", container(resource=resource))
        await until(lambda: found.cluster.all_placed(4))
        await audit(found, "p0", "p1", "p2", "p3")
        assert len(await found.devices_in_use()) == 4
        assert (await told(found, "p0"))["requestMappings"] == [
            {"containerName": "c", "resourceName": resource, "requestName": f"container-0-request-{place}"}
        ]
        await until(lambda: nothing_assumed(running))
        assert running.reports.failures == []
        prebind = running.fast_path.binder._prebind
        assert prebind is not None and not prebind._writes.claims.extended._made
        assert len({pod.cls for pod in running.fast_path.cluster.pods.values()}) == 1


async def test_each_container_has_a_request_and_the_mapping_says_which() -> None:
    async with devices("n1", per_node=4) as found, scheduling(found.cluster.transport):
        first = container("init", 2) | {}
        await add_pod(found, "p", container("a", 1), container("b", 2), initContainers=[first])
        await until(lambda: found.cluster.all_placed(1))
        await audit(found, "p")
        mappings = [tuple(each.values()) for each in (await told(found, "p"))["requestMappings"]]
        assert sorted(mappings) == [
            ("a", EXTENDED_RESOURCE, "container-1-request-0"),
            ("b", EXTENDED_RESOURCE, "container-2-request-0"),
            ("init", EXTENDED_RESOURCE, "container-1-request-0"),
            ("init", EXTENDED_RESOURCE, "container-2-request-0"),
        ]
        assert len(await found.devices_in_use()) == 3


async def test_a_class_that_comes_to_name_a_resource_wakes_those_who_ask_for_it() -> None:
    async with devices("n1") as found, scheduling(found.cluster.transport) as running:
        await add_pod(found, "p", container(resource="example.com/late"))
        await add_pod(found, "other", container(resource="example.com/never"))
        condition = await until(lambda: found.cluster.condition("p"))
        assert condition["message"].startswith("0/1 nodes are available: 1 Insufficient example.com/late.")
        selector = {"cel": {"expression": f"device.driver == '{DRIVER}'"}}
        body = {"metadata": {"name": "late"}, "spec": {"selectors": [selector]}}
        await found.cluster.ask("POST", f"{RESOURCE}/deviceclasses", body)
        named = {"spec": {"extendedResourceName": "example.com/late"}}
        await found.cluster.merge(f"{RESOURCE}/deviceclasses/late", named)
        await until(lambda: found.cluster.is_bound("p"))
        await audit(found, "p")
        assert "other" not in await found.cluster.placed()
        assert running.reports.counts["after flush"] == 0


@pytest.mark.parametrize(
    ("method", "ending"), [("POST", "/resourceclaims"), ("PATCH", "/status"), ("PATCH", "/pods/p/status")]
)
async def test_a_write_whose_answer_is_lost_is_not_made_twice(method: str, ending: str) -> None:
    async with devices("n1") as found:
        faulty = Refusing(found.cluster.transport, method, ending, 1, None)
        async with found.settling(faulty) as running:
            await add_pod(found, "p")
            await until(lambda: found.cluster.all_placed(1))
            await audit(found, "p")
            assert faulty.left == 0
            assert not running.reports.problems


@pytest.mark.promise("L7", "L10")
@pytest.mark.parametrize(
    ("method", "ending"),
    [("POST", "/resourceclaims"), ("PATCH", "/status"), ("PATCH", "/pods/p/status"), ("POST", "/binding")],
)
async def test_an_attempt_that_fails_leaves_no_claim_behind(method: str, ending: str) -> None:
    async with devices("n1") as found:
        faulty = Refusing(found.cluster.transport, method, ending, 1, 403)
        async with scheduling(faulty, initial_backoff=30.0, max_backoff=30.0) as running:
            await add_pod(found, "p")
            await until(lambda: running.reports.problems)
            assert await found.claims() == {}
            assert await told(found, "p") is None
            await until(lambda: nothing_assumed(running))
        async with scheduling(found.cluster.transport):
            await until(lambda: found.cluster.all_placed(1))
            await audit(found, "p")


@pytest.mark.parametrize("struck", ["PATCH", "DELETE"])
async def test_a_claim_that_could_not_be_deleted_is_deleted_later(struck: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agent_scheduler.binding.pod_claims._RETRY", 0.1)

    class Guarded(Through):
        left = 3

        async def request(self, method: str, path: str, **more: Any) -> Response:
            of_claim = path.startswith(f"{CLAIMS}/p-") and not path.endswith("/status")
            if method == struck and of_claim and self.left:
                self.left -= 1
                return failure(403, "Forbidden")
            return await super().request(method, path, **more)

    async with devices("n1", per_node=1) as found:
        guarded = Guarded(Refusing(found.cluster.transport, "POST", "/binding", 1, 403))
        async with scheduling(guarded, initial_backoff=0.05, max_backoff=0.05) as running:
            await add_pod(found, "p")
            await until(lambda: found.cluster.all_placed(1))
            await audit(found, "p")
            assert guarded.left == 0 and running.reports.problems
            assert running.reports.counts["after flush"] == 0


class Dying(Through):
    """A transport whose user dies after `writes` writes, not counting reports of the expected node.

    Nothing that was written is undone.
    """

    def __init__(self, inner: Any, writes: int) -> None:
        super().__init__(inner)
        self.left = writes
        self.dead = asyncio.Event()

    async def request(self, method: str, path: str, **more: Any) -> Response:
        concerns = "resourceclaims" in path or path.endswith(("/pods/p/status", "/binding"))
        if method != "GET" and concerns and b"nominatedNodeName" not in (more.get("body") or b""):
            if not self.left:
                self.dead.set()
                await asyncio.Event().wait()
            self.left -= 1
        return await super().request(method, path, **more)


@pytest.mark.parametrize("writes", [1, 2, 3])
@pytest.mark.parametrize("moved", [False, True])
async def test_a_scheduler_that_ends_between_the_writes_is_followed_by_one_that_makes_no_second_claim(
    writes: int, moved: bool
) -> None:
    async with devices("n1", "n2", per_node=1) as found:
        dying = Dying(found.cluster.transport, writes)
        async with scheduling(dying) as running:
            await add_pod(found, "p")
            await asyncio.wait_for(dying.dead.wait(), 10)
            assert len(await found.claims()) == 1
            if moved:
                # The devices are needed elsewhere, and the pod has to go to another node.
                (node,) = {each.node_name for each in running.fast_path.ledger.placements.values()}
                await found.cordon(node)
        async with found.settling() as running:
            await until(lambda: found.cluster.all_placed(1))
            await audit(found, "p")


class Overlapping(Through):
    """Refuses a pod again while its leftovers are being deleted.

    The report about the refusal takes until the next attempt of the pod is under way: to arrive, or to be answered.
    """

    def __init__(self, cluster: Any, slow: str) -> None:
        super().__init__(cluster.transport)
        self.cluster, self.slow = cluster, slow
        self.running: Any = None
        self.deletions = 0
        #: Set when the next attempt has got as far as it may, and when the slow request is over.
        self.is_far, self.is_over = asyncio.Event(), asyncio.Event()

    async def request(self, method: str, path: str, **more: Any) -> Response:
        if method == "DELETE" and path.startswith(f"{CLAIMS}/p-"):
            self.deletions += 1
            if self.deletions == 1:
                refusals = self.running.reports.attempts["unschedulable"]
                await self.cluster.add_node("another")
                await until(lambda: self.running.reports.attempts["unschedulable"] > refusals)
        is_slow = b'"extendedResourceClaimStatus":null' in (more.get("body") or b"") and not self.is_far.is_set()
        if is_slow and self.slow == "arrives":
            await self._wait()
        answer: Response = await self.inner.request(method, path, **more)
        if is_slow and self.slow == "is answered":
            await self._wait()
        if is_slow:
            self.is_over.set()
        if path.endswith("/binding" if self.slow == "arrives" else "/resourceclaims"):
            self.is_far.set()
        return answer

    async def _wait(self) -> None:
        await until(lambda: self.running.fast_path.ledger.placements)
        # It gets no further if it waits for this.
        with suppress(TimeoutError):
            await asyncio.wait_for(self.is_far.wait(), 0.2)


@pytest.mark.real_time
@pytest.mark.parametrize("slow", ["arrives", "is answered"])
async def test_what_is_deleted_of_a_refused_pod_is_never_of_its_next_attempt(slow: str) -> None:
    async with devices("n1", per_node=1) as found:
        dying = Dying(found.cluster.transport, 3)
        async with scheduling(dying):
            await add_pod(found, "p")
            await asyncio.wait_for(dying.dead.wait(), 10)
        overlapping = Overlapping(found.cluster, slow)
        async with scheduling(overlapping) as overlapping.running:
            await until(lambda: found.cluster.all_placed(1))
            await until(lambda: nothing_assumed(overlapping.running))
            await until(overlapping.is_over.is_set)
            await audit(found, "p")
            assert overlapping.deletions == 1


async def test_a_status_that_names_a_claim_of_before_is_corrected_where_none_is_needed() -> None:
    async with devices("n1") as found:
        async with scheduling(Dying(found.cluster.transport, 3)):
            await add_pod(found, "p")
            await until(lambda: told(found, "p"))
        (claim,) = await found.claims()
        await found.cluster.merge(f"{CLAIMS}/{claim}", {"metadata": {"finalizers": None}})
        await found.cluster.ask("DELETE", f"{CLAIMS}/{claim}")
        await offer(found, "n1", 1)
        async with found.settling():
            await until(lambda: found.cluster.all_placed(1))
            assert await told(found, "p") is None
            assert await found.claims() == {}

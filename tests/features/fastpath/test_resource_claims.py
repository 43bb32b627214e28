"""Pods with resource claims, from the watch to the bind, against the embedded API, its claim controller and driver."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from typing import Any

import pytest

from agent_scheduler.binding import plugin_writes, pod_claims, prebind
from agent_scheduler.engine.framework.args import DynamicResourcesArgs
from agent_scheduler.engine.framework.points import PluginSet
from agent_scheduler.engine.profiles.profiles import ProfileSpec, build_profile
from agent_scheduler.fastpath import worker
from agent_scheduler.kube.transport import Headers, OutcomeUnknown, Response, Transport
from embedded_kubernetes import controllers
from embedded_kubernetes.controllers import Controller
from embedded_kubernetes.device_driver import DRIVER, Attaching, DeviceAttacher, DeviceDriver, DevicesShape
from embedded_kubernetes.resource_claims import DELETE_PROTECTION
from embedded_kubernetes.resource_claims import ResourceClaims as ClaimController
from tests.support.embedded import PODS, EmbeddedCluster, embedded_cluster, until
from tests.support.running import SETTINGS, Running, scheduling

RESOURCE = "/apis/resource.k8s.io/v1"
CLAIMS = f"{RESOURCE}/namespaces/default/resourceclaims"
TEMPLATES = f"{RESOURCE}/namespaces/default/resourceclaimtemplates"
MERGE = "application/merge-patch+json"


class Devices:
    """What users say, with the controllers that a cluster has."""

    def __init__(self, cluster: EmbeddedCluster) -> None:
        self.cluster = cluster

    def request(self, number: int = 1, **exactly: Any) -> dict[str, Any]:
        exactly = {"deviceClassName": DRIVER, "allocationMode": "ExactCount", "count": number, **exactly}
        return {"devices": {"requests": [{"name": "gpu", "exactly": exactly}]}}

    async def add_template(self, name: str = "t", number: int = 1) -> None:
        body = {"metadata": {"name": name}, "spec": {"spec": self.request(number)}}
        await self.cluster.ask("POST", TEMPLATES, body)

    async def add_claim(self, name: str, number: int = 1, **exactly: Any) -> Any:
        body = {"metadata": {"name": name}, "spec": self.request(number, **exactly)}
        return await self.cluster.ask("POST", CLAIMS, body)

    async def add_pod(self, name: str, *, template: str = "", claim: str = "", **more: Any) -> Any:
        entry = {"resourceClaimTemplateName": template} if template else {"resourceClaimName": claim}
        return await self.cluster.add_pod(name, resourceClaims=[{"name": "gpu", **entry}], **more)

    async def claims(self) -> dict[str, Any]:
        return {each["metadata"]["name"]: each for each in (await self.cluster.ask("GET", CLAIMS))["items"]}

    async def reserved(self, claim: str) -> list[str]:
        status = (await self.claims())[claim].get("status") or {}
        return sorted(each["name"] for each in status.get("reservedFor") or ())

    async def devices_in_use(self) -> list[tuple[str, str]]:
        """(pool, device) of all allocations; fails if one is in two."""
        used = Counter(
            (result["pool"], result["device"])
            for claim in (await self.claims()).values()
            if "allocation" in (claim.get("status") or {})
            for result in claim["status"]["allocation"]["devices"]["results"]
        )
        assert not used or max(used.values()) == 1, used
        return sorted(used)

    async def audit(self) -> None:
        """Every bound pod has its claims allocated where it is, and reserved for it."""
        claims = await self.claims()
        for name, pod in (await self.cluster.pods()).items():
            if not pod["spec"].get("nodeName"):
                continue
            made = {
                each["name"]: each.get("resourceClaimName")
                for each in pod["status"].get("resourceClaimStatuses") or ()
            }
            for entry in pod["spec"].get("resourceClaims") or ():
                claim = claims[entry.get("resourceClaimName") or made[entry["name"]]]
                status = claim["status"]
                assert pod["metadata"]["uid"] in [each["uid"] for each in status["reservedFor"]], name
                assert DELETE_PROTECTION in claim["metadata"]["finalizers"]
                pools = {result["pool"] for result in status["allocation"]["devices"]["results"]}
                assert pools == {pod["spec"]["nodeName"]}, name
        await self.devices_in_use()


@asynccontextmanager
async def devices(
    *nodes: str, per_node: int = 2, controller: bool = True, attaching: Attaching | None = None
) -> AsyncIterator[Devices]:
    async with embedded_cluster() as cluster:
        api = cluster.api
        playing: list[Controller] = [DeviceDriver(api, DevicesShape(per_node, attaching=attaching))]
        if attaching is not None:
            playing.append(DeviceAttacher(api, DRIVER, attaching))
        if controller:
            playing.append(ClaimController(api))
        tasks = [
            asyncio.create_task(controllers.run(each, clock=api.registry.store.clock)) for each in playing
        ]
        try:
            for node in nodes:
                await cluster.add_node(node)
            # A pod that came before the driver has published them would be refused once, and told so.
            await until(lambda: _are_published(cluster, len(nodes)))
            yield Devices(cluster)
        finally:
            for task in tasks:
                task.cancel()
                with suppress(asyncio.CancelledError):
                    await task


async def _are_published(cluster: EmbeddedCluster, nodes: int) -> bool:
    classes, slices = [
        (await cluster.ask("GET", f"{RESOURCE}/{kind}"))["items"]
        for kind in ("deviceclasses", "resourceslices")
    ]
    return bool(classes) and len(slices) == nodes


def nothing_assumed(running: Running) -> bool:
    books = running.fast_path.cluster.devices
    assert books.check() == []
    return not len(books.assumed) and not running.fast_path.ledger.assumed


def nothing_beside() -> bool:
    """Whether PreBind has ended all that it does for pods that were bound, or given up."""
    running = [getattr(task.get_coro(), "cr_code", None) for task in asyncio.all_tasks()]
    return plugin_writes._run.__code__ not in running


async def all_placed(found: Devices, number: int) -> bool:
    return len(await found.cluster.placed()) == number


async def test_pods_of_one_template_each_get_devices_of_their_own() -> None:
    async with devices("n1", "n2") as found, scheduling(found.cluster.transport) as running:
        await found.add_template()
        for index in range(4):
            await found.add_pod(f"p{index}", template="t")
        await until(lambda: all_placed(found, 4))
        await found.audit()
        assert len(await found.devices_in_use()) == 4
        await until(lambda: nothing_assumed(running))
        prebind = running.fast_path.binder._prebind
        assert prebind is not None
        await until(lambda: not prebind._written)
        assert running.reports.failures == []
        assert running.reports.counts["after flush"] == 0


async def test_a_pod_without_devices_left_waits_in_kube_schedulers_words_and_goes_when_one_is_free() -> None:
    async with devices("n1", per_node=1) as found, scheduling(found.cluster.transport) as running:
        await found.add_template()
        await found.add_pod("first", template="t")
        await until(lambda: all_placed(found, 1))
        await found.add_pod("second", template="t")
        told = await until(lambda: found.cluster.condition("second"))
        assert told["message"].startswith("0/1 nodes are available: 1 cannot allocate all claims.")
        assert "still not schedulable, preemption: 0/1 nodes are available" in told["message"]
        await found.cluster.ask("DELETE", f"{PODS}/first?gracePeriodSeconds=0")

        async def moved() -> bool:
            return "second" in await found.cluster.placed()

        await until(moved)
        await found.audit()
        assert running.reports.counts["after flush"] == 0


async def test_pods_that_share_a_claim_go_to_its_node_and_are_all_reserved() -> None:
    async with devices("n1", "n2", "n3") as found, scheduling(found.cluster.transport):
        await found.add_claim("shared")
        for index in range(5):
            await found.add_pod(f"p{index}", claim="shared")
        await until(lambda: all_placed(found, 5))
        assert len(set((await found.cluster.placed()).values())) == 1
        assert await found.reserved("shared") == [f"p{index}" for index in range(5)]
        await found.audit()


async def test_a_pod_waits_behind_the_gate_until_its_claim_is_made() -> None:
    async with devices("n1", controller=False) as found, scheduling(found.cluster.transport) as running:
        queue = running.fast_path.queue
        await found.add_template()
        pod = await found.add_pod("early", template="t")
        await until(lambda: queue.pending().gated == 1)
        controller = asyncio.create_task(
            controllers.run(ClaimController(found.cluster.api), clock=found.cluster.api.registry.store.clock)
        )
        try:
            await until(lambda: all_placed(found, 1))
        finally:
            controller.cancel()
        await found.audit()
        assert queue.where(pod["metadata"]["uid"]) is None
        assert running.reports.counts["after flush"] == 0


async def test_a_claim_that_keeps_its_pod_from_the_only_node_with_room_is_deallocated() -> None:
    async with devices("n1", "n2") as found:
        cluster = found.cluster
        await found.add_claim("c")
        async with scheduling(cluster.transport):
            await found.add_pod("user", claim="c")
            await until(lambda: all_placed(found, 1))
        node = (await cluster.placed())["user"]
        # The claim has an allocation there, of which nobody makes use.
        await cluster.ask("DELETE", f"{PODS}/user?gracePeriodSeconds=0")
        await until(lambda: unreserved(found, "c"))
        await found.cluster.ask(
            "PATCH",
            f"/api/v1/nodes/{node}",
            {"spec": {"unschedulable": True}},
            content_type=MERGE,
        )
        await keep_allocated(found, "c", node)
        async with scheduling(cluster.transport) as running:
            await found.add_pod("next", claim="c")
            await until(lambda: all_placed(found, 1))
            assert (await cluster.placed())["next"] != node
            assert running.reports.counts["after flush"] == 0
        await found.audit()


async def unreserved(found: Devices, claim: str) -> bool:
    return not await found.reserved(claim)


async def keep_allocated(found: Devices, claim: str, node: str) -> None:
    """The controller may have taken the allocation back with the last user: put one there again."""
    status = (await found.claims())[claim].get("status") or {}
    if "allocation" in status:
        return
    results = [{"request": "gpu", "driver": DRIVER, "pool": node, "device": "gpu-0"}]
    here = {"key": "metadata.name", "operator": "In", "values": [node]}
    allocation = {
        "devices": {"results": results},
        "nodeSelector": {"nodeSelectorTerms": [{"matchFields": [here]}]},
    }
    await found.cluster.ask(
        "PATCH", f"{CLAIMS}/{claim}", {"metadata": {"finalizers": [DELETE_PROTECTION]}}, content_type=MERGE
    )
    await found.cluster.ask(
        "PATCH", f"{CLAIMS}/{claim}/status", {"status": {"allocation": allocation}}, content_type=MERGE
    )


class Faulty(Transport):
    """Loses or refuses requests of one kind, as often as it is told; but none that tells where a pod is about to go, of
    whose loss nothing comes."""

    def __init__(self, inner: Transport, method: str, ending: str, times: int, answer: int | None) -> None:
        self.inner, self.method, self.ending = inner, method, ending
        self.left, self.answer = times, answer

    async def request(self, method: str, path: str, **more: Any) -> Response:
        struck = method == self.method and path.endswith(self.ending) and self.left > 0
        struck = struck and b"nominatedNodeName" not in (more.get("body") or b"")
        if struck:
            self.left -= 1
            if self.answer is not None:
                body = (
                    b'{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Forbidden","code":%d}'
                    % self.answer
                )
                return Response(self.answer, body, Headers(()))
        answer = await self.inner.request(method, path, **more)
        if struck:
            raise OutcomeUnknown("the answer was lost")
        return answer

    def stream(self, path: str, *, read_timeout: float) -> Any:
        return self.inner.stream(path, read_timeout=read_timeout)

    async def close(self) -> None:
        await self.inner.close()


@pytest.mark.parametrize("answer", [403, None], ids=["refused", "unanswered"])
async def test_what_is_reserved_for_a_pod_is_given_back_after_its_profile_is_gone(
    answer: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The configuration is replaced while its claim is written."""
    monkeypatch.setattr(prebind, "DEFAULT_POLICY", replace(prebind.DEFAULT_POLICY, settles=0.05))
    other = replace(SETTINGS, profiles=(build_profile(ProfileSpec(scheduler_name="other")),))
    async with devices("n1") as found:
        await found.add_claim("c")

        class Reloading(Faulty):
            async def request(self, method: str, path: str, **more: Any) -> Response:
                if method == "PATCH" and path.endswith("/c/status"):
                    running.fast_path.reconfigure(other)
                    if answer is None:
                        raise OutcomeUnknown("no answer")
                return await super().request(method, path, **more)

        async with scheduling(
            Reloading(found.cluster.transport, "PATCH", "/c/status", 1, answer), SETTINGS
        ) as running:
            await found.add_pod("p", claim="c")
            await until(lambda: running.fast_path.settings.profiles == other.profiles)
            await until(lambda: nothing_assumed(running))
            assert running.reports.failures == []
            await found.cluster.add_pod("q", scheduler="other")
            await until(lambda: all_placed(found, 1))


@pytest.mark.parametrize("ending", ["/status", ""])
async def test_a_write_of_a_claim_whose_answer_is_lost_is_not_made_twice(ending: str) -> None:
    async with devices("n1") as found:
        await found.add_claim("c")
        faulty = Faulty(found.cluster.transport, "PATCH", f"resourceclaims/c{ending}", 1, None)
        async with scheduling(faulty) as running:
            await found.add_pod("p", claim="c")
            await until(lambda: all_placed(found, 1))
            await found.audit()
            await until(lambda: nothing_assumed(running))


@pytest.mark.parametrize("ending", ["/status", ""])
async def test_all_claims_of_a_pod_are_written_though_an_answer_for_the_first_is_lost(ending: str) -> None:
    async with devices("n1") as found:
        for claim in ("c", "d"):
            await found.add_claim(claim)
        faulty = Faulty(found.cluster.transport, "PATCH", f"resourceclaims/c{ending}", 1, None)
        async with scheduling(faulty) as running:
            both = [{"name": claim, "resourceClaimName": claim} for claim in ("c", "d")]
            await found.cluster.add_pod("p", resourceClaims=both)
            await until(lambda: all_placed(found, 1))
            assert faulty.left == 0
            await found.audit()
            assert running.reports.problems == []
            await until(lambda: nothing_assumed(running))


async def test_a_reservation_whose_answer_is_lost_is_found_in_the_claim() -> None:
    async with devices("n1") as found:
        await found.add_claim("c")
        faulty = Faulty(found.cluster.transport, "PATCH", "resourceclaims/c/status", 0, None)
        async with scheduling(faulty) as running:
            await found.add_pod("first", claim="c")
            await until(lambda: all_placed(found, 1))
            faulty.left = 1
            await found.add_pod("second", claim="c")
            await until(lambda: all_placed(found, 2))
            assert faulty.left == 0
            assert await found.reserved("c") == ["first", "second"]
            await until(lambda: nothing_assumed(running))
            assert running.reports.problems == []


async def test_a_claim_that_cannot_be_written_leaves_nothing_reserved_and_is_tried_again() -> None:
    async with devices("n1") as found:
        await found.add_claim("c")
        faulty = Faulty(found.cluster.transport, "PATCH", "resourceclaims/c/status", 1, 403)
        async with scheduling(faulty) as running:
            await found.add_pod("p", claim="c")
            await until(lambda: running.reports.problems)
            assert 'running PreBind plugin "DynamicResources"' in running.reports.problems[0]
            await until(lambda: all_placed(found, 1))
            await found.audit()
            await until(lambda: nothing_assumed(running))


class Waiting(Faulty):
    """Requests of the kind are sent only when they may `go`."""

    def __init__(self, inner: Transport, method: str, ending: str) -> None:
        super().__init__(inner, method, ending, 0, None)
        self.go = asyncio.Event()
        self.came = False

    async def request(self, method: str, path: str, **more: Any) -> Response:
        if method == self.method and path.endswith(self.ending):
            self.came = True
            await self.go.wait()
        return await super().request(method, path, **more)


async def test_a_pod_whose_claim_is_being_written_is_bound_before_the_scheduler_ends() -> None:
    async with devices("n1") as found:
        await found.add_claim("c")
        waiting = Waiting(found.cluster.transport, "PATCH", "resourceclaims/c/status")
        async with scheduling(waiting) as running:
            await found.add_pod("p", claim="c")
            await until(lambda: waiting.came)
            ending = asyncio.create_task(running.stop(grace=10.0))
            # Nobody is taken from the queue any more, and yet it has not ended.
            later = await found.cluster.add_pod("later")
            await until(lambda: running.fast_path.queue.where(later["metadata"]["uid"]))
            assert running.fast_path.queue.pending().in_flight == 1
            assert not running.scheduling.done()
            waiting.go.set()
            await ending
            assert await all_placed(found, 1)
            await found.audit()


async def test_a_refused_bind_takes_the_reservation_back() -> None:
    async with devices("n1") as found:
        await found.add_claim("c")
        faulty = Faulty(found.cluster.transport, "POST", "/binding", 1, 403)
        async with scheduling(faulty, initial_backoff=30.0, max_backoff=30.0) as running:
            await found.add_pod("p", claim="c")
            await until(lambda: running.reports.problems)
            await until(lambda: unreserved(found, "c"))
            await until(lambda: nothing_assumed(running))


async def test_a_claim_that_somebody_else_allocates_meanwhile_costs_an_attempt_and_no_device_twice() -> None:
    async with devices("n1", "n2", per_node=1) as found:
        await found.add_claim("c")

        class Rival(Faulty):
            async def request(self, method: str, path: str, **more: Any) -> Response:
                if method == "PATCH" and path.endswith("/c/status") and self.left > 0:
                    self.left -= 1
                    await keep_allocated(found, "c", "n2")
                return await self.inner.request(method, path, **more)

        rival = Rival(found.cluster.transport, "", "", 1, None)
        async with scheduling(rival) as running:
            await found.add_pod("p", claim="c", nodeSelector={})
            await until(lambda: all_placed(found, 1))
            await found.audit()
            await until(lambda: nothing_assumed(running))


@pytest.mark.parametrize("put_off", [False, True])
async def test_a_device_that_somebody_else_allocates_meanwhile_is_not_written_for_a_second_claim(
    put_off: bool,
) -> None:
    """The API server would take it. Whoever allocates from the same pools is seen before the last write, or never."""
    async with devices("n1", "n2", per_node=1) as found:
        await found.add_claim("c")
        await found.add_claim("theirs")
        taken: list[str] = []

        class Rival(Faulty):
            async def request(self, method: str, path: str, **more: Any) -> Response:
                struck = method == "PATCH" and path.endswith("/c/status" if put_off else "/c") and not taken
                if struck and put_off:
                    answer = Response(429, b'{"kind":"Status","apiVersion":"v1","code":429}', Headers(()))
                else:
                    answer = await self.inner.request(method, path, **more)
                if struck:
                    books = running.fast_path.cluster.devices
                    assumed = books.assumed.get(("default", "c"))
                    assert assumed is not None and assumed.allocation is not None
                    taken.append(assumed.allocation.uses[0].id.pool)
                    await keep_allocated(found, "theirs", taken[0])
                    await until(lambda: books.allocation(("default", "theirs")))
                return answer

        async with scheduling(Rival(found.cluster.transport, "", "", 0, None)) as running:
            await found.add_pod("p", claim="c")
            await until(lambda: all_placed(found, 1))
            assert taken and (await found.cluster.placed())["p"] != taken[0]
            assert "given to others" in str(running.reports.problems)
            await found.audit()
            assert len(await found.devices_in_use()) == 2
            await until(lambda: nothing_assumed(running))


async def test_a_choice_for_a_claim_that_had_another_allocation_in_between_is_not_written() -> None:
    """With that allocation the choice was over, and its device may be anybody's when the claim has none again."""
    async with devices("n1", "n2", per_node=1) as found:
        await found.add_claim("c")
        await found.add_claim("theirs")
        taken: list[str] = []

        class Rival(Faulty):
            async def request(self, method: str, path: str, **more: Any) -> Response:
                answer = await self.inner.request(method, path, **more)
                if method == "PATCH" and path.endswith("/c") and not taken:
                    books = running.fast_path.cluster.devices
                    assumed = books.assumed.get(("default", "c"))
                    assert assumed is not None and assumed.allocation is not None
                    taken.append(assumed.allocation.uses[0].id.pool)
                    await keep_allocated(found, "c", taken[0])
                    await until(lambda: books.claims["default", "c"].allocation)
                    nothing = {"status": {"allocation": None}}
                    await found.cluster.ask("PATCH", f"{CLAIMS}/c/status", nothing, content_type=MERGE)
                    await keep_allocated(found, "theirs", taken[0])
                    await until(lambda: books.allocation(("default", "theirs")))
                    await until(lambda: books.claims["default", "c"].allocation is None)
                return answer

        async with scheduling(Rival(found.cluster.transport, "", "", 0, None)) as running:
            await found.add_pod("p", claim="c")
            await until(lambda: all_placed(found, 1))
            assert taken and (await found.cluster.placed())["p"] != taken[0]
            assert "given to others" in str(running.reports.problems)
            await found.audit()
            assert len(await found.devices_in_use()) == 2
            await until(lambda: nothing_assumed(running))


async def test_devices_are_given_to_nobody_else_while_a_write_that_got_no_answer_may_be_carried_out() -> None:
    async with devices("n1", per_node=1) as found:
        await found.add_claim("c")
        await found.add_claim("d")
        held: list[tuple[str, str, dict[str, Any]]] = []

        class Late(Faulty):
            async def request(self, method: str, path: str, **more: Any) -> Response:
                if path.endswith("/c/status"):
                    if method == "PATCH":
                        held.append((method, path, more))
                    raise OutcomeUnknown("no answer")
                return await self.inner.request(method, path, **more)

        async with scheduling(Late(found.cluster.transport, "", "", 0, None)) as running:
            await found.add_pod("p", claim="c")
            await until(lambda: held)
            await found.cluster.ask("DELETE", f"{PODS}/p?gracePeriodSeconds=0")
            await found.add_pod("q", claim="d")
            await until(lambda: not running.fast_path.binder.in_flight)
            await until(lambda: found.cluster.condition("q"))
            assert await found.cluster.placed() == {}
            method, path, more = held[0]
            assert (await found.cluster.transport.request(method, path, **more)).status == 200
            await until(lambda: all_placed(found, 1))
            await found.audit()


@pytest.mark.parametrize("moment", ["the pod is asked for", "the write is under way"])
async def test_a_claim_is_not_deallocated_that_the_pods_next_attempt_counts_on(
    moment: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It keeps its pod from the other node, and is to be given back; but then its own node will do after all."""
    monkeypatch.setattr(pod_claims, "_RETRY", 0.05)
    async with devices("n1", "n2") as found:
        cluster = found.cluster
        await found.add_claim("c")
        cordon = {"spec": {"unschedulable": True}}
        await cluster.ask("PATCH", "/api/v1/nodes/n1", cordon, content_type=MERGE)
        await keep_allocated(found, "c", "n1")
        uid = (await found.add_pod("p", claim="c"))["metadata"]["uid"]
        user = {"status": {"reservedFor": [{"resource": "pods", "name": "p", "uid": uid}]}}
        await cluster.ask("PATCH", f"{CLAIMS}/c/status", user, content_type=MERGE)

        class Racing(Faulty):
            async def request(self, method: str, path: str, **more: Any) -> Response:
                asked = method == "GET" and path.endswith("/pods/p")
                answer = await self.inner.request(method, path, **more) if asked else None
                sent = method == "PATCH" and path.endswith("/c/status")
                if self.left and (asked if moment == "the pod is asked for" else sent):
                    self.left = 0
                    open_again = {"spec": {"unschedulable": None}}
                    await cluster.ask("PATCH", "/api/v1/nodes/n1", open_again, content_type=MERGE)
                    await _within(0.5, lambda: binds)
                if method == "POST" and path.endswith("/binding"):
                    binds.append(path)
                    await asyncio.sleep(0.3)
                return answer or await self.inner.request(method, path, **more)

        binds: list[str] = []
        async with scheduling(Racing(cluster.transport, "", "", 1, None)) as running:
            await until(lambda: all_placed(found, 1))
            await until(nothing_beside)
            await found.audit()
            await until(lambda: nothing_assumed(running))


async def _within(seconds: float, condition: Callable[[], Any]) -> None:
    """Until it holds, but no longer than that."""
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await until(condition)


async def test_what_an_attempt_of_unknown_outcome_wrote_is_not_taken_from_the_next_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(prebind, "DEFAULT_POLICY", replace(prebind.DEFAULT_POLICY, settles=0.3))
    async with devices("n1") as found:
        await found.add_claim("c")

        class Slow(Faulty):
            async def request(self, method: str, path: str, **more: Any) -> Response:
                if method == "PATCH" and path.endswith("/c/status") and self.left:
                    self.left -= 1
                    if self.left:
                        raise OutcomeUnknown("no answer")
                    return Response(403, b'{"kind":"Status","apiVersion":"v1","code":403}', Headers(()))
                if method == "POST" and path.endswith("/binding"):
                    await asyncio.sleep(0.3)
                answer = await self.inner.request(method, path, **more)
                if method == "GET" and path.endswith("/pods/p"):
                    await _within(1.0, lambda: found.reserved("c"))
                return answer

        async with scheduling(Slow(found.cluster.transport, "", "", 2, None), initial_backoff=0.1) as running:
            await found.add_pod("p", claim="c")
            await until(lambda: all_placed(found, 1))
            await until(nothing_beside)
            await found.audit()
            await until(lambda: nothing_assumed(running))


class Behind(Faulty):
    """Its watch of pods tells nothing while they are not to be `shown`. Once it is to do what a subclass says."""

    def __init__(self, inner: Transport) -> None:
        super().__init__(inner, "", "", 1, None)
        self.shown = asyncio.Event()
        self.shown.set()

    @asynccontextmanager
    async def stream(self, path: str, *, read_timeout: float) -> AsyncIterator[Any]:
        async with self.inner.stream(path, read_timeout=read_timeout) as batches:

            async def behind() -> AsyncIterator[Any]:
                async for lines in batches:
                    if "/pods" in path:
                        await self.shown.wait()
                    yield lines

            yield behind()


@pytest.mark.parametrize("asked", ["says that it has a node", "gives no answer"])
async def test_what_a_pod_uses_that_is_bound_already_is_not_taken_back_from_it(asked: str) -> None:
    """A bind may be refused because the watch is behind: somebody has bound the pod. Whoever is asked about it may give
    no answer."""
    patches: list[str] = []
    async with devices("n1") as found:
        await found.add_claim("c")

        class Ahead(Behind):
            async def request(self, method: str, path: str, **more: Any) -> Response:
                if method == "PATCH" and "resourceclaims" in path:
                    patches.append(path)
                if method == "GET" and path.endswith("/pods/p") and asked == "gives no answer":
                    raise OutcomeUnknown("no answer")
                if method == "POST" and path.endswith("/binding") and self.left > 0:
                    self.left -= 1
                    self.shown.clear()
                    await self.inner.request(method, path, **more)
                    return Response(
                        403,
                        b'{"kind":"Status","apiVersion":"v1","reason":"Forbidden","code":403}',
                        Headers(()),
                    )
                return await self.inner.request(method, path, **more)

        ahead = Ahead(found.cluster.transport)
        async with scheduling(ahead) as running:
            await found.add_pod("p", claim="c")
            await until(lambda: running.reports.problems)
            assert await found.reserved("c") == ["p"]
            assert len(patches) == 2
            ahead.shown.set()
            await until(lambda: not running.fast_path.binder.in_flight)
            await found.audit()


async def test_a_claim_of_a_pod_that_got_a_node_meanwhile_is_not_given_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It keeps its pod from the other node; but somebody has bound the pod, of which the watch is slow to tell."""
    monkeypatch.setattr(pod_claims, "_RETRY", 0.05)
    patches: list[str] = []
    async with devices("n1", "n2") as found:
        cluster = found.cluster
        await found.add_claim("c")
        cordon = {"spec": {"unschedulable": True}}
        await cluster.ask("PATCH", "/api/v1/nodes/n1", cordon, content_type=MERGE)
        await keep_allocated(found, "c", "n1")

        class Ahead(Behind):
            async def request(self, method: str, path: str, **more: Any) -> Response:
                if method == "PATCH" and "resourceclaims" in path:
                    patches.append(path)
                if method == "GET" and path.endswith("/pods/p") and self.left:
                    self.left -= 1
                    self.shown.clear()
                    await cluster.bind("p", "n1")
                return await self.inner.request(method, path, **more)

        ahead = Ahead(cluster.transport)
        async with scheduling(ahead):
            await found.add_pod("p", claim="c")
            await until(lambda: not ahead.left and nothing_beside())
            assert patches == []
            ahead.shown.set()
            await until(lambda: all_placed(found, 1))
        assert "allocation" in (await found.claims())["c"]["status"]


async def test_pods_are_decided_on_a_portion_at_a_time_where_devices_take_long_to_find(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """No portion suffices for all nodes, so each decision takes several cycles, with those of others between them."""
    monkeypatch.setattr(worker, "PORTION", 40)
    nodes = [f"n{index:02}" for index in range(12)]
    async with devices(*nodes) as found, scheduling(found.cluster.transport) as running:
        await found.add_template()
        for index in range(8):
            await found.add_pod(f"p{index}", template="t")
            await found.cluster.add_pod(f"plain{index}")
        await until(lambda: all_placed(found, 16))
        await found.audit()
        await until(lambda: nothing_assumed(running))
        assert sum(running.reports.counts[f"worker {index}"] for index in range(8)) > 16
        assert running.reports.failures == [] and running.reports.problems == []
        assert running.reports.attempts == {"scheduled": 16}


async def add_hard_claim(found: Devices) -> None:
    """Six requests for four devices each of sixteen kinds, all unlike: nobody lives to see the end of that search."""
    requests = [
        {
            "name": f"r{index}",
            "exactly": {"deviceClassName": DRIVER, "count": 4, "allocationMode": "ExactCount"},
        }
        for index in range(6)
    ]
    unlike = [{"distinctAttribute": f"{DRIVER}/model"}, {"distinctAttribute": f"{DRIVER}/numa"}]
    requests[-1]["exactly"]["selectors"] = [
        {"cel": {"expression": f"device.attributes['{DRIVER}'].index >= 0"}}
    ]
    body = {
        "metadata": {"name": "hard"},
        "spec": {
            "devices": {
                "requests": requests,
                "constraints": [{**each, "requests": ["r5"]} for each in unlike],
            }
        },
    }
    await found.cluster.ask("POST", CLAIMS, body)


@pytest.mark.real_time
async def test_a_pod_whose_nodes_stay_undecided_is_tried_again_without_an_event() -> None:
    args = {"DynamicResources": DynamicResourcesArgs(filter_timeout=0.05)}
    profile = build_profile(ProfileSpec(scheduler_name="agent-scheduler", args=args))
    async with (
        devices("n1", per_node=40) as found,
        scheduling(
            found.cluster.transport, profiles=(profile,), initial_backoff=0.1, max_backoff=0.1
        ) as running,
    ):
        await add_hard_claim(found)
        await found.add_pod("p", claim="hard")
        told = await until(lambda: found.cluster.condition("p"))
        assert told["message"].startswith("0/1 nodes are available: 1 timed out trying to allocate devices.")
        await until(lambda: running.reports.attempts["unschedulable"] >= 3)
        # Others go on meanwhile.
        await found.cluster.add_pod("plain")
        await until(lambda: all_placed(found, 1))


async def test_a_profile_without_the_plugin_takes_no_devices() -> None:
    """As kube-scheduler: no Reserve and no PreBind without DynamicResources. Who disables it answers for the claims."""
    without = {"multiPoint": PluginSet(disabled=("DynamicResources",))}
    profile = build_profile(ProfileSpec(scheduler_name="agent-scheduler", plugins=without))
    async with devices("n1") as found, scheduling(found.cluster.transport, profiles=(profile,)) as running:
        await found.add_claim("c")
        await found.add_pod("p", claim="c")
        await until(lambda: running.reports.attempts["scheduled"])
        assert await found.reserved("c") == []
        assert not running.fast_path.cluster.devices.assumed

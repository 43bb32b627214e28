"""Devices that have to be made ready before their pod may be bound, against the embedded API and its driver."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from agent_scheduler.cluster import changes
from agent_scheduler.engine.framework.args import DynamicResourcesArgs
from agent_scheduler.engine.profiles.profiles import ProfileSpec, build_profile
from agent_scheduler.kube.transport import Response, Transport
from embedded_kubernetes.device_driver import ATTACH_FAILED, ATTACHED, DRIVER, Attaching
from tests.support.embedded import PODS, until
from tests.support.running import Running, scheduling

from .test_extended_resources import add_pod as add_pod_with_resources
from .test_resource_claims import CLAIMS, Devices, all_placed, devices, keep_allocated, nothing_assumed

MERGE = "application/merge-patch+json"
EVENTS = "/apis/events.k8s.io/v1/namespaces/default/events"
FAILED = 'reason=Simulated, message="the device could not be attached"'


@pytest.fixture(autouse=True)
def _is_woken(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody who waits looks again by himself."""
    monkeypatch.setattr(changes, "_LOOK_AGAIN", 3600.0)


async def report(found: Devices, claim: str, kind: str, message: str = "m") -> None:
    """As the driver does, of all devices of the claim."""
    results = (await found.claims())[claim]["status"]["allocation"]["devices"]["results"]
    condition = {"type": kind, "status": "True", "reason": "R", "message": message}
    condition["lastTransitionTime"] = "2026-01-01T00:00:00Z"
    reports = [
        {**{name: each[name] for name in ("driver", "pool", "device")}, "conditions": [condition]}
        for each in results
    ]
    await _patch_status(found, claim, {"devices": reports})


async def told(found: Devices, reason: str) -> list[str]:
    items = (await found.cluster.ask("GET", EVENTS))["items"]
    return [each["note"] for each in items if each["reason"] == reason]


async def waits(found: Devices, running: Running, pod: str, claim: str) -> bool:
    """Whether the pod's claim is reserved for it, and PreBind waits for its devices."""
    prebind = running.fast_path.binder._prebind
    assert prebind is not None
    return await found.reserved(claim) == [pod] and prebind.under_way == 1 and not prebind.writing


async def gone(found: Devices, claim: str) -> bool:
    return "allocation" not in ((await found.claims())[claim].get("status") or {})


async def test_a_pod_is_bound_when_the_driver_has_made_its_devices_ready() -> None:
    async with (
        devices("n1", attaching=Attaching(None)) as found,
        scheduling(found.cluster.transport) as running,
    ):
        await found.add_claim("c")
        await found.add_pod("p", claim="c")
        await until(lambda: waits(found, running, "p", "c"))
        await until(lambda: told(found, "BindingConditionsPending"))
        assert await told(found, "BindingConditionsPending") == [
            "waiting for binding conditions for device on node n1"
        ]
        allocation = (await found.claims())["c"]["status"]["allocation"]
        (result,) = allocation["devices"]["results"]
        assert result["bindingConditions"] == [ATTACHED]
        assert result["bindingFailureConditions"] == [ATTACH_FAILED]
        assert allocation["allocationTimestamp"]
        assert await found.cluster.placed() == {}
        await report(found, "c", ATTACHED)
        await until(lambda: all_placed(found, 1))
        await found.audit()
        await until(lambda: nothing_assumed(running))
        assert running.reports.counts[f"devices of {DRIVER} success"] == 1
        assert running.reports.problems == [] and running.reports.failures == []


async def test_pods_go_end_to_end_with_a_driver_that_attaches_their_devices() -> None:
    async with (
        devices("n1", "n2", attaching=Attaching(0.05)) as found,
        scheduling(found.cluster.transport) as running,
    ):
        await found.add_template()
        for index in range(4):
            await found.add_pod(f"p{index}", template="t")
        await until(lambda: all_placed(found, 4))
        await found.audit()
        for claim in (await found.claims()).values():
            (device,) = claim["status"]["devices"]
            assert device["conditions"][0]["type"] == ATTACHED
        await until(lambda: nothing_assumed(running))
        assert running.reports.problems == [] and running.reports.failures == []


async def test_the_claim_that_is_made_for_extended_resources_is_waited_for_too() -> None:
    async with (
        devices("n1", attaching=Attaching(None)) as found,
        scheduling(found.cluster.transport) as running,
    ):
        await add_pod_with_resources(found, "p")
        await until(lambda: told(found, "BindingConditionsPending"))
        (claim,) = await found.claims()
        await until(lambda: waits(found, running, "p", claim))
        assert (await found.claims())[claim]["status"]["allocation"]["allocationTimestamp"]
        assert await found.cluster.placed() == {}
        await report(found, claim, ATTACHED)
        await until(lambda: all_placed(found, 1))
        await until(lambda: nothing_assumed(running))
        assert list(await found.claims()) == [claim]


async def test_a_failure_fails_the_attempt_in_kube_schedulers_words_and_frees_the_devices() -> None:
    attaching = Attaching(0.0, failing={"n1"})
    async with devices("n1", attaching=attaching) as found, scheduling(found.cluster.transport) as running:
        await found.add_claim("c")
        await found.add_pod("p", claim="c")
        await until(lambda: running.reports.problems)
        problem = f'running PreBind plugin "DynamicResources": device binding failed: claim=c, {FAILED}'
        assert running.reports.problems[0] == problem
        condition = await until(lambda: found.cluster.condition("p"))
        assert (condition["reason"], condition["message"]) == ("SchedulerError", problem)
        attaching.failing.clear()
        await until(lambda: all_placed(found, 1))
        await found.audit()
        (device,) = (await found.claims())["c"]["status"]["devices"]
        assert device["conditions"][0]["type"] == ATTACHED
        await until(lambda: nothing_assumed(running))
        assert running.reports.counts[f"devices of {DRIVER} failure"] >= 1
        assert running.reports.counts["after flush"] == 0


async def test_devices_that_are_not_ready_in_time_are_given_back_and_others_are_tried() -> None:
    args = {"DynamicResources": DynamicResourcesArgs(binding_timeout=0.5)}
    profile = build_profile(ProfileSpec(scheduler_name="agent-scheduler", args=args))
    async with (
        devices("n1", attaching=Attaching(None)) as found,
        scheduling(
            found.cluster.transport, profiles=(profile,), initial_backoff=30.0, max_backoff=30.0
        ) as running,
    ):
        await found.add_claim("c")
        await found.add_pod("p", claim="c")
        await until(lambda: running.reports.problems)
        assert running.reports.problems == [
            'running PreBind plugin "DynamicResources": device binding timeout: claim=c'
        ]
        await until(lambda: gone(found, "c"))
        await until(lambda: nothing_assumed(running))
        assert running.reports.counts[f"devices of {DRIVER} timeout"] == 1


async def test_a_scheduler_that_starts_in_the_middle_of_the_wait_goes_on_with_it() -> None:
    async with devices("n1", "n2", attaching=Attaching(None)) as found:
        await found.add_claim("c")
        async with scheduling(found.cluster.transport) as first:
            await found.add_pod("p", claim="c")
            await until(lambda: waits(found, first, "p", "c"))
            before = (await found.claims())["c"]["status"]["allocation"]
            await first.stop()
        async with scheduling(found.cluster.transport) as second:
            await until(lambda: waits(found, second, "p", "c"))
            await report(found, "c", ATTACHED)
            await until(lambda: all_placed(found, 1))
            await found.audit()
            assert (await found.claims())["c"]["status"]["allocation"] == before


async def test_a_pod_that_is_deleted_while_it_waits_leaves_nothing() -> None:
    async with (
        devices("n1", per_node=1, attaching=Attaching(None)) as found,
        scheduling(found.cluster.transport) as running,
    ):
        await found.add_claim("c")
        await found.add_claim("d")
        await found.add_pod("p", claim="c")
        await until(lambda: waits(found, running, "p", "c"))
        await found.cluster.ask("DELETE", f"{PODS}/p?gracePeriodSeconds=0")
        await until(lambda: gone(found, "c"))
        await until(lambda: running.fast_path.binder.in_flight == 0)
        await until(lambda: nothing_assumed(running))
        # Its device is for others.
        await found.add_pod("q", claim="d")
        await until(lambda: waits(found, running, "q", "d"))
        await report(found, "d", ATTACHED)
        await until(lambda: all_placed(found, 1))


async def test_a_second_pod_waits_for_the_claim_of_the_first() -> None:
    async with (
        devices("n1", attaching=Attaching(None)) as found,
        scheduling(found.cluster.transport) as running,
    ):
        await found.add_claim("c")
        await found.add_pod("p", claim="c")
        await until(lambda: waits(found, running, "p", "c"))
        await found.add_pod("q", claim="c")

        async def both() -> bool:
            return await found.reserved("c") == ["p", "q"]

        await until(both)
        assert await found.cluster.placed() == {}
        await report(found, "c", ATTACHED)
        await until(lambda: all_placed(found, 2))
        await found.audit()
        await until(lambda: nothing_assumed(running))


@pytest.mark.parametrize("how", ["failed", "late"])
async def test_an_allocated_claim_whose_devices_did_not_become_ready_is_given_back(how: str) -> None:
    async with devices("n1", attaching=Attaching(None)) as found:
        await found.add_claim("c")
        await _allocate(found, "c", at="2020-01-01T00:00:00Z" if how == "late" else "2099-01-01T00:00:00Z")
        if how == "failed":
            await report(found, "c", ATTACH_FAILED)
        async with scheduling(found.cluster.transport) as running:
            await found.add_pod("p", claim="c")
            condition: Any = await until(lambda: found.cluster.condition("p"))
            assert condition["message"].startswith(
                "0/1 nodes are available: 1 resourceclaim not available on the node. "
                "deallocation of ResourceClaim completed, preemption: "
            )
            await until(lambda: waits(found, running, "p", "c"))
            await report(found, "c", ATTACHED)
            await until(lambda: all_placed(found, 1))
            await found.audit()
            assert running.reports.counts["after flush"] == 0


async def test_pods_that_share_a_claim_whose_devices_failed_do_not_keep_it_for_one_another() -> None:
    """As their scheduler has left them that ended before it took anything back."""
    async with devices("n1", attaching=Attaching(None)) as found:
        await found.add_claim("c")
        names = ("p", "q")
        for name in names:
            await found.add_pod(name, claim="c")
        pods = await found.cluster.pods()
        users = [{"resource": "pods", "name": name, "uid": pods[name]["metadata"]["uid"]} for name in names]
        await _allocate(found, "c", at="2099-01-01T00:00:00Z")
        await _patch_status(found, "c", {"reservedFor": users})
        await report(found, "c", ATTACH_FAILED)
        async with scheduling(found.cluster.transport) as running:

            async def both() -> bool:
                claim = (await found.claims())["c"]
                return not claim["status"].get("devices") and await found.reserved("c") == ["p", "q"]

            await until(both)
            await report(found, "c", ATTACHED)
            await until(lambda: all_placed(found, 2))
            await found.audit()
            await until(lambda: nothing_assumed(running))
            assert running.reports.counts["after flush"] == 0


class Holding(Transport):
    """Keeps back the answer to the first request that takes a pod out of a claim, until it is let go."""

    def __init__(self, inner: Transport) -> None:
        self._inner = inner
        self.carried_out, self.let_go = asyncio.Event(), asyncio.Event()

    async def request(self, method: str, path: str, **more: Any) -> Response:
        answer = await self._inner.request(method, path, **more)
        if b"$patch" in (more.get("body") or b"") and path.startswith(CLAIMS):
            self.carried_out.set()
            await self.let_go.wait()
        return answer

    def stream(self, path: str, *, read_timeout: float) -> Any:
        return self._inner.stream(path, read_timeout=read_timeout)

    async def close(self) -> None:
        await self._inner.close()


@pytest.mark.parametrize("is_reported_again", [False, True])
async def test_a_pod_that_is_refused_while_its_failed_claim_is_written_for_another_has_it_deallocated(
    is_reported_again: bool,
) -> None:
    """The watch tells of the write before its answer comes, so nothing wakes the pod when that does. Nor when it was
    refused for something else of the claim meanwhile."""
    async with devices("n1", attaching=Attaching(None)) as found:
        await found.add_claim("c")
        gate = [{"name": "example.com/g"}]
        pods = [
            await found.add_pod("p", claim="c"),
            await found.add_pod("q", claim="c", schedulingGates=gate),
        ]
        users = [
            {"resource": "pods", "name": each["metadata"]["name"], "uid": each["metadata"]["uid"]}
            for each in pods
        ]
        await _allocate(found, "c", at="2099-01-01T00:00:00Z")
        await _patch_status(found, "c", {"reservedFor": users})
        await report(found, "c", ATTACH_FAILED)
        transport = Holding(found.cluster.transport)
        async with scheduling(transport) as running:
            attempts = running.reports.attempts

            async def refused(*, after: int) -> None:
                await until(lambda: attempts["unschedulable"] > after)
                await until(lambda: running.fast_path.queue.pending().unschedulable == 2)

            await transport.carried_out.wait()
            seen = attempts["unschedulable"]
            await found.cluster.ask(
                "PATCH", f"{PODS}/q", {"spec": {"schedulingGates": None}}, content_type=MERGE
            )
            await refused(after=seen)
            if is_reported_again:
                seen = attempts["unschedulable"]
                await report(found, "c", ATTACH_FAILED, "once more")
                await refused(after=seen + 1)
            transport.let_go.set()

            async def both() -> bool:
                claim = (await found.claims())["c"]
                return not claim["status"].get("devices") and await found.reserved("c") == ["p", "q"]

            await until(both)
            await report(found, "c", ATTACHED)
            await until(lambda: all_placed(found, 2))
            await found.audit()
            await until(lambda: nothing_assumed(running))
            assert running.reports.counts["after flush"] == 0


async def _patch_status(found: Devices, claim: str, status: dict[str, Any]) -> None:
    await found.cluster.ask("PATCH", f"{CLAIMS}/{claim}/status", {"status": status}, content_type=MERGE)


async def _allocate(found: Devices, claim: str, *, at: str) -> None:
    """As a scheduler did that is gone."""
    await keep_allocated(found, claim, "n1")
    conditions = {"bindingConditions": [ATTACHED], "bindingFailureConditions": [ATTACH_FAILED]}
    api = found.cluster.api
    table = api.registry.stored(("resource.k8s.io", "resourceclaims"))
    record = table.table.get("default", claim)
    body = table.stored.decode(record.data)
    body["status"]["allocation"]["allocationTimestamp"] = at
    for result in body["status"]["allocation"]["devices"]["results"]:
        result.update(conditions)
    api.store.replace(("resource.k8s.io", "resourceclaims"), record, body)

"""Devices that must be ready before their pod is bound, with the embedded API and its driver."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from agent_scheduler.cluster import changes
from agent_scheduler.engine.framework.args import DynamicResourcesArgs
from embedded_kubernetes.device_driver import ATTACH_FAILED, ATTACHED, DRIVER, Attaching
from kube_client.transport import Response, Transport
from tests.support.device_cluster import CLAIMS, Devices, devices, nothing_assumed
from tests.support.embedded import PODS, until
from tests.support.running import Running, profile, scheduling
from tests.support.transports import Through

from .test_extended_resources import add_pod as add_pod_with_resources

EVENTS = "/apis/events.k8s.io/v1/namespaces/default/events"
FAILED = 'reason=Simulated, message="the device could not be attached"'


@pytest.fixture(autouse=True)
def _is_woken(monkeypatch: pytest.MonkeyPatch) -> None:
    """Prevent waiting pods from checking again by themselves."""
    monkeypatch.setattr(changes, "_LOOK_AGAIN", 3600.0)


async def told(found: Devices, reason: str) -> list[str]:
    items = (await found.cluster.ask("GET", EVENTS))["items"]
    return [each["note"] for each in items if each["reason"] == reason]


async def waits(found: Devices, running: Running, pod: str, claim: str) -> bool:
    """Return whether the pod's claim is reserved for it, and PreBind waits for its devices."""
    prebind = running.fast_path.binder._prebind
    assert prebind is not None
    return await found.reserved(claim) == [pod] and prebind.under_way == 1 and not prebind.writing


@asynccontextmanager
async def waiting_pod(*nodes: str, **shape: Any) -> AsyncIterator[tuple[Devices, Running]]:
    """Yield a pod `p` that waits for the devices of its claim `c`, which only the test attaches."""
    async with devices(*nodes, attaching=Attaching(None), **shape) as found, found.settling() as running:
        await found.add_claim("c")
        await found.add_pod("p", claim="c")
        await until(lambda: waits(found, running, "p", "c"))
        yield found, running


async def _is_new_for_both(found: Devices) -> bool:
    """Return whether the claim is reserved for both pods, and the driver has reported nothing about its devices."""
    status = (await found.claims())["c"]["status"]
    return not status.get("devices") and await found.reserved("c") == ["p", "q"]


@pytest.mark.promise("S18")
async def test_a_pod_is_bound_when_the_driver_has_made_its_devices_ready() -> None:
    async with waiting_pod("n1") as (found, running):
        await until(lambda: told(found, "BindingConditionsPending"))
        assert await told(found, "BindingConditionsPending") == ["waiting for binding conditions for device on node n1"]
        allocation = (await found.claims())["c"]["status"]["allocation"]
        (result,) = allocation["devices"]["results"]
        assert result["bindingConditions"] == [ATTACHED]
        assert result["bindingFailureConditions"] == [ATTACH_FAILED]
        assert allocation["allocationTimestamp"]
        assert await found.cluster.placed() == {}
        await found.report("c", ATTACHED)
        await until(lambda: found.cluster.all_placed(1))
        await found.audit()
        await until(lambda: nothing_assumed(running))
        assert running.reports.counts[f"devices of {DRIVER} success"] == 1
        assert running.reports.problems == [] and running.reports.failures == []


async def test_the_claim_that_is_made_for_extended_resources_is_waited_for_too() -> None:
    async with devices("n1", attaching=Attaching(None)) as found, scheduling(found.cluster.transport) as running:
        await add_pod_with_resources(found, "p")
        await until(lambda: told(found, "BindingConditionsPending"))
        (claim,) = await found.claims()
        await until(lambda: waits(found, running, "p", claim))
        assert (await found.claims())[claim]["status"]["allocation"]["allocationTimestamp"]
        assert await found.cluster.placed() == {}
        await found.report(claim, ATTACHED)
        await until(lambda: found.cluster.all_placed(1))
        await until(lambda: nothing_assumed(running))
        assert list(await found.claims()) == [claim]


@pytest.mark.promise("L10")
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
        await until(lambda: found.cluster.all_placed(1))
        await found.audit()
        (device,) = (await found.claims())["c"]["status"]["devices"]
        assert device["conditions"][0]["type"] == ATTACHED
        await until(lambda: nothing_assumed(running))
        assert running.reports.counts[f"devices of {DRIVER} failure"] >= 1
        assert running.reports.counts["after flush"] == 0


async def test_devices_that_are_not_ready_in_time_are_given_back_and_others_are_tried() -> None:
    args = {"DynamicResources": DynamicResourcesArgs(binding_timeout=0.5)}
    async with (
        devices("n1", attaching=Attaching(None)) as found,
        scheduling(
            found.cluster.transport, profiles=(profile(args=args),), initial_backoff=30.0, max_backoff=30.0
        ) as running,
    ):
        await found.add_claim("c")
        await found.add_pod("p", claim="c")
        await until(lambda: running.reports.problems)
        assert running.reports.problems == [
            'running PreBind plugin "DynamicResources": device binding timeout: claim=c'
        ]
        await until(lambda: found.is_free("c"))
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
            await found.report("c", ATTACHED)
            await until(lambda: found.cluster.all_placed(1))
            await found.audit()
            assert (await found.claims())["c"]["status"]["allocation"] == before


@pytest.mark.promise("L7")
async def test_a_pod_that_is_deleted_while_it_waits_leaves_nothing() -> None:
    async with waiting_pod("n1", per_node=1) as (found, running):
        await found.add_claim("d")
        await found.cluster.end_pod("p")
        await until(lambda: found.is_free("c"))
        await until(lambda: running.fast_path.binder.in_flight == 0)
        await until(lambda: nothing_assumed(running))
        # Its device is free for other pods.
        await found.add_pod("q", claim="d")
        await until(lambda: waits(found, running, "q", "d"))
        await found.report("d", ATTACHED)
        await until(lambda: found.cluster.all_placed(1))


@pytest.mark.parametrize("how", ["failed", "late"])
async def test_an_allocated_claim_whose_devices_did_not_become_ready_is_given_back(how: str) -> None:
    async with devices("n1", attaching=Attaching(None)) as found:
        await found.add_claim("c")
        await found.allocate_to_attach(
            "c", "n1", at="2020-01-01T00:00:00Z" if how == "late" else "2099-01-01T00:00:00Z"
        )
        if how == "failed":
            await found.report("c", ATTACH_FAILED)
        async with scheduling(found.cluster.transport) as running:
            await found.add_pod("p", claim="c")
            condition: Any = await until(lambda: found.cluster.condition("p"))
            assert condition["message"].startswith(
                "0/1 nodes are available: 1 resourceclaim not available on the node. "
                "deallocation of ResourceClaim completed, preemption: "
            )
            await until(lambda: waits(found, running, "p", "c"))
            await found.report("c", ATTACHED)
            await until(lambda: found.cluster.all_placed(1))
            await found.audit()
            assert running.reports.counts["after flush"] == 0


class Holding(Through):
    """Delays the answer to the first request that removes a pod from a claim, until the test lets it go."""

    def __init__(self, inner: Transport) -> None:
        super().__init__(inner)
        self.carried_out, self.let_go = asyncio.Event(), asyncio.Event()

    async def request(self, method: str, path: str, **more: Any) -> Response:
        answer = await super().request(method, path, **more)
        if b"$patch" in (more.get("body") or b"") and path.startswith(CLAIMS):
            self.carried_out.set()
            await self.let_go.wait()
        return answer


@pytest.mark.parametrize("is_reported_again", [False, True])
async def test_a_pod_that_is_refused_while_its_failed_claim_is_written_for_another_has_it_deallocated(
    is_reported_again: bool,
) -> None:
    """The watch delivers the write before its answer, so the answer wakes no pod.

    The same holds if the pod was refused for another reason of the claim meanwhile.
    """
    async with devices("n1", attaching=Attaching(None)) as found:
        await found.add_claim("c")
        gate = [{"name": "example.com/g"}]
        pods = [await found.add_pod("p", claim="c"), await found.add_pod("q", claim="c", schedulingGates=gate)]
        await found.allocate_to_attach("c", "n1", at="2099-01-01T00:00:00Z")
        await found.reserve("c", *pods)
        await found.report("c", ATTACH_FAILED)
        transport = Holding(found.cluster.transport)
        async with found.settling(transport) as running:
            attempts = running.reports.attempts

            async def refused(*, after: int) -> None:
                await until(lambda: attempts["unschedulable"] > after)
                await until(lambda: running.fast_path.queue.pending().unschedulable == 2)

            await transport.carried_out.wait()
            seen = attempts["unschedulable"]
            await found.cluster.merge(f"{PODS}/q", {"spec": {"schedulingGates": None}})
            await refused(after=seen)
            if is_reported_again:
                seen = attempts["unschedulable"]
                await found.report("c", ATTACH_FAILED, "once more")
                await refused(after=seen + 1)
            transport.let_go.set()
            await until(lambda: _is_new_for_both(found))
            await found.report("c", ATTACHED)
            await until(lambda: found.cluster.all_placed(2))

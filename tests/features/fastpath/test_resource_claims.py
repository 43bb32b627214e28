"""Pods with resource claims, from the watch to the bind, with the embedded API, its claim controller and driver."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from typing import Any

import pytest

from agent_scheduler.binding import pod_claims, prebind
from agent_scheduler.engine.framework.args import DynamicResourcesArgs
from agent_scheduler.engine.framework.points import PluginSet
from agent_scheduler.engine.profiles.profiles import ProfileSpec, build_profile
from embedded_kubernetes import controllers
from embedded_kubernetes.resource_claims import ResourceClaims as ClaimController
from kube_client.transport import OutcomeUnknown, Response, Transport
from tests.support.device_cluster import devices, nothing_assumed, nothing_beside
from tests.support.embedded import until
from tests.support.running import SETTINGS, profile, scheduling
from tests.support.transports import Faulty, Refusing, Send, Through, Waiting, failure, lost


@pytest.mark.promise("S17", "S18")
async def test_pods_of_one_template_each_get_devices_of_their_own() -> None:
    async with devices("n1", "n2") as found, scheduling(found.cluster.transport) as running:
        await found.add_template()
        for index in range(4):
            await found.add_pod(f"p{index}", template="t")
        await until(lambda: found.cluster.all_placed(4))
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
        await until(lambda: found.cluster.all_placed(1))
        await found.add_pod("second", template="t")
        told = await until(lambda: found.cluster.condition("second"))
        assert told["message"].startswith("0/1 nodes are available: 1 cannot allocate all claims.")
        assert "still not schedulable, preemption: 0/1 nodes are available" in told["message"]
        await found.cluster.end_pod("first")
        await until(lambda: found.cluster.is_bound("second"))
        await found.audit()
        assert running.reports.counts["after flush"] == 0


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
            await until(lambda: found.cluster.all_placed(1))
        finally:
            controller.cancel()
        await found.audit()
        assert queue.where(pod["metadata"]["uid"]) is None
        assert running.reports.counts["after flush"] == 0


@pytest.mark.parametrize("answer", [403, None], ids=["refused", "unanswered"])
async def test_what_is_reserved_for_a_pod_is_given_back_after_its_profile_is_gone(
    answer: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The configuration is replaced while its claim is written."""
    monkeypatch.setattr(prebind, "DEFAULT_POLICY", replace(prebind.DEFAULT_POLICY, settles=0.05))
    other = replace(SETTINGS, profiles=(build_profile(ProfileSpec(scheduler_name="other")),))
    async with devices("n1") as found:
        await found.add_claim("c")

        class Reloading(Refusing):
            async def request(self, method: str, path: str, **more: Any) -> Response:
                if method == "PATCH" and path.endswith("/c/status"):
                    running.fast_path.reconfigure(other)
                    if answer is None:
                        raise OutcomeUnknown("no answer")
                return await super().request(method, path, **more)

        async with scheduling(Reloading(found.cluster.transport, "PATCH", "/c/status", 1, answer), SETTINGS) as running:
            await found.add_pod("p", claim="c")
            await until(lambda: running.fast_path.settings.profiles == other.profiles)
            await until(lambda: nothing_assumed(running))
            assert running.reports.failures == []
            await found.cluster.add_pod("q", scheduler="other")
            await until(lambda: found.cluster.all_placed(1))


@pytest.mark.parametrize("ending", ["/status", ""])
async def test_all_claims_of_a_pod_are_written_once_though_an_answer_for_the_first_is_lost(ending: str) -> None:
    async with devices("n1") as found:
        for claim in ("c", "d"):
            await found.add_claim(claim)
        faulty = Refusing(found.cluster.transport, "PATCH", f"resourceclaims/c{ending}", 1, None)
        async with found.settling(faulty) as running:
            both = [{"name": claim, "resourceClaimName": claim} for claim in ("c", "d")]
            await found.cluster.add_pod("p", resourceClaims=both)
            await until(lambda: found.cluster.all_placed(1))
            assert faulty.left == 0
            await found.audit()
            assert running.reports.problems == []


async def test_a_reservation_whose_answer_is_lost_is_found_in_the_claim() -> None:
    async with devices("n1") as found:
        await found.add_claim("c")
        faulty = Refusing(found.cluster.transport, "PATCH", "resourceclaims/c/status", 0, None)
        async with scheduling(faulty) as running:
            await found.add_pod("first", claim="c")
            await until(lambda: found.cluster.all_placed(1))
            faulty.left = 1
            await found.add_pod("second", claim="c")
            await until(lambda: found.cluster.all_placed(2))
            assert faulty.left == 0
            assert await found.reserved("c") == ["first", "second"]
            await until(lambda: nothing_assumed(running))
            assert running.reports.problems == []


@pytest.mark.promise("L7", "L10")
@pytest.mark.parametrize(("method", "ending"), [("PATCH", "resourceclaims/c/status"), ("POST", "/binding")])
async def test_an_attempt_that_fails_leaves_nothing_reserved_and_the_next_one_succeeds(
    method: str, ending: str
) -> None:
    async with devices("n1") as found:
        await found.add_claim("c")
        refusing = Refusing(found.cluster.transport, method, ending, 1, 403)
        async with found.settling(refusing, initial_backoff=30.0, max_backoff=30.0) as running:
            await found.add_pod("p", claim="c")
            await until(lambda: running.reports.problems)
            assert ('running PreBind plugin "DynamicResources"' in running.reports.problems[0]) == (method == "PATCH")
            await until(lambda: found.unreserved("c"))
            await until(lambda: found.cluster.all_placed(1), seconds=60)


async def test_a_pod_whose_claim_is_being_written_is_bound_before_the_scheduler_ends() -> None:
    async with devices("n1") as found:
        await found.add_claim("c")
        waiting = Waiting(found.cluster.transport, "PATCH", "resourceclaims/c/status")
        async with scheduling(waiting) as running:
            await found.add_pod("p", claim="c")
            await waiting.came.wait()
            ending = asyncio.create_task(running.stop(grace=10.0))
            # No more pods are taken from the queue, and yet it has not ended.
            later = await found.cluster.add_pod("later")
            await until(lambda: running.fast_path.queue.where(later["metadata"]["uid"]))
            assert running.fast_path.queue.pending().in_flight == 1
            assert not running.scheduling.done()
            waiting.go.set()
            await ending
            assert await found.cluster.all_placed(1)
            await found.audit()


async def test_a_claim_that_somebody_else_allocates_meanwhile_costs_an_attempt_and_no_device_twice() -> None:
    async with devices("n1", "n2", per_node=1) as found:
        await found.add_claim("c")

        async def rival(send: Send) -> Any:
            await found.allocate("c", "n2")
            return await send()

        faulty = Faulty(found.cluster.transport)
        faulty.ways["PATCH", "/c/status"] = [rival]
        async with found.settling(faulty):
            await found.add_pod("p", claim="c", nodeSelector={})
            await until(lambda: found.cluster.all_placed(1))


@pytest.mark.promise("S17")
@pytest.mark.parametrize("how", ["between two writes", "while a write is put off", "after the claim had it"])
async def test_a_device_that_somebody_else_allocates_meanwhile_is_not_written_for_a_second_claim(how: str) -> None:
    """The API server would accept it.

    Another scheduler's allocation from the same pools is seen before the last write.

    If the claim itself had another allocation in between, the choice for it is invalid, even if it has none again.
    """
    async with devices("n1", "n2", per_node=1) as found:
        await found.add_claim("c")
        await found.add_claim("theirs")
        taken: list[str] = []
        put_off = how == "while a write is put off"

        class Rival(Through):
            async def request(self, method: str, path: str, **more: Any) -> Response:
                struck = method == "PATCH" and path.endswith("/c/status" if put_off else "/c") and not taken
                answer = failure(429) if struck and put_off else await super().request(method, path, **more)
                if struck:
                    books = running.fast_path.cluster.devices
                    assumed = books.assumed.get(("default", "c"))
                    assert assumed is not None and assumed.allocation is not None
                    taken.append(assumed.allocation.uses[0].id.pool)
                    if how == "after the claim had it":
                        await found.allocate("c", taken[0])
                        await until(lambda: books.claims["default", "c"].allocation)
                        await found.set_status("c", allocation=None)
                    await found.allocate("theirs", taken[0])
                    await until(lambda: books.allocation(("default", "theirs")))
                    await until(lambda: books.claims["default", "c"].allocation is None)
                return answer

        async with found.settling(Rival(found.cluster.transport)) as running:
            await found.add_pod("p", claim="c")
            await until(lambda: found.cluster.all_placed(1))
            assert taken and (await found.cluster.placed())["p"] != taken[0]
            assert "given to others" in str(running.reports.problems)
            await found.audit()
            assert len(await found.devices_in_use()) == 2


@pytest.mark.promise("S17")
async def test_devices_are_given_to_nobody_else_while_a_write_that_got_no_answer_may_be_carried_out() -> None:
    async with devices("n1", per_node=1) as found:
        await found.add_claim("c")
        await found.add_claim("d")
        held: list[Send] = []

        async def late(send: Send) -> Response:
            held.append(send)
            raise OutcomeUnknown("no answer")

        faulty = Faulty(found.cluster.transport)
        faulty.ways["PATCH", "/c/status"] = [late] * 1000
        async with scheduling(faulty) as running:
            await found.add_pod("p", claim="c")
            await until(lambda: held)
            await found.cluster.end_pod("p")
            await found.add_pod("q", claim="d")
            await until(lambda: not running.fast_path.binder.in_flight)
            await until(lambda: found.cluster.condition("q"))
            assert await found.cluster.placed() == {}
            assert (await held[0]()).status == 200
            await until(lambda: found.cluster.all_placed(1))
            await found.audit()


@pytest.mark.promise("S17")
async def test_devices_are_given_to_nobody_else_before_what_was_written_for_them_is_taken_back() -> None:
    async with devices("n1", per_node=1) as found:
        await found.add_claim("c")
        await found.add_claim("d")

        class Unanswered(Through):
            left = 2

            def __init__(self, inner: Transport) -> None:
                super().__init__(inner)
                self.takes_back = asyncio.Event()

            async def request(self, method: str, path: str, **more: Any) -> Response:
                if method == "PATCH" and self.left and path.endswith("/c/status"):
                    self.left -= 1
                    if self.left:
                        raise OutcomeUnknown("no answer")
                    return failure(403)
                if method == "GET" and path.endswith("/pods/p"):
                    self.takes_back.set()
                    await asyncio.sleep(5.0)
                return await super().request(method, path, **more)

        unanswered = Unanswered(found.cluster.transport)
        async with found.settling(unanswered, initial_backoff=120.0, max_backoff=120.0):
            await found.add_pod("p", claim="c")
            await asyncio.sleep(1.0)
            await found.add_pod("q", claim="d")
            async with asyncio.timeout(600.0):
                await unanswered.takes_back.wait()
            await asyncio.sleep(4.0)
            assert await found.cluster.placed() == {}
            await until(lambda: found.cluster.all_placed(1))
            await found.audit()


@pytest.mark.parametrize("moment", ["the pod is read", "the write is under way"])
async def test_a_claim_is_not_deallocated_that_the_pods_next_attempt_counts_on(
    moment: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The claim keeps its pod from the other node, and is to be deallocated; but then its own node fits after all."""
    monkeypatch.setattr(pod_claims, "_RETRY", 0.05)
    async with devices("n1", "n2") as found:
        cluster = found.cluster
        await found.add_claim("c")
        await found.cordon("n1")
        await found.allocate("c", "n1")
        await found.reserve("c", await found.add_pod("p", claim="c"))

        class Racing(Through):
            async def request(self, method: str, path: str, **more: Any) -> Response:
                asked = method == "GET" and path.endswith("/pods/p")
                answer = await super().request(method, path, **more) if asked else None
                sent = method == "PATCH" and path.endswith("/c/status")
                if self.left and (asked if moment == "the pod is read" else sent):
                    self.left = 0
                    await found.cordon("n1", None)
                    await _within(0.5, lambda: binds)
                if method == "POST" and path.endswith("/binding"):
                    binds.append(path)
                    await asyncio.sleep(0.3)
                return answer or await super().request(method, path, **more)

        binds: list[str] = []
        async with found.settling(Racing(cluster.transport)):
            await until(lambda: found.cluster.all_placed(1))
            await until(nothing_beside)


async def _within(seconds: float, condition: Callable[[], Any]) -> None:
    """Wait until the condition is true, at most for this time."""
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await until(condition)


async def test_what_an_attempt_of_unknown_outcome_wrote_is_not_taken_from_the_next_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(prebind, "DEFAULT_POLICY", replace(prebind.DEFAULT_POLICY, settles=0.3))
    async with devices("n1") as found:
        await found.add_claim("c")

        class Slow(Through):
            left = 2

            async def request(self, method: str, path: str, **more: Any) -> Response:
                if method == "PATCH" and path.endswith("/c/status") and self.left:
                    self.left -= 1
                    if self.left:
                        raise OutcomeUnknown("no answer")
                    return failure(403)
                if method == "POST" and path.endswith("/binding"):
                    await asyncio.sleep(0.3)
                answer = await super().request(method, path, **more)
                if method == "GET" and path.endswith("/pods/p"):
                    await _within(1.0, lambda: found.reserved("c"))
                return answer

        async with found.settling(Slow(found.cluster.transport), initial_backoff=0.1):
            await found.add_pod("p", claim="c")
            await until(lambda: found.cluster.all_placed(1))
            await until(nothing_beside)


class Behind(Faulty):
    """A transport whose watch of pods delivers nothing while they are not to be `shown`."""

    def __init__(self, inner: Transport) -> None:
        super().__init__(inner)
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

    def patches(self) -> list[str]:
        """Return the patches of claims."""
        return [each for each in self.sent if each.startswith("PATCH") and "resourceclaims" in each]


@pytest.mark.promise("S18", "L10")
@pytest.mark.parametrize("asked", ["says that it has a node", "gives no answer"])
async def test_what_a_pod_uses_that_is_bound_already_is_not_taken_back_from_it(asked: str) -> None:
    """A bind may be refused because the watch lags: another scheduler has bound the pod.

    A read of the pod may fail.
    """
    async with devices("n1") as found:
        await found.add_claim("c")
        behind = Behind(found.cluster.transport)

        async def bind_and_refuse(send: Send) -> Response:
            behind.shown.clear()
            await send()
            return failure(403)

        behind.ways["POST", "/binding"] = [bind_and_refuse]
        if asked == "gives no answer":
            behind.ways["GET", "/pods/p"] = [lost] * 1000
        async with scheduling(behind) as running:
            await found.add_pod("p", claim="c")
            await until(lambda: running.reports.problems)
            assert await found.reserved("c") == ["p"]
            assert len(behind.patches()) == 2
            behind.shown.set()
            await until(lambda: not running.fast_path.binder.in_flight)
            await found.audit()


async def test_a_claim_of_a_pod_that_got_a_node_meanwhile_is_not_given_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """The claim keeps its pod from the other node; but another scheduler has bound the pod, and the watch lags."""
    monkeypatch.setattr(pod_claims, "_RETRY", 0.05)
    async with devices("n1", "n2") as found:
        await found.add_claim("c")
        await found.cordon("n1")
        await found.allocate("c", "n1")
        behind = Behind(found.cluster.transport)

        async def bound_before(send: Send) -> Any:
            behind.shown.clear()
            await found.cluster.bind("p", "n1")
            return await send()

        ways = behind.ways["GET", "/pods/p"] = [bound_before]
        async with scheduling(behind):
            await found.add_pod("p", claim="c")
            await until(lambda: not ways and nothing_beside())
            assert behind.patches() == []
            behind.shown.set()
            await until(lambda: found.cluster.all_placed(1))
        assert "allocation" in (await found.claims())["c"]["status"]


@pytest.mark.real_time
async def test_a_pod_whose_nodes_stay_undecided_is_tried_again_without_an_event() -> None:
    args = {"DynamicResources": DynamicResourcesArgs(filter_timeout=0.05)}
    async with (
        devices("n1", per_node=40) as found,
        scheduling(
            found.cluster.transport, profiles=(profile(args=args),), initial_backoff=0.1, max_backoff=0.1
        ) as running,
    ):
        await found.add_hard_claim()
        await found.add_pod("p", claim="hard")
        told = await until(lambda: found.cluster.condition("p"))
        assert told["message"].startswith("0/1 nodes are available: 1 timed out trying to allocate devices.")
        await until(lambda: running.reports.attempts["unschedulable"] >= 3)
        # Other pods are placed meanwhile.
        await found.cluster.add_pod("plain")
        await until(lambda: found.cluster.all_placed(1))


async def test_a_profile_without_the_plugin_takes_no_devices() -> None:
    """There is no Reserve and no PreBind without DynamicResources, as in kube-scheduler; claims stay as they are."""
    without = {"multiPoint": PluginSet(disabled=("DynamicResources",))}
    profiles = (profile(plugins=without),)
    async with devices("n1") as found, scheduling(found.cluster.transport, profiles=profiles) as running:
        await found.add_claim("c")
        await found.add_pod("p", claim="c")
        await until(lambda: running.reports.attempts["scheduled"])
        assert await found.reserved("c") == []
        assert not running.fast_path.cluster.devices.assumed

"""The scheduler's reaction to each outcome of a bind: the second half of docs/bind-outcomes.md.

The mapping of the API server's answers to outcomes is tested with `kube_client.bind`. Here the outcome is given; no
room may leak, no pod may be lost, and none may count as bound that is not.

The number of results between workers and binder is limited, and workers continue as soon as there is room again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from agent_scheduler.binding.binder import Binder
from agent_scheduler.binding.calls import RateLimit
from agent_scheduler.cluster.cluster import Cluster
from agent_scheduler.engine.framework.plugin import Depends
from kube_client.bind import AlreadySent, BindOutcome, BindResult, UnknownOutcome
from kube_client.transport import Answered, Response
from tests.support.embedded import PODS, EmbeddedCluster, embedded_cluster, until
from tests.support.running import Running, raising_for_some, scheduling


class Answers:
    """Replaces the call to the API server: returns one outcome after the other, and then really binds."""

    def __init__(self, running: Running, *outcomes: BindOutcome | Exception) -> None:
        self._script: Iterator[BindOutcome | Exception] = iter(outcomes)
        binder: Binder = running.fast_path.binder
        self._real = binder._open.bind
        self.nodes: list[str] = []
        self.doubts: list[bool] = []
        binder._open.bind = self  # type: ignore[assignment]
        binder._begin = lambda *_: False

    async def __call__(
        self,
        pod: Any,
        node_name: str,
        *,
        already_sent: AlreadySent | None = None,
        unknown: UnknownOutcome | None = None,
    ) -> BindResult:
        self.nodes.append(node_name)
        self.doubts.append(unknown is not None)
        outcome = next(self._script, None)
        if outcome is None:
            return await self._real(pod, node_name, already_sent=already_sent, unknown=unknown)
        if isinstance(outcome, Exception):
            raise outcome
        return BindResult(outcome, unknown=UnknownOutcome(0.0) if outcome is BindOutcome.UNKNOWN else None)


class Held(Answers):
    """Delays binds, or those of the pod `only`, until the test lets them go; then the outcomes follow."""

    def __init__(self, running: Running, *outcomes: BindOutcome | Exception, only: str = "") -> None:
        super().__init__(running, *outcomes)
        self.go, self.only = asyncio.Event(), only

    async def __call__(
        self,
        pod: Any,
        node_name: str,
        *,
        already_sent: AlreadySent | None = None,
        unknown: UnknownOutcome | None = None,
    ) -> BindResult:
        if self.only in ("", pod.name):
            await self.go.wait()
        return await super().__call__(pod, node_name, already_sent=already_sent, unknown=unknown)


async def prepared(cluster: EmbeddedCluster, running: Running, *outcomes: BindOutcome | Exception) -> Answers:
    answers = Answers(running, *outcomes)
    await cluster.add_node("n1", cpu="1")
    await until(lambda: running.fast_path.ledger.rows)
    await cluster.add_pod("a", cpu="1")
    return answers


async def under_way(cluster: EmbeddedCluster, running: Running, outcome: BindOutcome) -> Held:
    """Return the delayed bind of `a`, which will have `outcome`."""
    held = Held(running, outcome)
    await cluster.add_node("n1", cpu="1")
    await cluster.add_pod("a", cpu="1")
    await until(lambda: running.fast_path.ledger.assumed)
    return held


def room(running: Running) -> int:
    """Return the millicores that are assumed or bound on n1."""
    return int(running.fast_path.ledger.columns.requested[0, 0])


@pytest.mark.promise("L1")
@pytest.mark.parametrize(
    ("outcome", "is_told"),
    [
        (BindOutcome.REFUSED, True),
        (BindOutcome.UNAVAILABLE, True),
        (BindOutcome.BOUND_ELSEWHERE, False),
        (BindOutcome.RECREATED, False),
        (BindOutcome.DELETING, False),
        (BindOutcome.GATED, False),
        (BindOutcome.GONE, False),
    ],
)
async def test_a_bind_that_failed_gives_the_room_back_and_is_tried_again_after_a_backoff(
    outcome: BindOutcome, is_told: bool
) -> None:
    """If the pod must not be bound any more, the watch delivers it; a wrong answer must not lose the pod."""
    async with embedded_cluster() as cluster, scheduling(cluster.transport, initial_backoff=0.05) as running:
        answers = await prepared(cluster, running, outcome)
        await until(lambda: running.reports.attempts["error"])
        assert room(running) == 0
        if is_told:
            await until(lambda: cluster.says_text("a", "SchedulerError"))
        await until(cluster.placed)
        assert answers.nodes == ["n1", "n1"]
        if not is_told:
            assert running.reports.counts["status written"] == 0, "it is no failure of the pod"


@pytest.mark.parametrize("again", [(), (BindOutcome.BOUND,), (BindOutcome.REFUSED,), (BindOutcome.GATED,)])
async def test_a_bind_that_the_watch_never_shows_is_sent_again(
    monkeypatch: pytest.MonkeyPatch, again: tuple[BindOutcome, ...]
) -> None:
    """The store went back to before the bind, and nothing else shows that."""
    monkeypatch.setattr("agent_scheduler.binding.open_binds._SHOWN_WITHIN", 0.05)
    async with embedded_cluster() as cluster, scheduling(cluster.transport, initial_backoff=0.05) as running:
        answers = await prepared(cluster, running, BindOutcome.BOUND, *again)
        await until(cluster.placed)
        assert answers.nodes == ["n1"] * (2 + len(again))
        await until(lambda: running.fast_path.cluster.pods and not running.fast_path.queue.pending()[0])
        assert room(running) == 1000


@pytest.mark.promise("S1")
@pytest.mark.parametrize("unknown", [BindOutcome.UNKNOWN, RuntimeError("a fault of ours")])
async def test_the_room_of_a_bind_with_an_unknown_outcome_stays_taken_until_it_is_known(
    unknown: BindOutcome | Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agent_scheduler.binding.open_binds._ASK_AGAIN", 0.1)
    async with embedded_cluster() as cluster, scheduling(cluster.transport) as running:
        answers = await prepared(cluster, running, unknown)
        await until(lambda: running.reports.outcomes["unknown"])
        assert room(running) == 1000
        await cluster.add_pod("b", cpu="1")
        await until(lambda: running.reports.attempts["unschedulable"])
        await until(cluster.placed)
        assert await cluster.placed() == {"a": "n1"}
        assert answers.nodes == ["n1", "n1"]
        assert answers.doubts == [False, True]
        assert running.reports.outcomes == {"unknown": 1, "bound": 1}


async def test_a_bind_that_only_time_can_clear_up_keeps_its_room_and_no_other_bind_waiting(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("agent_scheduler.binding.open_binds._ASK_AGAIN", 0.01)
    one_at_a_time = RateLimit(qps=0, burst=1, concurrency=1)
    async with embedded_cluster() as cluster, scheduling(cluster.transport, binds=one_at_a_time) as running:
        answers = Answers(running)
        real, now = answers._real, running.fast_path.binder._clock
        too_early: list[bool] = []

        async def lost(
            pod: Any, node_name: str, *, already_sent: AlreadySent | None, unknown: UnknownOutcome | None
        ) -> BindResult:
            if pod.name != "a":
                return await real(pod, node_name, already_sent=already_sent, unknown=unknown)
            if unknown is not None and unknown.then is not None:
                too_early.append(now() < unknown.settles)
                return unknown.then
            return BindResult(
                BindOutcome.UNKNOWN, unknown=UnknownOutcome(now() + 1, BindResult(BindOutcome.UNAVAILABLE))
            )

        answers._real = lost
        await cluster.add_node("n1", cpu="2")
        await cluster.add_pod("a", cpu="1")
        await until(lambda: running.reports.outcomes["unknown"])
        await cluster.add_pod("b", cpu="1")
        await until(cluster.placed)
        assert running.reports.outcomes == {"unknown": 1, "bound": 1}
        assert room(running) == 2000 and running.fast_path.binder.in_flight == 1
        await running.fast_path.binder.drained()
        await until(lambda: running.reports.outcomes["unavailable"])
        await until(lambda: room(running) == 1000)
        assert running.fast_path.binder.in_flight == 0
        assert too_early == [False]


@pytest.mark.promise("L4")
async def test_a_pod_that_goes_while_its_bind_is_in_doubt_leaves_nothing_behind(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("agent_scheduler.binding.open_binds._ASK_AGAIN", 0.1)
    async with embedded_cluster() as cluster, scheduling(cluster.transport) as running:
        await prepared(cluster, running, *[BindOutcome.UNKNOWN] * 1000)
        await until(lambda: running.reports.outcomes["unknown"])
        await cluster.ask("DELETE", f"{PODS}/a")
        await until(lambda: running.fast_path.binder.in_flight == 0)
        assert room(running) == 0
        assert sum(running.fast_path.queue.pending()) == 0


async def test_a_pod_that_a_finalizer_holds_keeps_no_room_for_a_bind_in_doubt(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agent_scheduler.binding.open_binds._ASK_AGAIN", 0.1)
    async with embedded_cluster() as cluster, scheduling(cluster.transport) as running:
        held = await under_way(cluster, running, BindOutcome.UNKNOWN)
        finalizers = {"metadata": {"finalizers": ["example.com/hold"]}}
        await cluster.merge(f"{PODS}/a", finalizers)
        await cluster.ask("DELETE", f"{PODS}/a")
        await until(lambda: next(iter(running.fast_path.cluster.pods.values())).deleting)
        held.go.set()
        await until(lambda: running.reports.outcomes["deleting"])
        await until(lambda: running.fast_path.binder.in_flight == 0)
        assert room(running) == 0
        assert next(iter(running.fast_path.cluster.pods.values())).deleting


async def test_a_deleted_pods_room_goes_to_those_who_wait_for_it() -> None:
    async with embedded_cluster() as cluster, scheduling(cluster.transport) as running:
        held = Held(running, only="a")
        await cluster.add_node("n1", cpu="1")
        await cluster.add_pod("a", cpu="1")
        await until(lambda: room(running) == 1000 if running.fast_path.ledger.rows else False)
        await cluster.add_pod("b", cpu="1")
        await until(lambda: running.reports.attempts["unschedulable"])
        await cluster.ask("DELETE", f"{PODS}/a")
        await until(cluster.placed)
        held.go.set()
        await until(lambda: running.reports.outcomes["gone"])
        assert await cluster.placed() == {"b": "n1"}
        assert room(running) == 1000


async def test_nothing_is_said_of_a_pod_that_was_bound_while_its_bind_failed() -> None:
    async with embedded_cluster() as cluster, scheduling(cluster.transport) as running:
        held = await under_way(cluster, running, BindOutcome.UNAVAILABLE)
        await cluster.bind("a", "n1")
        await until(lambda: not running.fast_path.ledger.assumed)
        held.go.set()
        await until(lambda: running.fast_path.binder.in_flight == 0)
        await running.stop()
        assert room(running) == 1000
        condition = await cluster.condition("a")
        assert condition is not None and condition["status"] == "True"
        assert running.reports.counts["status written"] == 0
        assert running.reports.counts["event recorded"] == 0


@pytest.mark.parametrize(("node", "attempts"), [("n1", {"scheduled": 1}), ("n2", {})])
async def test_a_bind_in_doubt_that_the_watch_confirms_counts_as_scheduled(node: str, attempts: dict[str, int]) -> None:
    """A bind that it shows on another node is another scheduler's, and is not reported."""
    async with embedded_cluster() as cluster, scheduling(cluster.transport) as running:
        held = await under_way(cluster, running, BindOutcome.UNKNOWN)
        await cluster.bind("a", node)
        await until(lambda: not running.fast_path.ledger.assumed)
        held.go.set()
        await until(lambda: running.fast_path.binder.in_flight == 0)
        assert running.reports.attempts == attempts
        assert sum(running.fast_path.queue.pending()) == 0


async def test_a_refusal_that_waits_to_be_written_is_dropped_when_a_bind_begins() -> None:
    slow = RateLimit(qps=0.001, burst=1, concurrency=1)
    async with embedded_cluster() as cluster, scheduling(cluster.transport, status_writes=slow) as running:
        # The first write takes the only token for a long time.
        await cluster.add_pod("first")
        await until(lambda: cluster.condition("first"))
        await cluster.add_pod("a", cpu="1")
        await until(lambda: running.reports.attempts["unschedulable"] == 2)
        held = Held(running)
        await cluster.ask("DELETE", f"{PODS}/first")
        await cluster.add_node("n1", cpu="1")
        await until(lambda: running.fast_path.ledger.assumed)
        assert len(running.fast_path._messages.status._last) == 0
        held.go.set()
        await until(cluster.placed)
        condition = await cluster.condition("a")
        assert condition is not None and condition["status"] == "True"


async def test_a_filter_that_raises_at_the_bind_fails_that_pod_alone() -> None:
    late = raising_for_some(Depends.USAGE, lambda nodes: nodes is running.fast_path.ledger.columns)
    async with embedded_cluster() as cluster, scheduling(cluster.transport, profiles=(late,)) as running:
        await cluster.add_node("n1")
        await until(lambda: running.fast_path.ledger.rows)
        submit = running.fast_path.binder.submit

        def outdated(result: Any) -> None:
            candidates = tuple(msgspec.structs.replace(each, version=0) for each in result.placement.candidates)
            submit(result._replace(placement=msgspec.structs.replace(result.placement, candidates=candidates)))

        running.fast_path.binder.submit = outdated  # type: ignore[method-assign]
        await cluster.add_pod("bad", tolerations=[{"key": "boom", "operator": "Exists"}])
        await until(lambda: running.reports.attempts["error"])
        await cluster.add_pod("good")
        await until(cluster.placed)
        assert set(await cluster.placed()) == {"good"}
        assert not running.scheduling.done()
        assert running.reports.problems == ["ZeroDivisionError: boom"]


async def test_one_object_that_cannot_be_taken_in_stops_no_watch(monkeypatch: pytest.MonkeyPatch) -> None:
    taken_in = Cluster.set_pod

    def faulty(self: Cluster, pod: Any) -> None:
        if pod.name == "bad":
            raise ZeroDivisionError("bad pod")
        taken_in(self, pod)

    monkeypatch.setattr(Cluster, "set_pod", faulty)
    async with embedded_cluster() as cluster, scheduling(cluster.transport) as running:
        await cluster.add_node("n1")
        await cluster.add_pod("bad")
        await cluster.add_pod("good")
        await until(cluster.placed)
        assert [str(error) for error in running.reports.failures] == ["bad pod"]


ONE_AT_A_TIME = RateLimit(qps=0, burst=None, concurrency=1)


async def test_no_more_is_decided_than_the_binder_has_room_for_and_all_are_bound_in_the_end() -> None:
    async with embedded_cluster() as cluster, scheduling(cluster.transport, binds=ONE_AT_A_TIME, workers=4) as running:
        held = Held(running)
        await cluster.add_node("n1")
        await until(lambda: running.fast_path.ledger.rows)
        for number in range(20):
            await cluster.add_pod(f"p{number}")
        queue = running.fast_path.queue
        await until(lambda: queue.pending().active + queue.pending().in_flight == 20)
        await until(lambda: running.fast_path.binder.in_flight == 3)
        await asyncio.sleep(0.05)
        # One is being bound and two wait for it; the others stay where a pod of higher priority can pass them.
        assert running.fast_path.binder.in_flight == queue.pending().in_flight == 3
        held.go.set()
        await until(lambda: running.reports.attempts["scheduled"] == 20, seconds=10)


class Throttling:
    """A transport whose server refuses every bind that is begun while `throttles`."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner
        self.throttles = True

    def start(self, method: str, path: str, *, answered: Answered, **more: Any) -> bool:
        if self.throttles and path.endswith("/binding"):
            refusal = Response(429, b'{"kind":"Status","apiVersion":"v1","code":429}', {"Retry-After": "0"})
            asyncio.get_running_loop().call_soon(answered, refusal)
            return True
        return bool(self._inner.start(method, path, answered=answered, **more))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


@pytest.mark.parametrize(("qps", "fewer"), [(0, True), (500, False)])
async def test_fewer_binds_are_under_way_where_the_server_says_so_unless_there_is_a_rate(qps: int, fewer: bool) -> None:
    binds = RateLimit(qps=qps, burst=None, concurrency=64)
    async with embedded_cluster() as cluster:
        transport = Throttling(cluster.transport)
        async with scheduling(transport, binds=binds) as running:
            binder = running.fast_path.binder
            before = binder.concurrency
            await cluster.add_node("n1", cpu="64")
            for number in range(20):
                await cluster.add_pod(f"p{number}")
            await until(lambda: running.reports.attempts["scheduled"] == 20)
            assert (binder.concurrency < before) is fewer
            assert before == (32 if fewer else 64)

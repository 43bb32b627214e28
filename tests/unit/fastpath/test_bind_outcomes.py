"""What the scheduler does with each outcome of a bind: the second half of docs/bind-outcomes.md.

How an answer of the API server becomes an outcome is tested with `kube.bind`; here the outcome is given, and what
matters is that no room leaks, no pod is lost, and none is taken for bound that is not.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from agent_scheduler.fastpath.binder import Binder
from agent_scheduler.kube.bind import BindOutcome, BindResult
from tests.embedded import PODS, EmbeddedCluster, embedded_cluster, until

from .running import Running, scheduling


class Answers:
    """Takes the place of the call to the API server: gives one outcome after the other, then really binds."""

    def __init__(self, running: Running, *outcomes: BindOutcome | Exception) -> None:
        self._script: Iterator[BindOutcome | Exception] = iter(outcomes)
        binder: Binder = running.fast_path.binder
        self._real = binder._bind
        self.nodes: list[str] = []
        binder._bind = self  # type: ignore[assignment]

    async def __call__(self, pod: Any, node_name: str) -> BindResult:
        self.nodes.append(node_name)
        outcome = next(self._script, None)
        if outcome is None:
            return await self._real(pod, node_name)
        if isinstance(outcome, Exception):
            raise outcome
        return BindResult(outcome)


async def prepared(cluster: EmbeddedCluster, running: Running, *outcomes: BindOutcome | Exception) -> Answers:
    answers = Answers(running, *outcomes)
    await cluster.add_node("n1", cpu="1")
    await until(lambda: running.fast_path.ledger.rows)
    await cluster.add_pod("a", cpu="1")
    return answers


def room(running: Running) -> int:
    """Millicores assumed or bound on n1."""
    return int(running.fast_path.ledger.columns.requested[0, 0])


@pytest.mark.parametrize("outcome", [BindOutcome.REFUSED, BindOutcome.UNAVAILABLE])
async def test_a_refused_bind_gives_the_room_back_and_is_tried_again_after_a_backoff(
    outcome: BindOutcome,
) -> None:
    async with embedded_cluster() as cluster, scheduling(cluster.transport, initial_backoff=0.05) as running:
        answers = await prepared(cluster, running, outcome)
        await until(lambda: running.reports.attempts["error"])
        assert room(running) == 0
        condition = await until(lambda: cluster.condition("a"))
        assert condition["reason"] == "SchedulerError"
        await until(cluster.placed)
        assert answers.nodes == ["n1", "n1"]


async def test_a_gate_that_was_seen_too_late_is_no_failure_of_the_pod() -> None:
    async with embedded_cluster() as cluster, scheduling(cluster.transport, initial_backoff=0.05) as running:
        await prepared(cluster, running, BindOutcome.GATED)
        await until(cluster.placed)
        assert running.reports.counts["status written"] == 0


@pytest.mark.parametrize(
    "outcome", [BindOutcome.BOUND_ELSEWHERE, BindOutcome.RECREATED, BindOutcome.DELETING, BindOutcome.GONE]
)
async def test_a_pod_that_is_not_ours_to_bind_any_more_is_dropped_and_its_room_is_free(
    outcome: BindOutcome,
) -> None:
    async with embedded_cluster() as cluster, scheduling(cluster.transport) as running:
        await prepared(cluster, running, outcome)
        await until(lambda: running.reports.outcomes)
        await until(lambda: running.fast_path.binder.in_flight == 0)
        assert room(running) == 0
        assert sum(running.fast_path.queue.pending()) == 0
        # Should the API server show it waiting all the same, it is taken up again.
        await cluster.ask(
            "PATCH",
            f"{PODS}/a",
            {"metadata": {"labels": {"seen": "again"}}},
            content_type="application/merge-patch+json",
        )
        await until(cluster.placed)


@pytest.mark.parametrize("unknown", [BindOutcome.UNKNOWN, RuntimeError("a fault of ours")])
async def test_the_room_of_a_bind_with_an_unknown_outcome_stays_taken_until_it_is_known(
    unknown: BindOutcome | Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agent_scheduler.fastpath.binder._ASK_AGAIN", 0.1)
    async with embedded_cluster() as cluster, scheduling(cluster.transport) as running:
        answers = await prepared(cluster, running, unknown)
        await until(lambda: running.reports.outcomes["unknown"])
        assert room(running) == 1000
        await cluster.add_pod("b", cpu="1")
        await until(lambda: running.reports.attempts["unschedulable"])
        await until(cluster.placed)
        assert await cluster.placed() == {"a": "n1"}
        assert answers.nodes == ["n1", "n1"]
        assert running.reports.outcomes == {"unknown": 1, "bound": 1}


async def test_a_pod_that_goes_while_its_bind_is_in_doubt_leaves_nothing_behind(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("agent_scheduler.fastpath.binder._ASK_AGAIN", 0.1)
    async with embedded_cluster() as cluster, scheduling(cluster.transport) as running:
        await prepared(cluster, running, *[BindOutcome.UNKNOWN] * 1000)
        await until(lambda: running.reports.outcomes["unknown"])
        await cluster.ask("DELETE", f"{PODS}/a")
        await until(lambda: running.fast_path.binder.in_flight == 0)
        assert room(running) == 0
        assert sum(running.fast_path.queue.pending()) == 0


async def test_a_deleted_pods_room_goes_to_those_who_wait_for_it() -> None:
    async with embedded_cluster() as cluster, scheduling(cluster.transport) as running:
        held = asyncio.Event()

        class Slow(Answers):
            async def __call__(self, pod: Any, node_name: str) -> BindResult:
                if pod.name == "a":
                    await held.wait()
                return await self._real(pod, node_name)

        Slow(running)
        await cluster.add_node("n1", cpu="1")
        await cluster.add_pod("a", cpu="1")
        await until(lambda: room(running) == 1000 if running.fast_path.ledger.rows else False)
        await cluster.add_pod("b", cpu="1")
        await until(lambda: running.reports.attempts["unschedulable"])
        await cluster.ask("DELETE", f"{PODS}/a")
        await until(cluster.placed)
        held.set()
        await until(lambda: running.reports.outcomes["gone"])
        assert await cluster.placed() == {"b": "n1"}
        assert room(running) == 1000

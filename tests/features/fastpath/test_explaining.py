"""The explanations of a running fast path about one pod, in whatever state the pod is."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime
from typing import Any

import numpy as np
import pytest

from agent_scheduler.engine.decide.classview import ClassView
from agent_scheduler.fastpath.scheduler import FastPath
from tests.support.embedded import EmbeddedCluster, embedded_cluster, until
from tests.support.running import Running, scheduling
from tests.support.transports import Refusing, Waiting


@asynccontextmanager
async def cluster_and_scheduler() -> AsyncIterator[tuple[EmbeddedCluster, Running]]:
    async with embedded_cluster() as cluster, scheduling(cluster.transport) as running:
        yield cluster, running


def told(running: Running, name: str) -> dict[str, Any]:
    return running.fast_path.explainer.pod("default", name)


async def at(running: Running, name: str, place: str) -> dict[str, Any]:
    def found() -> dict[str, Any] | None:
        answer = told(running, name)
        return answer if answer["place"] == place else None

    answer: dict[str, Any] = await until(found)
    return answer


def instant(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


async def test_a_refused_pod_is_told_with_all_that_is_in_its_way() -> None:
    async with cluster_and_scheduler() as (cluster, running):
        await cluster.add_node("n1", cpu="4", labels={"disk": "ssd"})
        await cluster.add_node("n2", cpu="8")
        await cluster.add_pod("large", cpu="6", nodeSelector={"disk": "ssd"})
        found = await at(running, "large", "unschedulable")
    assert found["pod"] == "default/large"
    assert (found["scheduler_name"], found["node"], found["why"]) == ("agent-scheduler", None, "")
    decision = found["decision"]
    assert (decision["nodes"], decision["feasible"], decision["best"]) == (2, 0, [])
    assert decision["message"].startswith("0/2 nodes are available: 1 Insufficient cpu, 1 node(s) didn't match")
    by_plugin = {each["plugin"]: each for each in decision["plugins"]}
    assert by_plugin["NodeResourcesFit"] == {
        "plugin": "NodeResourcesFit",
        "refused": 1,
        "alone": 1,
        "reasons": {"Insufficient cpu": 1},
        "near": [{"node": "n1", "missing": "cpu: 2 more (wants 6, 4 of 4 is free)"}],
    }
    assert (by_plugin["NodeAffinity"]["refused"], by_plugin["NodeAffinity"]["alone"]) == (1, 1)
    assert found["wakes"]["NodeAffinity"] == ["NodeAdd", "NodeUpdateLabel"]
    assert {"NodeAdd", "NodeUpdateAllocatable", "AssignedPodDelete"} <= set(found["wakes"]["NodeResourcesFit"])
    assert found["queue"]["diagnose"] == ["NodeAffinity", "NodeResourcesFit"]
    (attempt,) = found["attempts"]
    assert attempt["result"] == "unschedulable"
    assert attempt["message"].startswith(decision["message"])
    assert 0 <= attempt["seconds"] < 10


async def test_a_pod_that_waited_is_told_with_its_attempts_after_it_is_bound() -> None:
    async with cluster_and_scheduler() as (cluster, running):
        await cluster.add_node("small", cpu="1")
        await cluster.add_pod("p", cpu="2")
        await at(running, "p", "unschedulable")
        await cluster.add_node("large", cpu="4")
        await until(lambda: running.reports.attempts["scheduled"])
        found = await at(running, "p", "bound")
        assert found["node"] == "large"
        assert "decision" not in found
        assert [each["result"] for each in found["attempts"]] == ["scheduled", "unschedulable"]
        assert found["attempts"][0]["message"] == "large"
        await cluster.end_pod("p")
        assert (await at(running, "p", "unknown"))["why"] == "it does not exist, or it has finished"


async def test_pods_of_other_schedulers_are_told_as_theirs() -> None:
    async with cluster_and_scheduler() as (cluster, running):
        await cluster.add_pod("p", scheduler="another")
        found = await at(running, "p", "not_ours")
    assert found["why"] == "its schedulerName is 'another'; the profiles here are agent-scheduler"
    assert "queue" not in found and "decision" not in found


async def test_a_pod_whose_bind_was_refused_backs_off_and_is_told_what_it_would_get() -> None:
    async with embedded_cluster() as cluster:
        await cluster.add_node("n1", cpu="4")
        await cluster.add_node("n2", cpu="8")

        async with scheduling(Refusing(cluster.transport, "POST", "/binding", 1000, 422)) as running:
            await cluster.add_pod("p")
            found = await at(running, "p", "backoff")
    assert found["queue"]["backoff_until"] >= found["queue"]["since"]
    assert found["attempts"][0]["result"] == "error"
    assert found["attempts"][0]["message"].startswith("binding rejected")
    decision = found["decision"]
    assert (decision["feasible"], decision["message"], decision["plugins"]) == (2, "", [])
    for best in decision["best"]:
        assert best["total"] == sum(best["scores"].values())
    assert decision["best"][0]["node"] == "n1"


async def test_a_pod_that_is_being_bound_is_told_with_its_node() -> None:
    async with embedded_cluster() as cluster:
        await cluster.add_node("n1")
        waiting = Waiting(cluster.transport, "POST", "/binding")
        async with scheduling(waiting) as running:
            await cluster.add_pod("p")
            await waiting.came.wait()
            found = told(running, "p")
            waiting.go.set()
            assert (found["place"], found["node"]) == ("in_flight", "n1")
            # It counts on its node already, so that an explanation of that node would be wrong.
            assert "decision" not in found


async def test_explaining_leaves_the_workers_views_as_they_are() -> None:
    async with cluster_and_scheduler() as (cluster, running):
        for index in range(5):
            await cluster.add_node(f"n{index}", cpu="1")
        await cluster.add_pod("large", cpu="2")
        await at(running, "large", "unschedulable")
        fast_path = running.fast_path
        views = _views(fast_path)
        before = [(view, view._rows.position, view._rows.ranking.scores.copy()) for view in views]
        assert before
        for _ in range(3):
            told(running, "large")
        assert _views(fast_path) == views
        for view, position, ranked in before:
            assert view._rows.position == position
            assert np.array_equal(view._rows.ranking.scores, ranked)
        # They continue from the rows that the explanation has refreshed in the snapshot.
        await cluster.add_node("room", cpu="4")
        assert (await at(running, "large", "bound"))["node"] == "room"


def _views(fast_path: FastPath) -> list[ClassView]:
    worker: Any = fast_path._workers[0]
    return list(
        itertools.chain.from_iterable(views._views.values() for each in worker._views for views in each.values())
    )


async def test_a_plugin_that_raises_is_told_in_place_of_the_decision(monkeypatch: pytest.MonkeyPatch) -> None:
    async with cluster_and_scheduler() as (cluster, running):
        await cluster.add_pod("p", cpu="1")
        await at(running, "p", "unschedulable")

        def broken(*_: Any) -> None:
            raise RuntimeError("out of order")

        monkeypatch.setattr("agent_scheduler.fastpath.explaining.explain", broken)
        found = told(running, "p")
        assert found["decision"] == {"problem": "RuntimeError: out of order"}
        assert found["attempts"]

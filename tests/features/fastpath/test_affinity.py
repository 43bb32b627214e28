"""Pods with anti-affinity to each other that are decided at the same time."""

from __future__ import annotations

from typing import Any

import pytest

from tests.regressions.stages import HeldResults
from tests.support.embedded import embedded_cluster, until
from tests.support.running import scheduling
from tests.support.terms import HOSTNAME as HOST
from tests.support.terms import ZONE, beside, pod_term


def apart_from(app: str, key: str, **more: Any) -> dict[str, Any]:
    return beside("podAntiAffinity", pod_term(app, key, **more))


@pytest.mark.promise("S25")
async def test_a_pod_does_not_join_one_that_was_placed_after_its_decision_and_will_not_have_it() -> None:
    async with embedded_cluster() as cluster, scheduling(cluster.transport) as running:
        held = HeldResults(running.fast_path)
        await cluster.add_node("n1", labels={HOST: "n1"})
        await cluster.add_pod("keeps-away", affinity=apart_from("web", HOST))
        await cluster.add_pod("web", labels={"app": "web"})
        await until(lambda: len(held.results) == 2)
        held.results.sort(key=lambda result: result.pod.name)
        held.release()
        await until(lambda: running.reports.attempts["unschedulable"])
        await until(cluster.placed)
        assert await cluster.placed() == {"keeps-away": "n1"}
        condition = await until(lambda: cluster.condition("web"))
        assert condition["message"] == (
            "0/1 nodes are available: 1 node(s) didn't satisfy existing pods anti-affinity rules. "
            "no new claims to deallocate, "
            "preemption: 0/1 nodes are available: 1 No preemption victims found for incoming pod."
        )


@pytest.mark.promise("S25")
async def test_a_pod_does_not_follow_whom_it_avoids_into_a_zone_by_another_node() -> None:
    async with embedded_cluster() as cluster, scheduling(cluster.transport) as running:
        held = HeldResults(running.fast_path)
        await cluster.add_node("n1", labels={ZONE: "z", HOST: "n1"}, cpu="1")
        await cluster.add_node("n2", labels={ZONE: "z"}, cpu="2")
        await until(lambda: len(running.fast_path.ledger.rows) == 2)
        await cluster.add_pod("web", labels={"app": "web"}, nodeSelector={HOST: "n1"})
        await cluster.add_pod("shy", cpu="2", affinity=apart_from("web", ZONE))
        await until(lambda: len(held.results) == 2)
        held.results.sort(key=lambda result: result.pod.name, reverse=True)
        held.release()
        await until(lambda: running.reports.attempts["unschedulable"])
        await until(cluster.placed)
        assert await cluster.placed() == {"web": "n1"}


@pytest.mark.parametrize("pre_hints", [True, False])
async def test_a_namespace_whose_labels_change_wakes_the_pod_that_its_pods_kept_away(pre_hints: bool) -> None:
    async with embedded_cluster() as cluster, scheduling(cluster.transport, pre_queueing_hints=pre_hints) as running:
        await cluster.merge("/api/v1/namespaces/default", {"metadata": {"labels": {"team": "a"}}})
        known = running.fast_path.cluster.namespaces
        await until(lambda: known.labels("default").get("team") == "a")
        await cluster.add_node("n1", labels={HOST: "n1"})
        await cluster.add_pod("db", labels={"app": "db"})
        await until(cluster.placed)
        away = apart_from("db", HOST, namespaceSelector={"matchLabels": {"team": "a"}})
        await cluster.add_pod("apart", affinity=away)
        condition = await until(lambda: cluster.condition("apart"))
        assert condition["status"] == "False"
        await cluster.merge("/api/v1/namespaces/default", {"metadata": {"labels": {"team": "b"}}})
        await until(lambda: running.reports.attempts["scheduled"] == 2)
        assert await cluster.is_bound("apart") and running.reports.failures == []

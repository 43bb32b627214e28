"""Waking through the whole fast path, against the embedded API server: with pre-hints and without."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.embedded import embedded_cluster, until
from tests.support.running import scheduling

NAMESPACES = "/api/v1/namespaces"


def anti_affinity(**more: Any) -> dict[str, Any]:
    term = {"labelSelector": {"matchLabels": {"app": "db"}}, "topologyKey": "kubernetes.io/hostname", **more}
    return {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}


@pytest.mark.parametrize("pre_hints", [True, False])
async def test_a_namespace_whose_labels_change_wakes_the_pod_that_its_pods_kept_away(pre_hints: bool) -> None:
    async with (
        embedded_cluster() as cluster,
        scheduling(cluster.transport, pre_queueing_hints=pre_hints) as running,
    ):
        label = {"metadata": {"labels": {"team": "a"}}}
        await cluster.merge(f"{NAMESPACES}/default", label)
        known = running.fast_path.cluster.namespaces
        await until(lambda: known.labels("default").get("team") == "a")
        await cluster.add_node("n1", labels={"kubernetes.io/hostname": "n1"})
        await cluster.add_pod("db", labels={"app": "db"})
        await until(cluster.placed)
        away = anti_affinity(namespaceSelector={"matchLabels": {"team": "a"}})
        await cluster.add_pod("apart", affinity=away)
        condition = await until(lambda: cluster.condition("apart"))
        assert condition["status"] == "False"
        label = {"metadata": {"labels": {"team": "b"}}}
        await cluster.merge(f"{NAMESPACES}/default", label)
        await until(lambda: running.reports.attempts["scheduled"] == 2)
        assert (await cluster.placed())["apart"] == "n1"
        assert running.reports.failures == []

"""What is told of a pod that waits, and what of the pods that run lets it go on, against the embedded API server."""

from __future__ import annotations

from typing import Any

from tests.support.embedded import PODS, EmbeddedCluster, embedded_cluster, until
from tests.support.running import scheduling


async def condition_of(cluster: EmbeddedCluster, name: str, **wanted: Any) -> dict[str, Any]:
    async def there() -> dict[str, Any] | None:
        condition = await cluster.condition(name)
        same = condition is not None and all(condition.get(key) == value for key, value in wanted.items())
        return condition if same else None

    found: dict[str, Any] = await until(there)
    return found


async def test_a_condition_names_the_generation_of_the_spec_that_it_was_found_of() -> None:
    async with embedded_cluster() as cluster, scheduling(cluster.transport):
        await cluster.add_node("n1", taints=[{"key": "full", "effect": "NoSchedule"}])
        await cluster.add_pod("p")
        assert (await condition_of(cluster, "p", status="False"))["observedGeneration"] == 1
        toleration = {"spec": {"tolerations": [{"key": "t", "operator": "Exists"}]}}
        await cluster.merge(f"{PODS}/p", toleration)
        assert (await cluster.pods())["p"]["metadata"]["generation"] == 2
        found = await condition_of(cluster, "p", observedGeneration=2)
        assert (found["status"], found["reason"]) == ("False", "Unschedulable")


async def test_preferences_that_cannot_be_read_are_told_as_an_error_of_the_scheduler() -> None:
    term = {"matchExpressions": [{"key": "gen", "operator": "Gt", "values": ["new"]}]}
    preferred = {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "preference": term}]}
    async with embedded_cluster() as cluster, scheduling(cluster.transport) as running:
        await cluster.add_node("n1", labels={"gen": "3"})
        await cluster.add_node("n2", labels={"gen": "4"})
        await cluster.add_pod("p", affinity={"nodeAffinity": preferred})
        found = await condition_of(cluster, "p", status="False")
        assert found["reason"] == "SchedulerError"
        assert found["message"] == (
            'running PreScore plugin "NodeAffinity": [0].matchExpressions[0].values[0]: Invalid value: "new": '
            "for 'Gt', 'Lt' operators, the value must be an integer"
        )
        assert running.reports.failures == []
        # Tried again after a backoff, and with one node left there is nothing to rank.
        await cluster.ask("DELETE", "/api/v1/nodes/n1")
        await until(cluster.placed)
        assert (await cluster.placed())["p"] == "n2"


async def test_room_that_a_pod_gives_back_as_a_whole_wakes_who_waits_for_it() -> None:
    """A resize in place ends when the kubelet says what the pod has from now on."""

    def has(cpu: str) -> dict[str, Any]:
        return {"status": {"resources": {"requests": {"cpu": cpu}}, "allocatedResources": {"cpu": cpu}}}

    async with embedded_cluster() as cluster, scheduling(cluster.transport) as running:
        await cluster.add_node("n1", cpu="4")
        await cluster.add_pod("shrinks", resources={"requests": {"cpu": "1"}, "limits": {"cpu": "4"}})
        await until(cluster.placed)
        await cluster.merge(f"{PODS}/shrinks/status", has("3500m"))
        known = running.fast_path.cluster
        await until(lambda: any(pod.requests.get("cpu") == 3500 for pod in known.pods.values()))
        await cluster.add_pod("waits", cpu="2")
        assert "Insufficient cpu" in (await condition_of(cluster, "waits", status="False"))["message"]
        await cluster.merge(f"{PODS}/shrinks/status", has("1"))
        await until(lambda: running.reports.attempts["scheduled"] == 2)
        assert (await cluster.placed())["waits"] == "n1"

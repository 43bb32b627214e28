"""kubernetes #76772 (see #106884): a node got more memory's worth of pods than it has, and kubelets failed them.

What happened: thirty pods of 32Gi each were created at once, and all went to one node of 70Gi. The report
ended in pods that were taken for finished by the scheduler while they still ran on the node, because
something ended their phase early.

Conditions: large pods in a burst; pods that terminate slowly.

Ours: of a burst as many pods are bound as fit, and a pod that is being deleted holds its room until it is
gone or its phase says that it has ended, be its grace period ever so long.
"""

from __future__ import annotations

from typing import Any

from tests.support.embedded import PODS, EmbeddedCluster, embedded_cluster, until
from tests.support.running import Running, scheduling

from .stages import refusal


def _of_memory(memory: str) -> list[dict[str, Any]]:
    return [{"name": "c", "image": "i", "resources": {"requests": {"memory": memory}}}]


async def test_of_thirty_large_pods_as_many_are_bound_as_fit() -> None:
    async with embedded_cluster() as cluster, scheduling(cluster.transport, workers=4) as running:
        for number in range(30):
            await cluster.add_pod(f"p{number}", containers=_of_memory("32Gi"))
        await until(lambda: running.reports.attempts["unschedulable"] == 30)
        await cluster.add_node("n1", memory="70Gi")
        await until(lambda: running.fast_path.queue.pending().unschedulable == 28)
        await until(lambda: running.fast_path.binder.in_flight == 0)
        assert len(await cluster.placed()) == 2


async def _deleting(cluster: EmbeddedCluster, running: Running, name: str) -> None:
    """Begins to delete a pod whose node does not answer, and waits until the scheduler knows."""
    answer = await cluster.ask("DELETE", f"{PODS}/{name}?gracePeriodSeconds=600")
    pods = running.fast_path.cluster.pods
    await until(lambda: pods[answer["metadata"]["uid"]].deleting)


async def test_a_pod_that_terminates_holds_its_room_to_the_end() -> None:
    async with embedded_cluster() as cluster, scheduling(cluster.transport) as running:
        await cluster.add_node("n1", memory="70Gi")
        for name in ("gone", "ended"):
            await cluster.add_pod(name, containers=_of_memory("32Gi"))
        await until(lambda: running.reports.attempts["scheduled"] == 2)
        for name in ("gone", "ended"):
            await _deleting(cluster, running, name)
        for name in ("a", "b"):
            await cluster.add_pod(name, containers=_of_memory("32Gi"))
            await refusal(cluster, name)
        assert set(await cluster.placed()) == {"gone", "ended"}
        await cluster.ask("DELETE", f"{PODS}/gone?gracePeriodSeconds=0")
        await until(lambda: running.reports.attempts["scheduled"] == 3)
        assert running.fast_path.queue.pending().unschedulable == 1
        ended = {"status": {"phase": "Failed"}}
        await cluster.ask("PATCH", f"{PODS}/ended/status", ended, content_type="application/merge-patch+json")
        await until(lambda: running.reports.attempts["scheduled"] == 4)
        assert set(await cluster.placed()) == {"ended", "a", "b"}

"""Volcano agent scheduler: an annotation that any user may set puts a pod before every other.

What happened: the urgency of a pod that lost a race is kept in an annotation of the pod
(`volcano.sh/scheduling-priority`), and the queue reads it from there for every pod. Whoever writes a large
number into their own pod goes before all PriorityClasses and before real retries.

Conditions: a pod with the annotation, and one of a higher PriorityClass, wait for the same room.

Ours: urgency is a field of the queue's own entry. Nothing that a pod's author writes counts but its
PriorityClass.
"""

from __future__ import annotations

from tests.support.embedded import PODS, embedded_cluster, until
from tests.support.running import scheduling

#: The peer's three annotations, as its own binder writes them.
BOUGHT = {
    "volcano.sh/scheduling-priority": "999999",
    "volcano.sh/scheduling-priority-reason": "BindingConflict",
    "volcano.sh/scheduling-priority-timestamp": "1",
}


async def test_the_pod_of_higher_priority_goes_first_whatever_the_other_claims() -> None:
    async with embedded_cluster() as cluster:
        body = {"metadata": {"name": "important"}, "value": 1000}
        await cluster.ask("POST", "/apis/scheduling.k8s.io/v1/priorityclasses", body)
        await cluster.add_node("n1", pods="1")
        container = {"name": "c", "image": "i"}
        claims = {"name": "loud", "annotations": BOUGHT, "labels": BOUGHT}
        spec = {"schedulerName": "agent-scheduler", "containers": [container]}
        await cluster.ask("POST", PODS, {"metadata": claims, "spec": spec})
        await cluster.add_pod("quiet", priorityClassName="important")
        async with scheduling(cluster.transport) as running:
            await until(lambda: sum(running.reports.attempts.values()) == 2)
            assert await cluster.placed() == {"quiet": "n1"}

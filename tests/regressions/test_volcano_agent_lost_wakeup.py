"""Volcano agent scheduler: what happened between a pod's refusal and its return to the queue woke nobody.

What happened: hints and wake-ups never reach refused pods there, since every refusal is filed as an error; an
event that frees room changes nothing before the pod's backoff, up to ten seconds, has passed. (kube-scheduler
keeps the events that arrive while a pod is being tried, for the same reason.)

Conditions: room becomes free in the very moment in which a pod is refused for want of it.

Ours: an event that comes while a pod is in flight is put to that pod when its attempt fails.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from agent_scheduler.engine.framework.plugin import Profile
from agent_scheduler.engine.plugins.node_resources_fit import NodeResourcesFit
from tests.support.embedded import embedded_cluster, until
from tests.support.running import AGENT, scheduling


async def test_room_that_becomes_free_while_a_pod_is_refused_is_not_missed() -> None:
    happens: list[Callable[[], None]] = []

    class Interrupted(NodeResourcesFit):
        """In whose refusal something happens before the queue learns of it."""

        def reasons(self, state: Any, nodes: Any, rows: Any) -> Mapping[str, int]:
            told = super().reasons(state, nodes, rows)
            while happens:
                happens.pop()()
            return told

    filters = tuple(Interrupted() if isinstance(each, NodeResourcesFit) else each for each in AGENT.filters)
    profile = Profile(AGENT.scheduler_name, filters, AGENT.scores, AGENT.pre_enqueue)
    async with (
        embedded_cluster() as cluster,
        scheduling(cluster.transport, profiles=(profile,), initial_backoff=0.01) as running,
    ):
        picture = running.fast_path.cluster
        await cluster.add_node("n1", cpu="1")
        await cluster.add_pod("first", cpu="1")
        await until(lambda: running.reports.attempts["scheduled"])
        (first,) = picture.pods.values()
        await until(lambda: picture.pods[first.uid].node_name)
        happens.append(lambda: picture.delete_pod(first.uid))
        second = (await cluster.add_pod("second", cpu="1"))["metadata"]["uid"]
        await until(lambda: running.reports.attempts["scheduled"] == 2)
        assert running.reports.attempts["unschedulable"] == 1
        assert running.reports.counts["after flush"] == 0
        assert running.fast_path.queue.where(second) is None

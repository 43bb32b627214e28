"""Volcano #5146 and #5147 (agent scheduler): what one pod's cycle broke ended every worker.

What happened: workers shared one action, one framework and one cycle state. Two cycles at a time wrote the
same maps, which ends a Go process; a panic in a plugin, which nothing recovered from, did the same. Each
restart met the same pods.

Conditions: several workers; a pod on which a plugin raises.

Ours: whatever a cycle raises is that pod's failure. It is reported and backs off; every worker goes on.
"""

from __future__ import annotations

from typing import Any

from agent_scheduler.engine.framework.plugin import Depends, Filter, Profile
from tests.support.embedded import embedded_cluster, until
from tests.support.running import AGENT, scheduling

from .stages import refusal

WORKERS = 3


class Faulty(Filter):
    """Raises for pods with a certain toleration."""

    name = "Faulty"
    depends = Depends.NODE

    def prepare(self, pod: Any, interns: Any) -> Any:
        return self if any(each.key == "boom" for each in pod.tolerations) else None

    def feasible(self, state: Any, nodes: Any, rows: Any) -> Any:
        raise KeyError("a plugin's fault")

    def reasons(self, state: Any, nodes: Any, rows: Any) -> Any:
        return {}


async def test_no_worker_dies_with_a_pod() -> None:
    profile = Profile(AGENT.scheduler_name, (Faulty(), *AGENT.filters), AGENT.scores, AGENT.pre_enqueue)
    async with (
        embedded_cluster() as cluster,
        scheduling(cluster.transport, profiles=(profile,), workers=WORKERS) as running,
    ):
        await cluster.add_node("n1")
        await until(lambda: running.fast_path.ledger.rows)
        # More than there are workers, so that each of them meets one if it lives.
        for number in range(WORKERS * 2):
            await cluster.add_pod(f"bad{number}", tolerations=[{"key": "boom", "operator": "Exists"}])
        for number in range(WORKERS * 2):
            await cluster.add_pod(f"good{number}")
        await until(lambda: running.reports.attempts["scheduled"] == WORKERS * 2)
        assert await refusal(cluster, "bad0") == 'KeyError: "a plugin\'s fault"'
        assert set(await cluster.placed()) == {f"good{number}" for number in range(WORKERS * 2)}
        assert not running.scheduling.done()

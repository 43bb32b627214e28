"""Volcano agent scheduler: what a cycle looked at changed under it, or was the cluster's own and was changed by it.

What happened: the binder wrote the node's name into the informer's own pod, which all handlers share, so
deletions and ends of pods were no longer recognised; workers shared one cycle state; and a snapshot kept
references to what the cache went on changing. Decisions were made on a state that never existed.

Conditions: a bind is accounted for while a cycle is half done.

Ours: workers share one snapshot, which nobody writes between the beginning and the end of a cycle, whatever
becomes of the ledger meanwhile. What it missed is found by the binder, on the ledger itself.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from agent_scheduler.engine.framework.plugin import Depends, Filter, Profile
from agent_scheduler.engine.state.podinfo import PodInfo
from tests.support.embedded import embedded_cluster, until
from tests.support.running import AGENT, Running, scheduling

from .stages import millicores, refusal


class Meddler(Filter):
    """Lets a foreign pod take the node in the middle of the first cycle that asks, and notes what that cycle saw."""

    name = "Meddler"
    depends = Depends.USAGE

    def __init__(self) -> None:
        self.running: Running | None = None
        self.foreign: PodInfo | None = None
        self.before: Any = None
        self.after: Any = None

    def prepare(self, pod: Any, interns: Any) -> Any:
        return self

    def feasible(self, state: Any, nodes: Any, rows: Any) -> Any:
        if self.running is not None and self.foreign is not None:
            ledger = self.running.fast_path.ledger
            assert nodes is not ledger.columns
            self.before = nodes.usage.copy(), nodes.version.copy()
            pod, self.foreign = self.foreign, None
            ledger.set_pod(pod, "n1")
            self.after = nodes.usage.copy(), nodes.version.copy()
        return np.ones(len(rows), dtype=np.bool_)

    def reasons(self, state: Any, nodes: Any, rows: Any) -> Any:
        return {}


async def test_a_cycle_sees_one_state_and_the_binder_the_newest() -> None:
    meddler = Meddler()
    profile = Profile(AGENT.scheduler_name, (meddler, *AGENT.filters), AGENT.scores, AGENT.pre_enqueue)
    async with (
        embedded_cluster() as cluster,
        scheduling(cluster.transport, profiles=(profile,), workers=2) as running,
    ):
        await cluster.add_node("n1", cpu="1")
        await cluster.add_pod("foreign", cpu="1", scheduler="another")
        await until(lambda: running.fast_path.ledger.rows and running.fast_path.cluster.pods)
        (foreign,) = running.fast_path.cluster.pods.values()
        meddler.running, meddler.foreign = running, foreign
        await cluster.add_pod("a", cpu="1")
        await refusal(cluster, "a")
        for before, after in zip(meddler.before, meddler.after, strict=True):
            assert np.array_equal(before, after)
        assert millicores(running.fast_path.ledger, "n1") == 1000
        # The cycle let the pod pass; the binder did not, and the next cycle knew why.
        assert running.reports.conflicts == 1
        assert running.reports.outcomes == {}
        assert await cluster.placed() == {}

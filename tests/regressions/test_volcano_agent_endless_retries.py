"""Volcano agent scheduler: a pod that can never win a race is retried at once, for ever, before all others.

What happened: a result without a usable candidate is queued again as urgent, which goes before every
PriorityClass, has no backoff and no bound, and resets the pod's attempts. What fails each time (an empty list
of candidates, a name that is still taken on the node) becomes a loop that uses a whole CPU and starves all
other pods.

Conditions: a pod whose candidates are gone whenever the binder looks; one worker; a pod that waits behind it.

Ours: so many urgent retries in a row and no more; then an ordinary backoff as after an error. Others get
their turn.
"""

from __future__ import annotations

from msgspec.structs import replace

from agent_scheduler.binding.result import ScheduleResult
from agent_scheduler.engine.queueing.places import Place
from tests.support.embedded import embedded_cluster, until
from tests.support.running import Running, scheduling

RETRIES = 3


def _never_wins(running: Running, name: str) -> None:
    """The pod's candidates are of a node that has just gone, whenever they reach the binder."""
    submit = running.fast_path.binder.submit

    def outrun(result: ScheduleResult) -> None:
        if result.pod.name == name:
            stale = tuple(replace(each, node_name="gone") for each in result.placement.candidates)
            result = result._replace(placement=replace(result.placement, candidates=stale))
        submit(result)

    running.fast_path.binder.submit = outrun  # type: ignore[method-assign]


async def test_a_pod_that_always_loses_backs_off_and_others_are_bound() -> None:
    async with (
        embedded_cluster() as cluster,
        scheduling(
            cluster.transport, workers=1, max_urgent_retries=RETRIES, initial_backoff=60, max_backoff=60
        ) as running,
    ):
        _never_wins(running, "loser")
        await cluster.add_node("n1")
        await until(lambda: running.fast_path.ledger.rows)
        uid = (await cluster.add_pod("loser"))["metadata"]["uid"]
        await cluster.add_pod("other")
        await until(cluster.placed)
        await until(lambda: running.fast_path.queue.where(uid) is Place.BACKOFF)
        assert running.reports.urgent == {True: RETRIES, False: 1}
        assert await cluster.placed() == {"other": "n1"}

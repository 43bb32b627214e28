"""kubernetes #72043: two schedulers that fill the same nodes can both take the last room.

What happened: the API server accepts a binding whatever the node's room is, so of two schedulers that decide
at the same moment both succeed, and the kubelet fails one of the pods.

Conditions: two schedulers on one node with room for one pod.

Ours: room that another was seen to take before our bind is sent is not taken again, even if it was free when
we decided. Two binds that are under way at the same moment cannot be told apart by anyone but the kubelet;
then both pods are counted and nothing more is sent to the node. (Nodes that we alone own are never
overcommitted.)
"""

from __future__ import annotations

from agent_scheduler.engine.profiles.profiles import ProfileSpec, build_profile
from tests.support.embedded import PODS, embedded_cluster, until
from tests.support.running import scheduling

from .stages import HeldBinds, HeldResults, millicores, refusal

OTHER = build_profile(ProfileSpec(scheduler_name="other"))


async def test_room_that_another_took_since_the_decision_is_not_taken_again() -> None:
    async with (
        embedded_cluster() as cluster,
        scheduling(cluster.transport) as ours,
        scheduling(cluster.transport, profiles=(OTHER,)),
    ):
        await cluster.add_node("n1", cpu="1")
        await until(lambda: ours.fast_path.ledger.rows)
        held = HeldResults(ours.fast_path)
        await cluster.add_pod("mine", cpu="1")
        await until(lambda: held.results)
        await cluster.add_pod("theirs", cpu="1", scheduler="other")
        await until(lambda: millicores(ours.fast_path.ledger, "n1") == 1000)
        held.release()
        await refusal(cluster, "mine")
        assert await cluster.placed() == {"theirs": "n1"}
        await cluster.ask("DELETE", f"{PODS}/theirs?gracePeriodSeconds=0")
        await until(lambda: ours.reports.attempts["scheduled"])
        assert await cluster.placed() == {"mine": "n1"}


async def test_two_binds_of_the_same_moment_are_both_counted_by_both() -> None:
    async with (
        embedded_cluster() as cluster,
        scheduling(cluster.transport) as ours,
        scheduling(cluster.transport, profiles=(OTHER,)) as others,
    ):
        both = (ours, others)
        held = [HeldBinds(each.fast_path) for each in both]
        await cluster.add_node("n1", cpu="1")
        await cluster.add_pod("mine", cpu="1")
        await cluster.add_pod("theirs", cpu="1", scheduler="other")
        await until(lambda: all(each.nodes for each in held))
        for each in held:
            each.release()
        await until(lambda: all(millicores(each.fast_path.ledger, "n1") == 2000 for each in both))
        await cluster.add_pod("late", cpu="1m")
        await cluster.add_pod("later", cpu="1m", scheduler="other")
        for name in ("late", "later"):
            assert await refusal(cluster, name) == "0/1 nodes are available: 1 Insufficient cpu."
        assert await cluster.placed() == {"mine": "n1", "theirs": "n1"}

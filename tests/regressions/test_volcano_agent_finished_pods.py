"""Volcano agent scheduler: pods that had ended held their room until their objects were deleted.

What happened: the binder changed the informer's pod, so the handlers no longer saw it leave the queue; each
later update put the task back as it was when it was bound. A pod that succeeded or failed was never
recognised as ended.

Conditions: short-lived pods whose objects stay (Jobs keep theirs for long).

Ours: a pod that has ended holds nothing, though its object stays; a label that changes on a bound pod changes
no room.
"""

from __future__ import annotations

import pytest

from tests.support.embedded import PODS, embedded_cluster, until
from tests.support.running import scheduling

from .stages import millicores, refusal

MERGE = "application/merge-patch+json"


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
async def test_the_room_of_a_pod_that_ended_is_free_while_its_object_stays(phase: str) -> None:
    async with embedded_cluster() as cluster, scheduling(cluster.transport) as running:
        await cluster.add_node("n1", cpu="1")
        await cluster.add_pod("first", cpu="1")
        await until(cluster.placed)
        await cluster.add_pod("second", cpu="1")
        await refusal(cluster, "second")
        await cluster.ask("PATCH", f"{PODS}/first", {"metadata": {"labels": {"a": "b"}}}, content_type=MERGE)
        await cluster.ask("PATCH", f"{PODS}/first/status", {"status": {"phase": phase}}, content_type=MERGE)
        await until(lambda: running.reports.attempts["scheduled"] == 2)
        assert await cluster.placed() == {"first": "n1", "second": "n1"}
        # What happens to the object afterwards takes nothing and gives nothing.
        await cluster.ask("PATCH", f"{PODS}/first", {"metadata": {"labels": {"a": "c"}}}, content_type=MERGE)
        await cluster.add_pod("third", cpu="1")
        assert await refusal(cluster, "third") == "0/1 nodes are available: 1 Insufficient cpu."
        await cluster.ask("DELETE", f"{PODS}/first?gracePeriodSeconds=0")
        await cluster.add_pod("fourth", cpu="1")
        await refusal(cluster, "fourth")
        assert millicores(running.fast_path.ledger, "n1") == 1000
        assert running.reports.attempts["scheduled"] == 2

"""kubernetes #137308 (and #65257): a new leader decided on a picture that lacked its predecessor's last binds.

What happened: a standby keeps its cache by watching. When it was given the lease it scheduled at once, on
what its watch had brought so far, and sent pods to room that the old leader had filled in its last moments.

Conditions: the watch of the standby trails, or has silently died, when the lease changes hands.

Ours: a leader's first decision is made on a picture that was taken after it got the lease, when its
predecessor writes no more.
"""

from __future__ import annotations

import asyncio

from agent_scheduler.config.load import load_text
from agent_scheduler.process.runtime import Runtime
from tests.features.fastpath.test_runtime import ELECT, HEAD
from tests.features.fastpath.test_runtime import running as process
from tests.support.embedded import embedded_cluster, until

from .links import watching_through_a_relay
from .stages import HeldResults, refusal


async def test_a_new_leader_knows_what_the_old_one_did_last() -> None:
    async with embedded_cluster() as cluster, watching_through_a_relay(cluster) as (transport, relay):
        await cluster.add_node("n1", cpu="1")
        standby = Runtime(load_text(HEAD + ELECT), transport=transport, identity="standby")
        async with process(cluster, ELECT) as leader:
            await until(lambda: leader.runtime.leases.names and leader.runtime.leases.held)
            following = asyncio.create_task(standby.run(signals=False))
            await until(lambda: standby.leases.leader)
            leading, waiting = leader.runtime.fast_path, standby.fast_path
            assert leading is not None and waiting is not None
            # Both know of this pod and of the room; the leader does not come to bind it.
            held = HeldResults(leading, only=lambda pod: pod.name == "second")
            await cluster.add_pod("second", cpu="1")
            await until(lambda: held.results and waiting.cluster.pods)
            relay.fall_silent()
            await cluster.add_pod("first", cpu="1")
            await until(cluster.placed)
            assert len(waiting.cluster.pods) == 1
        try:
            assert await refusal(cluster, "second") == "0/1 nodes are available: 1 Insufficient cpu."
            assert await cluster.placed() == {"first": "n1"}
        finally:
            standby.stop()
            assert await following == 0

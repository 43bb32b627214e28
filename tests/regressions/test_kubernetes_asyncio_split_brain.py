"""kubernetes_asyncio 36.1: a leader that lost the API server went on leading, beside its successor.

What happened: the election's task died with the first connection error and told nobody. The leading work
still ran long after the lease had ended, while another held it; renewals had no timeout, and time was the
wall clock's.

Conditions: the leader alone is cut off from the API server; a second candidate is not.

Ours: a leader stops by itself when its last renewal is too old, before anybody may follow it, however the
server fails to answer. Whoever asked it to lead is told.
"""

from __future__ import annotations

import asyncio

from agent_scheduler.kube.lease import LeaderElector, LeaseConfig
from tests.support.embedded import embedded_cluster, until
from tests.support.scripted import running

from .links import relayed


def _candidate(identity: str) -> LeaseConfig:
    return LeaseConfig(
        "default",
        "one",
        identity,
        lease_duration=1,
        renew_deadline=0.5,
        retry_period=0.1,
        request_timeout=0.3,
    )


async def test_a_leader_that_is_cut_off_stops_before_another_leads() -> None:
    happened: list[str] = []
    async with embedded_cluster() as cluster, relayed(cluster) as (transport, relay):
        first = LeaderElector(transport, _candidate("first"))
        second = LeaderElector(cluster.transport, _candidate("second"))

        async def lead(who: str) -> None:
            happened.append(f"{who} leads")
            assert [first.is_leader, second.is_leader].count(True) == 1
            try:
                await asyncio.Event().wait()
            finally:
                happened.append(f"{who} stops")

        async with running(first.run(lambda: lead("first"))) as leading:
            await until(lambda: happened)
            async with running(second.run(lambda: lead("second"))):
                await until(lambda: second.leader == "first")
                relay.cut()
                await until(lambda: "second leads" in happened)
                assert happened == ["first leads", "first stops", "second leads"]
                assert await leading is False

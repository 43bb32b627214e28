"""kopf #585 (and #957; kubernetes-client/python #1402): a watch fell silent, and nothing happened any more.

What happened: after some time handlers were no longer called. The connection of the watch was still there for
the client, but nothing came over it: its peer had vanished without a word. Without a timeout of the client's
own it waits for ever; the server's `timeoutSeconds` cannot help where the server is what was lost.

Conditions: a peer that vanishes without closing the connection, or something between that forgets the
connection.

Ours: a watch on which nothing arrives for longer than the server was asked to keep it, or than bookmarks
come, is taken for dead and asked for again from where it was.
"""

from __future__ import annotations

from agent_scheduler.kube.reflector import WatchTimes
from tests.support.embedded import PODS, embedded_cluster, until
from tests.support.running import scheduling

from .links import watching_through_a_relay
from .stages import refusal


async def test_a_watch_that_fell_silent_is_asked_for_again() -> None:
    async with (
        embedded_cluster() as cluster,
        watching_through_a_relay(cluster) as (transport, relay),
        scheduling(transport, watch_times=WatchTimes(stall=0.3)) as running,
    ):
        await cluster.add_node("n1", cpu="1")
        await cluster.add_pod("first", cpu="1")
        await until(cluster.placed)
        await cluster.add_pod("second", cpu="1")
        await refusal(cluster, "second")
        relay.fall_silent()
        await cluster.ask("DELETE", f"{PODS}/first?gracePeriodSeconds=0")
        await cluster.add_node("n2", cpu="1")
        await cluster.add_pod("third", cpu="1")
        await until(lambda: running.reports.attempts["scheduled"] == 3)
        assert set(await cluster.placed()) == {"second", "third"}
        assert running.reports.counts["Pod list_initial"] == 1
        assert running.reports.counts["after flush"] == 0

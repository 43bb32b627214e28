"""What the cluster's events say of who leads, in client-go's words."""

from __future__ import annotations

from tests.features.fastpath.test_runtime import ELECT, running
from tests.support.embedded import EmbeddedCluster, embedded_cluster, until
from tests.support.sharding import world as controllers

EVENTS = "/apis/events.k8s.io/v1/namespaces/default/events"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/default/leases"


async def said(cluster: EmbeddedCluster, lease: str) -> list[str]:
    """The notes of events about a lease, each checked to be complete."""
    uid = (await cluster.ask("GET", f"{LEASES}/{lease}"))["metadata"]["uid"]
    found = [each for each in await cluster.items(EVENTS) if each["reason"] == "LeaderElection"]
    about = {"kind": "Lease", "namespace": "default", "name": lease, "uid": uid}
    for event in found:
        assert event["regarding"] == {**about, "apiVersion": "coordination.k8s.io/v1"}
        assert (event["type"], event["action"]) == ("Normal", "LeaderElection")
    return [event["note"] for event in sorted(found, key=lambda each: each["eventTime"])]


async def test_who_leads_says_when_it_begins_and_when_it_ends() -> None:
    async with embedded_cluster() as cluster:
        async with running(cluster, ELECT) as process:
            await until(lambda: process.runtime.leases.names and process.runtime.leases.held)
            me = process.runtime.leases.identity

            async def begun() -> bool:
                return await said(cluster, "one") == [f"{me} became leader"]

            await until(begun)
        assert await said(cluster, "one") == [f"{me} became leader", f"{me} stopped leading"]


async def test_without_events_nothing_is_said_and_without_a_lease_there_is_nothing_to_say() -> None:
    for text in (ELECT + "events: {enabled: false}\n", ""):
        async with embedded_cluster() as cluster:
            await cluster.add_node("n1")
            await cluster.add_pod("a")
            async with running(cluster, text):
                await until(cluster.placed)
            reasons = {each["reason"] for each in (await cluster.ask("GET", EVENTS))["items"]}
            assert "LeaderElection" not in reasons


async def test_who_lost_its_lease_may_not_even_say_so() -> None:
    async with embedded_cluster() as cluster:
        async with running(cluster, ELECT) as process:
            await until(lambda: process.runtime.leases.names and process.runtime.leases.held)
            await cluster.patch(f"{LEASES}/one", {"spec": {"holderIdentity": "another"}})
            await until(process.ending.done)
            assert process.ending.result() == 1
        assert [note for note in await said(cluster, "one") if "stopped" in note] == []


async def test_controllers_say_it_too() -> None:
    async with controllers() as made:
        process = made.start(elect=True)
        await until(lambda: process.leases.names and process.leases.held)
        await made.stop(process)
        assert await said(made.cluster, "controllers") == ["c0 became leader", "c0 stopped leading"]

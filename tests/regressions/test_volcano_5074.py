"""Volcano #5074: of two replicas that started at the same time one panicked over an object that both created.

What happened: each replica looked for the default queue before it had the lease, did not find it, and created
it. The later one was answered AlreadyExists, took that for fatal, and restarted.

Conditions: two replicas start on a cluster that has none of their objects; both look before either creates.

Ours: what replicas share is the lease alone. Losing the race to create it makes a standby, and ends nobody.
"""

from __future__ import annotations

from embedded_kubernetes.requests import Disturbance, Request
from tests.features.fastpath.test_runtime import ELECT
from tests.features.fastpath.test_runtime import running as process
from tests.support.embedded import embedded_cluster, until

from .links import Tap

LEASES = "/apis/coordination.k8s.io/v1/namespaces/default/leases"


async def test_two_replicas_that_both_create_the_lease_become_leader_and_standby() -> None:
    tap = Tap()

    def creates(request: Request) -> bool:
        return request.method == "POST" and request.path == LEASES

    def reads(request: Request) -> bool:
        return request.method == "GET" and request.path == f"{LEASES}/one"

    def slow(request: Request) -> Disturbance | None:
        return Disturbance(delay=0.3) if creates(request) else None

    tap.harm = slow
    async with embedded_cluster(disturb=tap) as cluster:
        await cluster.add_node("n1")
        async with process(cluster, ELECT) as one, process(cluster, ELECT) as other:
            await until(lambda: tap.count(creates) == 2)
            await cluster.add_pod("a")
            await until(cluster.placed)
            leads = [each.metrics()['leader_election_master_status{name="one"}'] for each in (one, other)]
            assert sorted(leads) == [0, 1]
            (lease,) = (await cluster.ask("GET", LEASES))["items"]
            # The loser has seen who won, and goes on asking.
            asked = tap.count(reads)
            await until(lambda: tap.count(reads) > asked + 1)
            leader = (one, other)[leads.index(1)]
            assert lease["spec"]["holderIdentity"] == leader.runtime._identity
            assert not one.ending.done() and not other.ending.done()
        assert (one.ending.result(), other.ending.result()) == (0, 0)

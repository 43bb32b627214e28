"""Installation of schedulers that share nodes by NodeShards, each in a process of its own, on an embedded cluster."""

from __future__ import annotations

from tests.support.embedded import until
from tests.support.installation import Installation
from tests.support.shared import SharedCluster, batch, batch_cluster


async def gang(world: Installation, name: str, members: int, *, of: str, cpu: str = "1") -> None:
    await world.gang(name, members, cpu=cpu, queue=f"q-{of}", scheduler=f"batch-{of}")


async def nodes_of(shared: SharedCluster, prefix: str) -> set[str]:
    return {node for name, node in (await shared.placed()).items() if name.startswith(prefix)}


async def test_each_of_two_schedulers_places_its_gangs_on_the_nodes_of_its_own_shard() -> None:
    async with (
        batch_cluster(4) as shared,
        batch(shared, "a", nodes="n0 n1") as a,
        batch(shared, "b", nodes="n2 n3") as b,
    ):
        await gang(a, "one", 6, of="a")
        await gang(b, "two", 6, of="b")
        await until(lambda: a.has_placed("one", 6))
        await until(lambda: b.has_placed("two", 6))
        assert await nodes_of(shared, "one") == {"n0", "n1"}
        assert await nodes_of(shared, "two") == {"n2", "n3"}


async def test_a_gang_that_does_not_fit_into_a_hard_shard_waits_until_a_node_joins_it() -> None:
    async with batch_cluster(2) as shared, batch(shared, "a", nodes="n0") as world:
        await shared.add_pod("p", scheduler="a", cpu="2")
        await until(lambda: world.has_placed("p", 1))
        await gang(world, "g", 2, of="a", cpu="1500m")
        await until(lambda: shared.condition("g-0"))
        await world.rest()
        said = [await shared.condition(f"g-{number}") for number in range(2)]
        assert {each and each["reason"] for each in said} == {"NodeShardFull"}
        assert {each and each["message"] for each in said} == {
            "node shard a is full, and other nodes of the cluster would do"
        }
        assert await world.count_placed("g") == 0
        await shared.desire("a", ["n0", "n1"])
        await until(lambda: world.has_placed("g", 2))


async def test_without_its_shard_a_hard_scheduler_tells_members_so_in_words_that_no_autoscaler_answers() -> None:
    async with batch_cluster(1) as shared, batch(shared, "a") as world:
        await gang(world, "g", 2, of="a")
        condition = await until(lambda: shared.condition("g-0"))
        assert condition["reason"] == "NodeShardNotReady"
        assert condition["message"] == "0/1 nodes are available: node shard a does not exist."
        await shared.desire("a", ["n0"])
        await until(lambda: world.has_placed("g", 2))


async def test_no_group_is_let_in_for_what_the_cluster_has_and_a_hard_shard_has_not() -> None:
    by_cluster = ", enqueueBy: cluster"
    async with batch_cluster(3) as shared, batch(shared, "a", nodes="n0", sessions=by_cluster) as world:
        await world.gang("g", 2, cpu="3", queue="q-a", scheduler="batch-a", minResources={"cpu": "6"})
        await until(lambda: shared.condition("g-0"))
        await world.rest()
        assert await world.is_in_phase("g", "Pending")
        await shared.desire("a", ["n0", "n1"])
        await until(lambda: world.has_placed("g", 2))


async def test_a_soft_scheduler_places_gangs_in_its_shard_first_and_elsewhere_when_it_is_full() -> None:
    async with batch_cluster(3) as shared, batch(shared, "a", "soft", nodes="n1") as world:
        await gang(world, "first", 3, of="a")
        await until(lambda: world.has_placed("first", 3))
        assert await nodes_of(shared, "first") == {"n1"}
        await gang(world, "second", 4, of="a")
        await until(lambda: world.has_placed("second", 4))
        assert "n1" in await nodes_of(shared, "second")
        assert len(await nodes_of(shared, "second")) > 1

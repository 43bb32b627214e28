"""What the health pages say of a process that ends, or that hears nothing."""

from __future__ import annotations

from collections.abc import Sequence

from agent_scheduler.serving.health import Check, examine
from tests.features.fastpath.test_runtime import ELECT, running
from tests.support.embedded import NODES, embedded_cluster, forbids, until
from tests.support.sharding import world as controllers


def failing(checks: Sequence[Check]) -> list[str]:
    text = examine("readyz", checks, verbose=True).text
    return [line.removeprefix("[-]") for line in text.splitlines() if line.startswith("[-]")]


async def test_a_scheduler_is_ready_once_it_has_listed_all_and_until_it_is_asked_to_end() -> None:
    async with embedded_cluster() as cluster, running(cluster, ELECT) as process:
        await until(lambda: process.runtime.fast_path)
        ready = process.runtime.sources().ready
        await until(lambda: not failing(ready))
        process.runtime.stop()
        assert failing(ready) == ["shutdown failed: shutting down"]


async def test_controllers_are_not_ready_once_they_are_asked_to_end() -> None:
    async with controllers() as several:
        process = several.start()
        await until(lambda: process.is_synced)
        ready = process.sources().ready
        assert failing(ready) == []
        process.stop()
        assert failing(ready) == ["shutdown failed: shutting down"]


async def test_what_is_not_listed_yet_is_named() -> None:
    async with embedded_cluster(disturb=forbids(NODES)) as cluster, running(cluster) as process:
        await until(lambda: process.runtime.fast_path)
        ready = process.runtime.sources().ready
        await until(lambda: failing(ready) == ["sched-handler-sync failed: not synced yet: Node"])


async def test_a_kind_that_nothing_is_heard_of_is_named_until_something_is() -> None:
    async with embedded_cluster() as cluster, running(cluster) as process:
        await until(lambda: process.runtime.fast_path and process.runtime.fast_path.is_synced)
        fast_path = process.runtime.fast_path
        assert fast_path is not None
        ready = process.runtime.sources().ready
        # That of either is heard of proves that it is watched; to begin a watch is a sign of life, too.
        await cluster.add_node("n0")
        await cluster.add_pod("p", scheduler="another")
        await until(lambda: fast_path.ledger.rows and fast_path.cluster.pods)
        for kind in ("Pod", "Node"):
            fast_path._informers._reflectors[kind].last_contact -= 10_000
        assert failing(ready) == ["informer-watch failed: the API server is silent about: Node, Pod"]
        await cluster.add_node("n1")
        await until(lambda: failing(ready) == ["informer-watch failed: the API server is silent about: Pod"])

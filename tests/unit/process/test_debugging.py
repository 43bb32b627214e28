"""The debug pages of a scheduler's process: who answers for a pod or a group, and what is not known."""

from __future__ import annotations

import functools

import pytest

from agent_scheduler.serving.sources import DebugQuery, NotReady
from tests.features.fastpath.test_runtime import running
from tests.support.embedded import NODES, embedded_cluster, forbids, until
from tests.support.installation import installed


async def test_a_pod_is_explained_by_the_scheduler_that_it_is_for() -> None:
    async with installed() as cluster:
        await cluster.add_node("n1", cpu="1")
        await cluster.add_pod("agent", cpu="2")
        await cluster.gang("g", 1, cpu="2")
        await until(lambda: cluster.condition("agent"))
        await until(lambda: cluster.condition("g-0"))
        debug = cluster.runtime.sources().debug
        assert debug is not None and debug.explain_group is not None
        for name in ("agent", "g-0"):
            known, said = debug.explain("default", name)
            assert known and said["leading"] is True
            assert "Insufficient cpu" in str(said), said
        known, said = debug.explain("default", "none")
        assert (known, said["place"]) == (False, "unknown")
        assert debug.explain_group("default", "g")[0]
        assert not debug.explain_group("default", "none")[0]


async def test_without_a_batch_scheduler_groups_are_not_explained() -> None:
    async with embedded_cluster() as cluster, running(cluster) as process:
        await until(lambda: process.runtime.fast_path and process.runtime.fast_path.is_synced)
        debug = process.runtime.sources().debug
        assert debug is not None and debug.explain_group is None
        assert not debug.explain("default", "none")[0]


async def test_the_queue_and_the_cache_are_shown_with_one_more_than_is_asked_for() -> None:
    async with embedded_cluster() as cluster, running(cluster) as process:
        for number in range(3):
            await cluster.add_node(f"n{number}", cpu="1")
            await cluster.add_pod(f"large-{number}", cpu="2")
        for number in range(3):
            await until(functools.partial(cluster.condition, f"large-{number}"))
        debug = process.runtime.sources().debug
        assert debug is not None
        query = DebugQuery(limit=1)
        for page in (debug.queue(query), debug.cache(query)):
            assert page.summary and len([*page.items]) == 2


async def test_before_the_first_lists_nothing_is_explained_or_checked() -> None:
    async with embedded_cluster(disturb=forbids(NODES)) as cluster, running(cluster) as process:
        await until(lambda: process.runtime.fast_path)
        debug = process.runtime.sources().debug
        assert debug is not None
        with pytest.raises(NotReady):
            debug.explain("default", "a")
        with pytest.raises(NotReady):
            await debug.check()

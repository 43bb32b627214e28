"""Groups are admitted to their queue as soon as nothing prevents it, whichever change or component caused it."""

from __future__ import annotations

import asyncio

import pytest

from tests.support.batched import add_group, add_queue
from tests.support.embedded import PODS, until
from tests.support.installation import CONFIGURATION
from tests.support.jobs import GROUPS
from tests.support.whole import stage

from .test_admission import Queued, queued

#: A session each half a second, so that a group may be created between two of them.
BY_CLUSTER = CONFIGURATION.replace("50ms}", "500ms, enqueueBy: cluster}")


async def make_room(it: Queued, how: str) -> None:
    if how == "node":
        await it.add_node("m", cpu="4")
    elif how == "deleted":
        await it.delete(f"{PODS}/other")
    else:
        await it.end_pod("other")


@pytest.mark.parametrize("how", ["node", "deleted", "ended"])
async def test_a_job_without_pods_is_let_in_when_the_cluster_has_room(how: str) -> None:
    async with queued(BY_CLUSTER) as it:
        await it.add_node("n", cpu="3")
        await it.add_pod("other", cpu="2")
        await until(lambda: it.only_placed("other"))
        await it.make_job("j", stage("t", 3, 3), minimum=3)
        await asyncio.sleep(40)
        assert not await it.there("j-t-0")
        await make_room(it, how)
        await until(lambda: it.runs("j", 3))


async def test_another_session_follows_where_a_group_counts_for_less_by_then() -> None:
    """The group `early` counts twice when `late` is created: it is still Inqueue, and its pod has a node."""
    async with queued(BY_CLUSTER) as it:
        await it.add_node("n", cpu="4")
        least = {"minMember": 1, "queue": "default", "minResources": {"cpu": "2"}}
        await add_group(it, "early", **least)
        await it.pod("early-0", queue="default", gated=False, group="early", cpu="2")
        await until(lambda: it.only_placed("early-0"))
        await add_group(it, "late", **least)

        async def is_let_in() -> bool:
            found = await it.get(f"{GROUPS}/late")
            return bool(found.get("status", {}).get("phase") == "Inqueue")

        await until(is_let_in)


async def test_what_is_left_of_a_promise_goes_to_groups_that_are_let_in_already() -> None:
    async with queued() as it:
        await it.add_node("n", cpu="4")
        await add_queue(it, "full", capability={"cpu": "3"})
        await add_group(it, "early", minMember=1, queue="full", minResources={"cpu": "3"})
        await add_group(it, "late", minMember=1, queue="full")
        await it.pod("late-0", gated=False, group="late")
        await until(lambda: it.says_only(late_0="QueueFull"))
        await it.pod("early-0", gated=False, group="early")
        await until(lambda: it.only_placed("early-0", "late-0"))

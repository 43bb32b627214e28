"""Jobs that are larger than their share of a queue, in a whole process.

They run while no other Job may use the room, and return it to those that may.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.embedded import until
from tests.support.installation import CONFIGURATION, Installation, installed

from .test_explaining import explained_group, settled

OFF = CONFIGURATION.replace("{schedulePeriod: 50ms}", "{schedulePeriod: 50ms, workConserving: false}")
RECLAIM = "enqueue, allocate, reclaim, backfill"


def sessions(actions: str, plugin: str = "proportion", *, hierarchy: bool = False) -> str:
    option = f"{{name: {plugin}, enableHierarchy: {'true' if hierarchy else 'false'}}}"
    tiers = (
        "[{plugins: [{name: priority}, {name: gang}, {name: conformance}]}, "
        f"{{plugins: [{{name: overcommit}}, {{name: predicates}}, {option}, {{name: nodeorder}}]}}]"
    )
    more = f'{{schedulePeriod: 50ms, actions: "{actions}", tiers: {tiers}}}'
    return CONFIGURATION.replace("{schedulePeriod: 50ms}", more)


def deserving(cpus: int, **more: Any) -> dict[str, Any]:
    return {"deserved": {"cpu": str(cpus), "memory": "40Gi"}, **more}


async def placed(world: Installation, *gangs: str) -> list[int]:
    await world.rest()
    return [await world.count_placed(each) for each in gangs]


@pytest.mark.parametrize(
    ("text", "a", "b", "sizes", "expected"),
    [
        (CONFIGURATION, {}, {}, (6, 6), [6, 0]),
        (OFF, {}, {}, (6, 6), [0, 0]),
        (CONFIGURATION, {}, {"weight": 3}, (4, 8), [4, 0]),
        (CONFIGURATION, {}, {"priority": 1}, (6, 8), [0, 8]),
        (CONFIGURATION, {}, {}, (6, 5), [0, 5]),
        (CONFIGURATION, {"capability": {"cpu": "5"}}, {}, (6, 6), [0, 6]),
        (CONFIGURATION, {}, {"guarantee": {"resource": {"cpu": "5"}}}, (6, 6), [0, 6]),
        (sessions("reclaim, allocate, backfill, enqueue"), {}, {}, (6, 6), [6, 0]),
        (sessions(RECLAIM, "capacity"), deserving(5), deserving(5), (6, 6), [6, 0]),
    ],
)
async def test_a_gang_beyond_its_queues_share_runs_where_no_other_may_use_the_room(
    text: str, a: dict[str, Any], b: dict[str, Any], sizes: tuple[int, int], expected: list[int]
) -> None:
    async with installed(text) as world:
        for name, spec in (("a", a), ("b", b)):
            await world.queue(name, **spec)
        for name, size in zip("ab", sizes, strict=True):
            await world.gang(f"of-{name}", size, queue=name)
        await world.add_node("n", cpu="10", memory="80Gi")
        assert await placed(world, "of-a", "of-b") == expected
        waits = explained_group(await settled(world), "of-b")["gang"]
        if text is OFF:
            assert waits["why"] == "it needs more than its queue's share of what is in the cluster has left"
        if expected == [6, 0]:
            assert waits["waits_for"] == "nodes" and "Insufficient cpu" in waits["why"]
            for number in range(6):
                await world.end_pod(f"of-a-{number}")
            await until(lambda: world.has_placed("of-b", 6))


@pytest.mark.parametrize(
    ("text", "a", "b"),
    [
        (sessions(RECLAIM), {}, {}),
        (sessions(RECLAIM, "capacity"), deserving(5), deserving(5)),
        (sessions(RECLAIM, "capacity", hierarchy=True), deserving(5, parent="root"), deserving(5, parent="root")),
    ],
)
async def test_what_is_lent_to_a_gang_goes_whole_to_a_job_within_its_queues_share_and_does_not_come_back(
    text: str, a: dict[str, Any], b: dict[str, Any]
) -> None:
    async with installed(text, queue="root", kubelets=True) as world:
        for name, spec in (("a", a), ("b", b)):
            await world.queue(name, **spec)
        await world.add_node("n", cpu="10", memory="80Gi")
        await world.gang("lent", 6, queue="a")
        await until(lambda: world.is_in_phase("lent", "Running"))
        await world.gang("too-large", 6, queue="b")
        assert await placed(world, "lent", "too-large") == [6, 0]
        await world.gang("by-right", 5, queue="b")
        await until(lambda: world.has_placed("by-right", 5))
        assert sum(name.startswith("lent") for name in await world.pods()) == 0
        for number in range(6):
            await world.member(f"lent-{number}", "lent")
        assert await placed(world, "lent", "too-large", "by-right") == [0, 0, 5]
        assert await world.is_left_alone()

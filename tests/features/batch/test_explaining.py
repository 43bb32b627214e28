"""The process's explanations of pods and groups of its batch scheduler."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from agent_scheduler.serving.explanation import render
from agent_scheduler.serving.sources import Sources
from tests.support.embedded import until
from tests.support.installation import Installation, installed


async def settled(world: Installation) -> Sources:
    await world.rest()
    return world.runtime.sources()


def explained(sources: Sources, pod: str) -> Mapping[str, Any]:
    debug = sources.debug
    assert debug is not None
    known, page = debug.explain("default", pod)
    assert known
    assert render(dict(page))
    return page


def explained_group(sources: Sources, name: str) -> Mapping[str, Any]:
    debug = sources.debug
    assert debug is not None and debug.explain_group is not None
    _, page = debug.explain_group("default", name)
    return page


async def test_a_member_says_what_its_gang_waits_for_and_what_nodes_say_of_itself() -> None:
    async with installed() as world:
        await world.add_node("a", cpu="4")
        await world.gang("large", 3, cpu="2")
        await world.gang("huge", 1, cpu="8")
        sources = await settled(world)
        page = explained(sources, "large-1")
        assert (page["place"], page["scheduler_name"]) == ("waiting", "volcano")
        assert explained_group(sources, "none")["place"] == "unknown"
        gang = page["gang"]
        assert (gang["group"], gang["queue"], gang["waits_for"]) == ("default/large", "q", "nodes")
        assert list(gang["minimums"]) == [{"of": "group", "needs": 3, "has": 0, "missing": 3}]
        assert gang["session"]["uid"]
        assert page["decision"]["feasible"] == 1
        # The weight of each plugin times 0 to 100.
        (best,) = page["decision"]["best"]
        assert max(best["scores"].values()) == 300 and best["total"] <= 1200
        (answer,) = explained(sources, "huge-0")["decision"]["plugins"]
        assert answer["near"][0]["node"] == "a"


async def test_a_group_behind_the_gate_of_its_queue_says_what_the_queue_lacks() -> None:
    async with installed(full={"cpu": "1"}) as world:
        await world.add_node("a", cpu="4")
        await world.gated_gang("two", 2, queue="full")
        page = explained_group(await settled(world), "two")
        assert page["gang"]["waits_for"] == "gates"
        assert page["queue_gate"]["why"] == "queue full has too little capability left: 1 of cpu missing"
        assert "Queue's gate     present, queue full has too little capability left" in render(dict(page))


async def test_a_member_of_a_gang_that_runs_is_bound_and_its_group_complete() -> None:
    async with installed() as world:
        await world.add_node("a", cpu="4")
        await world.gang("fits", 2)
        await until(lambda: world.has_placed("fits", 2))
        sources = await settled(world)
        page = explained(sources, "fits-0")
        assert (page["place"], page["node"], page["gang"]["waits_for"]) == ("bound", "a", "")
        group = explained_group(sources, "fits")
        assert (group["place"], group["gang"]["minimums"][0]["missing"]) == ("complete", 0)
        assert "decision" not in group


async def test_a_bound_member_says_which_session_chose_its_node_and_what_it_would_get_now() -> None:
    async with installed() as world:
        await world.add_node("a", cpu="4")
        await world.add_node("b", cpu="1")
        await world.gang("fits", 2)
        await until(lambda: world.has_placed("fits", 2))
        sources = await settled(world)
        placement = explained(sources, "fits-0")["placement"]
        assert placement["by"].startswith("session ") and placement["node"] in ("a", "b")
        (candidate,) = placement["candidates"]
        assert (candidate["node"], candidate["below"]) == (placement["node"], None)
        now = placement["now"]
        assert set(now["weights"].values()) <= {1, 2, 3}
        for best in now["best"]:
            assert best["total"] == pytest.approx(sum(best["scores"].values()), abs=0.1)
            assert all(0 <= best["scores"][name] <= 100 * weight for name, weight in now["weights"].items())

"""Debug pages: what they show, and that a page of a full queue costs a page."""

from __future__ import annotations

from itertools import islice
from typing import Any

import pytest

from agent_scheduler.engine.queueing import views
from agent_scheduler.fastpath.views import known_nodes, waiting_pods
from tests.support.engine import pod_json
from tests.unit.cluster.test_cluster import World


def shown(world: World, *, limit: int = 100, **query: Any) -> list[tuple[str, str]]:
    query = {"namespace": None, "place": None} | query
    found = waiting_pods(world.queue, limit=limit, **query)
    return [(pod["place"], pod["key"]) for pod in islice(found, limit)]


def full() -> World:
    world = World("n1")
    world.refused("refused")
    world.seen(pod_json("gated", schedulingGates=[{"name": "example.com/g"}]))
    for index in range(300):
        body = pod_json(f"p{index}")
        body["metadata"]["namespace"] = "even" if index % 2 == 0 else "odd"
        world.seen(body, priority=index)
    return world


def test_a_page_shows_the_first_of_each_place_in_their_order() -> None:
    world = full()
    assert shown(world, limit=3) == [("active", "odd/p299"), ("active", "even/p298"), ("active", "odd/p297")]
    assert shown(world, limit=2, namespace="even") == [("active", "even/p298"), ("active", "even/p296")]
    assert shown(world, place="unschedulable") == [("unschedulable", "default/refused")]
    assert shown(world, namespace="default") == [("unschedulable", "default/refused"), ("gated", "default/gated")]
    entry = world.queue.pop()
    assert entry is not None
    assert shown(world, place="in_flight") == [("in_flight", "odd/p299")]
    world.queue.add_unschedulable(entry)
    assert shown(world, place="backoff") == [("backoff", "odd/p299")]


def test_no_more_pods_are_made_into_text_than_a_page_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    world = full()
    made: list[Any] = []
    view = views._view
    monkeypatch.setattr(views, "_view", lambda entry: made.append(entry) or view(entry))
    assert len(shown(world, limit=10)) == 10
    assert len(made) == 10


def test_nodes_are_shown_with_what_they_offer_and_what_is_taken() -> None:
    world = World("n1")
    world.seen(pod_json("a", requests={"cpu": "300m"}, nodeName="n1"))
    [node] = known_nodes(world.ledger, limit=2)
    assert (node["name"], node["pods"]) == ("n1", 1)
    assert node["allocatable"]["cpu"] == 1000
    assert node["requested"] == {"cpu": 300, "memory": 0, "pods": 1}

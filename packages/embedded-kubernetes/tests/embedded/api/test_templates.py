"""Bursts of pods and of events: the fast path stores the same objects as the general one."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import orjson
import pytest

from embedded.support import PODS, PRIORITIES, World, named, pod
from embedded_kubernetes.builtin import BUILTIN
from embedded_kubernetes.handlers import Api
from embedded_kubernetes.resource import Object
from embedded_kubernetes.templates import Form, Templates

BURSTS: list[dict[str, Any]] = [
    {},
    {"labels": {"app": "x", "wave": "1"}, "annotations": {"quote": 'a "b" \\ é'}},
    {"spec": {"schedulingGates": [{"name": "example.com/g"}]}},
    {"spec": {"nodeName": "n1", "priorityClassName": "high", "nodeSelector": {"a": "b"}}},
    {"finalizers": ["example.com/f"], "generateName": "agent-"},
]


@pytest.fixture
def filled(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return names of the objects that are created from a template."""
    names: list[str] = []
    make = Templates.make

    def noted(self: Templates, sight: Any) -> Any:
        made = make(self, sight)
        if made is not None:
            names.append(sight.texts[0])
        return made

    monkeypatch.setattr(Templates, "make", noted)
    return names


def world_with_class() -> World:
    world = World()
    world.post(PRIORITIES, named("high", value=7))
    return world


def burst(world: World, metadata: dict[str, Any], *, count: int = 6) -> list[Any]:
    return [world.pod(f"agent-{number:04d}", **metadata) for number in range(count)]


@pytest.mark.parametrize("metadata", BURSTS)
def test_a_pod_from_a_template_is_what_the_rules_would_have_stored(
    metadata: dict[str, Any], filled: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    quick = world_with_class()
    made = burst(quick, metadata)
    assert filled == [f"agent-{number:04d}" for number in range(2, 6)]
    monkeypatch.setattr(Templates, "look", lambda self, request, namespace: None)
    slow = world_with_class()
    expected = burst(slow, metadata)
    assert made == expected
    assert quick.get(PODS) == slow.get(PODS)
    pods = [world.store.tables[("", "pods")].records for world in (quick, slow)]
    said = [{key: (each.labels, each.fields, each.owners) for key, each in found.items()} for found in pods]
    assert said[0] == said[1]


GROUP = "scheduling.k8s.io/group-name"


def test_members_of_many_gangs_are_one_burst_and_each_is_what_the_rules_would_have_stored(
    filled: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def members(world: World) -> list[Any]:
        groups = [{GROUP: f"gang-{number // 2}", "team": "x"} for number in range(6)]
        made = [world.pod(f"agent-{number:04d}", annotations=said) for number, said in enumerate(groups)]
        # These have no group's annotation, though the rest of their text is the same.
        made += [world.pod(f"bare-{number}", annotations={"team": "x"}) for number in range(3)]
        return [*made, world.pod("odd", annotations={GROUP: 'no name: a "text"', "team": "x"})]

    quick = World()
    made = members(quick)
    assert filled == [*(f"agent-{number:04d}" for number in range(2, 6)), "bare-2"]
    gangs = [each["metadata"]["annotations"].get(GROUP) for each in made[:6:2]]
    assert gangs == ["gang-0", "gang-1", "gang-2"]
    monkeypatch.setattr(Templates, "look", lambda self, request, namespace: None)
    slow = World()
    assert members(slow) == made and slow.get(PODS) == quick.get(PODS)


def test_the_refusals_of_a_burst_are_those_of_single_pods(filled: list[str]) -> None:
    world = world_with_class()
    world.namespace("t")
    path = "/api/v1/namespaces/t/pods"
    for number in range(5):
        world.pod(f"agent-{number:04d}", namespace="t")
    assert len(filled) == 3
    assert world.refused("POST", path, pod("agent-0004")) == (409, "AlreadyExists")
    assert world.refused("POST", path, pod("Agent_9")) == (422, "Invalid")
    world.delete("/api/v1/namespaces/t")
    assert world.refused("POST", path, pod("agent-0009")) == (403, "Forbidden")
    world.collect()
    assert world.refused("POST", path, pod("agent-0009")) == (404, "NotFound")


def test_templates_do_not_outlive_their_second_or_their_priority_classes(filled: list[str]) -> None:
    world = world_with_class()
    burst(world, {})
    world.now += 1
    late = world.pod("late-0001")
    assert late["metadata"]["creationTimestamp"] == "2027-01-15T08:00:01Z"
    for number in range(2, 6):
        world.pod(f"late-{number:04d}")
    assert "late-0005" in filled
    world.patch(f"{PRIORITIES}/high", {"globalDefault": True})
    for number in range(6, 10):
        assert world.pod(f"late-{number:04d}")["spec"]["priority"] == 7
    assert "late-0006" not in filled


def test_a_pod_that_says_its_own_name_goes_the_long_way(world: World, filled: list[str]) -> None:
    for number in range(5):
        name = f"agent-{number}"
        made = world.pod(name, labels={"same": "x"}, spec={"hostname": name})
        assert made["spec"]["hostname"] == name
    assert filled == []


def test_warnings_are_given_to_every_pod_of_a_burst(world: World, filled: list[str]) -> None:
    for number in range(5):
        odd = {**pod(f"agent-{number:04d}"), "nosuch": 1}
        assert dict(world.send("POST", PODS, odd).headers)["Warning"].startswith("299")
    assert filled == []


EVENTS, CORE_EVENTS = "/apis/events.k8s.io/v1/namespaces/default/events", "/api/v1/namespaces/default/events"


def event(number: int, **more: Any) -> Object:
    name = f"agent-{number:04d}"
    return {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"name": f"{name}.{number:x}", "namespace": "default"},
        "eventTime": f"2026-01-01T00:00:00.{number:06d}Z",
        "reportingController": "s",
        "reportingInstance": "i",
        "type": "Normal",
        "reason": "Scheduled",
        "action": "Binding",
        "note": f'100% "assigned" é {name}',
        "regarding": {**named(name)["metadata"], "kind": "Pod", "uid": f"u{number}", "namespace": "default"},
        **more,
    }


def test_an_event_from_a_template_is_what_the_rules_would_have_stored(
    filled: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    answers: list[list[Any]] = []
    for _ in range(2):
        world = World()
        watches = [world.watch(f"{path}?watch=1&resourceVersion=1") for path in (EVENTS, CORE_EVENTS)]
        made = [world.call("POST", EVENTS, event(number)) for number in range(6)]
        selected = world.get(f"{EVENTS}?fieldSelector=regarding.name%3Dagent-0004%2Cregarding.uid%3Du4")
        assert [item["note"] for item in selected["items"]] == ['100% "assigned" é agent-0004']
        seen = [watch.events() for watch in watches]
        answers.append([made, seen, world.get(EVENTS), world.get(CORE_EVENTS)])
        monkeypatch.setattr(Templates, "look", lambda self, request, namespace: None)
    assert len(filled) == 4
    assert answers[0] == answers[1]


@pytest.mark.parametrize(
    "odd",
    [
        {"note": ""},
        {"note": "x" * 1025},
        {"note": None},
        {"note": 7},
        {"eventTime": "2026-01-01T00:00:00Z"},
        {"eventTime": None},
        named("A B", namespace="default"),
        {"metadata": {"namespace": "default"}},
        {"metadata": "none"},
        {"regarding": {"name": "", "uid": "u", "namespace": "default"}},
        {"regarding": []},
        {"series": {"count": 1, "lastObservedTime": None}},
    ],
)
def test_an_event_out_of_the_ordinary_is_answered_as_if_it_were_alone(odd: Object, filled: list[str]) -> None:
    alone, crowded = World(), World()
    expected = alone.call("POST", EVENTS, event(9, **odd))
    for number in range(6):
        crowded.post(EVENTS, event(number))
    status, answer = crowded.call("POST", EVENTS, event(9, **odd))
    assert len(filled) == 4
    if status == 201:
        for found in (expected[1], answer):
            del found["metadata"]["uid"], found["metadata"]["resourceVersion"]
    assert (status, answer) == expected


def test_there_is_no_template_where_a_rule_makes_something_of_the_name(world: World, filled: list[str]) -> None:
    kinds = [replace(kind, default=_saying(kind.default)) if kind.kind == "Pod" else kind for kind in BUILTIN]
    world.api = Api(world.store, kinds)
    for number in range(6):
        made = world.pod(f"agent-{number}")
        assert made["metadata"]["annotations"] == {"last": str(number)}
    assert filled == []


def _saying(default: Any) -> Any:
    def more(obj: Object) -> None:
        default(obj)
        obj["metadata"]["annotations"] = {"last": obj["metadata"]["name"][-1]}

    return more


def test_a_form_has_each_of_its_holes_once() -> None:
    marked = orjson.dumps({"a": "\ue0001", "%b": "\ue0000", "b": "100%"})
    assert orjson.loads(Form(marked).fill([b'"x"', b'"y"'])) == {"a": "y", "%b": "x", "b": "100%"}
    for wrong in ({"a": "\ue0000"}, {"a": "\ue0000", "b": "\ue0000"}, {"a": "\ue0000", "b": "\ue0002"}):
        with pytest.raises(ValueError, match="hole"):
            Form(orjson.dumps(wrong))

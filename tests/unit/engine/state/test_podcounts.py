"""Counts of pods by what they are to others: in step with the pods, in the ledger and in snapshots."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from agent_scheduler.engine.recount import contradictions
from agent_scheduler.engine.state.podclasses import PodClasses
from agent_scheduler.engine.state.podinfo import PodInfo
from agent_scheduler.engine.state.podterms import PodMatch
from apimachinery.labels import LabelSelector, Requirement
from tests.support.engine import World, node, pod_json, read_pod, sums_are_right
from tests.support.examples import examples
from tests.support.terms import beside, pod_term


def in_default(**labels: str) -> PodMatch:
    wanted = tuple(Requirement(key, "In", frozenset((value,))) for key, value in sorted(labels.items()))
    return PodMatch(frozenset(("default",)), None, LabelSelector(wanted))


def apart(app: str, **more: Any) -> dict[str, Any]:
    return beside("podAntiAffinity", pod_term(app, **more))


def pod(classes: PodClasses, uid: str, *, app: str = "", **more: Any) -> PodInfo:
    return read_pod(pod_json(uid, uid=uid, labels={"app": app} if app else {}, **more), classes)


def test_pods_are_counted_only_while_somebody_asks() -> None:
    world = World(node("a"), node("b"))
    world.ledger.set_pod(pod(world.classes, "1", app="db"), "b")
    assert not world.ledger.columns.matching
    kind = world.handle.count([in_default(app="db")])
    world.ledger.set_pod(pod(world.classes, "2", app="db"), "b")
    world.ledger.set_pod(pod(world.classes, "3", app="db", namespace="other"), "b")
    assert world.ledger.columns.matching[kind][:2].tolist() == [0, 2]
    del kind
    assert not world.ledger.columns.matching


def test_pods_that_are_being_deleted_count_where_that_is_wanted() -> None:
    world = World(node("a"))
    handle = world.handle
    alive, all_of_them = (handle.count([in_default(app="db")], alive_only=True), handle.count([in_default(app="db")]))
    info = pod(world.classes, "1", app="db")
    world.ledger.set_pod(info, "a")
    version = world.ledger.columns.version[0]
    assert not world.ledger.set_pod(msgspec.structs.replace(info, deleting=True), "a")
    columns = world.ledger.columns
    assert (columns.matching[alive].item(0), columns.matching[all_of_them].item(0)) == (0, 1)
    assert columns.version[0] > version


def test_a_pod_faces_the_terms_that_speak_of_it() -> None:
    world = World(node("a"))
    handle = world.handle
    plain = pod(world.classes, "1", app="web")
    assert handle.class_of(plain) is plain.cls
    world.ledger.set_pod(pod(world.classes, "2", app="db", affinity=apart("web")), "a")
    matched = handle.class_of(plain)
    assert len(matched.matching_terms) == 1 and matched is handle.class_of(plain)
    assert matched is not plain.cls
    for other in (
        pod(world.classes, "3", app="db"),
        pod(world.classes, "4"),
        pod(world.classes, "5", app="web", namespace="x"),
    ):
        assert handle.class_of(other) is other.cls
    world.ledger.set_pod(
        pod(world.classes, "6", app="cache", affinity=apart("web") | beside("podAffinity", pod_term("web"))), "a"
    )
    assert len(handle.class_of(plain).matching_terms) == 2
    world.ledger.remove_pod("6")
    assert handle.class_of(plain) is matched
    world.ledger.remove_pod("2")
    assert handle.class_of(plain) is plain.cls


def test_a_namespace_selector_finds_namespaces_by_their_labels() -> None:
    world = World(node("a"))
    handle = world.handle
    affinity = apart("web", namespaceSelector={"matchLabels": {"team": "x"}})
    world.ledger.set_pod(pod(world.classes, "1", app="db", affinity=affinity), "a")
    visitor = pod(world.classes, "2", app="web", namespace="theirs")
    assert handle.class_of(visitor) is visitor.cls
    world.namespaces.set("theirs", {"team": "x"})
    assert handle.class_of(visitor).matching_terms


def test_an_empty_namespace_selector_means_namespaces_that_were_never_seen_too() -> None:
    world = World(node("a"))
    handle = world.handle
    visitor = pod(world.classes, "2", app="web", namespace="theirs")
    world.ledger.set_pod(visitor, "a")
    mine = pod(world.classes, "1", app="web", affinity=apart("web", namespaceSelector={}))
    kind = handle.count([term.match for term in mine.cls.terms.anti_affinity])
    assert world.ledger.columns.matching[kind][0] == 1
    world.ledger.set_pod(mine, "a")
    assert handle.class_of(visitor).matching_terms


PODS = st.tuples(
    st.sampled_from(["u0", "u1", "u2", "u3"]),
    st.sampled_from(["", "db", "web"]),
    st.sampled_from(["", "db", "web"]),
    st.booleans(),
    st.sampled_from(["a", "b", "elsewhere"]),
)
STEPS = st.one_of(
    st.tuples(st.just("pod"), PODS),
    st.tuples(st.just("gone"), st.sampled_from(["u0", "u1", "u2", "u3"])),
    st.tuples(st.sampled_from(["node", "no node"]), st.sampled_from(["a", "b"])),
    st.tuples(st.sampled_from(["ask", "forget", "refresh"]), st.sampled_from(["db", "web"])),
)


@examples(200)
@given(st.lists(STEPS, max_size=30))
def test_counts_stay_in_step_whatever_happens(steps: list[tuple[str, Any]]) -> None:
    world = World(node("a"))
    snapshot = world.snapshot
    held: dict[str, Any] = {}
    for what, value in steps:
        if what == "pod":
            uid, app, keeps_away, deleting, name = value
            spec = {"affinity": apart(keeps_away)} if keeps_away else {}
            info = pod(world.classes, uid, app=app, **spec)
            world.ledger.set_pod(msgspec.structs.replace(info, deleting=deleting), name)
        elif what == "gone":
            world.ledger.remove_pod(value)
        elif what == "node":
            world.ledger.set_node(node(value))
        elif what == "no node":
            world.ledger.remove_node(value)
        elif what == "ask":
            held[value] = snapshot.handle.count([in_default(app=value)], alive_only=value == "db")
        elif what == "forget":
            held.pop(value, None)
        else:
            snapshot.refresh()
            snapshot.take_new_counts()
            live, copy = world.ledger.columns, snapshot.columns
            assert copy.terms.keys() == live.terms.keys()
            for kind, column in live.matching.items():
                assert np.array_equal(copy.matching[kind][: live.size], column[: live.size])
            for term, column in live.terms.items():
                assert np.array_equal(copy.terms[term][: live.size], column[: live.size])
        assert contradictions(world.ledger) == []
        assert sums_are_right(world.ledger.columns) and sums_are_right(snapshot.columns)

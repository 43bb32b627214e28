"""Selectors of services and controllers, and the class that a pod gets by them."""

from __future__ import annotations

from typing import Any

import pytest

from agent_scheduler.engine.state.labelselector import label_selector
from agent_scheduler.engine.state.owners import Owners
from agent_scheduler.engine.state.podinfo import PodInfo
from agent_scheduler.engine.state.siblings import ControllerRef, OwnerKind, Siblings
from agent_scheduler.objects import wire
from apimachinery.labels import LabelSelector
from tests.support.engine import World, node


def selecting(**labels: str) -> LabelSelector:
    found = label_selector(wire.LabelSelector(match_labels=labels), "")
    assert found is not None
    return found


def made_by(kind: str, name: str, *, api_version: str = "apps/v1", controller: bool = True) -> list[dict[str, Any]]:
    return [
        {"apiVersion": "v1", "kind": "ConfigMap", "name": "other", "uid": "1"},
        {"apiVersion": api_version, "kind": kind, "name": name, "uid": "2", "controller": controller},
    ]


def pod(world: World, owners: list[dict[str, Any]] | None = None, **labels: str) -> PodInfo:
    return world.pod(labels=labels, owners=owners or [])


@pytest.fixture
def world() -> World:
    return World(node("a"))


@pytest.mark.parametrize(
    ("owners", "controller"),
    [
        (made_by("ReplicaSet", "r"), ControllerRef(OwnerKind.REPLICA_SET, "r")),
        (made_by("StatefulSet", "s"), ControllerRef(OwnerKind.STATEFUL_SET, "s")),
        (made_by("ReplicationController", "c", api_version="v1"), ControllerRef(OwnerKind.REPLICATION_CONTROLLER, "c")),
        (made_by("ReplicaSet", "r", controller=False), None),
        (made_by("Job", "j", api_version="batch/v1"), None),
        (made_by("ReplicaSet", "r", api_version="other.io/v1"), None),
        ([], None),
    ],
)
def test_a_pod_knows_its_controller(
    world: World, owners: list[dict[str, Any]], controller: ControllerRef | None
) -> None:
    assert pod(world, owners).controller == controller


def test_services_select_by_labels_in_their_namespace(world: World) -> None:
    owners = world.owners
    owners.set(OwnerKind.SERVICE, "default", "web", selecting(app="web", tier="front"))
    owners.set(OwnerKind.SERVICE, "other", "all", selecting(app="web"))
    assert owners.siblings(pod(world, app="web")) is None
    wanted = Siblings("default", selecting(app="web", tier="front"), True)
    assert owners.siblings(pod(world, app="web", tier="front", more="x")) == wanted
    owners.set(OwnerKind.SERVICE, "default", "more", selecting(more="x"))
    both = Siblings("default", selecting(app="web", tier="front", more="x"), True)
    assert owners.siblings(pod(world, app="web", tier="front", more="x")) == both
    owners.delete(OwnerKind.SERVICE, "default", "web")
    assert owners.siblings(pod(world, app="web", tier="front")) is None


def test_a_service_that_changes_its_selector_selects_by_the_new_one_alone(world: World) -> None:
    owners = world.owners
    owners.set(OwnerKind.SERVICE, "default", "web", selecting(app="web"))
    owners.set(OwnerKind.SERVICE, "default", "web", selecting(app="db"))
    assert owners.siblings(pod(world, app="web")) is None
    assert owners.siblings(pod(world, app="db")) is not None
    owners.set(OwnerKind.SERVICE, "default", "web", None)
    assert owners.siblings(pod(world, app="db")) is None
    owners.delete(OwnerKind.SERVICE, "default", "never seen")


def test_the_controller_adds_its_selector_whether_it_selects_the_pod_or_not(world: World) -> None:
    owners = world.owners
    owners.set(OwnerKind.SERVICE, "default", "web", selecting(app="web"))
    owners.set(OwnerKind.REPLICA_SET, "default", "r", selecting(hash="1"))
    replica = pod(world, made_by("ReplicaSet", "r"), app="web", hash="1")
    assert owners.siblings(replica) == Siblings("default", selecting(app="web", hash="1"), True)
    released = pod(world, made_by("ReplicaSet", "r"), app="web", hash="2")
    assert owners.siblings(released) == Siblings("default", selecting(app="web", hash="1"), False)
    # A set of the same name is another object.
    stateful = pod(world, made_by("StatefulSet", "r"), app="web", hash="1")
    assert owners.siblings(stateful) == Siblings("default", selecting(app="web"), True)
    owners.delete(OwnerKind.REPLICA_SET, "default", "r")
    assert owners.siblings(replica) == Siblings("default", selecting(app="web"), True)


def test_a_replication_controller_s_labels_take_the_place_of_a_service_s(world: World) -> None:
    owners = world.owners
    owners.set(OwnerKind.SERVICE, "default", "web", selecting(app="web", v="1"))
    owners.set(OwnerKind.REPLICATION_CONTROLLER, "default", "c", selecting(v="2"))
    left = pod(world, made_by("ReplicationController", "c", api_version="v1"), app="web", v="1")
    assert owners.siblings(left) == Siblings("default", selecting(app="web", v="2"), False)


def test_pods_of_other_profiles_are_not_looked_at(world: World) -> None:
    owners = Owners(["default-scheduler"])
    owners.set(OwnerKind.SERVICE, "default", "web", selecting(app="web"))
    assert owners.siblings(pod(world, app="web")) is None


def test_a_pod_is_decided_in_a_class_of_its_siblings_and_plain_pods_in_their_own(world: World) -> None:
    owners, handle = world.owners, world.handle
    one, two, other = pod(world, app="web", n="1"), pod(world, app="web", n="2"), pod(world, app="db")
    assert one.cls is two.cls is other.cls
    assert handle.class_of(one) is one.cls
    owners.set(OwnerKind.SERVICE, "default", "web", selecting(app="web"))
    spread = handle.class_of(one)
    assert spread is not one.cls and spread.requests == one.cls.requests
    assert handle.class_of(two) is spread and spread.siblings == owners.siblings(one)
    assert handle.class_of(other) is other.cls
    owners.set(OwnerKind.SERVICE, "default", "web", selecting(app="web", n="1"))
    assert handle.class_of(one) is not spread and handle.class_of(two) is two.cls
    owners.delete(OwnerKind.SERVICE, "default", "web")
    assert handle.class_of(one) is one.cls


def test_a_pod_with_constraints_of_its_own_is_spread_by_these(world: World) -> None:
    owners = world.owners
    owners.set(OwnerKind.SERVICE, "default", "web", selecting(app="web"))
    constraint = {"topologyKey": "zone", "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule"}
    own, plain = (world.pod(labels={"app": "web"}, topologySpreadConstraints=each) for each in ([constraint], []))
    handle = world.handle
    assert handle.class_of(own) is own.cls
    assert handle.class_of(plain).siblings is not None

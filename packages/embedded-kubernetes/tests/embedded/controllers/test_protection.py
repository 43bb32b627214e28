"""Claims and volumes remain while they are used, and are deleted when they no longer are."""

from __future__ import annotations

from typing import Any

import pytest

from embedded.support import PODS, PVCS, VOLUMES, World, owner, pod, volume, volume_claim
from embedded_kubernetes.protection import Protection


@pytest.fixture
def world() -> World:
    world = World(nodes="n1")
    world.controllers = [Protection(world.api.registry)]
    return world


def _claim(world: World, name: str = "c", **spec: Any) -> Any:
    return world.post(PVCS, volume_claim(name, **spec))


def _uses(claim: str = "c") -> dict[str, Any]:
    return {"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": claim}}]}


def test_a_claim_goes_with_the_last_pod_that_uses_it(world: World) -> None:
    _claim(world)
    for name in ("one", "two"):
        world.ready_pod(name, **_uses())
    world.ready_pod("other", **_uses("another"))
    world.delete(f"{PVCS}/c")
    world.settle(most=1)
    assert world.is_there(f"{PVCS}/c")
    world.delete(f"{PODS}/one", gracePeriodSeconds=0)
    world.settle()
    assert world.is_there(f"{PVCS}/c")
    world.delete(f"{PODS}/two", gracePeriodSeconds=0)
    world.settle()
    assert not world.is_there(f"{PVCS}/c")


def test_a_pod_that_ended_uses_nothing(world: World) -> None:
    _claim(world)
    world.ready_pod("one", **_uses())
    world.delete(f"{PVCS}/c")
    world.settle()
    assert world.is_there(f"{PVCS}/c")
    world.report("one", phase="Succeeded")
    world.settle()
    assert not world.is_there(f"{PVCS}/c")


def test_a_pod_that_comes_while_its_claim_is_being_deleted_holds_it(world: World) -> None:
    _claim(world)
    world.ready_pod("one", **_uses())
    world.delete(f"{PVCS}/c")
    world.settle()
    world.ready_pod("two", **_uses())
    world.delete(f"{PODS}/one", gracePeriodSeconds=0)
    world.settle()
    assert world.is_there(f"{PVCS}/c")


def test_a_pod_of_another_namespace_does_not_hold_a_claim(world: World) -> None:
    world.namespace("other")
    world.post("/api/v1/namespaces/other/pods", pod("one", spec={"nodeName": "n1", **_uses()}))
    _claim(world)
    world.delete(f"{PVCS}/c")
    world.settle()
    assert not world.is_there(f"{PVCS}/c")


@pytest.mark.parametrize("owned", [True, False])
def test_an_ephemeral_volume_uses_the_claim_that_was_made_for_it(world: World, owned: bool) -> None:
    claim = volume_claim("one-v")
    world.ready_pod("one", volumes=[{"name": "v", "ephemeral": {"volumeClaimTemplate": {"spec": claim["spec"]}}}])
    if owned:
        claim["metadata"]["ownerReferences"] = [owner(world.get(f"{PODS}/one"), controller=True)]
    world.post(PVCS, claim)
    world.delete(f"{PVCS}/one-v")
    world.settle()
    assert world.is_there(f"{PVCS}/one-v") is owned


def test_pods_wake_nobody_where_no_claim_is_being_deleted(world: World) -> None:
    woken: list[str] = []
    _claim(world)
    world.controllers[0].wake = lambda: woken.append("woken")
    world.ready_pod("one", **_uses())
    assert not woken
    world.delete(f"{PVCS}/c")
    world.settle()
    world.delete(f"{PODS}/one", gracePeriodSeconds=0)
    world.settle()
    woken.clear()
    world.ready_pod("two", **_uses())
    assert not woken


def test_every_claim_that_is_being_deleted_goes_though_each_look_is_at_one(world: World) -> None:
    for name in "abc":
        _claim(world, name)
        world.delete(f"{PVCS}/{name}")
    world.settle(most=1)
    assert world.names(PVCS) == []


@pytest.mark.parametrize("bound", [True, False])
def test_a_volume_goes_once_the_claim_that_names_it_or_is_bound_to_it_has(world: World, bound: bool) -> None:
    uid = _claim(world, **({} if bound else {"volumeName": "v"}))["metadata"]["uid"]
    world.post(VOLUMES, volume(claimRef={"namespace": "default", "name": "c", "uid": uid}))
    if bound:
        world.patch(f"{VOLUMES}/v/status", {"status": {"phase": "Bound"}})
    world.delete(f"{VOLUMES}/v")
    world.settle()
    assert world.is_there(f"{VOLUMES}/v")
    world.delete(f"{PVCS}/c")
    world.settle()
    assert not world.is_there(f"{VOLUMES}/v")

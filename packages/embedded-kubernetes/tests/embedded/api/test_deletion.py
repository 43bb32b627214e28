"""Deletes: grace, finalizers, preconditions, propagation, namespaces."""

from __future__ import annotations

from typing import Any

import pytest

from embedded.support import MAPS, NAMESPACES, NODES, PODS, World, config_map, named, owner, pod


def owned(name: str, *owners: Any, block: bool = False) -> dict[str, Any]:
    more = {"blockOwnerDeletion": True} if block else {}
    return config_map(name, ownerReferences=[owner(each, **more) for each in owners])


def test_a_bound_pod_waits_for_its_grace_and_can_only_be_hurried(world: World) -> None:
    world.pod("a")
    world.bind("a", "n1")
    world.now += 100
    marked = world.delete(f"{PODS}/a")["metadata"]
    assert marked["deletionGracePeriodSeconds"] == 30
    version = world.store.rv
    later = world.delete(f"{PODS}/a?gracePeriodSeconds=60")["metadata"]
    assert later == marked and world.store.rv == version
    world.now += 10
    sooner = world.delete(f"{PODS}/a?gracePeriodSeconds=5")["metadata"]
    assert sooner["deletionGracePeriodSeconds"] == 5
    assert sooner["deletionTimestamp"] < marked["deletionTimestamp"]
    assert sooner["generation"] == marked["generation"]
    world.ok("DELETE", f"{PODS}/a", {"kind": "DeleteOptions", "apiVersion": "v1", "gracePeriodSeconds": 0})
    assert world.refused("GET", f"{PODS}/a") == (404, "NotFound")


@pytest.mark.parametrize(
    "body",
    [
        {"kind": "Pod"},
        {"kind": "DeleteOptions", "gracePeriodSeconds": "soon"},
        {"kind": "DeleteOptions", "preconditions": []},
        {"kind": "DeleteOptions", "dryRun": "All"},
        [],
        b"{",
    ],
)
def test_delete_options_that_cannot_be_decoded_are_an_error_nobody_classified(world: World, body: Any) -> None:
    world.pod("a")
    assert world.refused("DELETE", f"{PODS}/a", body) == (500, "")
    assert world.names(PODS) == ["a"]


def test_a_dry_delete_changes_nothing(world: World) -> None:
    world.pod("a")
    version = world.store.rv
    world.delete(f"{PODS}/a?dryRun=All")
    world.delete(f"{PODS}?dryRun=All")
    assert (world.names(PODS), world.store.rv) == (["a"], version)
    assert world.refused("DELETE", f"{PODS}/a?dryRun=Some") == (422, "Invalid")


def test_what_is_made_for_an_owner_that_has_gone_goes_too(world: World) -> None:
    one = world.post(MAPS, config_map("one"))
    two = world.post(MAPS, config_map("two"))
    world.delete(f"{MAPS}/one")
    world.collect()
    world.post(MAPS, owned("of-one", one))
    world.post(MAPS, owned("of-both", one, two))
    world.collect()
    assert world.names(MAPS) == ["of-both", "two"]


def test_a_reference_to_an_owner_that_never_was_is_left_alone(world: World) -> None:
    world.post(MAPS, owned("a", named("x", uid="no-such-uid")))
    world.post(MAPS, config_map("b"))
    world.delete(f"{MAPS}/b")
    world.collect()
    assert world.names(MAPS) == ["a"]


def test_orphaned_dependents_lose_the_reference_and_stay(world: World) -> None:
    owner = world.post(MAPS, config_map("owner"))
    world.post(MAPS, owned("a", owner))
    world.delete(f"{MAPS}/owner?propagationPolicy=Orphan")
    assert world.get(f"{MAPS}/owner")["metadata"]["finalizers"] == ["orphan"]
    world.collect()
    assert world.names(MAPS) == ["a"]
    assert "ownerReferences" not in world.get(f"{MAPS}/a")["metadata"]


def test_a_foreground_delete_does_not_wait_for_dependents_that_block_another_owner(world: World) -> None:
    one, two = (world.post(MAPS, config_map(name)) for name in ("one", "two"))
    body = owned("held", one)
    body["metadata"]["ownerReferences"].append(owner(two, blockOwnerDeletion=True))
    world.post(MAPS, {**body, "metadata": {**body["metadata"], "finalizers": ["example.com/x"]}})
    world.ok("DELETE", f"{MAPS}/one?propagationPolicy=Foreground")
    world.collect()
    assert world.names(MAPS) == ["held", "two"]


def test_a_foreground_delete_goes_down_to_the_last_dependent(world: World) -> None:
    owner = world.post(MAPS, config_map("owner"))
    child = world.post(MAPS, owned("child", owner, block=True))
    held = owned("grandchild", child, block=True)
    held["metadata"]["finalizers"] = ["example.com/wait"]
    world.post(MAPS, held)
    world.delete(f"{MAPS}/owner?propagationPolicy=Foreground")
    world.collect()
    assert world.names(MAPS) == ["child", "grandchild", "owner"]
    world.patch(f"{MAPS}/grandchild", {"metadata": {"finalizers": None}})
    world.collect()
    assert world.names(MAPS) == []


def test_a_namespace_is_emptied_and_then_goes(world: World) -> None:
    world.namespace("t")
    world.pod("a", namespace="t")
    path = "/api/v1/namespaces/t/configmaps"
    world.post(path, config_map("held", finalizers=["example.com/x"]))
    answer = world.delete("/api/v1/namespaces/t")
    assert answer["kind"] == "Namespace"
    assert answer["status"]["phase"] == "Terminating"
    status, refusal = world.call("POST", "/api/v1/namespaces/t/pods", pod("late"))
    assert (status, refusal["reason"]) == (403, "Forbidden")
    assert refusal["details"]["causes"][0]["reason"] == "NamespaceTerminating"
    world.collect()
    assert world.names("/api/v1/namespaces/t/pods") == []
    assert world.get("/api/v1/namespaces/t")["status"]["phase"] == "Terminating"
    world.patch(f"{path}/held", {"metadata": {"finalizers": None}})
    world.collect()
    assert world.refused("GET", "/api/v1/namespaces/t") == (404, "NotFound")
    assert world.refused("POST", "/api/v1/namespaces/t/pods", pod("late")) == (404, "NotFound")


def test_a_namespace_with_other_finalizers_waits_for_its_finalize(world: World) -> None:
    spec = {"finalizers": ["example.com/hold"]}
    world.post(NAMESPACES, named("t", spec=spec))
    world.delete("/api/v1/namespaces/t")
    world.collect()
    assert not world.api.collector.busy
    held = world.get("/api/v1/namespaces/t")
    assert held["spec"]["finalizers"] == ["example.com/hold"]
    del held["spec"]["finalizers"]
    world.put("/api/v1/namespaces/t/finalize", held)
    assert world.refused("GET", "/api/v1/namespaces/t") == (404, "NotFound")


@pytest.mark.parametrize("name", ["default", "kube-system", "kube-public"])
def test_system_namespaces_may_not_be_deleted(world: World, name: str) -> None:
    assert world.refused("DELETE", f"/api/v1/namespaces/{name}") == (403, "Forbidden")


def test_a_pod_on_a_node_that_exists_keeps_its_namespace_until_the_kubelet_reports(world: World) -> None:
    world.namespace("t")
    world.post(NODES, named("n1"))
    path = "/api/v1/namespaces/t/pods"
    for name, node in (("here", "n1"), ("nowhere", "n2")):
        world.pod(name, namespace="t")
        target = {"kind": "Node", "name": node}
        world.post(f"{path}/{name}/binding", named(name, target=target))
    world.delete("/api/v1/namespaces/t")
    world.collect()
    assert world.names(path) == ["here"]
    world.delete(f"{path}/here?gracePeriodSeconds=0")
    world.collect()
    assert world.refused("GET", "/api/v1/namespaces/t") == (404, "NotFound")


def test_the_collector_works_in_small_bites(world: World) -> None:
    world.namespace("t")
    for number in range(20):
        world.pod(f"p{number}", namespace="t")
    woken: list[int] = []
    world.api.collector.wake = lambda: woken.append(1)
    world.delete("/api/v1/namespaces/t")
    assert woken == [1]
    assert world.api.collector.step(5)
    assert len(world.names("/api/v1/namespaces/t/pods")) == 15
    world.collect()
    assert not world.api.collector.busy
    assert woken == [1], "it is only woken from idleness"

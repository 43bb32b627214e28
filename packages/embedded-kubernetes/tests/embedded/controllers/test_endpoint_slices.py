"""The slices of a Service follow its pods."""

from __future__ import annotations

from typing import Any

import pytest

from embedded.support import PODS, SERVICES, World, container, named
from embedded_kubernetes.endpoint_slices import EndpointSlices
from embedded_kubernetes.kubelet import Kubelets
from embedded_kubernetes.kubelet_play import READY_AFTER

SLICES = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices"


@pytest.fixture
def world() -> World:
    made = World()
    made.node(labels={"topology.kubernetes.io/zone": "a"}, pods="500")
    made.controllers = [EndpointSlices(made.api), Kubelets(made.store)]
    return made


def serve(world: World, name: str = "s", **spec: Any) -> None:
    world.post(
        SERVICES, named(name, spec={"selector": {"app": "x"}, "ports": [{"port": 80, "targetPort": "web"}], **spec})
    )


def add_pod(world: World, name: str, *, app: str = "x", port: int = 8080, **annotations: str) -> None:
    ports = [{"name": "web", "containerPort": port}]
    spec = {"nodeName": "n1", "containers": [container(ports=ports)]}
    world.pod(name, labels={"app": app}, annotations=annotations, spec=spec)


def endpoints(world: World) -> dict[str, tuple[bool, int]]:
    """Return whether each pod is ready, and its port."""
    return {
        each["targetRef"]["name"]: (each["conditions"]["ready"], part["ports"][0]["port"])
        for part in world.get(SLICES)["items"]
        for each in part["endpoints"]
    }


def test_the_pods_that_a_service_selects_are_its_endpoints(world: World) -> None:
    add_pod(world, "a")
    add_pod(world, "other", app="y")
    serve(world)
    world.settle(1.0)
    (found,) = world.get(SLICES)["items"]
    assert found["metadata"]["name"].startswith("s-")
    labels = found["metadata"]["labels"]
    assert labels["kubernetes.io/service-name"] == "s"
    assert labels["endpointslice.kubernetes.io/managed-by"] == "endpointslice-controller.k8s.io"
    (endpoint,) = found["endpoints"]
    assert (endpoint["nodeName"], endpoint["zone"]) == ("n1", "a")
    assert endpoint["addresses"] == [world.status("a")["podIP"]]
    add_pod(world, "b", port=9090, **{READY_AFTER: "5"})
    world.settle(1.0)
    assert endpoints(world) == {"a": (True, 8080), "b": (False, 9090)}
    world.settle(10.0)
    assert endpoints(world)["b"] == (True, 9090)
    world.patch(f"{PODS}/a", {"metadata": {"labels": {"app": "y"}}})
    world.settle(1.0)
    assert list(endpoints(world)) == ["b"]
    world.delete(f"{PODS}/b", gracePeriodSeconds=0)
    world.settle(1.0)
    (found,) = world.get(SLICES)["items"]
    assert found["endpoints"] == []
    world.delete(f"{SERVICES}/s")
    world.settle(1.0)
    assert world.names(SLICES) == []


def test_a_slice_has_a_hundred_endpoints_at_most_and_comes_back(world: World) -> None:
    serve(world)
    for number in range(150):
        add_pod(world, f"p-{number:03}")
    world.settle(2.0)
    assert sorted(len(each["endpoints"]) for each in world.get(SLICES)["items"]) == [50, 100]
    world.delete(f"{SLICES}/{world.names(SLICES)[0]}")
    world.settle(2.0)
    assert len(endpoints(world)) == 150


def test_services_without_selector_and_external_names_have_none(world: World) -> None:
    serve(world, selector=None)
    serve(world, "e", type="ExternalName", externalName="example.com", ports=None)
    world.settle(1.0)
    assert world.names(SLICES) == []

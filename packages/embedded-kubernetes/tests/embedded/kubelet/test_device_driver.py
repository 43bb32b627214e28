"""The simulated driver publishes each node's devices, complete and of one generation, and attaches allocated ones."""

from __future__ import annotations

from typing import Any

import pytest

from embedded.support import CLAIMS, NODES, RESOURCE, World, named
from embedded_kubernetes.device_driver import (
    ATTACH_FAILED,
    ATTACHED,
    DRIVER,
    EXTENDED_RESOURCE,
    Attaching,
    DeviceAttacher,
    DeviceDriver,
    DevicesShape,
)

SLICES = f"{RESOURCE}/resourceslices"


class DriverWorld(World):
    """A server with nodes `n1` and `n2`, and with an attacher if there are devices to attach."""

    def __init__(
        self, per_node: int = 4, *, on: frozenset[str] | None = None, attaching: Attaching | None = None
    ) -> None:
        super().__init__(nodes="n1 n2")
        self.shape = DevicesShape(per_node, on, attaching=attaching)
        self.start()

    def start(self) -> None:
        self.controllers = [DeviceDriver(self.api, self.shape)]
        if self.shape.attaching is not None:
            self.controllers.append(DeviceAttacher(self.api, DRIVER, self.shape.attaching))
        self.settle()

    def add_node(self, name: str) -> None:
        self.post(NODES, named(name))

    def pool(self, node: str) -> list[dict[str, Any]]:
        """Return the specs of a node's slices of one whole generation, found as a scheduler or kubelet does."""
        selector = f"spec.driver={DRIVER},spec.nodeName={node}"
        slices = self.get(f"{SLICES}?fieldSelector={selector}")["items"]
        specs: list[dict[str, Any]] = [each["spec"] for each in slices]
        assert len({each["pool"]["generation"] for each in specs}) <= 1
        assert all(each["pool"]["resourceSliceCount"] == len(specs) for each in specs)
        assert all(each["pool"]["name"] == each["nodeName"] == node for each in specs)
        return specs

    def generation(self, node: str) -> int:
        return self.pool(node)[0]["pool"]["generation"]

    def slice_names(self) -> list[str]:
        return self.names(SLICES)


@pytest.fixture
def world() -> DriverWorld:
    return DriverWorld()


def test_each_node_has_a_pool_of_devices_with_attributes_and_capacity(world: DriverWorld) -> None:
    for node in ("n1", "n2"):
        (spec,) = world.pool(node)
        assert spec["pool"]["generation"] == 1
        assert [device["name"] for device in spec["devices"]] == ["gpu-0", "gpu-1", "gpu-2", "gpu-3"]
    first, last = spec["devices"][0], spec["devices"][-1]
    assert first["attributes"]["model"] == {"string": "large"}
    assert first["capacity"] == {"memory": {"value": "80Gi"}}
    assert last["attributes"] == {
        "index": {"int": 3},
        "model": {"string": "small"},
        "numa": {"int": 1},
        "driverVersion": {"version": "1.0.0"},
        "resource.kubernetes.io/pcieRoot": {"string": "pci0000:01"},
    }
    assert last["capacity"] == {"memory": {"value": "40Gi"}}


def test_a_class_selects_the_devices_and_backs_an_extended_resource(world: DriverWorld) -> None:
    spec = world.get(f"{RESOURCE}/deviceclasses/{DRIVER}")["spec"]
    assert spec["extendedResourceName"] == EXTENDED_RESOURCE
    assert spec["selectors"] == [{"cel": {"expression": f"device.driver == '{DRIVER}'"}}]


def test_more_devices_than_a_slice_can_have_are_published_in_several() -> None:
    world = DriverWorld(300)
    specs = world.pool("n1")
    assert sorted(len(each["devices"]) for each in specs) == [44, 128, 128]
    assert len({device["name"] for each in specs for device in each["devices"]}) == 300
    world.start()
    assert world.generation("n1") == 1


def test_a_node_that_is_replaced_at_once_has_the_slices_of_its_own(world: DriverWorld) -> None:
    (before,) = {each for each in world.slice_names() if each.startswith("n1-")}
    world.delete("/api/v1/nodes/n1")
    world.add_node("n1")
    uid = world.get("/api/v1/nodes/n1")["metadata"]["uid"]
    # The collector, for which the old slices are garbage, runs later.
    world.controllers[0].advance()
    assert world.generation("n1") == 2
    (after,) = {each for each in world.slice_names() if each.startswith("n1-")}
    assert after != before
    owners = world.get(f"{SLICES}/{after}")["metadata"]["ownerReferences"]
    assert owners == [{"apiVersion": "v1", "kind": "Node", "name": "n1", "uid": uid, "controller": True}]


def test_generations_go_on_though_slices_went_before_the_driver_saw_them_again(world: DriverWorld) -> None:
    world.add_node("n3")
    world.controllers[0].advance()
    world.delete("/api/v1/nodes/n3")
    world.collect()
    assert world.pool("n3") == []
    world.add_node("n3")
    world.settle()
    assert world.generation("n3") == 2


def test_a_slice_that_somebody_removed_or_changed_is_published_anew() -> None:
    world = DriverWorld(200)
    world.delete(f"{SLICES}/{world.slice_names()[0]}")
    world.settle()
    assert len(world.pool("n1")) == 2
    assert world.generation("n1") == 2
    name = world.slice_names()[0]
    changed = world.get(f"{SLICES}/{name}")
    del changed["spec"]["devices"][5:]
    world.put(f"{SLICES}/{name}", changed)
    world.settle()
    assert world.generation("n1") == 3
    assert sum(len(each["devices"]) for each in world.pool("n1")) == 200


def test_a_pool_is_never_without_a_whole_generation_while_it_is_published_anew() -> None:
    world = DriverWorld(200)
    whole: list[bool] = []
    slices = world.store.tables["resource.k8s.io", "resourceslices"]

    def look(event: object) -> None:
        found = [world.api.registry.object(("resource.k8s.io", "resourceslices"), key) for key in slices.keys]
        pools = [each["spec"]["pool"] for each in found if each and each["spec"]["nodeName"] == "n1"]
        counts = {pool["generation"]: pool["resourceSliceCount"] for pool in pools}
        whole.append(
            any(count == sum(p["generation"] == generation for p in pools) for generation, count in counts.items())
        )

    name = world.slice_names()[0]
    changed = world.get(f"{SLICES}/{name}")
    del changed["spec"]["devices"][5:]
    slices.subscribers.append(look)
    world.put(f"{SLICES}/{name}", changed)
    world.settle()
    assert len(whole) == 5
    assert all(whole)


def test_slices_of_other_drivers_are_left_alone(world: DriverWorld) -> None:
    pool = {"name": "n1", "generation": 7, "resourceSliceCount": 1}
    spec = {"driver": "other.example.com", "nodeName": "n1", "pool": pool, "devices": [{"name": "x"}]}
    world.post(SLICES, named("other", spec=spec))
    world.delete("/api/v1/nodes/n2")
    world.settle()
    assert "other" in world.slice_names()
    assert world.generation("n1") == 1


# ---- attaching


def attaching(seconds: float | None, *failing: str) -> DriverWorld:
    """Return a server with two devices on each node, and a claim `c`."""
    world = DriverWorld(2, attaching=Attaching(seconds, set(failing)))
    request = {"name": "r", "exactly": {"deviceClassName": DRIVER}}
    world.post(CLAIMS, named("c", spec={"devices": {"requests": [request]}}))
    return world


def write(world: DriverWorld, status: dict[str, Any]) -> None:
    world.patch(f"{CLAIMS}/c/status", {"status": status})
    world.settle()


def allocate(world: DriverWorld, *names: str) -> None:
    """Allocate devices like a scheduler."""
    (spec,) = world.pool("n1")
    devices = {device["name"]: device for device in spec["devices"]}
    about = {"request": "r", "driver": DRIVER, "pool": "n1"}
    copied = ("bindingConditions", "bindingFailureConditions")
    results = [{**about, "device": name, **{kind: devices[name][kind] for kind in copied}} for name in names]
    write(world, {"allocation": {"devices": {"results": results}}})


def said(world: DriverWorld) -> dict[str, list[tuple[str, str]]]:
    """Return device -> conditions and whether they are true."""
    status = world.get(f"{CLAIMS}/c").get("status") or {}
    return {
        each["device"]: [(one["type"], one["status"]) for one in each["conditions"]]
        for each in status.get("devices") or ()
    }


@pytest.mark.parametrize(("failing", "condition"), [((), ATTACHED), (("n1",), ATTACH_FAILED)])
def test_a_device_is_attached_so_long_after_it_was_allocated_or_fails_on_the_nodes_that_are_named(
    failing: tuple[str, ...], condition: str
) -> None:
    world = attaching(5.0, *failing)
    (spec,) = world.pool("n1")
    assert all(each["bindingConditions"] == [ATTACHED] and each["bindsToNode"] for each in spec["devices"])
    allocate(world, "gpu-0", "gpu-1")
    world.settle(4.9)
    assert said(world) == {}
    world.settle(0.2)
    assert said(world) == {"gpu-0": [(condition, "True")], "gpu-1": [(condition, "True")]}


def test_a_claim_that_was_given_back_meanwhile_is_told_nothing() -> None:
    world = attaching(5.0)
    allocate(world, "gpu-0")
    world.settle(1.0)
    write(world, {"allocation": None})
    world.settle(10.0)
    assert said(world) == {}


def test_a_driver_that_starts_again_goes_on() -> None:
    world = attaching(5.0)
    allocate(world, "gpu-0")
    world.settle(1.0)
    world.start()
    world.settle(5.0)
    assert said(world) == {"gpu-0": [(ATTACHED, "True")]}


def test_without_a_time_nothing_is_ever_attached() -> None:
    world = attaching(None)
    allocate(world, "gpu-0")
    world.settle(1_000.0)
    assert said(world) == {}

"""The simulated driver attaches devices that were allocated, and says so, on a clock that the test moves."""

from __future__ import annotations

from typing import Any

from embedded_kubernetes.device_driver import (
    ATTACH_FAILED,
    ATTACHED,
    DRIVER,
    Attaching,
    DeviceAttacher,
    DeviceDriver,
    DevicesShape,
)
from tests.embedded.support import CLAIMS, RESOURCE, World, named


class AttachingWorld(World):
    """With a node `n1` of two devices and a claim `c`."""

    def __init__(self, seconds: float | None, *failing: str) -> None:
        super().__init__(nodes="n1")
        self.attaching = Attaching(seconds, set(failing))
        self.controllers = [DeviceDriver(self.api, DevicesShape(2, attaching=self.attaching))]
        self.start()
        request = {"name": "r", "exactly": {"deviceClassName": DRIVER}}
        self.post(CLAIMS, named("c", spec={"devices": {"requests": [request]}}))

    def start(self) -> None:
        self.controllers = [self.controllers[0], DeviceAttacher(self.api, DRIVER, self.attaching)]
        self.settle()

    def allocate(self, *devices: str) -> None:
        """As a scheduler does it."""
        (spec,) = [each["spec"] for each in self.get(f"{RESOURCE}/resourceslices")["items"]]
        conditions = {device["name"]: device for device in spec["devices"]}
        copied = ("bindingConditions", "bindingFailureConditions")
        about = {"request": "r", "driver": DRIVER, "pool": "n1"}
        results = [
            {**about, "device": name, **{kind: conditions[name][kind] for kind in copied}} for name in devices
        ]
        self.write({"allocation": {"devices": {"results": results}}})

    def write(self, status: dict[str, Any]) -> None:
        self.patch(f"{CLAIMS}/c/status", {"status": status})
        self.settle()

    def said(self) -> dict[str, list[tuple[str, str]]]:
        """Device -> conditions and whether they are true."""
        status = self.get(f"{CLAIMS}/c").get("status") or {}
        return {
            each["device"]: [(one["type"], one["status"]) for one in each["conditions"]]
            for each in status.get("devices") or ()
        }


def test_a_device_is_attached_so_long_after_it_was_allocated() -> None:
    world = AttachingWorld(5.0)
    (spec,) = [each["spec"] for each in world.get(f"{RESOURCE}/resourceslices")["items"]]
    assert all(each["bindingConditions"] == [ATTACHED] and each["bindsToNode"] for each in spec["devices"])
    world.allocate("gpu-0", "gpu-1")
    world.settle(4.9)
    assert world.said() == {}
    world.settle(0.2)
    assert world.said() == {"gpu-0": [(ATTACHED, "True")], "gpu-1": [(ATTACHED, "True")]}


def test_an_attachment_fails_on_the_nodes_that_are_named() -> None:
    world = AttachingWorld(1.0, "n1")
    world.allocate("gpu-0")
    world.settle(1.0)
    assert world.said() == {"gpu-0": [(ATTACH_FAILED, "True")]}


def test_a_claim_that_was_given_back_meanwhile_is_told_nothing() -> None:
    world = AttachingWorld(5.0)
    world.allocate("gpu-0")
    world.settle(1.0)
    world.write({"allocation": None})
    world.settle(10.0)
    assert world.said() == {}


def test_a_driver_that_starts_again_goes_on() -> None:
    world = AttachingWorld(5.0)
    world.allocate("gpu-0")
    world.settle(1.0)
    world.start()
    world.settle(5.0)
    assert world.said() == {"gpu-0": [(ATTACHED, "True")]}


def test_without_a_time_nothing_is_ever_attached() -> None:
    world = AttachingWorld(None)
    world.allocate("gpu-0")
    world.settle(1_000.0)
    assert world.said() == {}

"""Which events wake a pod that a volume rule refused."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from agent_scheduler.engine.events.events import ActionType, ClusterEvent, Resource
from agent_scheduler.engine.events.hints import HintMap, QueueingHint
from agent_scheduler.engine.plugins.node_volume_limits import NodeVolumeLimits
from agent_scheduler.engine.plugins.volume_binding import VolumeBinding
from agent_scheduler.engine.plugins.volume_restrictions import VolumeRestrictions
from agent_scheduler.engine.plugins.volume_zone import VolumeZone
from agent_scheduler.engine.state.podinfo import PodInfo
from agent_scheduler.engine.volumes.hints import binding_events
from tests.support.engine import World, node
from tests.support.engine import wakes as any_wakes
from tests.support.storage import (
    attachment,
    capacity,
    claim,
    csi_node,
    driver,
    ref,
    spec,
    storage_class,
    volume,
)
from tests.support.terms import ZONE

ADD, UPDATE, DELETE = ActionType.ADD, ActionType.UPDATE, ActionType.DELETE
CLASS, CLAIM, VOLUME = Resource.STORAGE_CLASS, Resource.PERSISTENT_VOLUME_CLAIM, Resource.PERSISTENT_VOLUME
DRIVER, POOL, CSI_NODE = Resource.CSI_DRIVER, Resource.CSI_STORAGE_CAPACITY, Resource.CSI_NODE
ATTACHMENT, ASSIGNED, NODE = Resource.VOLUME_ATTACHMENT, Resource.ASSIGNED_POD, Resource.NODE

PLUGINS: dict[str, Any] = {
    "binding": VolumeBinding(),
    "zone": VolumeZone(),
    "restriction": VolumeRestrictions(),
    "limit": NodeVolumeLimits(),
}
WORLD = World()


def using(*claims: str, disk: str = "") -> PodInfo:
    """A pod with these claims, and a disk that it names itself."""
    volumes = msgspec.json.decode(spec(*claims, **({"d": {"iscsi": {"iqn": disk}}} if disk else {})))
    return WORLD.pod(volumes=volumes)


def wakes(rule: str, kind: Resource, action: ActionType, old: object, new: object, waits: Any = None) -> bool:
    """Whether a pod, by default one with claim c, that `rule` refused is worth another try after the event."""
    return any_wakes(PLUGINS[rule], waits or using("c"), ClusterEvent(kind, action), old, new)


DISK = using(disk="d")
GONE = using()
DETACHED = attachment("x", "n", "v")


def pool(size: str | None) -> Any:
    return capacity("p", size, topology={})


@pytest.mark.parametrize(
    ("rule", "kind", "action", "old", "new", "expected"),
    [
        # VolumeBinding
        ("binding", CLASS, ADD, None, storage_class(), True),
        ("binding", CLASS, UPDATE, storage_class(), storage_class(zones=["z"]), True),
        ("binding", CLASS, UPDATE, storage_class(), storage_class(), False),
        ("binding", CLASS, DELETE, storage_class(), None, False),
        ("binding", CLAIM, ADD, None, claim("c"), True),
        ("binding", CLAIM, ADD, None, claim("d"), False),
        ("binding", CLAIM, ADD, None, claim("c", meta={"namespace": "other"}), False),
        ("binding", CLAIM, UPDATE, claim("c"), claim("c", volume="v", bound=True), True),
        ("binding", CLAIM, UPDATE, claim("c"), claim("c"), False),
        ("binding", VOLUME, ADD, None, volume("v"), True),
        ("binding", VOLUME, ADD, None, volume("v", claim=ref("c")), True),
        ("binding", VOLUME, ADD, None, volume("v", claim=ref("d")), False),
        ("binding", VOLUME, UPDATE, volume("v"), volume("v"), False),
        ("binding", VOLUME, UPDATE, volume("v", phase="Released"), volume("v"), True),
        ("binding", VOLUME, UPDATE, volume("v", claim=ref("d")), volume("v"), True),
        ("binding", NODE, ADD, None, node("n"), True),
        ("binding", NODE, ActionType.UPDATE_NODE_LABEL, node("n"), node("n"), True),
        ("binding", NODE, ActionType.UPDATE_NODE_TAINT, node("n"), node("n"), False),
        ("binding", CSI_NODE, ADD, None, csi_node("n", migrated="kubernetes.io/cinder"), True),
        ("binding", CSI_NODE, ADD, None, csi_node("n", ebs=1), False),
        ("binding", CSI_NODE, UPDATE, csi_node("n"), csi_node("n", migrated="kubernetes.io/cinder"), True),
        ("binding", CSI_NODE, UPDATE, csi_node("n", ebs=1), csi_node("n", ebs=2), False),
        ("binding", CSI_NODE, DELETE, csi_node("n", migrated="kubernetes.io/cinder"), None, True),
        ("binding", DRIVER, UPDATE, driver("d"), driver("d", tells_capacity=False), True),
        ("binding", DRIVER, UPDATE, driver("d", tells_capacity=False), driver("d"), False),
        ("binding", DRIVER, DELETE, driver("d"), None, True),
        ("binding", POOL, ADD, None, pool("1Gi"), True),
        ("binding", POOL, UPDATE, pool("1Gi"), pool("2Gi"), True),
        ("binding", POOL, UPDATE, pool(None), pool("1Gi"), True),
        ("binding", POOL, UPDATE, pool("2Gi"), pool("1Gi"), False),
        ("binding", POOL, UPDATE, pool("1Gi"), pool("1Gi"), False),
        ("binding", ASSIGNED, DELETE, GONE, None, False),
        # VolumeZone
        ("zone", CLASS, ADD, None, storage_class(), True),
        ("zone", CLASS, ADD, None, storage_class(mode="Immediate"), False),
        ("zone", CLAIM, UPDATE, claim("c"), claim("c", volume="v"), True),
        ("zone", CLAIM, UPDATE, claim("d"), claim("d", volume="v"), False),
        ("zone", VOLUME, ADD, None, volume("v"), True),
        ("zone", VOLUME, UPDATE, volume("v"), volume("v", size="9Gi"), False),
        ("zone", VOLUME, UPDATE, volume("v"), volume("v", meta={"labels": {ZONE: "z"}}), True),
        ("zone", NODE, ADD, None, node("n"), True),
        # VolumeRestrictions
        ("restriction", NODE, ADD, None, node("n"), True),
        ("restriction", NODE, ActionType.UPDATE_NODE_LABEL, node("n"), node("n"), False),
        ("restriction", CLAIM, ADD, None, claim("c"), True),
        ("restriction", CLAIM, ADD, None, claim("d"), False),
        # NodeVolumeLimits
        ("limit", CSI_NODE, ADD, None, csi_node("n", ebs=1), True),
        ("limit", CSI_NODE, UPDATE, csi_node("n", ebs=1), csi_node("n", ebs=2), True),
        ("limit", CSI_NODE, UPDATE, csi_node("n", ebs=1), csi_node("n", ebs=None), True),
        ("limit", CSI_NODE, UPDATE, csi_node("n", ebs=2), csi_node("n", ebs=1), False),
        ("limit", CSI_NODE, UPDATE, csi_node("n", ebs=1), csi_node("n", ebs=1, efs=1), False),
        ("limit", CSI_NODE, DELETE, csi_node("n", ebs=1), None, True),
        ("limit", NODE, ADD, None, node("n"), True),
        ("limit", CLAIM, ADD, None, claim("c"), True),
        ("limit", ATTACHMENT, DELETE, DETACHED, None, True),
    ],
)
def test_an_event_wakes_the_pods_that_it_may_help(
    rule: str, kind: Resource, action: ActionType, old: object, new: object, expected: bool
) -> None:
    assert wakes(rule, kind, action, old, new) is expected


@pytest.mark.parametrize(
    ("rule", "waiting", "gone", "expected"),
    [
        ("restriction", DISK, DISK, True),
        ("restriction", DISK, using(disk="e"), False),
        ("restriction", using("c"), using("c"), True),
        ("restriction", using("c"), using("d"), False),
        ("restriction", using("c"), GONE, False),
        ("limit", using("c"), using("d"), True),
        ("limit", using("c"), DISK, False),
        ("limit", using("c"), GONE, False),
    ],
)
def test_a_pod_that_goes_wakes_those_that_its_volumes_kept_away(
    rule: str, waiting: PodInfo, gone: PodInfo, expected: bool
) -> None:
    assert wakes(rule, ASSIGNED, DELETE, gone, None, waiting) is expected


def test_a_detached_volume_wakes_nobody_without_claims() -> None:
    assert not wakes("limit", ATTACHMENT, DELETE, DETACHED, None, DISK)


def test_what_was_given_back_wakes_as_if_it_were_new() -> None:
    assert wakes("binding", VOLUME, UPDATE, None, volume("v"))


def test_a_pod_whose_volumes_are_not_known_is_woken() -> None:
    (each,) = HintMap({"binding": binding_events(lambda pod: None)}).lookup(ClusterEvent(CLAIM, ADD))[
        "binding"
    ]
    assert each.hint_fn is not None
    assert each.hint_fn(GONE, None, claim("d")) is QueueingHint.QUEUE

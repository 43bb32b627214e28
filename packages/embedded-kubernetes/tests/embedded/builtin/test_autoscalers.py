"""HorizontalPodAutoscalers in two versions with one storage."""

from __future__ import annotations

from typing import Any

from embedded.support import World, named

_V1, _V2 = (f"/apis/autoscaling/{version}/namespaces/default/horizontalpodautoscalers" for version in ("v1", "v2"))


def _scaler(**spec: Any) -> dict[str, Any]:
    target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}
    return named("h", spec={"scaleTargetRef": target, "maxReplicas": 3, **spec})


def test_one_that_is_made_by_the_old_version_is_read_by_the_new_one(world: World) -> None:
    made = world.post(_V1, _scaler(targetCPUUtilizationPercentage=50))
    assert made["spec"]["targetCPUUtilizationPercentage"] == 50
    assert made["status"] == {"currentReplicas": 0, "desiredReplicas": 0}
    read = world.get(f"{_V2}/h")
    target = {"type": "Utilization", "averageUtilization": 50}
    assert read["spec"]["metrics"] == [{"type": "Resource", "resource": {"name": "cpu", "target": target}}]
    assert read["status"] == {"desiredReplicas": 0, "currentMetrics": None}


def test_what_the_old_version_cannot_say_it_keeps_in_annotations(world: World) -> None:
    memory = {
        "type": "Resource",
        "resource": {"name": "memory", "target": {"type": "Utilization", "averageUtilization": 9}},
    }
    behavior = {"scaleDown": {"stabilizationWindowSeconds": 5}}
    world.post(_V2, _scaler(metrics=[memory], behavior=behavior))
    old = world.get(f"{_V1}/h")
    assert "metrics" not in old["spec"]
    assert "targetCPUUtilizationPercentage" not in old["spec"]
    old["spec"]["maxReplicas"] = 7
    world.put(f"{_V1}/h", old)
    new = world.get(f"{_V2}/h")
    assert (new["spec"]["metrics"], new["spec"]["behavior"]) == ([memory], behavior)
    assert (new["spec"]["maxReplicas"], new["metadata"].get("annotations")) == (7, None)


def test_limits_have_to_fit_one_another(world: World) -> None:
    for spec in ({"maxReplicas": 0}, {"minReplicas": 0}, {"minReplicas": 5}):
        for path in (_V1, _V2):
            assert world.refused("POST", path, _scaler(**spec)) == (422, "Invalid")


def test_a_status_can_be_written_by_either_version(world: World) -> None:
    world.post(_V2, _scaler())
    for path, replicas in ((_V1, 1), (_V2, 2)):
        status = {"currentReplicas": replicas, "desiredReplicas": replicas}
        made = world.patch(f"{path}/h/status", {"status": status})
        assert made["status"]["desiredReplicas"] == replicas

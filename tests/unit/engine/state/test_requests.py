"""What a pod counts as: to a filter, to the scores of others once it runs, and to its own before."""

from __future__ import annotations

from typing import Any

from agent_scheduler.engine.events.events import Resource
from agent_scheduler.engine.plugins.node_resources_fit import NodeResourcesFit
from agent_scheduler.engine.queueing.entry import pod_change_events
from agent_scheduler.engine.state.podclasses import PodClasses
from agent_scheduler.engine.state.podinfo import PodInfo
from agent_scheduler.engine.state.requests import DEFAULTS
from tests.support.engine import World, node, pod_json, read_pod, wakes

_classes = PodClasses()


def asking(**amounts: str) -> dict[str, Any]:
    return {"requests": amounts}


def running(spec: dict[str, Any], status: dict[str, Any]) -> PodInfo:
    """A pod on a node, and what its kubelet says of it."""
    return read_pod({**pod_json("runs", uid="runs", nodeName="n", **spec), "status": status}, _classes)


def test_sidecars_run_beside_the_containers_and_beside_later_init_containers_and_overhead_comes_on_top() -> None:
    def cpu(*inits: dict[str, Any]) -> int:
        containers = [{"name": "c", "resources": asking(cpu="1")}]
        spec: dict[str, Any] = {"containers": containers, "initContainers": list(inits), "overhead": {"cpu": "250m"}}
        return read_pod(pod_json(**spec), _classes).cls.requests["cpu"]

    sidecar = {"name": "s", "resources": asking(cpu="1"), "restartPolicy": "Always"}
    init = {"name": "i", "resources": asking(cpu="3")}
    assert [cpu(init), cpu(sidecar), cpu(sidecar, init), cpu(init, sidecar)] == [3250, 2250, 4250, 3250]


def test_limits_alone_are_no_request() -> None:
    """The API server turns limits into requests before anyone sees the pod."""
    limited = {"name": "c", "resources": {"limits": {"cpu": "1"}}}
    assert read_pod(pod_json(containers=[limited]), _classes).cls.requests == {"pods": 1}


def test_a_container_that_was_given_none_of_a_resource_gets_no_default_for_it() -> None:
    spec = {"containers": [{"name": "c", "resources": asking(cpu="1")}]}
    given = {"name": "c", "resources": asking(cpu="1", memory="0")}
    before, after = running(spec, {}), running(spec, {"containerStatuses": [given]})
    assert before.cls.nonzero == (1000, DEFAULTS["memory"])
    assert after.cls.nonzero == (1000, 0) and after.requests == before.requests
    assert not before.cls.takes_the_same(after.cls)
    world = World(node("n"))
    for pod in (before, after):
        world.ledger.set_pod(pod, "n")
    assert world.ledger.columns.scored[:, 0].tolist()[:2] == [1000, 0]


def test_a_pod_that_has_less_as_a_whole_than_before_wakes_who_waits_for_that() -> None:
    spec = {"containers": [{"name": "c"}], "resources": asking(cpu="2", memory="4Gi")}
    before, after = (running(spec, {"resources": asking(cpu=cpu, memory="4Gi")}) for cpu in ("6", "2"))
    (event,) = pod_change_events(after, before, assigned=True)
    assert event.resource is Resource.ASSIGNED_POD
    fit = NodeResourcesFit()
    for resource, woken in (("cpu", True), ("example.com/gpu", False)):
        waits = read_pod(pod_json(requests={resource: "1"}), _classes)
        assert wakes(fit, waits, event, before, after) is woken

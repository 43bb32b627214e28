"""What a pod counts as: to a filter, to the scores of others once it runs, and to its own before."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from agent_scheduler.engine.events.events import Resource
from agent_scheduler.engine.plugins.node_resources_fit import NodeResourcesFit
from agent_scheduler.engine.queueing.entry import pod_change_events
from agent_scheduler.engine.state.podclasses import PodClasses
from agent_scheduler.engine.state.podinfo import PodInfo
from agent_scheduler.engine.state.requests import DEFAULTS
from tests.decisions.plain.requests import containers_request, pod_request, whole_request
from tests.support.engine import World, node, pod_json, read_pod, wakes
from tests.support.examples import examples

_classes = PodClasses()


def asking(**amounts: str) -> dict[str, Any]:
    return {"requests": amounts}


def running(spec: dict[str, Any], status: dict[str, Any]) -> PodInfo:
    """A pod on a node, and what its kubelet says of it."""
    return read_pod({**pod_json("runs", uid="runs", nodeName="n", **spec), "status": status}, _classes)


#: None: nothing is said of any.
AMOUNTS = st.sampled_from(
    [
        None,
        {},
        {"cpu": "1"},
        {"cpu": "3", "memory": "1Gi"},
        {"cpu": "250m", "memory": "0"},
        {"cpu": "2", "memory": "4Gi", "x.io/gpu": "1"},
        {"memory": "2Gi", "x.io/gpu": "2"},
    ]
)
#: What a container asks for, whether it is a sidecar where it is an init container, what its kubelet has given it and
#: what it has set aside for it.
CONTAINER = st.tuples(AMOUNTS, st.booleans(), AMOUNTS, AMOUNTS)


def given_to(has: Any, allocated: Any) -> dict[str, Any]:
    said = {"resources": None if has is None else {"requests": has}, "allocatedResources": allocated}
    return {field: value for field, value in said.items() if value is not None}


@examples(400)
@given(
    st.lists(CONTAINER, min_size=1, max_size=2),
    st.lists(CONTAINER, max_size=3),
    AMOUNTS,
    st.tuples(AMOUNTS, AMOUNTS),
    AMOUNTS,
    st.booleans(),
)
def test_a_pod_asks_for_what_the_rule_says_read_plainly(
    containers: Any, inits: Any, whole: Any, whole_has: Any, overhead: Any, infeasible: bool
) -> None:
    spec: dict[str, Any] = {"overhead": overhead or {}, "resources": {"requests": whole or {}}}
    status = given_to(*whole_has)
    for kind, several in (("container", containers), ("initContainer", inits)):
        spec[f"{kind}s"], status[f"{kind}Statuses"] = [], []
        for number, (requests, sidecar, *has) in enumerate(several):
            body = {"name": f"{kind}-{number}", "resources": {"requests": requests or {}}}
            spec[f"{kind}s"].append(body | ({"restartPolicy": "Always"} if sidecar else {}))
            status[f"{kind}Statuses"].append({"name": body["name"], **given_to(*has)})
    if infeasible:
        status["conditions"] = [{"type": "PodResizePending", "status": "True", "reason": "Infeasible"}]
    body = {**pod_json(**spec), "status": status}
    cls = read_pod(body, _classes).cls
    asked = {each: pod_request(body, each) for each in (*DEFAULTS, "x.io/gpu")}
    assert cls.requests == {each: amount for each, amount in asked.items() if amount} | {"pods": 1}
    assert cls.nonzero == tuple(pod_request(body, each, non_zero=True) for each in DEFAULTS)
    has_whole = any(whole_request(body, each) is not None for each in DEFAULTS)
    counted = cls.by_containers and tuple(cls.by_containers.get(each, 0) for each in DEFAULTS)
    assert counted == (tuple(containers_request(body, each) for each in DEFAULTS) if has_whole else None)


def test_sidecars_run_beside_the_containers_and_beside_later_init_containers_and_overhead_comes_on_top() -> (
    None
):
    def cpu(*inits: dict[str, Any]) -> int:
        containers = [{"name": "c", "resources": asking(cpu="1")}]
        spec = {"containers": containers, "initContainers": list(inits), "overhead": {"cpu": "250m"}}
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

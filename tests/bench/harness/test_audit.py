"""The audit's verdicts on small clusters, written as the API's objects."""

from __future__ import annotations

from itertools import count
from typing import Any

import pytest

from agent_scheduler.engine.state.gpus import ANNOTATION as GPU_INDEX
from bench.harness.audit import admits, gist, judge, pod_amounts
from bench.harness.specs import GPU_MILLI
from tests.support.objects import condition
from tests.support.objects import node as make_node
from tests.support.objects import pod as make_pod

_ids = count()
Object = dict[str, Any]


def node(
    name: str = "n", *, labels: dict[str, str] | None = None, spec: Object | None = None, **amounts: str
) -> Object:
    return make_node(name, labels=labels, **{"pods": "10", "extended": amounts, **(spec or {})})


def pod(
    *, on: str | None = None, phase: str = "Pending", annotations: dict[str, str] | None = None,
    message: str = "", spec: Object | None = None, **requests: str,
) -> Object:  # fmt: skip
    said = [condition("PodScheduled", "False", message=message)] if message else []
    about = {"node": on or "", "phase": phase, "annotations": annotations, "conditions": said}
    return make_pod(f"p{next(_ids)}", requests=requests or {"cpu": "1"}, **about, **(spec or {}))


@pytest.mark.parametrize(
    ("nodes", "pods", "said"),
    [
        ([node()], [pod(on="n", cpu="3"), pod(on="n", cpu="1001m")], "n: cpu requested 4001, allocatable 4000"),
        ([node(pods="1")], [pod(on="n"), pod(on="n")], "n: pods requested 2, allocatable 1"),
        ([node()], [pod(on="n", gpu="1")], "n: gpu requested 1, allocatable 0"),
        ([node()], [pod(on="gone")], "is bound to gone, which does not exist"),
    ],
)
def test_an_overcommitted_node_is_named_with_its_sums(nodes: list[Object], pods: list[Object], said: str) -> None:
    audit = judge(nodes, pods)
    assert not audit.ok
    assert said in audit.overcommitted[0]


def test_a_host_port_held_twice_is_an_overcommit_unless_addresses_differ() -> None:
    def with_port(**port: Any) -> Object:
        return pod(on="n", spec={"containers": [{"name": "c", "ports": [{"hostPort": 80, **port}]}]})

    assert judge([node()], [with_port(), with_port()]).overcommitted == ["n: host port 80 is held twice"]
    assert judge([node()], [with_port(hostIP="1.1.1.1"), with_port()]).overcommitted
    assert judge([node()], [with_port(hostIP="1.1.1.1"), with_port(hostIP="2.2.2.2")]).ok
    assert judge([node()], [with_port(), with_port(protocol="UDP")]).ok


def test_pods_that_have_ended_take_nothing() -> None:
    audit = judge([node()], [pod(on="n", phase="Succeeded", cpu="4"), pod(on="n", cpu="4", memory="8Gi")])
    assert audit.ok
    assert (audit.nodes, audit.pods, audit.bound, audit.cpu_fill) == (1, 2, 2, [1.0])
    assert judge([node()], [pod(phase="Failed", cpu="1")]).left_out == []


def test_an_unbound_pod_that_fits_is_named_with_the_node() -> None:
    waiting = pod(cpu="2")
    audit = judge([node("full"), node("free")], [pod(on="full", cpu="4"), waiting])
    assert audit.left_out == [f"{waiting['metadata']['name']} is not bound, but fits free"]
    assert not audit.ok


def test_an_unbound_pod_that_fits_nowhere_is_refused_by_the_schedulers_message() -> None:
    waiting = pod(cpu="5", message="0/1 nodes")
    audit = judge([node()], [waiting, pod(cpu="6", message="0/1 nodes"), pod(cpu="7")])
    assert audit.ok
    assert audit.refused == {"0/1 nodes": 2, "(the scheduler has written no condition)": 1}
    assert audit.unsaid == 1
    waiting["status"]["conditions"].insert(0, {"type": "Ready", "status": "False", "message": "not it"})
    assert judge([node()], [waiting]).refused == {"0/1 nodes": 1}


@pytest.mark.parametrize(
    "spec",
    [
        {"schedulingGates": [{"name": "g"}]},
        {"affinity": {"podAntiAffinity": {"x": []}}},
        {"topologySpreadConstraints": [{}]},
        {"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]},
    ],
)
def test_a_pod_that_waits_for_more_than_nodes_is_never_called_left_out(spec: Object) -> None:
    audit = judge([node()], [pod(spec=spec, message="waiting")])
    assert audit.ok and audit.refused == {"waiting": 1}


def test_a_host_port_keeps_an_unbound_pod_out() -> None:
    spec = {"containers": [{"name": "c", "ports": [{"hostPort": 80}]}]}
    assert judge([node()], [pod(on="n", spec=spec), pod(spec=spec, message="ports")]).ok


def tainted(effect: str, **more: str) -> Object:
    return {"spec": {"taints": [{"key": "k", "effect": effect, **more}]}}


@pytest.mark.parametrize(
    ("at", "spec", "admitted"),
    [
        ({}, {}, True),
        ({"labels": {"a": "1"}}, {"nodeSelector": {"a": "1"}}, True),
        ({"labels": {"a": "2"}}, {"nodeSelector": {"a": "1"}}, False),
        ({"spec": {"unschedulable": True}}, {}, False),
        (tainted("NoSchedule"), {}, False),
        (tainted("PreferNoSchedule"), {}, True),
        (tainted("NoExecute", value="v"), {"tolerations": [{"key": "k", "value": "v"}]}, True),
        (tainted("NoExecute", value="v"), {"tolerations": [{"key": "k", "value": "w"}]}, False),
        (tainted("NoSchedule"), {"tolerations": [{"operator": "Exists"}]}, True),
        (tainted("NoSchedule"), {"tolerations": [{"operator": "Exists", "effect": "NoExecute"}]}, False),
    ],
)
def test_labels_and_taints_decide_where_a_pod_may_go(at: Object, spec: Object, admitted: bool) -> None:
    assert admits(node(**at), pod(spec=spec)) is admitted


@pytest.mark.parametrize(
    ("expression", "admitted"),
    [
        ({"key": "m", "operator": "In", "values": ["5", "6"]}, True),
        ({"key": "m", "operator": "NotIn", "values": ["5"]}, False),
        ({"key": "absent", "operator": "NotIn", "values": ["5"]}, True),
        ({"key": "m", "operator": "Exists"}, True),
        ({"key": "m", "operator": "DoesNotExist"}, False),
        ({"key": "m", "operator": "Gt", "values": ["4"]}, True),
        ({"key": "m", "operator": "Lt", "values": ["4"]}, False),
        ({"key": "absent", "operator": "Gt", "values": ["4"]}, False),
    ],
)
def test_required_node_affinity_is_read_operator_by_operator(expression: Object, admitted: bool) -> None:
    assert admits(node(labels={"m": "5"}), requiring(matchExpressions=[expression])) is admitted


def requiring(**term: Any) -> Object:
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
    return pod(spec={"affinity": {"nodeAffinity": required}})


def test_a_node_may_be_asked_for_by_name() -> None:
    wanting = requiring(matchFields=[{"key": "metadata.name", "operator": "In", "values": ["a"]}])
    assert admits(node("a"), wanting) and not admits(node("b"), wanting)


def test_a_pod_takes_its_largest_step_with_sidecars_and_overhead() -> None:
    def container(cpu: str, **extra: str) -> Object:
        return {"name": "x", "resources": {"requests": {"cpu": cpu}}, **extra}

    init = [container("3"), container("500m", restartPolicy="Always"), container("2")]
    spec = {"initContainers": init, "containers": [container("1")], "overhead": {"cpu": "250m"}}
    assert pod_amounts(pod(spec=spec)) == {"cpu": 3250, "pods": 1}
    # Sidecars go on beside the containers.
    spec["containers"] = [container("3")]
    assert pod_amounts(pod(spec=spec)) == {"cpu": 3750, "pods": 1}


def on_gpus(gpus: str, milli: str) -> Object:
    return pod(on="n", annotations={GPU_INDEX: gpus} if gpus else {}, **{GPU_MILLI: milli})


def test_a_gpu_that_is_given_out_twice_is_told() -> None:
    gpus = node(**{GPU_MILLI: "2000"})
    good = judge([gpus], [on_gpus("0", "600"), on_gpus("0", "400"), on_gpus("1", "600")])
    assert good.ok
    assert good.gpu_fill == [0.8]
    assert good.allocation(GPU_MILLI) == 0.8
    twice = judge([gpus], [on_gpus("0", "600"), on_gpus("0", "500")])
    assert twice.overcommitted == ["n: GPU 0 of 2 is given out to 1100 of 1000"]
    beyond = judge([gpus], [on_gpus("1,2", "2000")])
    assert beyond.overcommitted == ["n: GPU 2 of 2 is given out to 1000 of 1000"]


def test_a_pod_is_left_out_only_if_one_gpu_has_room_for_its_share() -> None:
    gpus, waiting = node(**{GPU_MILLI: "2000"}), pod(**{GPU_MILLI: "600"})
    assert judge([gpus], [on_gpus("0", "500"), on_gpus("1", "500"), waiting]).left_out == []
    assert judge([gpus], [on_gpus("0", "500"), on_gpus("0", "500"), waiting]).left_out
    # Free GPUs are unknown where a pod has no index of its GPU.
    assert judge([gpus], [on_gpus("", "500"), waiting]).left_out == []


@pytest.mark.parametrize(
    ("message", "said"),
    [
        ("0/9 nodes are available: 2 node(s) had taint, 7 Insufficient cpu. preemption: 0/9.",
         "Insufficient cpu, node(s) had taint"),
        ("0/1 nodes are available: 1 Insufficient cpu.", "Insufficient cpu"),
        ("0/9 nodes are available: 1 Too many pods, 8 Too many pods.", "Too many pods"),
        ("no nodes available to schedule pods", "no nodes available to schedule pods"),
        ("running 3 filters: failed", "running 3 filters: failed"),
    ],
)  # fmt: skip
def test_the_gist_of_a_refusal_is_its_reasons_without_numbers(message: str, said: str) -> None:
    assert gist(message) == said


def test_refusals_of_one_gist_are_one_row_with_the_commonest_message() -> None:
    of_two, of_three = (f"0/{number} nodes are available: {number} Insufficient cpu." for number in (2, 3))
    messages = (of_two, of_three, of_three, "no nodes")
    audit = judge([node()], [pod(cpu="9", message=each) for each in messages])
    assert audit.refused_by_gist() == [("Insufficient cpu", 3, of_three), ("no nodes", 1, "no nodes")]

"""Hostile pods."""

from __future__ import annotations

from typing import Any

from .cases import case, merged
from .drawing import AMOUNTS, INT32, INT64, MOST, SIZE, TIMES, Draw, Object
from .kinds import GROUP, container, pod_spec

_GPU = "agent-scheduler.io/gpu-milli"
_REQUIRED, _PREFERRED = (f"{what}DuringSchedulingIgnoredDuringExecution" for what in ("required", "preferred"))


def _pod(**spec: Any) -> Object:
    return {"metadata": {"labels": {"app": "a"}}, "spec": pod_spec(**spec)}


def _expression(number: int, values: int = 1) -> Object:
    return {"key": f"example.com/{number}", "operator": "In", "values": [str(value) for value in range(values)]}


def _selects(draw: Draw, most: int) -> Object:
    return {"matchExpressions": draw.many(most, _expression)}


# ---- constraints


@case("pods", "count")
def spread(draw: Draw) -> Object:
    def constraint(number: int) -> Object:
        when = draw.some("DoNotSchedule", "ScheduleAnyway")
        about = {"maxSkew": draw.some(1, INT32), "topologyKey": f"example.com/{number}", "whenUnsatisfiable": when}
        return {**about, "labelSelector": {"matchLabels": {"app": "a"}}}

    return _pod(topologySpreadConstraints=draw.many(draw.some(85, 5_000), constraint))


@case("pods", "maximum")
def spread_with_maxima(draw: Draw) -> Object:
    selector = {"matchLabels": {"app": "a"}, **_selects(draw, 40)}
    about = {"maxSkew": INT32, "whenUnsatisfiable": "DoNotSchedule", "minDomains": INT32, "labelSelector": selector}
    policies = {"nodeAffinityPolicy": "Honor", "nodeTaintsPolicy": "Honor", "matchLabelKeys": ["b"]}
    return _pod(topologySpreadConstraints=[{**about, **policies, "topologyKey": "kubernetes.io/hostname"}])


@case("pods", "count")
def required_node_terms(draw: Draw) -> Object:
    terms = draw.many(draw.some(120, 9_000), lambda number: {"matchExpressions": [_expression(number)]})
    return _pod(affinity={"nodeAffinity": {_REQUIRED: {"nodeSelectorTerms": terms}}})


@case("pods", "count")
def one_term_with_many_values(draw: Draw) -> Object:
    term = {
        "matchExpressions": [_expression(0, draw.count(100_000)), {"key": "b", "operator": "NotIn", "values": ["c"]}]
    }
    return _pod(affinity={"nodeAffinity": {_REQUIRED: {"nodeSelectorTerms": [term]}}})


@case("pods", "count")
def preferred_node_terms(draw: Draw) -> Object:
    def term(number: int) -> Object:
        return {"weight": 100, "preference": {"matchExpressions": [_expression(number)]}}

    return _pod(affinity={"nodeAffinity": {_PREFERRED: draw.many(draw.some(120, 6_000), term)}})


def _pod_term(number: int) -> Object:
    selector = {"matchExpressions": [{"key": "app", "operator": "NotIn", "values": [str(number)]}]}
    return {"labelSelector": selector, "topologyKey": f"example.com/{number % 50}", "namespaceSelector": {}}


@case("pods", "count")
def anti_affinity_terms(draw: Draw) -> Object:
    return _pod(affinity={"podAntiAffinity": {_REQUIRED: draw.many(draw.some(80, 3_000), _pod_term)}})


@case("pods", "count")
def preferred_pod_terms(draw: Draw) -> Object:
    def term(number: int) -> Object:
        return {"weight": 1 + number % 100, "podAffinityTerm": _pod_term(number)}

    kind = draw.some("podAffinity", "podAntiAffinity")
    return _pod(affinity={kind: {_PREFERRED: draw.many(draw.some(80, 3_000), term)}})


@case("pods", "count")
def selectors_of_many_namespaces(draw: Draw) -> Object:
    term = {"topologyKey": "kubernetes.io/hostname", "namespaces": draw.many(40_000, lambda number: f"n{number}")}
    selected = {**term, "labelSelector": _selects(draw, 60), "namespaceSelector": _selects(draw, 60)}
    return _pod(affinity={"podAffinity": {_REQUIRED: [selected]}})


@case("pods", "count", "duplicate")
def tolerations(draw: Draw) -> Object:
    seconds = draw.some(-INT64, INT64, 0)

    def one(number: int) -> Object:
        return {
            "key": f"example.com/{number % 7}",
            "operator": "Exists",
            "effect": "NoExecute",
            "tolerationSeconds": seconds,
        }

    return _pod(tolerations=draw.many(draw.some(200, 10_000), one))


@case("pods", "duplicate")
def the_same_term_again(draw: Draw) -> Object:
    same, term = draw.count(80), _pod_term(0)
    node = {"matchExpressions": [_expression(0)] * 3}
    return _pod(
        affinity={
            "podAntiAffinity": {_REQUIRED: [term] * (same // 2)},
            "nodeAffinity": {_REQUIRED: {"nodeSelectorTerms": [node] * (same // 4)}},
        }
    )


@case("pods", "count")
def node_selector(draw: Draw) -> Object:
    return _pod(nodeSelector={f"example.com/{number}": "x" for number in range(draw.count(draw.some(250, 9_000)))})


@case("pods", "count")
def gates(draw: Draw) -> Object:
    return _pod(schedulingGates=draw.many(5_000, lambda number: {"name": f"example.com/{number}"}))


@case("pods", "missing")
def empty_parts(draw: Draw) -> Object:
    term: Object = {
        "topologyKey": "kubernetes.io/hostname",
        "labelSelector": draw.some({}, None),
        "namespaceSelector": {},
    }
    affinity = draw.some({}, {"nodeAffinity": {}, "podAffinity": {}}, {"podAffinity": {_REQUIRED: [term]}})
    nothing: Object = {"nodeSelector": {}, "tolerations": [], "volumes": [], "schedulingGates": [], "overhead": None}
    return merged(_pod(affinity=affinity, **nothing), {"spec": {"containers": [{"name": "c", "image": "i"}]}})


# ---- containers, resources, volumes, claims


@case("pods", "count")
def containers(draw: Draw) -> Object:
    made = draw.many(2_000, lambda number: container(f"c{number}"))
    starts = draw.many(1_000, lambda number: container(f"i{number}", restartPolicy="Always"))
    return _pod(containers=made, initContainers=starts)


@case("pods", "count")
def host_ports(draw: Draw) -> Object:
    ports = draw.many(9_000, lambda number: {"containerPort": 1, "hostPort": number + 20_000})
    return _pod(containers=[container(ports=ports)])


@case("pods", "count")
def resources(draw: Draw) -> Object:
    amounts = {
        f"example.com/r{number}": str(draw.some(0, 1, MOST)) for number in range(draw.count(draw.some(200, 6_000)))
    }
    return _pod(containers=[container(resources={"requests": amounts, "limits": amounts})])


@case("pods", "quantity")
def amounts(draw: Draw) -> Object:
    requests = {name: draw.some(*AMOUNTS) for name in ("cpu", "memory", "ephemeral-storage")}
    return _pod(
        containers=[container(f"c{number}", resources={"requests": requests}) for number in range(draw.count(50))]
    )


@case("pods", "quantity", "maximum")
def gpus(draw: Draw) -> Object:
    amount = {_GPU: draw.some(str(MOST), "1", "999999999", "1P")}
    body = _pod(containers=[container(resources={"requests": amount, "limits": amount})])
    indices = draw.some(",".join(map(str, range(3_000))), "9" * 5_000, "-1", "0,0,0", "\u0663", "1e3", "")
    return merged(body, {"metadata": {"annotations": {"agent-scheduler.io/gpu-index": indices}}})


@case("pods", "count")
def volumes(draw: Draw) -> Object:
    def volume(number: int) -> Object:
        claim = {"persistentVolumeClaim": {"claimName": f"nobody-{number}"}}
        return {"name": f"v{number}", **draw.some(claim, {"emptyDir": {}}, {"image": {"reference": "i"}})}

    return _pod(volumes=draw.many(draw.some(200, 5_000), volume))


@case("pods", "count")
def device_claims(draw: Draw) -> Object:
    made = draw.many(3_000, lambda number: {"name": f"r{number}", "resourceClaimName": f"nobody-{number}"})
    return _pod(resourceClaims=made)


@case("pods", "size")
def long_arguments(draw: Draw) -> Object:
    return _pod(containers=[container(args=[draw.long(SIZE - 10_000)])])


@case("pods", "unicode")
def odd_images(draw: Draw) -> Object:
    odd = f"a{draw.text()}b"
    args = [draw.text() for _ in range(20)]
    return _pod(containers=[container(image=odd, args=args, env=[{"name": "A", "value": draw.text()}])])


# ---- places, groups, times


@case("pods", "elsewhere")
def foreign_node(draw: Draw) -> Object:
    return _pod(nodeName=draw.some("no-such-node", "x" * 253))


@case("pods", "elsewhere")
def node_that_exists(draw: Draw) -> Object:
    """A pod with a node from the start, and with many constraints about other pods."""
    some = draw.many(draw.some(80, 2_000), _pod_term)
    return merged(_pod(affinity={"podAntiAffinity": {_REQUIRED: some}}), {"spec": {"nodeName": draw.some(*draw.nodes)}})


@case("pods", "elsewhere", "garbage")
def nominated(draw: Draw) -> Object:
    node = draw.some("no-such-node", *draw.nodes)
    return {**_pod(schedulingGates=[{"name": "example.com/wait"}]), "status": {"nominatedNodeName": node}}


@case("pods", "garbage")
def group_of_nobody(draw: Draw) -> Object:
    name = draw.some("nobody", "a/b", "../..", draw.text(), "x" * 5_000)
    body = _pod(schedulingGroup={"podGroupName": "nobody"}) if draw.some(True, False) else _pod()
    about = {"annotations": {GROUP: name, "volcano.sh/task-spec": draw.text()}, "labels": {"volcano.sh/job-name": "a"}}
    return merged(body, {"metadata": about})


@case("pods", "time", "count", "duplicate")
def conditions(draw: Draw) -> Object:
    def condition(number: int) -> Object:
        kind = draw.some("PodScheduled", "Ready", f"example.com/{number}")
        about = {"type": kind, "status": draw.some("True", "False", "Unknown"), "reason": "A", "message": draw.text()}
        return {**about, "lastTransitionTime": draw.time(), "lastProbeTime": draw.time()}

    gated = _pod(schedulingGates=[{"name": "example.com/wait"}])
    return {**gated, "status": {"startTime": draw.some(*TIMES), "conditions": draw.many(4_000, condition)}}


@case("pods", "maximum")
def deadlines(draw: Draw) -> Object:
    limits = {"activeDeadlineSeconds": INT32, "terminationGracePeriodSeconds": INT64}
    return _pod(**limits, preemptionPolicy=None, hostNetwork=draw.some(True, False))

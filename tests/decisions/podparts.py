"""Random pods, placed and waiting, for the clusters of `clusters`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.decisions.drawing import Choices
from tests.decisions.plain.inter_pod_affinity import PREFERRED, REQUIRED

HOST, ZONE = "kubernetes.io/hostname", "topology.kubernetes.io/zone"
GENERATIONS = ("1", "2", "5", "007", "-3", "9223372036854775808", "")
OTHER_RESOURCES = ("ephemeral-storage", "nvidia.com/gpu", "hugepages-2Mi")
OTHER_AMOUNTS = ("8", "4", "2", "1", "0")
PRIORITIES = (0, 0, 100, 500)

_CPU = ("100m", "500m", "1", "0.25", "1500m", "0", "", "1e-1", "2")
_MEMORY = ("64Mi", "256Mi", "1Gi", "500M", "0.5Gi", "1e8", "", "0", "1234567")
_OVERHEADS = ({"cpu": "250m"}, {"memory": "100Ki"}, {"cpu": "1", "memory": "1Mi"})
_OF_WHOLE_PODS = ({"cpu": "2"}, {"memory": "2Gi"}, {"cpu": "1", "memory": "1e9"}, {"cpu": "0"})
_IMAGES = ("small", "a:v1", "registry:5000/b", "c@sha256:0f", "unknown")
_APPS = ("a", "b", "a", "c", "")
_VERSIONS = ("", "1", "2")
#: Values for pods.
LABELS: tuple[dict[str, str], ...] = ({}, {"app": "a"}, {"app": "b", "version": "1"}, {"version": "2"})
_NAMESPACES = ("default", "default", "default", "default", "blue", "red")

About = frozenset[str]


def placed(choices: Choices, called: str, nodes: int, about: About) -> dict[str, Any]:
    """Return a pod on one of `nodes` nodes, or, rarely, on a deleted one."""
    where = choices.below(nodes)
    metadata = _metadata(choices, called)
    if choices.once_in(12):
        metadata["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    gone = choices.once_in(40)
    spec: dict[str, Any] = {"nodeName": "gone" if gone else f"n{where}", **_runs(choices, about)}
    if "pods" in about and (affinity := _pod_affinity(choices, once_in=5)):
        spec["affinity"] = affinity
    if "priority" in about:
        spec["priority"] = choices.pick(PRIORITIES)
    status = {"startTime": f"2026-01-01T00:00:{choices.below(60):02}Z"}
    return {"metadata": metadata, "spec": spec, "status": status}


def pending(choices: Choices, about: About) -> dict[str, Any]:
    metadata = _metadata(choices, "pending")
    spec = _runs(choices, about)
    affinity: dict[str, Any] = {}
    if "nodes" in about:
        if choices.once_in(3):
            spec["nodeSelector"] = choices.pick(({"disk": "ssd"}, {ZONE: "z1"}, {"disk": "ssd", "gen": "1"}))
        if found := _node_affinity(choices):
            affinity["nodeAffinity"] = found
        if choices.once_in(24):
            spec["nodeName"] = choices.pick(("n0", "n1", "n7", "gone"))
    if "taints" in about:
        spec["tolerations"] = [_toleration(choices) for _ in range(choices.pick((0, 1, 1, 2)))]
    if "pods" in about:
        affinity.update(_pod_affinity(choices, once_in=3))
    if "spread" in about:
        spec["topologySpreadConstraints"] = _constraints(choices)
    if "priority" in about:
        spec["priority"] = choices.pick((100, 0, 500, 1000))
        if choices.once_in(6):
            spec["preemptionPolicy"] = "Never"
    if affinity:
        spec["affinity"] = affinity
    return {"metadata": metadata, "spec": spec}


def budget(choices: Choices, called: str) -> dict[str, Any]:
    metadata = {"name": called, "namespace": choices.pick(_NAMESPACES)}
    selector = choices.pick(({"matchLabels": {"app": "a"}}, {"matchLabels": {"app": "b"}}, {}))
    allowed, disrupted = choices.below(3), {f"p{choices.below(10)}": "2026-01-01T00:00:00Z"}
    status = {"disruptionsAllowed": allowed, "disruptedPods": disrupted}
    return {"metadata": metadata, "spec": {"selector": selector}, "status": status}


def _metadata(choices: Choices, called: str) -> dict[str, Any]:
    labels = {"app": choices.pick(_APPS), "version": choices.pick(_VERSIONS)}
    said = {key: value for key, value in labels.items() if value}
    return {"name": called, "namespace": choices.pick(_NAMESPACES), "labels": said}


def _runs(choices: Choices, about: About) -> dict[str, Any]:
    """Return containers and their requests."""
    spec: dict[str, Any] = {"containers": [_container(choices, about)]}
    if choices.once_in(6):
        spec["containers"].append(_container(choices, about))
    if choices.once_in(6):
        spec["initContainers"] = [_container(choices, about) for _ in range(1 + choices.below(2))]
        for each in spec["initContainers"]:
            if choices.below(2):
                each["restartPolicy"] = "Always"
    if "room" in about:
        if choices.once_in(6):
            spec["overhead"] = choices.pick(_OVERHEADS)
        if choices.once_in(8):
            spec["resources"] = {"requests": choices.pick(_OF_WHOLE_PODS)}
    return spec


def _container(choices: Choices, about: About) -> dict[str, Any]:
    requests = {"cpu": choices.pick(_CPU), "memory": choices.pick(_MEMORY)}
    if "room" in about and choices.once_in(3):
        requests[choices.pick(OTHER_RESOURCES)] = choices.pick(OTHER_AMOUNTS)
        if choices.once_in(12):
            requests["example.com/nowhere"] = choices.pick(("0", "1"))
    image = choices.pick(_IMAGES) if "images" in about else "i"
    resources = {"requests": {key: value for key, value in requests.items() if value}}
    container: dict[str, Any] = {"name": "c", "image": image, "resources": resources}
    if "ports" in about and choices.below(2):
        port: dict[str, Any] = {"containerPort": 80, "hostPort": choices.pick((80, 81, 80, 82))}
        if address := choices.pick(("", "127.0.0.1", "10.0.0.1", "0.0.0.0")):
            port["hostIP"] = address
        if protocol := choices.pick(("", "TCP", "UDP")):
            port["protocol"] = protocol
        container["ports"] = [port]
    return container


def _toleration(choices: Choices) -> dict[str, Any]:
    key = choices.pick(("hard", "gen", "soft", "gone", "node.kubernetes.io/unschedulable", ""))
    toleration: dict[str, Any] = {"key": key, "operator": "Exists"} if key else {"operator": "Exists"}
    if key and choices.below(2):
        toleration = {"key": key, "value": choices.pick(("1", "5", ""))}
        if choices.below(2):
            toleration["operator"] = "Equal"
    if key == "gen" and choices.below(2):
        operator = choices.pick(("Gt", "Lt"))
        toleration = {"key": key, "operator": operator, "value": choices.pick(("4", "5", "-1"))}
    if effect := choices.pick(("", "NoSchedule", "PreferNoSchedule", "NoExecute")):
        toleration["effect"] = effect
    if effect == "NoExecute":
        toleration["tolerationSeconds"] = 0
    return toleration


def _node_affinity(choices: Choices) -> dict[str, Any]:
    affinity: dict[str, Any] = {}
    if choices.once_in(3):
        terms = [_node_term(choices) for _ in range(1 + choices.below(2))]
        affinity[REQUIRED] = {"nodeSelectorTerms": terms}
    if not choices.once_in(4):
        affinity[PREFERRED] = [
            {"weight": choices.pick((1, 5, 40, 100)), "preference": _node_term(choices)}
            for _ in range(1 + choices.below(3))
        ]
    return affinity


def _node_term(choices: Choices) -> dict[str, Any]:
    term: dict[str, Any] = {}
    expressions = [_requirement(choices) for _ in range(choices.pick((1, 1, 2, 0)))]
    if expressions:
        term["matchExpressions"] = expressions
    if choices.once_in(6):
        term["matchFields"] = [_field(choices) for _ in range(choices.pick((1, 1, 2)))]
    return term


def _field(choices: Choices) -> dict[str, Any]:
    operator, name = choices.pick(("In", "In", "NotIn")), choices.pick(("n1", "n0", "gone"))
    return {"key": "metadata.name", "operator": operator, "values": [name]}


def _requirement(choices: Choices) -> dict[str, Any]:
    operator = choices.pick(("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"))
    if operator in ("Gt", "Lt"):
        return {"key": "gen", "operator": operator, "values": [choices.pick(("1", "3", "-4", "+2"))]}
    key, values = choices.pick(_VALUES)
    requirement: dict[str, Any] = {"key": key, "operator": operator}
    return {**requirement, "values": values} if operator in ("In", "NotIn") else requirement


_VALUES = tuple({"disk": ["ssd"], ZONE: ["z1", "z3"], "gen": ["1", "5"], "missing": ["1"], HOST: ["n0", "n2"]}.items())


def _pod_affinity(choices: Choices, *, once_in: int) -> dict[str, Any]:
    """Return terms, with each of the four lists rare, so that mostly there is one."""
    affinity: dict[str, Any] = {}
    for kind in ("podAffinity", "podAntiAffinity"):
        if choices.once_in(once_in):
            terms = [_pod_term(choices) for _ in range(choices.pick((1, 1, 1, 2)))]
            affinity.setdefault(kind, {})[REQUIRED] = terms
        if choices.once_in(once_in):
            affinity.setdefault(kind, {})[PREFERRED] = [
                {"weight": choices.pick((1, 7, 100)), "podAffinityTerm": _pod_term(choices)}
                for _ in range(choices.pick((1, 1, 2)))
            ]
    return affinity


def _pod_term(choices: Choices) -> dict[str, Any]:
    term: dict[str, Any] = {"topologyKey": choices.pick((HOST, ZONE, ZONE, "disk", "gen"))}
    _select(choices, term)
    if choices.once_in(5):
        term["namespaces"] = choices.pick((["blue"], ["default", "red"]))
    if choices.once_in(4):
        other = {"matchExpressions": [{"key": "team", "operator": "NotIn", "values": ["x"]}]}
        term["namespaceSelector"] = choices.pick(({}, {"matchLabels": {"team": "x"}}, other))
    for keys in ("matchLabelKeys", "mismatchLabelKeys"):
        if "labelSelector" in term and choices.once_in(6):
            term[keys] = ["version", "absent"]
            break
    return term


_SELECTORS: tuple[Callable[[str], dict[str, Any] | None], ...] = (
    lambda app: {"matchLabels": {"app": app}},
    lambda app: {"matchLabels": {"app": app}},
    lambda app: {"matchExpressions": [{"key": "app", "operator": "In", "values": [app, "c"]}]},
    lambda app: {"matchExpressions": [{"key": "app", "operator": "NotIn", "values": [app]}]},
    lambda _app: {"matchExpressions": [{"key": "version", "operator": "Exists"}]},
    lambda app: {"matchLabels": {"app": app}, "matchExpressions": [{"key": "version", "operator": "DoesNotExist"}]},
    lambda _app: {},
    lambda _app: None,
)


def _select(choices: Choices, into: dict[str, Any]) -> None:
    selector = choices.pick(_SELECTORS)(choices.pick(("a", "b")))
    if selector is not None:
        into["labelSelector"] = selector


def _constraints(choices: Choices) -> list[dict[str, Any]]:
    """Return constraints with no two of the same key and mode, as the API server demands."""
    found: dict[tuple[str, str], dict[str, Any]] = {}
    for _ in range(1 + choices.below(3)):
        key, when = choices.pick((ZONE, HOST, "disk")), choices.pick(("ScheduleAnyway", "DoNotSchedule"))
        constraint: dict[str, Any] = {"topologyKey": key, "whenUnsatisfiable": when}
        constraint["maxSkew"] = choices.pick((1, 2, 1, 5))
        _select(choices, constraint)
        if when == "DoNotSchedule" and choices.below(2):
            constraint["minDomains"] = choices.pick((2, 3, 4, 1))
        if choices.below(2):
            constraint["nodeAffinityPolicy"] = choices.pick(("Ignore", "Ignore", "Honor"))
        if choices.below(2):
            constraint["nodeTaintsPolicy"] = choices.pick(("Honor", "Honor", "Ignore"))
        if "labelSelector" in constraint and choices.once_in(5):
            constraint["matchLabelKeys"] = ["version"]
        found[key, when] = constraint
    return list(found.values())

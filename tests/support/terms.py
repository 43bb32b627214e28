"""Constraints in a pod's spec on where it may be placed: affinities and topology spread."""

from __future__ import annotations

from typing import Any

HOSTNAME = "kubernetes.io/hostname"
ZONE = "topology.kubernetes.io/zone"
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"

Json = dict[str, Any]


def expression(key: str, *values: str, operator: str = "In") -> Json:
    return {"key": key, "operator": operator, "values": list(values)}


def term(key: str, *values: str, operator: str = "In") -> Json:
    """Return a term of a node selector with one expression."""
    return {"matchExpressions": [expression(key, *values, operator=operator)]}


def requiring(*terms: Json) -> Json:
    """Return a node affinity of which one of `terms` must match."""
    return {REQUIRED: {"nodeSelectorTerms": list(terms)}}


def preferring(*weighted: tuple[int, Json]) -> Json:
    """Return a node affinity that prefers the terms by their weights."""
    return {PREFERRED: [{"weight": weight, "preference": each} for weight, each in weighted]}


def pod_term(app: str = "web", key: str = HOSTNAME, **more: Any) -> Json:
    """Return a term for the pods with the label `app`, within the domains of `key`."""
    return {"topologyKey": key, "labelSelector": {"matchLabels": {"app": app}}, **more}


def beside(kind: str, *terms: Json, weight: int = 0) -> Json:
    """Return the pod affinity or anti-affinity `kind`: required, or preferred with `weight`."""
    if weight:
        return {kind: {PREFERRED: [{"weight": weight, "podAffinityTerm": each} for each in terms]}}
    return {kind: {REQUIRED: list(terms)}}


def spread(key: str = ZONE, app: str = "web", *, skew: int = 1, when: str = "DoNotSchedule", **more: Any) -> Json:
    """Return a topology spread constraint on the pods with the label `app`; `more` adds or replaces fields."""
    selector = {"matchLabels": {"app": app}}
    return {"topologyKey": key, "maxSkew": skew, "whenUnsatisfiable": when, "labelSelector": selector, **more}

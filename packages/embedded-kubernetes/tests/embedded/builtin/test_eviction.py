"""Priorities of pods, and evictions under disruption budgets."""

from __future__ import annotations

import pytest

from embedded_kubernetes.builtin import coordination
from embedded_kubernetes.builtin.eviction import budget_status, decide, matches
from embedded_kubernetes.errors import ApiError

from ..support import cases, condition, named, pod, refuses

_NOW = "2026-01-01T00:00:00Z"
_CLASSES = {"high": named("high", value=1000), "calm": named("calm", value=5, preemptionPolicy="Never")}


def _admitted(spec: dict[str, object], default: str | None = None) -> dict[str, object]:
    body = pod("p", spec=spec)
    coordination.admit_priority(body, _CLASSES.get, lambda: _CLASSES[default] if default else None)
    found = body["spec"]
    return {key: found.get(key) for key in ("priority", "priorityClassName", "preemptionPolicy")}


@cases("""
    spec | default | expected
    {} | null | [0, null, PreemptLowerPriority]
    {} | calm | [5, calm, Never]
    {priorityClassName: high} | calm | [1000, high, PreemptLowerPriority]
    {priorityClassName: system-node-critical} | null | [2000001000, system-node-critical, PreemptLowerPriority]
    {priorityClassName: high, priority: 1000} | null | [1000, high, PreemptLowerPriority]
    """)
def test_a_pods_class_becomes_its_priority(spec, default, expected):
    assert [*_admitted(spec, default).values()] == expected


@cases("""
    spec
    {priorityClassName: none}
    {priority: 7}
    {priorityClassName: calm, preemptionPolicy: PreemptLowerPriority}
    """)
def test_a_class_that_is_not_there_or_is_contradicted_is_forbidden(spec):
    with pytest.raises(ApiError) as refusal:
        _admitted(spec)
    assert (refusal.value.code, refusal.value.reason) == (403, "Forbidden")


def _running(name: str = "p", *, ready: bool = True, **metadata: object) -> dict[str, object]:
    found = pod(name, labels={"app": "a"}, **metadata)
    found["status"] = {"phase": "Running", "conditions": [condition("Ready", ready)]}
    return found


def _budget(status: dict[str, object] | None = None, **spec: object) -> dict[str, object]:
    counts = {"disruptionsAllowed": 0, "currentHealthy": 1, "desiredHealthy": 1, "expectedPods": 1}
    selecting = {"selector": {"matchLabels": {"app": "a"}}, **spec}
    return named("b", generation=1, spec=selecting, status={"observedGeneration": 1, **counts, **(status or {})})


def test_an_eviction_takes_one_disruption_from_the_budget():
    before = _budget({"disruptionsAllowed": 2})
    changed = decide(_running(), [before], now=_NOW)
    assert changed["status"]["disruptionsAllowed"] == 1
    assert changed["status"]["disruptedPods"] == {"p": _NOW}
    assert before["status"]["disruptionsAllowed"] == 2


def test_an_eviction_waits_for_a_budget_whose_change_was_not_seen_yet():
    with pytest.raises(ApiError) as refusal:
        decide(_running(), [_budget({"observedGeneration": 0, "disruptionsAllowed": 1})], now=_NOW)
    assert refusal.value.headers == {"Retry-After": "10"}


def test_two_budgets_for_one_pod_are_an_error():
    with refuses(500):
        decide(_running(), [_budget(), _budget()], now=_NOW)


@cases("""
    pod | status | spec
    {phase: Pending} | {} | {}
    {phase: Failed} | {} | {}
    {} | {} | {selector: {matchLabels: {app: other}}}
    {conditions: [{type: Ready, status: 'False'}]} | {} | {}
    {conditions: [{type: Ready, status: 'False'}]} | {currentHealthy: 0} | {unhealthyPodEvictionPolicy: AlwaysAllow}
    """)
def test_a_pod_that_no_budget_needs_is_evicted_without_one(pod, status, spec):
    running = _running()
    running["status"] |= pod
    assert decide(running, [_budget(status, **spec)], now=_NOW) is None


def test_an_unready_pod_waits_where_too_few_others_are_healthy():
    with refuses(429):
        decide(_running(ready=False), [_budget({"currentHealthy": 0})], now=_NOW)


@cases("""
    spec | allowed | desired
    {minAvailable: 1} | 2 | 1
    {minAvailable: 50%} | 1 | 2
    {maxUnavailable: 1} | 0 | 3
    {maxUnavailable: 50%} | 1 | 2
    {} | 3 | 0
    """)
def test_a_budgets_status_says_how_many_pods_can_be_spared(spec, allowed, desired):
    status = budget_status(_budget(**spec), expected=4, healthy=3, disrupted={}, now=_NOW)
    assert (status["expectedPods"], status["currentHealthy"]) == (4, 3)
    assert (status["disruptionsAllowed"], status["desiredHealthy"]) == (allowed, desired)
    assert status["conditions"][0]["status"] == ("True" if allowed else "False")


@cases("""
    selector | selected
    null | false
    {} | true
    {matchExpressions: [{key: a, operator: NotIn, values: [x]}]} | true
    {matchExpressions: [{key: app, operator: Exists}]} | true
    {matchExpressions: [{key: app, operator: DoesNotExist}]} | false
    {matchLabels: {app: a}, matchExpressions: [{key: app, operator: In, values: [b]}]} | false
    """)
def test_a_budgets_selector_selects_as_label_selectors_do(selector, selected):
    assert matches(selector, {"app": "a"}) is selected

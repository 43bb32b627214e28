"""The gate of pods that wait for their queue, and resource groups."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_scheduler.admission.pods import PodRules, ResourceGroup, mutate
from tests.support.reviews import GATE, patched, pod, request

RULES = PodRules(schedulers=frozenset({"volcano", "agent-scheduler"}))


def gates(made: Any, rules: PodRules = RULES) -> list[str]:
    spec = patched(made, mutate(request(made), rules))["spec"]
    return [each["name"] for each in spec.get("schedulingGates") or ()]


@pytest.mark.parametrize("scheduler", ["volcano", "agent-scheduler"])
def test_an_annotated_pod_of_ours_is_gated(scheduler: str) -> None:
    assert gates(pod(scheduler=scheduler)) == [GATE]


@pytest.mark.promise("GATE-19")
@pytest.mark.parametrize("annotation", [None, "True", "TRUE", "1", "yes", "", "false", " true"])
def test_only_the_word_true_asks_for_the_gate(annotation: str | None) -> None:
    assert mutate(request(pod(annotation=annotation)), RULES).patch == ()


@pytest.mark.promise("GATE-18")
@pytest.mark.parametrize("scheduler", ["default-scheduler", "", "volcano-other"])
def test_a_pod_of_another_scheduler_is_not_gated_as_nobody_would_take_it_off(scheduler: str) -> None:
    assert mutate(request(pod(scheduler=scheduler)), RULES).patch == ()


def test_without_the_feature_no_pod_is_gated_and_one_that_says_nothing_is_read() -> None:
    rules = PodRules(schedulers=RULES.schedulers, gates=False)
    assert mutate(request(pod()), rules).patch == mutate(request({}), RULES).patch == ()


@pytest.mark.parametrize("missing", [{}, {"schedulingGates": None}])
def test_a_pod_without_a_list_of_gates_gets_one(missing: dict[str, Any]) -> None:
    made = pod(**missing)
    (change,) = mutate(request(made), RULES).patch
    assert (change.path, change.value) == ("/spec/schedulingGates", [{"name": GATE}])


def test_an_empty_list_of_gates_is_added_to() -> None:
    assert gates(pod(schedulingGates=[])) == [GATE]


@pytest.mark.parametrize("operation", ["UPDATE", "DELETE", "CONNECT"])
def test_pods_are_reviewed_when_they_are_made_alone(operation: str) -> None:
    answer = mutate(request(pod(), operation=operation), RULES)
    assert (answer.allowed, answer.message) == (False, "expect operation to be 'CREATE' ")


@pytest.mark.promise("GATE-23")
@given(others=st.lists(st.sampled_from(["a.example/x", "b.example/y", GATE]), unique=True, max_size=3))
def test_other_gates_keep_their_places_and_a_second_review_changes_nothing(others: list[str]) -> None:
    made = pod(*others)
    expected = others if GATE in others else [*others, GATE]
    assert gates(made) == expected
    once = patched(made, mutate(request(made), RULES))
    assert mutate(request(once), RULES).patch == ()


# ---- resource groups


def grouped(*groups: ResourceGroup) -> PodRules:
    return PodRules(schedulers=RULES.schedulers, groups=groups)


def test_the_first_group_that_fits_gives_what_it_has() -> None:
    rules = grouped(
        ResourceGroup(namespaces=frozenset({"other"}), labels={"n": "0"}),
        ResourceGroup(
            annotations={"team": "a"},
            labels={"n": "1"},
            affinity={"nodeAffinity": {}},
            tolerations=({"key": "t", "operator": "Exists"},),
        ),
        ResourceGroup(annotations={"team": "a"}, labels={"n": "2"}),
    )
    made = pod(annotation=None, nodeSelector={"disk": "ssd", "n": "9"}, tolerations=[{"key": "k"}])
    made["metadata"]["annotations"]["team"] = "a"
    spec = patched(made, mutate(request(made), rules))["spec"]
    assert spec["nodeSelector"] == {"disk": "ssd", "n": "1"}
    assert spec["tolerations"] == [{"key": "k"}, {"key": "t", "operator": "Exists"}]
    assert spec["affinity"] == {"nodeAffinity": {}}
    assert spec["schedulerName"] == "volcano"


def test_an_affinity_that_a_pod_has_stays() -> None:
    rules = grouped(ResourceGroup(namespaces=frozenset({"default"}), affinity={"nodeAffinity": {}}))
    assert mutate(request(pod(annotation=None, affinity={})), rules).patch == ()
    assert len(mutate(request(pod(annotation=None, affinity=None)), rules).patch) == 1


@pytest.mark.parametrize(
    ("before", "after", "gated"), [("default-scheduler", "volcano", True), ("volcano", "default-scheduler", False)]
)
def test_the_scheduler_that_a_group_gives_decides_on_the_gate(before: str, after: str, gated: bool) -> None:
    rules = grouped(ResourceGroup(namespaces=frozenset({"default"}), scheduler_name=after))
    assert gates(pod(scheduler=before), rules) == ([GATE] if gated else [])


def test_a_pod_without_a_namespace_is_in_that_of_the_request() -> None:
    rules = grouped(ResourceGroup(namespaces=frozenset({"here"}), labels={"n": "1"}))
    made = pod(annotation=None)
    assert len(mutate(request(made, namespace="here"), rules).patch) == 1
    assert mutate(request(made, namespace="there"), rules).patch == ()

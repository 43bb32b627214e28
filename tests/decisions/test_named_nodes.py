"""Pods whose terms name their nodes, as a DaemonSet's do, are refused elsewhere with kube-scheduler's message."""

from __future__ import annotations

from typing import Any

import pytest

from tests.decisions.clusters import Drawn
from tests.decisions.comparing import differences
from tests.decisions.engine import Engine
from tests.decisions.plain import Obj, World
from tests.decisions.preempting import message
from tests.support.objects import node, pod

NOT_NAMED = "node(s) didn't satisfy plugin(s) [NodeAffinity]"
NOT_HELPFUL = "Preemption is not helpful for scheduling"


def naming(*terms: list[tuple[str, str]], label: str = "") -> Obj:
    """Return a pod with a required term for each list of (operator, node name)."""
    found: list[dict[str, Any]] = [
        {"matchFields": [{"key": "metadata.name", "operator": how, "values": [name]} for how, name in term]}
        for term in terms
    ]
    if label:
        found[0]["matchExpressions"] = [{"key": label, "operator": "Exists"}]
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": found}}
    return pod("pending", affinity={"nodeAffinity": required})


def refusal(*parts: str, dry_run: str = f"3 {NOT_HELPFUL}") -> str:
    sentence = f"no new claims to deallocate, preemption: 0/3 nodes are available: {dry_run}."
    return f"0/3 nodes are available: {', '.join(parts)}. {sentence}"


TAINTS = [{"key": "hard", "effect": "NoSchedule"}]
WORLD = World((node("n0"), node("n1", pods="0"), node("n2", taints=TAINTS)), ())


@pytest.mark.parametrize(
    ("pending", "expected"),
    [
        (naming([("In", "n0")]), None),
        (naming([("In", "n2")]), refusal("1 node(s) had untolerated taint(s)", f"2 {NOT_NAMED}")),
        (naming([("In", "gone")]), refusal(f"3 {NOT_NAMED}")),
        (
            naming([("In", "n0")], label="missing"),
            refusal("1 node(s) didn't match Pod's node affinity/selector", f"2 {NOT_NAMED}"),
        ),
        # A term without node names leaves all nodes to the filters.
        (
            naming([("In", "n2")], [("NotIn", "n0")]),
            refusal(
                "1 Too many pods",
                "1 node(s) didn't match Pod's node affinity/selector",
                "1 node(s) had untolerated taint(s)",
                dry_run=f"1 No preemption victims found for incoming pod, 2 {NOT_HELPFUL}",
            ),
        ),
        (naming([("In", "n0"), ("In", "n2")]), refusal("pod affinity terms conflict")),
        (naming([("In", "n0"), ("In", "n2")], [("In", "n0")]), None),
    ],
)
def test_nodes_that_the_terms_do_not_name_are_refused_before_any_filter(pending: Obj, expected: str | None) -> None:
    assert message(Engine(WORLD), pending) == expected
    assert differences(Drawn(WORLD, pending)) == []

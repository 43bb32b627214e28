"""What one pod may cost a decision, whatever its spec has, and what it costs others."""

from __future__ import annotations

from typing import Any

import pytest

from agent_scheduler.engine.decide import budget
from agent_scheduler.engine.preemption import dry_run
from agent_scheduler.engine.preemption.dry_run import TOO_COSTLY, DryRun
from agent_scheduler.engine.rules.topology import Domains
from agent_scheduler.engine.state.podconstraints import MOST
from agent_scheduler.engine.state.podcounts import PodsMatching
from tests.support.engine import SPREAD, World, node
from tests.support.terms import HOSTNAME, beside, pod_term


def apart(count: int, **more: Any) -> dict[str, Any]:
    return beside("podAntiAffinity", *(pod_term(f"app-{number}", **more) for number in range(count)))


def spread(count: int) -> list[dict[str, Any]]:
    selector = {"matchLabels": {"app": "a"}}
    return [
        {"maxSkew": 1, "topologyKey": f"key-{number}", "whenUnsatisfiable": "DoNotSchedule", "labelSelector": selector}
        for number in range(count)
    ]


def node_terms(count: int, values: int = 1) -> list[dict[str, Any]]:
    return [
        {"matchExpressions": [{"key": f"k{number}", "operator": "NotIn", "values": [*map(str, range(values))]}]}
        for number in range(count)
    ]


def preferring(terms: list[dict[str, Any]]) -> dict[str, Any]:
    weighted = [{"weight": 1, "preference": term} for term in terms]
    return {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": weighted}}


def requiring(terms: list[dict[str, Any]]) -> dict[str, Any]:
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}


MANY = 3000
SELECTOR = {"matchExpressions": [{"key": f"k{number}", "operator": "Exists"} for number in range(MANY)]}


@pytest.mark.parametrize(
    ("field", "spec"),
    [
        ("spec.topologySpreadConstraints", {"topologySpreadConstraints": spread(5000)}),
        (
            "spec.topologySpreadConstraints",
            {"topologySpreadConstraints": [{**spread(1)[0], "labelSelector": SELECTOR}]},
        ),
        ("spec.affinity", {"affinity": apart(MANY)}),
        ("spec.affinity", {"affinity": beside("podAffinity", {"topologyKey": "k", "labelSelector": SELECTOR})}),
        ("spec.affinity", {"affinity": beside("podAffinity", pod_term("a", namespaces=[*map(str, range(MANY))]))}),
        ("spec.affinity", {"affinity": preferring(node_terms(9000))}),
        ("spec.affinity", {"affinity": requiring([{}] * MANY)}),
        ("spec.affinity", {"affinity": requiring(node_terms(1, values=64 * MOST))}),
        (
            "spec.affinity",
            {"affinity": beside("podAffinity", {"topologyKey": "k", "labelSelector": node_terms(1, 64 * MOST)[0]})},
        ),
        ("spec.affinity", {"affinity": requiring([{"matchExpressions": SELECTOR["matchExpressions"]}])}),
        ("spec.nodeSelector", {"nodeSelector": {f"k{number}": "x" for number in range(MANY)}}),
        ("spec.tolerations", {"tolerations": [{"key": f"k{number}", "operator": "Exists"} for number in range(MANY)]}),
        ("spec.containers", {"requests": {f"x{number}.com/y": "1" for number in range(MANY)}}),
        (
            "spec.volumes",
            {"volumes": [{"name": f"v{n}", "persistentVolumeClaim": {"claimName": f"c{n}"}} for n in range(MANY)]},
        ),
    ],
)
def test_a_pod_with_too_many_constraints_is_invalid_and_its_terms_do_not_count(
    field: str, spec: dict[str, Any]
) -> None:
    world = World(node("n1", labels={HOSTNAME: "n1"}), profile=SPREAD)
    pod = world.pod(**spec)
    assert pod.cls.error.startswith(f"{field}: ") and f"allowed: at most {MOST} labels" in pod.cls.error
    world.place("n1", **spec)
    assert not world.ledger.terms.counts
    other = world.pod(labels={"app": "app-1"})
    assert world.feasible(other) == {"n1"} and not world.handle.class_of(other).matching_terms


def test_a_pod_with_as_many_as_allowed_is_placed() -> None:
    world = World(node("n1", labels={HOSTNAME: "n1"}), profile=SPREAD)
    for spec in ({"affinity": apart(MOST - 1)}, {"affinity": requiring(node_terms(MOST - 1, values=63))}):
        pod = world.pod(**spec)
        assert pod.cls.constraints == MOST - 1 and world.feasible(pod) == {"n1"}


def test_a_decision_that_would_cost_too_much_is_refused_before_it_begins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(budget, "DECISION", 100)
    world = World(*(node(f"n{number}", labels={HOSTNAME: str(number)}) for number in range(16)), profile=SPREAD)
    few, many = world.pod(affinity=apart(budget.ALWAYS)), world.pod(affinity=apart(budget.ALWAYS + 1))
    assert len(world.feasible(many)) == 16, "34 units, as no pod is placed"
    for _ in range(4):
        world.place("n1")
    assert world.message(many).startswith(
        "0/16 nodes are available: the pod has 17 scheduling constraints, and a decision among 16 nodes and 4 pods "
        "would take too long; allowed: at most 16 labels,"
    )
    assert world.refusal(many).plugins == {"PodSpec"}
    assert not world.ledger.columns.matching, "nothing is counted for it"
    assert len(world.feasible(few)) == 16
    monkeypatch.undo()
    assert len(world.feasible(many)) == 16, "it is judged anew each time"


def test_views_of_classes_with_many_constraints_are_few() -> None:
    world = World(node("n1", labels={HOSTNAME: "n1"}))
    terms = [[pod_term(f"{name}-{number}") for number in range(200)] for name in range(40)]
    pods = [world.pod(affinity=beside("podAntiAffinity", *each)) for each in terms]
    for pod in (*pods, *pods):
        world.feasible(pod)
        kept = sum(each.cls.constraints for each in pods if each.cls in world.views)
        assert kept <= budget.KEPT
    assert len(world.ledger.columns.matching) <= budget.KEPT


def test_a_pod_is_compared_with_the_kinds_of_its_namespace_and_labels_only(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(node("n1", labels={HOSTNAME: "n1"}))
    pod = world.pod(affinity=apart(200))
    world.feasible(pod)
    asked: list[PodsMatching] = []
    counts = PodsMatching.counts

    def asks(kind: PodsMatching, pod: Any) -> bool:
        asked.append(kind)
        return counts(kind, pod)

    monkeypatch.setattr(PodsMatching, "counts", asks)
    world.place("n1", labels={"app": "app-1"}, namespace="other")
    world.place("n1", labels={"app": "other"})
    assert not asked
    world.place("n1", labels={"app": "app-1"})
    assert len(asked) == 1
    assert world.feasible(pod) == set()


def test_dry_runs_of_preemption_end_with_their_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(*(node(f"n{number}", labels={HOSTNAME: str(number)}) for number in range(20)))
    for number in range(20):
        world.run(f"p{number}", f"n{number}", labels={"app": "app-1"})
    tried: list[int] = []
    monkeypatch.setattr(DryRun, "_dry_run_one", lambda _self, row: tried.append(row))
    found = world.preempt(world.pod(priority=5, affinity=apart(200)))
    assert len(tried) == dry_run.DRY_RUNS // 400
    assert f"15 {TOO_COSTLY}" in found.message
    tried.clear()
    world.preempt(world.pod(priority=5, affinity=apart(2)))
    assert len(tried) == 20


@pytest.mark.parametrize("kind", ["podAntiAffinity", "podAffinity"])
def test_terms_of_many_pods_cost_others_one_sum_for_each_key(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(*(node(f"n{number}", labels={HOSTNAME: str(number)}) for number in range(9)), profile=SPREAD)
    for number in range(4):
        selector = {"matchExpressions": [{"key": "none", "operator": "NotIn", "values": [str(number)]}]}
        terms = [
            {"topologyKey": key, "namespaceSelector": {}, "labelSelector": {**selector, "matchLabels": {}}}
            for key in (HOSTNAME, "gone")
        ]
        terms += [{**terms[0], "namespaces": [str(each)]} for each in range(200)]
        world.place(f"n{number}", affinity=beside(kind, *terms))
    summed: list[Any] = []
    sums = Domains.sums

    def counted(domains: Domains, *more: Any) -> Any:
        summed.append(domains)
        return sums(domains, *more)

    monkeypatch.setattr(Domains, "sums", counted)
    pod = world.pod()
    assert len(world.handle.class_of(pod).matching_terms) > 800
    free = {f"n{number}" for number in range(4, 9)}
    for taken in ("n8", "n4", "n8"):
        summed.clear()
        assert world.feasible(pod) == (free if kind == "podAntiAffinity" else {f"n{number}" for number in range(9)})
        assert len(summed) <= 12
        world.place(taken)
    if kind == "podAntiAffinity":
        world.place("n8", affinity=beside(kind, terms[0]))
        assert world.feasible(world.pod()) == free - {"n8"}

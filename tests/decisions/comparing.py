"""Results for a pod in one form for the engine, the plain rules and recordings, and the difference of two results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from itertools import islice
from typing import Any

from tests.decisions.clusters import Drawn
from tests.decisions.engine import Engine, EngineDecision
from tests.decisions.plain import Obj, World, decide
from tests.decisions.plain.world import name as name_of
from tests.decisions.preempting import attempts

Scores = Mapping[str, Mapping[str, int]]


@dataclass(frozen=True)
class Outcome:
    feasible: frozenset[str]
    #: With the sentence about preemption; None where a node is feasible, or where preemption has a node.
    message: str | None = None
    #: Without zeros, as to score 0 and to be left out is the same; empty where fewer than two nodes are feasible.
    scores: Scores = field(default_factory=dict)
    final: Mapping[str, int] = field(default_factory=dict)
    #: Victims by each node that preemption may choose, the most important first.
    victims: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


def nonzero(scores: Scores) -> dict[str, dict[str, int]]:
    return {node: {plugin: value for plugin, value in of.items() if value} for node, of in scores.items()}


def of_plain(pending: Obj, world: World, budgets: Sequence[Obj] = ()) -> Outcome:
    found = decide(pending, world, budgets)
    return Outcome(
        frozenset(found.feasible),
        found.message,
        nonzero(found.scores),
        found.final,
        {each.node: tuple(map(name_of, each.victims)) for each in found.candidates},
    )


def of_engine(
    engine: Engine, pending: Obj, budgets: Sequence[Obj] = (), *, beginnings: int | None = None
) -> tuple[Outcome, EngineDecision]:
    """Return the engine's result; `beginnings` are the first nodes of preemption, by default each of them."""
    decision = engine.decide(pending)
    feasible = frozenset(decision.feasible)
    if len(feasible) == 1:
        return Outcome(feasible), decision
    if feasible:
        return Outcome(feasible, None, nonzero(decision.scores), decision.final), decision
    found = list(islice(attempts(engine, pending, budgets), beginnings))
    chosen = [each.candidate for each in found if each.candidate is not None]
    assert len({(each.rank, each.earliest_start) for each in chosen}) <= 1, f"{chosen} are not as good"
    victims = {each.node_name: tuple(pod.name for pod in each.victims) for each in chosen}
    return Outcome(feasible, found[-1].message if found else decision.message, {}, {}, victims), decision


def between(expected: Outcome, found: Outcome, *, but_for: str = "") -> list[str]:
    """Return a line for each field that differs, without the field `but_for`."""
    return [
        f"{name}: expected {one}, found {other}"
        for name in sorted({each.name for each in fields(Outcome)} - {but_for})
        if (one := getattr(expected, name)) != (other := getattr(found, name))
    ]


def differences(drawn: Drawn) -> list[str]:
    """Return the differences between the plain rules and the engine."""
    plain = of_plain(drawn.pending, drawn.world, drawn.budgets)
    found, decision = of_engine(Engine(drawn.world), drawn.pending, drawn.budgets)
    return between(plain, found) + of_order(decision, plain.final)


def of_order(decision: EngineDecision, final: Mapping[str, int]) -> list[str]:
    """Return differences between the engine's cached order of nodes and the scores that it reports."""
    found = []
    apart = {total - final.get(node, 0) for node, total in decision.ranked.items()}
    if len(decision.feasible) > 1 and len(apart) != 1:
        found.append(f"chosen by {decision.ranked}, which is not {final} up to a constant")
    totals = [final.get(node, 0) for node in decision.candidates]
    if sorted(decision.candidates) != sorted(decision.feasible) or totals != sorted(totals, reverse=True):
        found.append(f"candidates: {decision.candidates} are not all nodes, best first, by {final}")
    return found


def between_engines(kept: EngineDecision, new: EngineDecision) -> list[str]:
    """Return differences except of the order of nodes."""

    def said(each: EngineDecision) -> Any:
        return sorted(each.feasible), each.message, sorted(each.plugins), nonzero(each.scores)

    differ = [] if said(new) == said(kept) else [f"new {said(new)}, kept {said(kept)}"]
    return differ + of_order(kept, new.final)

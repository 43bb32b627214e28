"""What two deciders of the same case disagree on, a line for each difference."""

from __future__ import annotations

from collections.abc import Mapping

from tests.decisions.clusters import Drawn
from tests.decisions.engine import Engine, EngineDecision
from tests.decisions.plain import Decision, decide
from tests.decisions.preempting import attempts

Scores = Mapping[str, Mapping[str, int]]


def nonzero(scores: Scores) -> dict[str, dict[str, int]]:
    """Without the plugins that score 0: to be left out and to score 0 is the same."""
    return {node: {plugin: value for plugin, value in of.items() if value} for node, of in scores.items()}


def differences(drawn: Drawn) -> list[str]:
    """Between the plain reading and the engine: feasible nodes, message, each score and the sums, whom to evict."""
    plain = decide(drawn.pending, drawn.world)
    engine = Engine(drawn.world)
    decision = engine.decide(drawn.pending)
    found = _between("feasible nodes", sorted(plain.feasible), sorted(decision.feasible))
    if plain.feasible and decision.feasible:
        return found + _of_scores(plain, decision)
    attempt = next(attempts(engine, drawn.pending), None)
    found += _between("message", plain.message, attempt and attempt.message)
    nominated = attempt.candidate.node_name if attempt and attempt.candidate else ""
    if nominated not in ({candidate.node for candidate in plain.candidates} or {""}):
        found.append(f"nominated: plain {plain.candidates}, engine {nominated!r}")
    return found


def between(kept: EngineDecision, new: EngineDecision) -> list[str]:
    """Two engines; the order of their nodes may be another."""
    found = _between("feasible nodes", sorted(new.feasible), sorted(kept.feasible), "new", "kept")
    found += _between("message", new.message, kept.message, "new", "kept")
    found += _between("plugins", sorted(new.plugins), sorted(kept.plugins), "new", "kept")
    found += _between("scores", nonzero(new.scores), nonzero(kept.scores), "new", "kept")
    return found + _of_order(kept, new.final)


def _of_scores(plain: Decision, decision: EngineDecision) -> list[str]:
    if len(plain.feasible) == 1:
        return _between("candidates", plain.feasible, decision.candidates)
    theirs, ours = nonzero(plain.scores), nonzero(decision.scores)
    found = [
        line
        for node in sorted(theirs.keys() | ours.keys())
        for line in _between(f"scores of {node}", theirs.get(node), ours.get(node))
    ]
    found += _between("sums", plain.final, decision.final)
    found += _between("best nodes", sorted(plain.best), sorted(decision.best))
    return found + _of_order(decision, plain.final)


def _of_order(decision: EngineDecision, final: Mapping[str, int]) -> list[str]:
    """Whether what the engine keeps to choose by says the same as the scores that it gives when asked for them."""
    found = []
    if len({total - final.get(node, 0) for node, total in decision.ranked.items()}) > 1:
        found.append(f"chosen by {decision.ranked}, which is not {final} up to a constant")
    totals = [final.get(node, 0) for node in decision.candidates]
    if sorted(decision.candidates) != sorted(decision.feasible) or totals != sorted(totals, reverse=True):
        found.append(f"candidates: {decision.candidates} are not all nodes, best first, by {final}")
    return found


def _between(
    what: str, one: object, other: object, first: str = "plain", second: str = "engine"
) -> list[str]:
    return [] if one == other else [f"{what}: {first} {one}, {second} {other}"]

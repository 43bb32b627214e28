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
    totals = [plain.final.get(node, -1) for node in decision.candidates]
    if sorted(decision.candidates) != sorted(plain.feasible) or totals != sorted(totals, reverse=True):
        found.append(f"candidates: {decision.candidates} are not all nodes, best first, by {plain.final}")
    return found


def _between(what: str, plain: object, engine: object) -> list[str]:
    return [] if plain == engine else [f"{what}: plain {plain}, engine {engine}"]

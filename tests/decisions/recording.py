"""Cases that a real kube-scheduler decided, as its recordings have them.

A case is a cluster and one pending pod, with what became of the pod. What each file holds says the README beside
it; another file of the same form is read by naming it in the environment.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.decisions.plain import Obj, World

RECORDINGS = Path(__file__).resolve().parents[2].parent / "shared" / "conformance"


@dataclass(frozen=True)
class Case:
    """One decision with its scores: `node` where the pod went, or `message` where it could not go."""

    id: int
    nodes: tuple[Obj, ...]
    pods: tuple[Obj, ...]
    pending: Obj
    node: str | None
    message: str | None
    scores: dict[str, dict[str, int]]
    final: dict[str, int]

    def world(self, *others: Obj) -> World:
        """The cluster of the case, with pods that the case does not list."""
        return World(self.nodes, (*self.pods, *others))


@dataclass(frozen=True)
class PreemptionCase:
    """One decision in a full cluster: `node` where the pod fitted, else what preemption did for it."""

    id: int
    world: World
    budgets: tuple[Obj, ...]
    pending: Obj
    node: str | None
    nominated: str | None
    victims: frozenset[str]
    message: str | None


DECISIONS = RECORDINGS / "kube-scheduler-1.36.2-decisions.jsonl"
PREEMPTIONS = RECORDINGS / "kube-scheduler-1.36.2-preemption.jsonl"


def decisions(path: Path | None = None) -> list[Case]:
    """The recorded decisions, by default those that the environment names; skips the test where there are none."""
    lines = _lines(path or _named("AGENT_SCHEDULER_DECISIONS", DECISIONS))
    return [
        Case(
            line["id"],
            tuple(line["nodes"]),
            tuple(line["pods"]),
            line["pending"],
            line["result"].get("node"),
            line["result"].get("message"),
            line["scores"],
            line["final"],
        )
        for line in lines
    ]


def preemptions() -> list[PreemptionCase]:
    """The recorded preemptions; skips the test where there are none."""
    lines = _lines(_named("AGENT_SCHEDULER_PREEMPTION_DECISIONS", PREEMPTIONS))
    return [
        PreemptionCase(
            line["id"],
            World(tuple(line["nodes"]), tuple(_admitted(pod) for pod in line["pods"])),
            tuple(_with_status(budget) for budget in line["pdbs"]),
            _admitted(line["pending"]),
            line["result"].get("node"),
            line["result"].get("nominatedNode"),
            frozenset(line["result"].get("victims") or ()),
            line["result"].get("message"),
        )
        for line in lines
    ]


def _named(variable: str, default: Path) -> Path:
    given = os.environ.get(variable)
    return Path(given) if given else default


def _lines(path: Path) -> Iterable[dict[str, Any]]:
    if not path.is_file():
        pytest.skip(f"there is no recording of kube-scheduler's decisions at {path}")
    return [json.loads(line) for line in path.read_text().splitlines() if line.strip()]


def _admitted(pod: dict[str, Any]) -> Obj:
    """The pod as the API server kept it: the priority of its class written out, its start in its status."""
    priority_class = pod["spec"]["priorityClassName"]
    never = priority_class == "pnever"
    spec = {**pod["spec"], "priority": 1000 if never else int(priority_class.removeprefix("p"))}
    spec["preemptionPolicy"] = "Never" if never else "PreemptLowerPriority"
    return {"metadata": pod["metadata"], "spec": spec, "status": {"startTime": pod.get("startTime")}}


def _with_status(budget: dict[str, Any]) -> Obj:
    return {**budget, "status": {"disruptionsAllowed": budget["disruptionsAllowed"]}}

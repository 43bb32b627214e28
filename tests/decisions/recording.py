"""Cases that a real kube-scheduler decided, as its recordings have them.

A case is a cluster and one pending pod, with what became of the pod. What each file holds says the README beside
it; another file of the same form is read by naming it in the environment.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.decisions import form
from tests.decisions.plain import Obj, World
from tests.decisions.plain.world import namespace
from tests.needed import CONFORMANCE as RECORDINGS
from tests.needed import need


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
        return _world(self.nodes, (*self.pods, *others), self.pending)


def _world(nodes: tuple[Obj, ...], pods: tuple[Obj, ...], pending: Obj) -> World:
    """With the namespaces that there are pods in, which the recordings do not list."""
    return World(nodes, pods, {namespace(pod): {} for pod in (*pods, pending)})


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
    lines = _lines(path or _named("AGENT_SCHEDULER_DECISIONS", DECISIONS), form.DECISION)
    return [
        Case(
            line["id"],
            tuple(line["nodes"]),
            tuple(_with_requests(pod) for pod in line["pods"]),
            _with_requests(line["pending"]),
            line["result"].get("node"),
            line["result"].get("message"),
            line.get("scores") or {},
            line.get("final") or {},
        )
        for line in lines
    ]


def preemptions() -> list[PreemptionCase]:
    """The recorded preemptions; skips the test where there are none."""
    lines = _lines(_named("AGENT_SCHEDULER_PREEMPTION_DECISIONS", PREEMPTIONS), form.PREEMPTION)
    return [
        PreemptionCase(
            line["id"],
            _world(
                tuple(line["nodes"]),
                tuple(_admitted(pod) for pod in line["pods"]),
                line["pending"],
            ),
            tuple(_with_status(budget) for budget in line.get("pdbs") or ()),
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


def _lines(path: Path, shape: form.Shape) -> list[dict[str, Any]]:
    """Skips only where the recordings as a whole are missing: a file that somebody names has to be there."""
    if not path.is_file():
        if path in (DECISIONS, PREEMPTIONS):
            need(False, f"there is no recording of kube-scheduler's decisions at {path}")
        raise FileNotFoundError(f"there is no recording at {path}")
    lines = []
    for number, text in enumerate(path.read_text().splitlines(), 1):
        if not text.strip():
            continue
        try:
            line = json.loads(text)
        except json.JSONDecodeError as error:
            raise form.Unknown(f"{path}:{number}: {error}") from None
        form.check(line, shape, f"{path}:{number}: case")
        if missing := {"id", "nodes", "pods", "pending", "result"} - line.keys():
            raise form.Unknown(f"{path}:{number}: case: {', '.join(sorted(missing))} missing")
        lines.append(line)
    if not lines:
        raise form.Unknown(f"{path}: no case")
    return lines


def _admitted(pod: dict[str, Any]) -> Obj:
    """The pod as the API server kept it: the priority of its class written out, its start in its status."""
    priority_class = pod["spec"].get("priorityClassName", "p0")
    never, number = priority_class == "pnever", priority_class.removeprefix("p")
    if not never and not number.isdecimal():
        raise form.Unknown(
            f"priorityClassName {priority_class!r} is unknown; known: pnever, p0, p100 and so on"
        )
    pod = _with_requests(pod)
    spec = {**pod["spec"], "priority": 1000 if never else int(number)}
    spec["preemptionPolicy"] = "Never" if never else "PreemptLowerPriority"
    return {"metadata": pod["metadata"], "spec": spec, "status": {"startTime": pod.get("startTime")}}


def _with_requests(pod: dict[str, Any]) -> dict[str, Any]:
    """The pod as the API server kept it: what is limited and not requested is requested up to the limit."""
    spec = pod["spec"]
    filled = {
        part: [_requesting(container) for container in spec[part]]
        for part in ("containers", "initContainers")
        if spec.get(part)
    }
    return {**pod, "spec": {**_requesting(spec), **filled}}


def _requesting(one: dict[str, Any]) -> dict[str, Any]:
    resources = one.get("resources") or {}
    if not resources.get("limits"):
        return one
    return {
        **one,
        "resources": {**resources, "requests": {**resources["limits"], **(resources.get("requests") or {})}},
    }


def _with_status(budget: dict[str, Any]) -> Obj:
    return {**budget, "status": {"disruptionsAllowed": budget["disruptionsAllowed"]}}

"""Runs a case through the session, and returns the decisions in the form of the recording."""

from __future__ import annotations

import json
import math
import re
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from agent_scheduler.engine.decide.decide import ClassViews
from agent_scheduler.engine.decide.snapshot import Snapshot
from agent_scheduler.engine.decide.trial import Trial
from agent_scheduler.engine.ledger import Ledger
from agent_scheduler.engine.preemption.nominated import Nominations
from agent_scheduler.engine.queueing.nominator import Nominator
from agent_scheduler.engine.quotas.vector import of_resources
from agent_scheduler.engine.session.close import SessionResult, close
from agent_scheduler.engine.session.nodes import SessionNodes
from agent_scheduler.engine.session.ports import QueueAccount, SessionPorts
from agent_scheduler.engine.session.profile import profile_of
from agent_scheduler.engine.session.registry import REGISTRY
from agent_scheduler.engine.session.session import Session, Stamp
from tests.decisions.volcano_sessions.recording import Case, Obj
from tests.decisions.volcano_sessions.world import VOLCANO, World
from tests.support.handles import handle_of
from tests.unit.engine.session.scene import Everything, NoWrites, finished

#: Recorded shares have this number of digits.
_DIGITS = 6


def replay(case: Case) -> list[Obj]:
    """Return the decisions of each session."""
    world = World(case.input)
    between = case.input.get("between") or []
    answers = []
    #: A gauge that a session does not set keeps the value of the session before.
    gauges: dict[str, dict[str, float]] = {}
    for number in range(case.sessions):
        ledger, view = world.open()
        nodes = nodes_of(case, ledger)
        cluster = Everything()
        session = Session(
            case.conf,
            view,
            nodes,
            registry=REGISTRY,
            ports=SessionPorts(cluster, cluster),
            account=QueueAccount(),
            stamp=Stamp(f"session-{number}"),
        )
        deque(session.run(), maxlen=0)
        result = finished(close(session))
        for queue, found in result.gauges.items():
            _set_gauges(gauges.setdefault(queue, {}), found)
        answers.append(_answer(world, session, result, gauges))
        bound = [(task.pod.key, task.node_name) for tasks in session.bound.values() for task in tasks]
        world.write(result, bound, [task.pod.key for task, _ in session.evicted])
        if number < len(between):
            world.apply(between[number] or ())
    return answers


def nodes_of(case: Case, ledger: Ledger) -> SessionNodes:
    snapshot = Snapshot(ledger, handle_of(ledger))
    profile = profile_of(case.conf, VOLCANO)
    trial = Trial(ledger, snapshot, {VOLCANO: ClassViews(profile, snapshot)}, NoWrites())
    nominator: Nominator = Nominator(is_pending=lambda _uid: True)
    nominations = Nominations(nominator, ledger, snapshot, lambda _name: profile)
    return SessionNodes(snapshot, trial, nominations=nominations)


def _answer(world: World, session: Session, result: SessionResult, gauges: Mapping[str, Mapping[str, float]]) -> Obj:
    groups = {key: {"inSession": False} for key in world.groups}
    for each in result.groups:
        key = f"{each.group.key.namespace}/{each.group.key.name}"
        groups[key] = _group(session, each, key)
    bound = {task.pod.key: task.node_name for tasks in session.bound.values() for task in tasks}
    pipelined = [task for job in session.jobs.values() for task in job.pipelined_tasks()]
    refused = {"type": "PodScheduled", "status": "False"}
    return {
        "podGroups": groups,
        "podConditions": {each.pod.key: refused | _why(each) for each in result.pods},
        "nodes": bound,
        "pipelinedNodes": {task.pod.key: task.node_name for task in pipelined},
        "nominatedNodes": {each.pod.key: each.nominated for each in result.pods if each.nominated},
        "evictionReasons": {task.pod.key: reason for task, reason in session.evicted},
        "boundTotal": len(bound),
        "evictedTotal": len(session.evicted),
        "queues": {
            each.queue.name: {
                "allocated": {name: amount for name, amount in each.allocated.items() if amount},
                "statusWritten": each.write,
                **({"gauges": _gauges(found)} if (found := gauges.get(each.queue.name)) else {}),
            }
            for each in result.queues
        },
        "gatesRemoved": [pod.key for pod in result.ungated],
        "events": _events(result),
    }


def _set_gauges(gauges: dict[str, float], found: Mapping[str, float]) -> None:
    """Set the gauges; with a vector's cpu those of its other resources are removed that it no longer has."""
    for name in [name for name in gauges if "Scalar" in name]:
        if f"{name.split('Scalar')[0]}MilliCPU" in found:
            del gauges[name]
    gauges.update(found)


def _gauges(found: Mapping[str, float]) -> Obj:
    """Return the gauges; those of resources other than cpu and memory are recorded only if allocated or deserved."""
    return {
        name: value
        for name, value in found.items()
        if "Scalar" not in name or (value and name.startswith(("allocated", "deserved")))
    }


def _group(session: Session, each: Any, key: str) -> Obj:
    job = session.jobs[key]
    status = each.status
    tasks = {
        "bound": session.bound.get(key, ()),
        "pipelined": job.pipelined_tasks(),
        "evicted": [task for task, _ in session.evicted if task.job is job],
    }
    names = {what: sorted(task.pod.name for task in those) for what, those in tasks.items()}
    answer: Obj = {
        "inSession": True,
        **{name: getattr(status, name) for name in ("phase", "running", "succeeded", "failed")},
        "conditions": [{"type": c.type, "status": c.status, **_why(c)} for c in status.conditions or ()],
        "statusWritten": each.write,
        **names,
        **{f"{what}Count": len(those) for what, those in names.items()},
        "taskStatus": dict(each.tasks),
    }
    if key in session.shares:
        answer["drfShare"] = session.shares[key]
    return answer


def _events(result: SessionResult) -> Obj:
    events: dict[str, list[Obj]] = {}
    for each in result.events:
        of_group = events.setdefault(f"PodGroup {each.group.namespace}/{each.group.name}", [])
        of_group.append({"type": each.type, **_why(each)})
    return events


def _why(each: Any) -> Obj:
    """Return the reason; any one of a group's failing pods is named."""
    message = re.sub(r"Origin reason is [^\s:]+: ", "Origin reason is <pod>: ", each.message)
    return {"reason": each.reason, "message": message}


# ---- comparing


def differences(case: Case, answers: Sequence[Obj]) -> list[str]:
    """Return the paths of stable fields that differ, with both values."""
    found: list[str] = []
    for number, (ours, theirs) in enumerate(zip(answers, case.expected["sessions"], strict=True)):
        prefix = f"sessions[{number}]"
        paths = case.unstable or ()
        unstable = {path.removeprefix(f"{prefix}.") for path in paths if path.startswith(prefix)}
        ours = {name: ours[name] for name in ours if name in theirs or name in _ALWAYS}
        found += [f"{prefix}.{each}" for each in _differ(ours, theirs, "", unstable)]
    return found


_ALWAYS = ("podGroups", "podConditions", "queues", "events")


def _differ(ours: Any, theirs: Any, path: str, unstable: set[str]) -> Iterator[str]:
    if path in unstable:
        return
    if isinstance(theirs, dict) and isinstance(ours, dict):
        for key in sorted({*ours, *theirs}):
            below = f"{path}.{key}" if path else key
            if key not in theirs:
                if not _is_unstable(below, unstable):
                    yield f"{below}: {ours[key]!r} is not recorded"
            elif key not in ours:
                yield f"{below}: {theirs[key]!r} is missing"
            else:
                yield from _differ(ours[key], theirs[key], below, unstable)
        return
    if isinstance(theirs, list) and isinstance(ours, list):
        if path.startswith("events.") or path.endswith(("bound", "pipelined", "evicted", "gatesRemoved")):
            ours, theirs = (sorted(each, key=partial(json.dumps, sort_keys=True)) for each in (ours, theirs))
        if len(ours) != len(theirs):
            yield f"{path}: {ours!r} != {theirs!r}"
            return
        for index, (one, other) in enumerate(zip(ours, theirs, strict=True)):
            yield from _differ(one, other, f"{path}[{index}]", unstable)
        return
    if not _equal(path, ours, theirs):
        yield f"{path}: {ours!r} != {theirs!r}"


def _is_unstable(path: str, unstable: set[str]) -> bool:
    return any(each == path or each.startswith((f"{path}.", f"{path}[")) for each in unstable)


def _equal(path: str, ours: Any, theirs: Any) -> bool:
    if ".allocated." in path and isinstance(theirs, str):
        resource = path.split(".allocated.", 1)[1]
        return bool(of_resources({resource: theirs}).get(resource) == ours)
    if theirs == "unlimited":
        return bool(ours == math.inf)
    if isinstance(ours, float) or isinstance(theirs, float):
        return isinstance(ours, int | float) and abs(ours - theirs) < 10**-_DIGITS
    return bool(ours == theirs)

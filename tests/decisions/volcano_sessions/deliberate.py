"""Intended differences of a session from Volcano's, each as a rule with its reason.

A rule returns whether a difference at a path of a case is intended.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager

import pytest

from agent_scheduler.engine.session import tiers, victims
from agent_scheduler.engine.session.conf import PluginOption
from agent_scheduler.engine.session.hooks import Hooks, Victims
from agent_scheduler.engine.session.model import TaskInfo
from agent_scheduler.engine.session.registry import REGISTRY
from agent_scheduler.engine.session.session import Session
from tests.decisions.volcano_sessions.recording import Case
from tests.decisions.volcano_sessions.replay import differences, replay

Rule = Callable[[Case, str], bool]


def _gang_kept_whole(case: Case, path: str) -> bool:
    """Return whether a gang lost only pods above its minimum, or all of its pods.

    Volcano evicts, or considers to evict, pods without which the others are below their gang's minimum. The difference
    is intended if it is absent when victims are taken one by one.
    """
    return _is_recorded(case, victims_one_by_one)


def _nobody_that_all_name(case: Case, path: str) -> bool:
    """Return whether no pod was named by all plugins of a tier that name pods.

    Volcano then takes the next plugin's pods alone, such as conformance's, which allows all but critical pods: pods of
    equal or higher priority, or members below their gang's minimum. Here the tier names no pod. The difference is
    intended if it is absent when votes are counted like Volcano's.
    """
    return _is_recorded(case, votes_forgotten) or _is_recorded(case, votes_forgotten, victims_one_by_one)


def _nominated_in_vain(case: Case, path: str) -> bool:
    """Return whether Volcano nominated a pod to a node that does not fit, for which it evicts no pod in later sessions.

    Volcano takes that node for found. Here the pod is tried again.
    """
    later = re.match(r"sessions\[[1-9]", path)
    return bool(later) and bool(re.search(r"\.(nominatedNodes|podConditions)\.", path)) and _evicts(case)


def _node_of_equals(case: Case, path: str) -> bool:
    """Return whether only the choice between equal nodes that lose pods differs. Not explained: preempt-46 alone."""
    return case.id == "preempt-46"


def _minimums_come_first(case: Case, path: str) -> bool:
    """Return whether the minimums of roles come first.

    Volcano places members by priority and number whatever their roles need, so that a role's surplus takes the room of
    another's minimum and the gang gets none, or the room of its surplus. The difference is intended if it is absent
    when members are placed in Volcano's order.
    """
    return _is_recorded(case, volcanos_order) or _is_recorded(case, volcanos_order, victims_one_by_one)


def _budgets_are_kept(case: Case, path: str) -> bool:
    """Return whether a disruption budget is kept.

    A budget counts here all evictions of a session. Volcano evaluates it again for each pod that needs room, and may
    evict as many as it allows each time. The difference is intended if it is absent when budgets are evaluated so.
    """
    return _is_recorded(case, budgets_asked_anew) or _is_recorded(case, budgets_asked_anew, victims_one_by_one)


def _is_recorded(case: Case, *ways: Callable[[], AbstractContextManager[None]]) -> bool:
    """Return whether all of a case is as recorded when these are done in Volcano's way."""
    key = (case.id, *(way.__name__ for way in ways))
    if key not in _KNOWN:
        with ExitStack() as stack:
            for way in ways:
                stack.enter_context(way())
            _KNOWN[key] = not differences(case, replay(case))
    return _KNOWN[key]


_KNOWN: dict[tuple[str, ...], bool] = {}


def _evicts(case: Case) -> bool:
    return bool({"preempt", "reclaim"} & set(case.conf.actions))


@contextmanager
def volcanos_order() -> Iterator[None]:
    """Place members by priority and number alone."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(tiers.Tiers, "in_pending_order", lambda self, _job, tasks: self.in_task_order(tasks))
        yield


@contextmanager
def victims_one_by_one() -> Iterator[None]:
    """Take victims like Volcano."""

    def singly(
        session: Session, task: TaskInfo, found: Sequence[TaskInfo], *, which: victims.Which, vote: victims.Vote
    ) -> Iterator[Sequence[TaskInfo]]:
        return ((each,) for each in victims.in_victim_order(session, task, found))

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(victims, "_bundles", singly)
        yield


@contextmanager
def budgets_asked_anew() -> Iterator[None]:
    """Ignore a session's evictions when further victims are chosen."""
    plugins = REGISTRY.plugins

    def forgetful(session: Session, option: PluginOption) -> Hooks:
        hooks = plugins["pdb"](session, option)
        return Hooks(preemptable=hooks["preemptable"], reclaimable=hooks["reclaimable"])

    with pytest.MonkeyPatch.context() as patched:
        registry = REGISTRY._replace(plugins={**plugins, "pdb": forgetful})
        patched.setattr("tests.decisions.volcano_sessions.replay.REGISTRY", registry)
        yield


@contextmanager
def votes_forgotten() -> Iterator[None]:
    """Count votes like Volcano."""

    def forgetful(
        votes: Sequence[Sequence[Victims]], preemptor: TaskInfo, tasks: Sequence[TaskInfo]
    ) -> Sequence[TaskInfo]:
        for tier in votes:
            found: Sequence[TaskInfo] | None = None
            for vote in tier:
                named = vote(preemptor, tasks)
                if named is None:
                    continue
                if not named:
                    found = None
                    break
                found = named if found is None else [task for task in found if task in named] or None
            if found is not None:
                return found
        return ()

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(tiers, "_victims", forgetful)
        yield


#: Rules by scenario, so that no rule hides other differences.
RULES: Mapping[str, tuple[Rule, ...]] = {
    "gang-roles": (_minimums_come_first,),
    "preempt": (*(_nominated_in_vain, _node_of_equals, _gang_kept_whole, _nobody_that_all_name), _budgets_are_kept),
    "reclaim": (_nominated_in_vain, _gang_kept_whole, _nobody_that_all_name, _budgets_are_kept),
}


def is_meant(case: Case, difference: str) -> bool:
    """Return whether a difference is intended; it begins with its path."""
    return any(rule(case, difference.split(":", 1)[0]) for rule in RULES.get(case.scenario, ()))

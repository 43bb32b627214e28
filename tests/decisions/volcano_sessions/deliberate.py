"""Where a session differs from Volcano's on purpose, each by a rule with its reason.

A rule says of a path of a case whether a difference there is meant. What it is meant for stands with it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager

import pytest

from agent_scheduler.engine.session import registry, tiers, victims
from agent_scheduler.engine.session import session as sessions
from agent_scheduler.engine.session.conf import PluginOption
from agent_scheduler.engine.session.hooks import Hooks, Victims
from agent_scheduler.engine.session.model import TaskInfo
from agent_scheduler.engine.session.session import Session
from tests.decisions.volcano_sessions.recording import Case
from tests.decisions.volcano_sessions.replay import differences, replay

Rule = Callable[[Case, str], bool]


def _gang_kept_whole(case: Case, path: str) -> bool:
    """A gang loses what it has above its minimum, or all of its pods, where Volcano evicts, or thinks of evicting, pods
    without which the others are no gang. Meant is a difference that is not there when victims go one by one."""
    return _is_recorded(case, victims_one_by_one)


def _nobody_that_all_name(case: Case, path: str) -> bool:
    """Where the plugins of a tier name pods, but no pod is named by all, Volcano takes the next plugin's word alone, as
    conformance's, which lets all but critical pods go: pods of equal or higher priority, or members without which a
    gang is none. Here the tier names nobody. Meant is a difference that is not there when votes are counted so."""
    return _is_recorded(case, votes_forgotten) or _is_recorded(case, votes_forgotten, victims_one_by_one)


def _nominated_in_vain(case: Case, path: str) -> bool:
    """Volcano nominates a pod to the node that it tried in vain, and in later sessions has nobody evicted for it as it
    takes that node for found. Here it is tried again."""
    later = re.match(r"sessions\[[1-9]", path)
    return bool(later) and bool(re.search(r"\.(nominatedNodes|podConditions)\.", path)) and _evicts(case)


def _node_of_equals(case: Case, path: str) -> bool:
    """Which of several equal nodes loses pods. Not explained: preempt-46 alone."""
    return case.id == "preempt-46"


def _minimums_come_first(case: Case, path: str) -> bool:
    """Volcano places members by priority and number whatever their roles need, so that a role's surplus takes the room
    of another's minimum and the gang gets none, or that of its surplus. Meant is a difference that is not there when
    members go in Volcano's order."""
    return _is_recorded(case, volcanos_order) or _is_recorded(case, volcanos_order, victims_one_by_one)


def _budgets_are_kept(case: Case, path: str) -> bool:
    """A disruption budget counts all that a session evicts; Volcano asks it anew for each pod that wants room, and may
    evict as many as it allows each time. Meant is a difference that is not there when it does so."""
    return _is_recorded(case, budgets_asked_anew) or _is_recorded(
        case, budgets_asked_anew, victims_one_by_one
    )


def _is_recorded(case: Case, *ways: Callable[[], AbstractContextManager[None]]) -> bool:
    """Whether all of a case is as recorded when these are done in Volcano's way."""
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
    """Members go by priority and number alone."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(tiers.Tiers, "in_pending_order", lambda self, _job, tasks: self.in_task_order(tasks))
        yield


@contextmanager
def victims_one_by_one() -> Iterator[None]:
    """As Volcano takes them."""

    def singly(
        session: Session,
        task: TaskInfo,
        found: Sequence[TaskInfo],
        *,
        which: victims.Which,
        vote: victims.Vote,
    ) -> Iterator[Sequence[TaskInfo]]:
        return ((each,) for each in victims.in_victim_order(session, task, found))

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(victims, "_bundles", singly)
        yield


@contextmanager
def budgets_asked_anew() -> Iterator[None]:
    """What a session evicts does not count for whom it may evict besides."""
    opens = registry.PLUGINS["pdb"]

    def forgetful(session: Session, option: PluginOption) -> Hooks:
        hooks = opens(session, option)
        return Hooks(preemptable=hooks.preemptable, reclaimable=hooks.reclaimable)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(sessions, "PLUGINS", {**registry.PLUGINS, "pdb": forgetful})
        yield


@contextmanager
def votes_forgotten() -> Iterator[None]:
    """As Volcano counts them."""

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


#: By scenario, so that no rule hides what it is not about.
RULES: Mapping[str, tuple[Rule, ...]] = {
    "gang-roles": (_minimums_come_first,),
    "preempt": (
        *(_nominated_in_vain, _node_of_equals, _gang_kept_whole, _nobody_that_all_name),
        _budgets_are_kept,
    ),
    "reclaim": (_nominated_in_vain, _gang_kept_whole, _nobody_that_all_name, _budgets_are_kept),
}


def is_meant(case: Case, difference: str) -> bool:
    """`difference` begins with its path."""
    return any(rule(case, difference.split(":", 1)[0]) for rule in RULES.get(case.scenario, ()))

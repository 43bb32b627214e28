"""The judges of worlds with gangs see a batch scheduler that breaks what it promises of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from agent_scheduler.batch.committing import Evictions
from agent_scheduler.batch.waiting import WaitingPods
from agent_scheduler.engine.decide.trial import Trial
from agent_scheduler.engine.gangs.group import INQUEUE, PENDING
from agent_scheduler.engine.quotas.book import Headroom, QuotaBook
from agent_scheduler.engine.quotas.capacity import CapacityAccounts
from agent_scheduler.engine.quotas.proportion import ProportionAccounts
from agent_scheduler.engine.session import close, victims
from agent_scheduler.engine.session.plugins import gang, priority
from agent_scheduler.engine.session.session import Session

from .judging import found
from .world import Options, run


def test_all_is_well_in_what_they_see_otherwise() -> None:
    for seed in (0, 3, 7, 11, 14):
        assert not run(Options(seed=seed, scenario="batch", faults=())).violations


def test_a_gang_that_is_bound_bit_by_bit_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    bind = Session.bind

    def with_no_minimum(session: Session, tasks: Any) -> None:
        job = tasks[0].job
        least, job.minimum = job.minimum, 0
        try:
            bind(session, tasks)
        finally:
            job.minimum = least

    monkeypatch.setattr(gang, "_ready", lambda _job: True)
    monkeypatch.setattr(gang, "_is_ready", lambda _job: True)
    monkeypatch.setattr(Session, "bind", with_no_minimum)
    assert "members" in found("batch", "S27:")


@pytest.mark.parametrize(("scenario", "first"), [("batch", 1), ("mixed-batch", 26)])
def test_a_queue_above_its_capability_is_seen(
    monkeypatch: pytest.MonkeyPatch, scenario: str, first: int
) -> None:
    everything: Callable[..., None] = lambda *_args, **_more: None  # noqa: E731
    monkeypatch.setattr(QuotaBook, "shortfall", everything)
    monkeypatch.setattr(Headroom, "shortfall", everything)
    monkeypatch.setattr(CapacityAccounts, "cannot_allocate", everything)
    monkeypatch.setattr(ProportionAccounts, "cannot_allocate", everything)
    assert "has" in found(scenario, "S28:", first=first)


def test_a_trial_that_is_not_taken_back_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    rollback = Trial.rollback

    def but_the_first(trial: Trial, mark: Any) -> None:
        rollback(trial, max(mark, 1) if len(trial._journal) else mark)

    monkeypatch.setattr(Trial, "rollback", but_the_first)
    assert found("batch", "S29:")


def test_an_eviction_for_equals_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_lesser(preemptor: Any, tasks: Any) -> Any:
        return [task for task in tasks if task.job.priority >= preemptor.job.priority]

    monkeypatch.setattr(priority, "_preemptable", no_lesser)
    assert "of higher priority" in found("batch", "S30:", first=32)


def test_a_gang_that_loses_some_of_its_minimum_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(victims._Spare, "take", lambda _spare, _task: True)
    monkeypatch.setattr(gang, "_protected", lambda _preemptor, tasks: tasks)
    assert "leaves" in found("batch", "S30:")


def test_a_group_that_is_sent_back_from_its_queue_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    phase = close._phase

    def back(session: Any, job: Any) -> str:
        found = phase(session, job)
        return PENDING if found == job.group.status.phase == INQUEUE else found

    monkeypatch.setattr(close, "_phase", back)
    assert found("batch", "S31:")


def test_a_session_that_is_not_due_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(WaitingPods, "group_changed", lambda *_: None)
    monkeypatch.setattr(WaitingPods, "move_all", lambda *_args: 0)
    assert found("batch", "L16:")


def test_victims_that_are_never_forgotten_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    one = Evictions._one

    async def keeps(evictions: Evictions, *about: Any) -> None:
        leaving = set(evictions._leaving)
        await one(evictions, *about)
        evictions._leaving |= leaving

    monkeypatch.setattr(Evictions, "_one", keeps)
    assert found("batch", "L16:", faults=("denied", "failed"), first=15)

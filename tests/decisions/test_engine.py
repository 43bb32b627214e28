"""The plain rules and the engine, with kube-scheduler's profile, decide recorded cases like kube-scheduler."""

from __future__ import annotations

import pytest

from tests.decisions.comparing import Outcome, between, nonzero, of_engine, of_order, of_plain
from tests.decisions.deliberate import why_different
from tests.decisions.engine import Engine
from tests.decisions.plain import image_locality
from tests.decisions.recording import Case, PreemptionCase
from tests.decisions.scene import explains, in_order_of_arrival, scenes
from tests.decisions.storing import Given, catalogue, given

#: `make test` decides one of this number of cases, `make verify` all.
steps = pytest.mark.parametrize("step", [3, pytest.param(1, marks=pytest.mark.wide)])


def recorded(case: Case) -> Outcome:
    """Return the result: the scored nodes are the feasible ones; without scores there was one or none."""
    feasible = frozenset(case.scores or filter(None, [case.node]))
    return Outcome(feasible, case.message, nonzero(case.scores), case.final)


@steps
def test_the_plain_reading_decides_every_case_as_recorded(cases: list[Case], step: int) -> None:
    """The plain rules have none for storage."""
    chosen = [case for case in cases if not case.storage][::step]
    differ = {
        (case.recording, case.id): found
        for case, world in scenes(chosen)
        if (found := between(recorded(case), of_plain(case.pending, world), but_for="victims"))
    }
    assert differ == {}
    assert chosen


@steps
def test_the_engine_decides_every_case_as_recorded(cases: list[Case], step: int) -> None:
    differ, deliberate = {}, 0
    for case, world in scenes(cases[::step]):
        engine = Engine(world, catalogue=catalogue(case.storage))
        outcome, decision = of_engine(engine, case.pending, beginnings=1)
        if why_different(case):
            deliberate += 1
            assert case.node in {*outcome.feasible, None}, case
            continue
        if found := between(recorded(case), outcome, but_for="victims") + of_order(decision, case.final):
            differ[case.recording, case.id] = found
        if case.storage and case.node:
            wanted = Given(case.storage.bound, case.storage.provisioning)
            assert given(engine, case.storage, case.pending, case.node) == wanted, case
    assert differ == {}
    assert deliberate <= 5


def test_the_order_of_arrival_cannot_explain_scores_of_another_rule(
    cases: list[Case], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A share of the nodes that is slightly wrong cannot be corrected by the order in more than a few cases."""
    images = [case for case in cases[:300] if any(each["ImageLocality"] for each in case.scores.values())]
    monkeypatch.setattr(image_locality, "MOST_A_CONTAINER", 900 * 2**20)
    assert sum(explains(in_order_of_arrival(case)) for case in images) < len(images) / 2


@steps
@pytest.mark.parametrize("plainly", [True, False], ids=["plainly", "by_the_engine"])
def test_who_has_to_go_is_as_recorded(preemptions: list[PreemptionCase], plainly: bool, step: int) -> None:
    """kube-scheduler begins at a random node, which decides between equal victims."""
    for case in preemptions[::step]:
        about = case.pending, case.world if plainly else Engine(case.world), case.budgets
        found = of_plain(*about) if plainly else of_engine(about[1], about[0], about[2])[0]
        assert (case.id, found.message) == (case.id, case.message)
        assert case.node in (found.feasible or {None}), case.id
        assert case.nominated in (found.victims or {None}), case.id
        assert set(found.victims.get(case.nominated or "", ())) == case.victims, case.id

"""Gangs of Kubernetes' own PodGroups, case by case as kube-scheduler 1.36.2 scheduled them (`kube_gangs`).

What of a case chance decided is compared by the rules that came with the recordings. Where several gangs want the same
nodes, or a gang's evictions are under way while it is tried again, chance also decides which gang comes first and how
often one was tried: such a case may go otherwise, if all gangs are whole or not there and none waits that would fit.
"""

from __future__ import annotations

import pytest

from tests.needed import LACKING
from tests.sim.loop import SimLoop

from .kube_gangs.cases import PAUSES, Lived, cases, live_through
from .kube_gangs.comparing import Obj

#: Kind of case, and the feature (or none) with which it depends on who comes first, or how often one is tried.
_BY_CHANCE = {("priority", "queue-order"), ("priority", "not-enough"), ("competing", "")}


def _cases() -> list[Obj]:
    try:
        return list(cases())
    except LACKING:
        return []


def lived(case: Obj, pause: float | None) -> Lived:
    loop = SimLoop(0)
    try:
        found: Lived = loop.run_until_complete(live_through(case, pause))
    finally:
        loop.close()
    assert loop.complaints == []
    return found


@pytest.mark.parametrize("case", _cases(), ids=lambda case: f"{case['id']} {case['kind']}")
def test_gangs_are_scheduled_as_recorded(case: Obj) -> None:
    tries = []
    for pause in PAUSES:
        tries.append(lived(case, pause))
        assert tries[-1].broken == []
        if not tries[-1].differences:
            return
    by_chance = {(case["kind"], feature) for feature in (*case["features"], "")}
    assert by_chance & _BY_CHANCE, tries[0].differences


def test_there_are_cases_to_compare() -> None:
    assert len(list(cases())) > 100

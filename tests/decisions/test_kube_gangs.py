"""Gangs of Kubernetes' own PodGroups, case by case as kube-scheduler 1.36.2 scheduled them (`kube_gangs`).

Random parts of a case are compared by the rules that came with the recordings, and a few cases only by those
(`cases.is_by_chance`).
"""

from __future__ import annotations

from collections import Counter

import pytest

from tests.support.examples import in_time

from .kube_gangs.cases import cases, is_by_chance, judged
from .kube_gangs.comparing import Obj


@pytest.fixture(scope="module")
def recorded() -> list[Obj]:
    return cases()


@in_time
@pytest.mark.promise("S27")
@pytest.mark.parametrize("step", [5, pytest.param(1, marks=pytest.mark.wide)])
def test_gangs_are_scheduled_as_recorded(recorded: list[Obj], step: int) -> None:
    """One of five cases is run in `make test`, all in `make verify`."""
    differ, equal = {}, Counter[str]()
    for case in recorded[::step]:
        found = judged(case)
        if found.broken or (found.differences and not is_by_chance(case)):
            differ[case["id"], case["kind"]] = found
        equal[case["kind"]] += not found.differences
    print(f"equal: {dict(equal)}")
    assert differ == {}
    assert sum(map(is_by_chance, recorded)) < len(recorded) / 4

"""Gangs of Kubernetes' own PodGroups, case by case as kube-scheduler 1.36.2 scheduled them (`kube_gangs`).

What of a case chance decided is compared by the rules that came with the recordings, and a few cases by nothing else
(`cases.is_by_chance`). `python -m tests.decisions.kube_gangs` says how many of each kind are equal.
"""

from __future__ import annotations

import pytest

from tests.support.needed import LACKING

from .kube_gangs.cases import cases, is_by_chance, judged
from .kube_gangs.comparing import Obj


def _cases() -> list[Obj]:
    try:
        return list(cases())
    except LACKING:
        return []


@pytest.mark.parametrize("case", _cases(), ids=lambda case: f"{case['id']} {case['kind']}")
def test_gangs_are_scheduled_as_recorded(case: Obj) -> None:
    found = judged(case)
    assert found.broken == []
    assert not found.differences or is_by_chance(case), found.differences


def test_there_are_cases_to_compare() -> None:
    assert len(list(cases())) > 100

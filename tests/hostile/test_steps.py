"""No hostile object makes a step of any process long, ends a process, or delays others."""

from __future__ import annotations

import random

import pytest

from kube_client.testing.virtual import virtual_time

from .kinds import HOSTILE_KINDS
from .objects import of_kind
from .playing import beside, counting_calls, hearing, together
from .reviews import REVIEWERS, reviews

pytestmark = pytest.mark.timeout(600)
#: The maximum number of calls of a step beside an object that is as large as an API server accepts.
MOST_CALLS = 100_000
#: The kinds that `make test` plays; one takes as long as many other tests.
_FEW = {"pods"}
_KINDS = [pytest.param(name, marks=[] if name in _FEW else [pytest.mark.wide]) for name in HOSTILE_KINDS]


@pytest.mark.parametrize("resource", _KINDS)
def test_others_are_served_beside_each_object_and_no_step_is_long(resource: str) -> None:
    steps: dict[str, tuple[int, str]] = {}

    @virtual_time
    async def run() -> None:
        async with beside() as found:
            for objects in together(of_kind(resource, random.Random(1), nodes=("n0", "n1"))):
                with counting_calls() as longest:
                    await found.goes_on(objects)
                    steps[objects[0].case] = longest()

    with hearing() as heard:
        run()
    assert heard == []
    assert {case: step for case, step in steps.items() if step[0] > MOST_CALLS} == {}


@pytest.mark.parametrize("resource", REVIEWERS)
def test_each_object_is_reviewed_in_few_calls(resource: str) -> None:
    for each in of_kind(resource, random.Random(1)):
        with counting_calls() as longest:
            for number, reviewed in enumerate(reviews(each)):
                answer = reviewed()
                assert len(answer) < 10_000 + 2 * len(each.data), (each, number)
                assert longest()[0] < MOST_CALLS, (each, number)

"""The rows that are chosen are those of a scan, whatever each class is given more and whatever changed before."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_scheduler.engine.decide import facet_classes as module
from agent_scheduler.engine.decide.facet_classes import FacetClasses, distinct
from agent_scheduler.engine.decide.ranking import REFUSED, Ranking, best_of
from tests.support.examples import examples

SIZE = 24
SCORE = st.sampled_from([REFUSED, REFUSED, -1, 0, 1, 2, 100])
FACET = st.integers(0, 3)


@examples(100)
@given(data=st.data(), head=st.integers(1, 5), heads=st.integers(1, 3))
def test_the_best_of_all_classes_are_the_best_of_all_rows(data: st.DataObject, head: int, heads: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_HEAD_AT_LEAST", head)
        patch.setattr(module, "_HEADS_TOGETHER", 0)
        patch.setattr(module, "HEADS_KEPT", heads)
        ranking = Ranking(SIZE + 4, SIZE)
        column = st.lists(FACET, min_size=SIZE, max_size=SIZE)
        ranking.fill(np.array(data.draw(st.lists(SCORE, min_size=SIZE, max_size=SIZE)), dtype=np.int64))
        facets = tuple(np.array(data.draw(column), dtype=np.int64) for _ in range(data.draw(st.integers(0, 2))))
        classes = ranking.follower = FacetClasses(facets, ranking.scores[:SIZE])
        for _ in range(data.draw(st.integers(1, 25))):
            what = data.draw(st.sampled_from(["set", "some", "sort", "ask", "ask"]))
            rows = data.draw(st.lists(st.integers(0, SIZE - 1), min_size=1, max_size=4, unique=True))
            if what == "set":
                ranking.set(rows[0], data.draw(SCORE))
            elif what == "some":
                scores = [data.draw(SCORE) for _ in rows]
                ranking.set_rows(np.array(rows, dtype=np.intp), np.array(scores, dtype=np.int64))
                assert ranking.follower is classes
            elif what == "sort":
                for facet in facets:
                    facet[rows] = [data.draw(FACET) for _ in rows]
                assert classes.sort_in(rows)
            else:
                _ask(data, classes, facets, ranking.scores[:SIZE])


def _ask(data: st.DataObject, classes: FacetClasses, facets: tuple[np.ndarray, ...], scores: np.ndarray) -> None:
    keys = [tuple(facet.item(row) for facet in facets) for row in range(SIZE)]
    admitted = [row for row in range(SIZE) if scores[row] != REFUSED]
    offset, count = data.draw(st.integers(-1, SIZE)), data.draw(st.integers(1, 5))
    examples = classes.examples()
    assert sorted(keys[row] for row in examples.tolist()) == sorted({keys[row] for row in admitted})
    sizes = [sum(keys[row] == keys[other] for other in admitted) for row in examples.tolist()]
    assert classes.sizes(examples).tolist() == sizes
    more = {key: data.draw(st.sampled_from([None, -2, 0, 1, 100])) for key in sorted(set(keys))}
    passing = np.array([row for row in examples.tolist() if more[keys[row]] is not None], dtype=np.intp)
    extra = np.array([more[keys[row]] for row in passing.tolist()], dtype=np.int64)
    totals = np.full(SIZE, REFUSED, dtype=np.int64)
    for row in admitted:
        given_more = more[keys[row]]
        if given_more is not None:
            totals[row] = scores[row] + given_more
    assert classes.best(count, offset, passing, extra) == best_of(totals, count, offset)


def test_a_facet_counts_once() -> None:
    one, same = np.zeros(3, dtype=np.int64), np.zeros(3, dtype=np.int64)
    found = distinct((one, same, one))
    assert len(found) == 2 and found[0] is one and found[1] is same


def test_many_classes_are_not_worth_while(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MOST", 3)
    facet = np.array([5, 5, 6, 7, 7], dtype=np.int64)
    classes = FacetClasses((facet,), np.zeros(5, dtype=np.int64))
    assert not classes.are_many
    facet[1] = 6
    assert classes.sort_in([1])
    facet[1] = 8
    assert not classes.sort_in([1])
    assert FacetClasses((facet,), np.zeros(5, dtype=np.int64)).are_many


def test_many_rows_are_put_into_classes_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_ONE_BY_ONE", 2)
    classes = FacetClasses((np.zeros(5, dtype=np.int64),), np.zeros(5, dtype=np.int64))
    assert classes.sort_in([1, 2])
    assert not classes.sort_in([1, 2, 3])


def test_new_scores_of_all_rows_end_the_classes() -> None:
    ranking = Ranking(4, 4)
    ranking.fill(np.zeros(4, dtype=np.int64))
    ranking.follower = FacetClasses((np.zeros(4, dtype=np.int64),), ranking.scores)
    ranking.fill(np.ones(4, dtype=np.int64))
    assert ranking.follower is None

"""The head of the order is what a look at all rows gives, whatever was asked and changed before."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_scheduler.engine.decide import ranking as ranking_module
from agent_scheduler.engine.decide.ranking import REFUSED, Ranking, best_of
from tests.support.examples import examples

#: Few, so that there are many ties.
SCORE = st.sampled_from([REFUSED, REFUSED, -(2**40), -1, 0, 1, 2, 100, 2**40])


def plain(scores: list[int], count: int, offset: int) -> list[tuple[int, int]]:
    """The order as it is written down: by falling score, then by distance from the offset, upwards and wrapping."""
    size = len(scores)
    offset = offset if 0 <= offset < size else 0
    rows = [row for row in range(size) if scores[row] != REFUSED]
    ordered = sorted(rows, key=lambda row: (-scores[row], (row - offset) % size))
    return [(row, scores[row]) for row in ordered[:count]]


@examples(300)
@given(scores=st.lists(SCORE, max_size=30), count=st.integers(0, 6), offset=st.integers(-1, 31))
def test_a_look_at_all_rows_follows_the_order_and_leaves_the_scores(scores: list[int], count: int, offset: int) -> None:
    array = np.array(scores, dtype=np.int64)
    assert best_of(array, count, offset) == plain(scores, count, offset)
    assert array.tolist() == scores


@examples(150)
@given(data=st.data(), size=st.integers(1, 40), head=st.integers(1, 6), heads=st.integers(1, 3))
def test_a_head_is_kept_in_step_with_every_change(data: st.DataObject, size: int, head: int, heads: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ranking_module, "_HEAD", head)
        patch.setattr(ranking_module, "HEADS_KEPT", heads)
        patch.setattr(ranking_module, "_ONE_BY_ONE", 4)
        ranking = Ranking(45)
        ranking.resize(size)
        scores = [REFUSED] * size
        for _ in range(data.draw(st.integers(1, 25))):
            what = data.draw(st.sampled_from(["set", "set", "some", "all", "ask", "ask", "ask", "grow"]))
            if what == "set":
                row, score = data.draw(st.integers(0, size - 1)), data.draw(SCORE)
                ranking.set(row, score)
                scores[row] = score
            elif what in ("some", "all"):
                most = size if what == "all" else min(6, size)
                rows = data.draw(st.permutations(range(size)))[:most]
                values = data.draw(st.lists(SCORE, min_size=most, max_size=most))
                ranking.set_rows(np.array(rows, dtype=np.intp), np.array(values, dtype=np.int64))
                for row, score in zip(rows, values, strict=True):
                    scores[row] = score
            elif what == "grow":
                more = data.draw(st.integers(0, min(2, 45 - size)))
                size += more
                scores += [REFUSED] * more
                ranking.resize(size)
            else:
                count, offset = data.draw(st.integers(1, 5)), data.draw(st.integers(-1, size))
                assert list(ranking.best(count, offset)) == plain(scores, count, offset)
            assert ranking.scores[:size].tolist() == scores
            admitted = [row for row in range(size) if scores[row] != REFUSED]
            assert ranking.admitted().tolist() == admitted


def test_all_rows_are_looked_at_only_when_a_head_has_run_out(monkeypatch: pytest.MonkeyPatch) -> None:
    ranking = Ranking(1000)
    ranking.resize(1000)
    ranking.set_rows(np.arange(1000, dtype=np.intp), np.full(1000, 100, dtype=np.int64))
    looks = 0

    def look(condition: object) -> object:
        nonlocal looks
        looks += 1
        return flatnonzero(condition)

    flatnonzero = np.flatnonzero
    monkeypatch.setattr(np, "flatnonzero", look)
    for score in (99, 98):
        for row in range(500):
            assert ranking.best(3, 0)[0] == (row, 100)
            ranking.set(row, 0)
        for row in range(500):
            ranking.set(row, score)
            assert ranking.best(3, 0)[0] == (500, 100)
        ranking.set_rows(np.arange(500, dtype=np.intp), np.full(500, 100, dtype=np.int64))
    assert looks < 2000 / 30

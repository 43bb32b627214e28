"""What pods come, learnt from those that are seen."""

from __future__ import annotations

from collections import Counter
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_scheduler.engine.state import targetworkload
from agent_scheduler.engine.state.columns import NODE_NAME
from agent_scheduler.engine.state.podclass import PodClass
from agent_scheduler.engine.state.targetworkload import KINDS_USED, LOOK_EVERY, WINDOW, TargetWorkload, kind_of
from agent_scheduler.objects import wire
from tests.support.engine import World
from tests.support.examples import examples
from tests.support.terms import expression, requiring

_world = World()


def cls(cpu: int, **spec: Any) -> PodClass:
    return _world.pod(requests={"cpu": f"{cpu}m"}, **spec).cls


IN_A = expression("zone", "a")
NAMED = expression("metadata.name", "n1")


def shares(workload: TargetWorkload) -> dict[int, float]:
    """CPU that is asked for -> share."""
    return {dict(kind.requests)["cpu"]: share for kind, share in workload.kinds}


def test_kinds_are_what_is_asked_for_of_which_nodes_and_not_the_class() -> None:
    workload = TargetWorkload()
    tolerates = [{"operator": "Exists"}]
    for spec in (
        {},
        {"tolerations": tolerates},
        {"nodeSelector": {"zone": "a"}},
        {"affinity": {"nodeAffinity": requiring({"matchExpressions": [IN_A]})}},
    ):
        workload.seen(cls(100, **spec))
    kinds = [kind for kind, _ in workload.kinds]
    assert [share for _, share in workload.kinds] == [0.5, 0.25, 0.25]
    assert [kind.is_choosy for kind in kinds] == [False, True, True]
    assert all(kind.requests == (("cpu", 100),) for kind in kinds)
    assert len({kind.wish for kind in kinds}) == 3


def test_a_kind_reads_the_labels_that_it_asks_about() -> None:
    selector = msgspec.convert(
        {"nodeSelectorTerms": [{"matchExpressions": [IN_A]}, {"matchFields": [NAMED]}]}, wire.NodeSelector
    )
    kind = kind_of({"cpu": 1}, {"disk": "ssd"}, selector)
    assert kind.reads == {"disk", "zone", NODE_NAME}
    assert kind_of({"cpu": 1}, {}).reads == frozenset()
    other = msgspec.convert({"nodeSelectorTerms": [{"matchFields": [NAMED]}]}, wire.NodeSelector)
    assert kind_of({"cpu": 1}, {}, other).reads == {NODE_NAME}
    assert kind_of({"cpu": 1}, {}, other) != kind_of({"cpu": 1}, {}, selector)


def test_kinds_that_ask_for_the_same_are_one_however_it_is_written() -> None:
    assert kind_of({"cpu": 1, "memory": 2, "pods": 1}, {"a": "b", "c": "d"}) == kind_of(
        {"memory": 2, "cpu": 1}, {"c": "d", "a": "b"}
    )


@examples(100)
@given(st.lists(st.sampled_from([100, 200, 300, 400]), min_size=1, max_size=600))
def test_what_is_used_is_never_far_from_what_came(amounts: list[int]) -> None:
    """A tenth, and what came since the last look."""
    workload = TargetWorkload()
    drawn: tuple[Any, int] = ((), 0)
    looks = {1}
    for number, amount in enumerate(amounts, start=1):
        before = workload.kinds, workload.version
        workload.derived["x"] = number
        workload.seen(cls(amount))
        after = workload.kinds, workload.version
        if after != before:
            assert after[1] == before[1] + 1 and not workload.derived
            drawn = after[0], number
        else:
            assert workload.derived == {"x": number}
        if number in looks:
            looks = {min(2 * number, number + LOOK_EVERY)}
            counts = Counter(amounts[:number])
            true = {key: count / number for key, count in counts.items()}
            used = shares(workload)
            moved = sum(abs(true.get(key, 0) - used.get(key, 0)) for key in true.keys() | used) / 2
            assert moved < 0.1
            if drawn[1] == number:
                assert used == pytest.approx(true)
        else:
            assert after == before


def test_the_most_frequent_come_first_and_equals_in_an_order_of_their_own() -> None:
    one, other = TargetWorkload(), TargetWorkload()
    for workload, amounts in ((one, [300, 100, 200, 200]), (other, [200, 100, 200, 300])):
        for amount in amounts:
            workload.seen(cls(amount))
    assert one.kinds == other.kinds
    assert list(shares(one)) == [200, 100, 300]


def test_what_came_long_ago_is_forgotten() -> None:
    workload = TargetWorkload()
    old, new = cls(100), cls(200)
    for _ in range(WINDOW):
        workload.seen(old)
    for _ in range(WINDOW):
        workload.seen(new)
    # Halved once, at twice the window, and then by what came since.
    assert shares(workload) == pytest.approx({100: 0.5, 200: 0.5}, abs=0.1)
    for _ in range(3 * WINDOW):
        workload.seen(new)
    assert shares(workload)[200] > 0.8
    assert workload._total < 2 * WINDOW + LOOK_EVERY


def test_a_kind_that_is_rare_in_the_end_goes_when_counts_are_halved(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(targetworkload, "WINDOW", 8)
    workload = TargetWorkload()
    workload.seen(cls(100))
    for _ in range(15):
        workload.seen(cls(200))
    assert shares(workload) == {200: 1.0} and workload._total == 7


def test_no_more_kinds_are_counted_or_used_than_there_may_be() -> None:
    workload = TargetWorkload()
    for number in range(1, 8 * KINDS_USED):
        for _ in range(3 if number <= 10 else 1):
            workload.seen(cls(number))
        assert len(workload._counts) <= 4 * KINDS_USED + LOOK_EVERY
        assert len(workload.kinds) <= KINDS_USED
    assert set(range(1, 11)) <= shares(workload).keys(), "the most frequent are kept"


def test_a_workload_of_many_kinds_that_stays_the_same_is_not_drawn_again_and_again() -> None:
    """More kinds than are used, so those that are used are only a part of all pods."""
    workload = TargetWorkload()
    classes = [cls(number) for number in range(1, 3 * KINDS_USED)]
    for _ in range(8):
        for each in classes:
            workload.seen(each)
    version = workload.version
    for _ in range(4):
        for each in classes:
            workload.seen(each)
    assert workload.version <= version + 1

"""What the supervisor says when it hears something: nodes, pods and loans, and whoever has ended."""

from __future__ import annotations

from agent_scheduler.engine.shards.homes import SLOTS
from agent_scheduler.engine.shards.membership import NOT_KNOWN
from agent_scheduler.fastpath.neighbours import Ending
from agent_scheduler.processes.exchange import FENCE, Exchange
from agent_scheduler.processes.wire import (
    Claims,
    Given,
    Hold,
    Leave,
    Left,
    Lend,
    Lent,
    Order,
    Returned,
    Share,
    Split,
)


class Said:
    """An exchange with children that only listen."""

    def __init__(self, children: int, *, shared: bool = False) -> None:
        self.now = 100.0
        self.orders: list[tuple[int, Order]] = []
        self.exchange = Exchange(
            children,
            say=lambda child, order: self.orders.append((child, order)),
            clock=lambda: self.now,
            shared=shared,
        )

    def take(self) -> list[tuple[int, Order]]:
        """What was said since the last time, splits left out."""
        orders, self.orders = self.orders, []
        return [each for each in orders if not isinstance(each[1], Split)]

    def homes(self) -> set[int]:
        """Among whom the pods were divided last."""
        return set([order.slots for _, order in self.orders if isinstance(order, Split)][-1])


def two() -> Said:
    """Two children, of which 0 has a and c, and 1 has b and d."""
    said = Said(2)
    said.exchange.divide("abcd")
    said.exchange.come(0)
    said.exchange.come(1)
    said.take()
    return said


def test_nothing_is_divided_before_all_are_there_or_have_ended() -> None:
    said = Said(3)
    said.exchange.come(0)
    said.exchange.divide("abcd")
    said.exchange.gone(2)
    assert said.orders == []
    said.exchange.come(1)
    assert said.homes() == {0, 1}
    assert said.take() == [(0, Hold(("a", "c"), False, "")), (1, Hold(("b", "d"), False, ""))]


def test_nothing_is_divided_before_it_is_known_which_nodes_there_are() -> None:
    said = Said(1)
    said.exchange.come(0)
    assert said.orders == []
    said.exchange.divide("")
    assert said.homes() == {0}


def test_a_child_that_comes_later_gets_its_nodes_when_the_others_have_left_them_and_catches_up() -> None:
    said = Said(2)
    said.exchange.divide("abcd")
    said.exchange.gone(1)
    said.exchange.come(0)
    assert said.take() == [(0, Hold(("a", "b", "c", "d"), False, ""))]
    said.exchange.come(1)
    assert said.homes() == {0, 1}
    assert said.take() == [(0, Leave(("c", "d")))]
    said.exchange.heard(0, Left(("d",)))
    assert said.take() == [(1, Hold(("d",), True, ""))]
    said.exchange.heard(0, Left(("c",)))
    assert said.take() == [(1, Hold(("c",), True, ""))]


def test_the_pods_of_a_child_that_has_ended_are_others_at_once_and_its_nodes_after_the_fence() -> None:
    said = two()
    said.exchange.gone(1)
    assert said.homes() == {0}
    assert said.take() == []
    assert said.exchange.next_free() == said.now + FENCE
    said.now += FENCE
    said.exchange.go_on()
    assert said.take() == [(0, Hold(("b", "d"), True, ""))]


def test_a_pod_is_lent_to_the_child_that_has_the_node_and_comes_back() -> None:
    said = two()
    said.exchange.heard(0, Lend("u", "b"))
    assert said.take() == [(1, Lent("u", "b", 0))]
    said.exchange.heard(1, Given("u", 0, Ending.FAILED, "why"))
    assert said.take() == [(0, Returned("u", Ending.FAILED, "why"))]
    # Nothing is told twice.
    said.exchange.heard(1, Given("u", 0, Ending.BOUND, ""))
    assert said.take() == []


def test_a_pod_for_a_node_that_is_on_its_way_is_refused() -> None:
    said = two()
    said.exchange.heard(0, Lend("u", "a"))
    said.exchange.heard(0, Lend("v", "unknown"))
    assert said.take() == [(0, Returned("u", Ending.REFUSED, "")), (0, Returned("v", Ending.REFUSED, ""))]


def test_what_a_child_had_borrowed_comes_back_when_it_ends() -> None:
    said = two()
    said.exchange.heard(0, Lend("u", "b"))
    said.take()
    said.exchange.gone(1)
    assert said.take() == [(0, Returned("u", Ending.REFUSED, ""))]


def test_a_child_that_is_started_again_is_told_nothing_of_what_it_had_lent() -> None:
    said = two()
    said.exchange.heard(0, Lend("u", "b"))
    said.exchange.gone(0)
    said.exchange.come(0)
    said.take()
    said.exchange.heard(1, Given("u", 0, Ending.BOUND, ""))
    assert said.take() == []


def test_a_pod_that_two_take_for_theirs_comes_back_to_both() -> None:
    said = Said(3)
    said.exchange.divide("abc")
    for child in range(3):
        said.exchange.come(child)
    said.take()
    said.exchange.heard(0, Lend("u", "c"))
    said.exchange.heard(1, Lend("u", "c"))
    said.take()
    said.exchange.heard(2, Given("u", 1, Ending.REFUSED, ""))
    said.exchange.heard(2, Given("u", 0, Ending.BOUND, ""))
    assert said.take() == [(1, Returned("u", Ending.REFUSED, "")), (0, Returned("u", Ending.BOUND, ""))]


def test_children_hear_of_the_shard_before_they_hear_of_its_nodes() -> None:
    said = Said(1, shared=True)
    said.exchange.come(0)
    assert said.take() == [(0, Claims((), ())), (0, Share((), (), NOT_KNOWN))]
    said.exchange.claim(frozenset("ab"))
    assert said.take() == [(0, Claims(("a", "b"), ()))]
    said.exchange.share(frozenset("ab"), "why not")
    said.exchange.learn("7")
    said.exchange.divide("ab")
    assert said.take() == [(0, Share(("a", "b"), (), "")), (0, Hold(("a", "b"), True, "7"))]
    assert said.exchange.under_way("abc") == {"a", "b"}
    said.exchange.share(frozenset(), "gone")
    said.exchange.divide("")
    assert said.take() == [(0, Share((), ("a", "b"), "gone")), (0, Leave(("a", "b")))]
    said.exchange.heard(0, Left(("a",)))
    assert said.exchange.under_way("abc") == {"b"}


def test_a_split_has_all_slots() -> None:
    said = two()
    said.exchange.gone(0)
    (order,) = [order for _, order in said.orders if isinstance(order, Split)]
    assert order.slots == (1,) * SLOTS


def test_a_fence_that_ends_between_a_look_and_the_question_when_to_look_again_is_not_slept_through() -> None:
    said = two()
    said.exchange.gone(1)
    free = said.now + FENCE
    said.now = free - 0.001
    said.exchange.go_on()
    said.now = free + 0.001
    assert said.exchange.next_free() == free
    said.exchange.go_on()
    assert said.take() == [(0, Hold(("b", "d"), True, ""))]
    assert said.exchange.next_free() is None

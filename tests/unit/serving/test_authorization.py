"""Which answers about callers are kept, and for how long."""

from __future__ import annotations

import pytest

from agent_scheduler.serving import authorization
from agent_scheduler.serving.authorization import Access, _Answers


class World:
    def __init__(self) -> None:
        self.now = 100.0
        self.answers = _Answers(lambda: self.now, until_forgotten=10.0)

    def keep(self, *names: str) -> None:
        for name in names:
            self.answers.keep((name.encode(), "/metrics"), Access.ALLOWED)

    def known(self, *names: str, seconds: float = 5.0) -> list[str]:
        return [name for name in names if self.answers.get((name.encode(), "/metrics"), seconds)]


def test_an_answer_is_good_for_as_long_as_is_asked_for_and_of_its_own_key_alone() -> None:
    world = World()
    world.keep("a")
    assert world.known("a", "b") == ["a"]
    world.now += 5.0
    assert world.known("a") == [] and world.known("a", seconds=6.0) == ["a"]
    world.answers.forget((b"a", "/metrics"))
    assert world.known("a", seconds=6.0) == []
    world.answers.forget((b"a", "/metrics"))


def test_of_too_many_answers_those_go_that_were_given_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """Or whoever makes up tokens would fill the memory, or push out those that are asked with."""
    monkeypatch.setattr(authorization, "_KEPT", 2)
    world = World()
    world.keep("a", "b", "a", "c")
    assert world.known("a", "b", "c") == ["a", "c"]


def test_answers_that_nobody_may_use_any_more_go_with_the_next_one() -> None:
    world = World()
    world.keep("a")
    world.now += 10.0
    world.keep("b")
    assert world.known("a", "b", seconds=60.0) == ["b"]

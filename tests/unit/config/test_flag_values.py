"""Values of flags that several commands have."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from agent_scheduler.config.flag_values import duration, object_name, scheduler_names, truth
from tests.support.command_line import problem


@pytest.mark.parametrize(
    ("read", "text"),
    [
        *((object_name, text) for text in ("", "a b", " a", "a/b", "/")),
        *((duration, text) for text in ("", "5", "0s", "-1s")),
        *((truth, text) for text in ("", "1", "yes")),
    ],
)
def test_what_a_flag_cannot_say_is_told_with_its_name(read: Callable[[str, str], Any], text: str) -> None:
    assert problem(read, "--flag", text).startswith(f"--flag: found {text!r}; allowed: ")


def test_what_a_flag_can_say_is_read() -> None:
    assert object_name("--flag", "a.b-c") == "a.b-c"
    assert (duration("--flag", "1m30s"), duration("--flag", "1ms")) == (90.0, 0.001)
    assert truth("--flag", "true") and truth("--flag", "TRUE")
    assert (truth("--flag", "false"), truth("--flag", "False")) == (False, False)


def test_names_of_schedulers_are_taken_once_each_in_their_order() -> None:
    assert scheduler_names(None, ("usual",)) == ("usual",)
    assert scheduler_names(["b", "a", "b"], ("usual",)) == ("b", "a")
    for name in ("", "a b", "a,b"):
        assert "allowed: a scheduler's name" in problem(scheduler_names, ["a", name], ())

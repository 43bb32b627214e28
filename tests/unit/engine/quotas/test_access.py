"""Which namespaces may use a queue."""

from __future__ import annotations

import pytest

from agent_scheduler.engine.quotas.access import (
    NAMESPACE_SELECTOR,
    NAMESPACES,
    closed_to,
    in_force,
    namespace_list,
    parts_of_closed,
)

LABELS = {"team": "a", "example.com/tier": "gold", "empty": ""}


@pytest.mark.parametrize(
    ("names", "selector", "namespace", "allowed"),
    [
        ("team-a", None, "team-a", True),
        (" team-a , team-b ", None, "team-b", True),
        ("team-a", None, "team-ab", False),
        ("", None, "team-a", False),
        (None, "", "any", True),
        (None, "team", "any", True),
        (None, "!team", "any", False),
        (None, "!other", "any", True),
        (None, "team=a", "any", True),
        (None, "team==a,example.com/tier=gold", "any", True),
        (None, "team=a,example.com/tier=silver", "any", False),
        (None, "team!=a", "any", False),
        (None, "other!=a", "any", True),
        (None, "empty=", "any", True),
        (None, "team in (a, b),example.com/tier", "any", True),
        (None, "team notin (a,b)", "any", False),
        (None, "other notin (a,b)", "any", True),
        # Either of them is enough.
        ("team-a", "team=b", "team-a", True),
        ("team-b", "team=a", "team-a", True),
        ("team-b", "team=b", "team-a", False),
    ],
)
def test_a_namespace_is_let_in_by_its_name_or_its_labels(
    names: str | None, selector: str | None, namespace: str, *, allowed: bool
) -> None:
    said = {key: text for key, text in ((NAMESPACES, names), (NAMESPACE_SELECTOR, selector)) if text is not None}
    problems: list[str] = []
    listed = namespace_list(said, problems)
    assert problems == [] and listed is not None
    assert listed.includes(namespace, LABELS) == allowed


@pytest.mark.parametrize(
    ("key", "text"),
    [
        *((NAMESPACES, text) for text in ("team a", "a,,b", "A", "*", "a/b", "a" * 64)),
        *((NAMESPACE_SELECTOR, text) for text in ("team=a,", "team=(a)", "team in a", "in (a)", "a=b=c", "*", "a>1")),
        (NAMESPACE_SELECTOR, "(" * 5000),
    ],
)
def test_what_cannot_be_read_lets_no_other_namespace_in_and_names_its_place(key: str, text: str) -> None:
    problems: list[str] = []
    listed = namespace_list({key: text}, problems)
    assert listed is not None and not listed.includes("other", LABELS)
    (problem,) = problems
    assert problem.startswith(f"metadata.annotations[{key}]: ") and "allowed: " in problem


def test_a_queue_without_a_list_has_that_of_its_closest_ancestor() -> None:
    own, above = namespace_list({NAMESPACES: "a"}, []), namespace_list({NAMESPACES: "b"}, [])
    assert namespace_list(None, []) is namespace_list({"other": "x"}, []) is None
    assert in_force([own, above]) is own
    assert in_force([None, above]) is above
    assert in_force([None, None]) is None


def test_the_queue_of_those_that_may_not_use_one_has_a_name_that_no_object_has() -> None:
    assert parts_of_closed(closed_to("q", "team")) == ("q", "team")
    assert parts_of_closed("q") is None
    assert " " in closed_to("q", "team")

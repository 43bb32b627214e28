"""Which nodes taints keep a pod from, and which wake a pod that taints, a cordon or its node's name kept from them."""

from __future__ import annotations

from typing import Any

import pytest

from agent_scheduler.engine.events import events as ev
from agent_scheduler.engine.plugins.node_name import NodeName
from agent_scheduler.engine.plugins.node_unschedulable import NodeUnschedulable
from agent_scheduler.engine.plugins.taint_toleration import TaintToleration
from agent_scheduler.engine.rules.tolerance import tolerates
from agent_scheduler.objects.wire import Taint, Toleration
from tests.support.engine import World, node, wakes

TAINT = {"key": "k", "effect": "NoSchedule"}
OTHER = {"key": "other", "effect": "NoExecute"}


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        (None, [], True),
        (None, [TAINT], False),
        ([TAINT], [], True),
        ([TAINT, OTHER], [TAINT], False),
        ([], [{"key": "soft", "effect": "PreferNoSchedule"}], False),
    ],
)
def test_a_node_wakes_whom_taints_refused_when_all_that_are_left_are_tolerated(
    before: Any, after: Any, expected: bool
) -> None:
    old, new = (None if taints is None else node("n", taints=taints) for taints in (before, after))
    event = ev.NODE_ADD if old is None else ev.NODE_UPDATE_TAINT
    assert wakes(TaintToleration(), World().pod(), event, old, new) is expected
    tolerant = World().pod(tolerations=[{"key": "k", "operator": "Exists"}])
    tolerates = before in (None, [TAINT, OTHER])
    assert wakes(TaintToleration(), tolerant, event, old, new) is tolerates


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [(None, False, True), (None, True, False), (True, False, True), (False, False, False)],
)
def test_a_node_wakes_whom_a_cordon_refused_when_it_comes_open_or_is_opened(
    before: bool | None, after: bool, expected: bool
) -> None:
    old, new = (
        None if cordoned is None else node("n", unschedulable=cordoned) for cordoned in (before, after)
    )
    event = ev.NODE_ADD if old is None else ev.NODE_UPDATE_TAINT
    assert wakes(NodeUnschedulable(), World().pod(), event, old, new) is expected


def test_a_new_node_wakes_whom_node_name_refused_whatever_the_name_where_none_is_kept() -> None:
    assert wakes(NodeName(), World().pod(), ev.NODE_ADD, None, node("n"))


def taint_of(value: str = "5", effect: str = "NoSchedule", key: str = "k") -> Taint:
    return Taint(key=key, value=value, effect=effect)


@pytest.mark.parametrize(
    ("toleration", "value", "expected"),
    [
        ({"operator": "Exists"}, "5", True),
        ({"key": "k", "operator": "Exists"}, "5", True),
        ({"key": "other", "operator": "Exists"}, "5", False),
        ({"key": "k", "value": "5"}, "5", True),
        ({"key": "k", "value": "6"}, "5", False),
        ({"key": "k"}, "", True),
        ({"key": "k", "value": "5", "effect": "NoSchedule"}, "5", True),
        ({"key": "k", "value": "5", "effect": "NoExecute"}, "5", False),
        ({"key": "k", "operator": "Lt", "value": "6"}, "5", True),
        ({"key": "k", "operator": "Lt", "value": "5"}, "5", False),
        ({"key": "k", "operator": "Gt", "value": "4"}, "5", True),
        ({"key": "k", "operator": "Gt", "value": "5"}, "5", False),
        ({"key": "k", "operator": "Gt", "value": "x"}, "5", False),
        ({"key": "k", "operator": "Lt", "value": "6"}, "x", False),
    ],
)
def test_a_taint_is_tolerated_where_key_effect_and_value_agree(
    toleration: dict[str, str], value: str, expected: bool
) -> None:
    assert tolerates(Toleration(**toleration), taint_of(value)) is expected

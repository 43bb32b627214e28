"""Which plugins a profile has at a point: each case as kube-scheduler settles it (MultiPoint, KEP-2891)."""

from __future__ import annotations

import pytest

from agent_scheduler.engine.framework.points import ALL, Enabled, PluginSet, expanded, merged, weight_of


def plugins(*names: str, off: tuple[str, ...] = ()) -> PluginSet:
    return PluginSet(tuple(Enabled(name) for name in names), off)


@pytest.mark.parametrize(
    ("base", "own", "left"),
    [
        # What a profile disables leaves the base, and with a star all of it does; what it enables stays.
        (plugins("a", "b", "c"), plugins(off=("b",)), ["a", "c"]),
        (plugins("a", "b"), plugins("c", "a", off=(ALL,)), ["c", "a"]),
    ],
)
def test_what_a_profile_says_goes_before_its_base(base: PluginSet, own: PluginSet, left: list[str]) -> None:
    assert [plugin.name for plugin in merged(base, own).enabled] == left


def test_a_plugin_named_again_keeps_its_place_in_the_base_with_its_new_weight() -> None:
    base = PluginSet((Enabled("a", 1), Enabled("b", 2), Enabled("c", 3)))
    own = PluginSet((Enabled("d", 9), Enabled("b", 7)))
    assert merged(base, own).enabled == (Enabled("a", 1), Enabled("b", 7), Enabled("c", 3), Enabled("d", 9))


def test_what_the_base_disables_stays_disabled() -> None:
    assert merged(plugins(off=("a",)), plugins(off=("b",))).disabled == ("b", "a")


@pytest.mark.parametrize(
    ("own", "multi", "expected"),
    [
        # Multi-point reaches the points that a plugin implements, and `not-here` does not implement this one.
        (plugins(), plugins("a", "not-here", "c"), ("a", "c")),
        # A plugin of it can be disabled at one point, and a star there keeps all of it out.
        (plugins(off=("b",)), plugins("a", "b", "c"), ("a", "c")),
        (plugins("x", off=(ALL,)), plugins("a", "b"), ("x",)),
        # Those named at both come first in the order of the point, then the rest of multi-point, then of the point.
        (plugins("x", "c", "y", "a"), plugins("a", "b", "c", "d"), ("c", "a", "b", "d", "x", "y")),
        # One that is disabled and enabled at the point comes last.
        (plugins("a", off=("a",)), plugins("a", "b"), ("b", "a")),
    ],
)
def test_plugins_of_a_point(own: PluginSet, multi: PluginSet, expected: tuple[str, ...]) -> None:
    assert expanded(own, multi, lambda name: name != "not-here") == expected


def test_the_weight_of_the_score_point_goes_before_that_of_multi_point() -> None:
    multi = PluginSet((Enabled("a", 3), Enabled("b", 2), Enabled("c")))
    score = PluginSet((Enabled("a"), Enabled("d", 5)))
    assert [weight_of(name, score, multi) for name in "abcd"] == [1, 2, 1, 5]

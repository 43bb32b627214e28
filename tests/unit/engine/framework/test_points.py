"""Which plugins a profile has at a point: each case as kube-scheduler settles it (MultiPoint, KEP-2891)."""

from __future__ import annotations

from agent_scheduler.engine.framework.points import (
    ALL,
    Enabled,
    PluginSet,
    expanded,
    merged,
    weight_of,
)


def plugins(*names: str, off: tuple[str, ...] = ()) -> PluginSet:
    return PluginSet(tuple(Enabled(name) for name in names), off)


def everywhere(_name: str) -> bool:
    return True


def names(chosen: PluginSet) -> list[str]:
    return [plugin.name for plugin in chosen.enabled]


def test_what_a_profile_disables_leaves_the_base() -> None:
    assert names(merged(plugins("a", "b", "c"), plugins(off=("b",)))) == ["a", "c"]


def test_a_star_takes_the_whole_base_away_and_leaves_what_the_profile_enables() -> None:
    assert names(merged(plugins("a", "b"), plugins("c", "a", off=(ALL,)))) == ["c", "a"]


def test_a_plugin_named_again_keeps_its_place_in_the_base_with_its_new_weight() -> None:
    base = PluginSet((Enabled("a", 1), Enabled("b", 2), Enabled("c", 3)))
    own = PluginSet((Enabled("d", 9), Enabled("b", 7)))
    assert merged(base, own).enabled == (Enabled("a", 1), Enabled("b", 7), Enabled("c", 3), Enabled("d", 9))


def test_what_the_base_disables_stays_disabled() -> None:
    assert merged(plugins(off=("a",)), plugins(off=("b",))).disabled == ("b", "a")


def test_multi_point_reaches_the_points_that_a_plugin_implements() -> None:
    assert expanded(plugins(), plugins("a", "b", "c"), lambda name: name != "b") == ("a", "c")


def test_a_plugin_of_multi_point_can_be_disabled_at_one_point() -> None:
    assert expanded(plugins(off=("b",)), plugins("a", "b", "c"), everywhere) == ("a", "c")


def test_a_star_at_a_point_keeps_multi_point_out_of_it() -> None:
    assert expanded(plugins("x", off=(ALL,)), plugins("a", "b"), everywhere) == ("x",)


def test_plugins_named_at_both_come_first_in_the_order_of_the_point_then_multi_point_then_the_rest() -> None:
    own = plugins("x", "c", "y", "a")
    assert expanded(own, plugins("a", "b", "c", "d"), everywhere) == ("c", "a", "b", "d", "x", "y")


def test_a_plugin_disabled_and_enabled_at_one_point_comes_last() -> None:
    assert expanded(plugins("a", off=("a",)), plugins("a", "b"), everywhere) == ("b", "a")


def test_the_weight_of_the_score_point_goes_before_that_of_multi_point() -> None:
    multi = PluginSet((Enabled("a", 3), Enabled("b", 2), Enabled("c")))
    score = PluginSet((Enabled("a"), Enabled("d", 5)))
    assert [weight_of(name, score, multi) for name in "abcd"] == [1, 2, 1, 5]

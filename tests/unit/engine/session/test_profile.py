"""Volcano's configuration as an arrangement of the fast path's plugins."""

from __future__ import annotations

from typing import Any

from agent_scheduler.engine.plugins.binpack import PER_POINT, Binpack
from agent_scheduler.engine.session.conf import PluginOption, SessionConf
from agent_scheduler.engine.session.profile import profile_of


def profile(*options: PluginOption) -> Any:
    return profile_of(SessionConf(tiers=(options,)), "volcano")


def test_room_is_looked_at_whatever_is_configured() -> None:
    found = profile()
    assert [each.name for each in found.filters] == ["NodeResourcesFit", "GPUShare"]
    assert not found.scores


def test_predicates_are_asked_in_volcanos_order() -> None:
    found = profile(PluginOption("predicates"))
    assert [each.name for each in found.filters][1:5] == [
        "NodeUnschedulable",
        "NodeAffinity",
        "TaintToleration",
        "NodePorts",
    ]
    assert [each.name for each in found.reserves] == ["VolumeBinding", "DynamicResources"]
    assert found.pre_binds == found.reserves


def test_a_predicate_may_be_switched_off() -> None:
    arguments = {"predicate.PodAffinityEnable": "false", "predicate.NodePortsEnable": False}
    names = [each.name for each in profile(PluginOption("predicates", arguments)).filters]
    assert "InterPodAffinity" not in names
    assert "NodePorts" not in names


def test_weights_are_volcanos_and_those_of_zero_are_left_out() -> None:
    arguments = {"leastrequested.weight": 0, "mostrequested.weight": 5}
    found = {each.plugin.name: each.weight for each in profile(PluginOption("nodeorder", arguments)).scores}
    assert found == {
        "ImageLocality": PER_POINT,
        "NodeResourcesFit": 5 * PER_POINT,
        "NodeResourcesBalancedAllocation": PER_POINT,
        "NodeAffinity": 2 * PER_POINT,
        "InterPodAffinity": 2 * PER_POINT,
        "TaintToleration": 3 * PER_POINT,
        "PodTopologySpread": 2 * PER_POINT,
    }


def test_binpack_weighs_the_resources_that_are_named() -> None:
    arguments = {
        "binpack.weight": 5,
        "binpack.cpu": -1,
        "binpack.resources": "nvidia.com/gpu, ",
        "binpack.resources.nvidia.com/gpu": 3,
    }
    ((plugin, weight),) = [
        (each.plugin, each.weight) for each in profile(PluginOption("binpack", arguments)).scores
    ]
    assert isinstance(plugin, Binpack)
    assert weight == 5
    assert plugin.weights == {"nvidia.com/gpu": 3, "cpu": 1, "memory": 1}


def test_a_switch_takes_a_plugin_out_of_the_ranking() -> None:
    off = {"enableNodeOrder": False}
    assert not profile(PluginOption("binpack", switches=off), PluginOption("nodeorder", switches=off)).scores
    assert not profile(PluginOption("binpack", {"binpack.weight": 0})).scores

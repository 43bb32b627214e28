"""How a profile is made of names: the bases, what is laid over them, and what is refused."""

from __future__ import annotations

import pytest

from agent_scheduler.engine.framework.args import NodeResourcesFitArgs, PluginArgs, ResourceSpec, ScoringStrategy
from agent_scheduler.engine.framework.plugin import Profile
from agent_scheduler.engine.framework.points import ALL, Enabled, PluginSet
from agent_scheduler.engine.framework.registration import Registration, Registry
from agent_scheduler.engine.plugins.node_ports import NodePorts
from agent_scheduler.engine.profiles.bases import ABSENT, BASES, DEFAULT_PLUGINS, FIXED
from agent_scheduler.engine.profiles.profiles import REGISTRY, ProfileError, ProfileSpec, UnknownPlugin, build_profile


def profile(base: str = "default-scheduler", **points: PluginSet) -> Profile:
    return build_profile(ProfileSpec(scheduler_name="s", base=base, plugins=points))


def filters(made: Profile) -> list[str]:
    return [plugin.name for plugin in made.filters]


def weights(made: Profile) -> dict[str, int]:
    return {score.plugin.name: score.weight for score in made.scores}


def test_the_default_base_has_kube_schedulers_weights() -> None:
    upstream = {
        "TaintToleration": 3,
        "NodeAffinity": 2,
        "NodeResourcesFit": 1,
        "VolumeBinding": 1,
        "PodTopologySpread": 2,
        "InterPodAffinity": 2,
        "DynamicResources": 2,
        "NodeResourcesBalancedAllocation": 1,
        "ImageLocality": 1,
    }
    made = weights(profile())
    assert made == {name: weight for name, weight in upstream.items() if name in REGISTRY}
    assert "NodeResourcesBalancedAllocation" in made


def test_filters_are_asked_in_kube_schedulers_order() -> None:
    made = filters(profile())
    assert made == [*(name for name in DEFAULT_PLUGINS if name in made), "GPUShare"]
    assert made[:3] == ["NodeUnschedulable", "NodeName", "TaintToleration"]


def test_the_agent_base_packs_and_does_not_balance() -> None:
    made = profile("agent")
    assert "NodeResourcesBalancedAllocation" not in weights(made)
    assert [type(score.plugin).__name__ for score in made.scores if score.plugin.name == "NodeResourcesFit"] == [
        "MostAllocated"
    ]
    assert filters(made) == filters(profile())


def test_a_score_that_the_base_disables_can_be_enabled() -> None:
    score = PluginSet((Enabled("NodeResourcesBalancedAllocation", 4),))
    assert weights(profile("agent", score=score))["NodeResourcesBalancedAllocation"] == 4


def test_a_plugin_can_be_disabled_at_one_point_and_kept_at_another() -> None:
    made = profile(score=PluginSet(disabled=("NodeAffinity",)))
    assert "NodeAffinity" not in weights(made)
    assert "NodeAffinity" in filters(made)


def test_a_plugin_disabled_at_multi_point_is_gone_everywhere() -> None:
    made = profile(multiPoint=PluginSet(disabled=("TaintToleration",)))
    assert "TaintToleration" not in filters(made)
    assert "TaintToleration" not in weights(made)


def test_multi_point_can_be_written_anew() -> None:
    multi = PluginSet((Enabled("NodeAffinity", 5), Enabled("NodeName")), (ALL,))
    made = profile(multiPoint=multi)
    assert filters(made) == ["NodeAffinity", "NodeName", "GPUShare"]
    assert weights(made) == {"NodeAffinity": 5}


def test_a_filter_named_at_its_point_is_asked_before_those_of_multi_point() -> None:
    made = filters(profile(filter=PluginSet((Enabled("NodeResourcesFit"),))))
    assert made[0] == "NodeResourcesFit"
    assert made.count("NodeResourcesFit") == 1


def test_every_profile_honours_scheduling_gates_and_looks_at_each_gpu() -> None:
    made = profile(multiPoint=PluginSet(disabled=(ALL,)), preEnqueue=PluginSet(disabled=(ALL,)))
    assert [plugin.name for plugin in made.pre_enqueue] == ["SchedulingGates"]
    assert (filters(made), made.scores) == (["GPUShare"], ())


@pytest.mark.parametrize("name", FIXED)
def test_what_the_scheduler_cannot_do_without_cannot_be_disabled(name: str) -> None:
    with pytest.raises(ProfileError, match=f"{name} cannot be disabled"):
        profile(multiPoint=PluginSet(disabled=(name,)))


def test_a_name_that_stands_for_nothing_is_refused_with_its_place() -> None:
    with pytest.raises(UnknownPlugin) as caught:
        profile(filter=PluginSet((Enabled("NodePorts"), Enabled("NodePort"))))
    assert caught.value.path == ("plugins", "filter", "enabled", 1, "name")
    assert "NodePorts" in caught.value.allowed
    assert "NodeResourcesBalancedAllocation" not in caught.value.allowed


def test_a_plugin_cannot_be_enabled_where_it_does_nothing() -> None:
    with pytest.raises(ProfileError, match="plugin NodePorts has nothing to do at score; allowed:"):
        profile(score=PluginSet((Enabled("NodePorts"),)))


@pytest.mark.parametrize("name", sorted(set(ABSENT) - set(REGISTRY.names())))
def test_a_plugin_that_only_kube_scheduler_has_can_be_disabled_and_not_enabled(name: str) -> None:
    profile(multiPoint=PluginSet(disabled=(name,)))
    with pytest.raises(ProfileError, match=f"plugin {name} is not available"):
        profile(multiPoint=PluginSet((Enabled(name),)))


def test_arguments_reach_the_plugin() -> None:
    strategy = ScoringStrategy(
        type="LeastAllocated", resources=(ResourceSpec(name="cpu", weight=0), ResourceSpec(name="x", weight=7))
    )
    spec = ProfileSpec(scheduler_name="s", args={"NodeResourcesFit": NodeResourcesFitArgs(scoring_strategy=strategy)})
    fit = next(score.plugin for score in build_profile(spec).scores if score.plugin.name == "NodeResourcesFit")
    assert type(fit).__name__ == "LeastAllocated"
    assert getattr(fit, "resources") == {"cpu": 1, "x": 7}  # noqa: B009 - not of the Protocol


def test_points_with_one_factory_get_one_object() -> None:
    def make(_args: PluginArgs) -> object:
        made = NodePorts()
        made.name = "Both"
        return made

    registry = REGISTRY.with_plugins(Registration("Both", {"filter": make, "preEnqueue": make}))
    made = build_profile(
        ProfileSpec(scheduler_name="s", plugins={"multiPoint": PluginSet((Enabled("Both"),))}), registry
    )
    assert id(made.filters[-1]) == id(made.pre_enqueue[-1])


def test_plugins_of_two_profiles_are_not_the_same_objects() -> None:
    assert not set(map(id, profile().filters)) & set(map(id, profile().filters))


def test_a_registry_refuses_a_name_given_twice_and_points_that_there_are_not() -> None:
    with pytest.raises(ValueError, match="plugin 'NodePorts' is registered twice"):
        REGISTRY.with_plugins(REGISTRY["NodePorts"])
    for points in ({}, {"filters": NodePorts}, {"preFilter": NodePorts}):
        with pytest.raises(ValueError, match="plugin 'P': points"):
            Registry((Registration("P", points),))  # type: ignore[arg-type]


def test_bases_name_only_plugins_that_they_could_have() -> None:
    for base in BASES.values():
        for chosen in base.plugins.values():
            assert {plugin.name for plugin in chosen.enabled} <= {*DEFAULT_PLUGINS, "GPUShare"}
            assert set(chosen.disabled) <= set(DEFAULT_PLUGINS)

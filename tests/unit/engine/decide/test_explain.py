"""What people are told who ask why a pod waits."""

from __future__ import annotations

from functools import partial

from agent_scheduler.engine.decide.explain import Explanation, NearMiss, PluginAnswer, explain
from agent_scheduler.engine.state.podinfo import PodInfo
from tests.support.engine import SPREAD, World, node

cluster = partial(World, profile=SPREAD)


def explained(world: World, pod: PodInfo) -> Explanation:
    return explain(world.view(pod), world.snapshot.columns)


def test_each_plugin_counts_all_nodes_that_it_refuses_not_only_those_that_got_so_far() -> None:
    world = cluster(node("a", cpu="1", unschedulable=True), node("b", cpu="1"), node("c"))
    found = explained(world, world.pod(requests={"cpu": "8"}))
    assert found.message == "0/3 nodes are available: 1 node(s) were unschedulable, 2 Insufficient cpu."
    counts = {each.plugin: (each.refused, each.alone) for each in found.plugins}
    assert counts == {"NodeUnschedulable": (1, 0), "NodeResourcesFit": (3, 2)}
    assert found.plugins[1].reasons == {"Insufficient cpu": 3}
    assert (found.nodes, found.feasible, found.best) == (3, 0, ())


def test_the_nearest_nodes_say_what_is_missing_in_numbers() -> None:
    world = cluster(*(node(f"n{cpu}", cpu=str(cpu), memory="1Gi") for cpu in (1, 4, 3, 2)))
    world.place("n4", requests={"cpu": "500m"})
    (fit,) = explained(world, world.pod(requests={"cpu": "4", "example.com/gpu": "0"})).plugins
    assert fit.near[0] == NearMiss("n4", "cpu: 500m more (wants 4, 3500m of 4 is free)")
    assert [each.node for each in fit.near] == ["n4", "n3", "n2"]
    (fit,) = explained(world, world.pod(requests={"memory": "1.5Gi", "example.com/gpu": "2"})).plugins
    assert fit.near[0].missing == (
        "example.com/gpu: no node offers it; memory: 512Mi more (wants 1.5Gi, 1Gi of 1Gi is free)"
    )


def test_a_node_that_one_rule_alone_refuses_is_near_whatever_the_rule() -> None:
    world = cluster(node("a", labels={"disk": "hdd"}), node("b", labels={"disk": "ssd"}, cpu="1"))
    found = explained(world, world.pod(requests={"cpu": "2"}, nodeSelector={"disk": "ssd"}))
    assert {each.plugin: [miss.node for miss in each.near] for each in found.plugins} == {
        "NodeAffinity": ["a"],
        "NodeResourcesFit": ["b"],
    }
    assert found.plugins[0].near[0].missing == "node(s) didn't match Pod's node affinity/selector"


def test_a_pod_that_fits_is_told_what_each_plugin_adds() -> None:
    world = cluster(node("full"), node("empty"))
    world.place("full", requests={"cpu": "3", "memory": "6Gi"})
    found = explained(world, world.pod(requests={"cpu": "1"}))
    assert (found.message, found.feasible, found.plugins) == ("", 2, ())
    assert [each.node for each in found.best] == ["empty", "full"]
    for ranking in found.best:
        assert ranking.total == sum(ranking.scores.values())


def test_a_plugin_that_rejects_the_pod_before_any_node_is_told_as_refusing_all() -> None:
    world = cluster(node("a"), node("b"))
    found = explained(world, world.pod(volumes=[{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]))
    why = 'persistentvolumeclaim "c" not found'
    assert found.plugins == (PluginAnswer("VolumeRestrictions", 2, 2, {why: 2}, ()),)
    assert found.message == f"0/2 nodes are available: {why}."
    assert found.feasible == 0


def test_without_nodes_there_is_nothing_to_say_of_any() -> None:
    world = cluster()
    found = explained(world, world.pod())
    assert (found.nodes, found.message) == (0, "no nodes available to schedule pods")

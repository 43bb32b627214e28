"""Sessions look at each GPU, whatever plugins are configured."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from agent_scheduler.engine.state.gpus import RESOURCE, Indices
from agent_scheduler.engine.state.podinfo import PodInfo
from tests.support.engine import node

from .scene import Scene, bound, conf, told

PREEMPTING = conf("priority", "gang", actions="enqueue allocate preempt")


def _scene(*groups: str, devices: int = 2) -> Scene:
    scene = Scene(node("a", extended={RESOURCE: str(devices * 1000)}))
    scene.more["priorities"] = {"high": 10}
    for name in groups:
        scene.group(name, phase="Running")
    return scene


def _member(scene: Scene, group: str, amount: int, **more: Any) -> PodInfo:
    container = {"name": "c", "resources": {"requests": {"cpu": "100m", RESOURCE: str(amount)}}}
    return scene.member(group, cpu="", containers=[container], **more)


def _runs(scene: Scene, group: str, amount: int, gpus: Indices, **more: Any) -> None:
    pod = _member(scene, group, amount, node="a", **more)
    scene.ledger.set_pod(replace(pod, gpus=gpus), "a")


def test_a_member_is_not_bound_where_there_are_parts_of_several_gpus_alone() -> None:
    scene = _scene("old")
    _runs(scene, "old", 500, (0,))
    _runs(scene, "old", 500, (1,))
    scene.group("g", minMember=1)
    _member(scene, "g", 700)
    session, result = scene.run(conf("priority", "gang"))
    assert not bound(session)
    assert "1 node(s) didn't have a GPU with enough left" in told(result)["g-0"][1]


def test_members_of_several_gangs_do_not_count_twice_as_they_are_bound() -> None:
    scene = _scene(devices=4)
    for name in ("first", "second"):
        scene.group(name, minMember=2)
        for _ in range(2):
            _member(scene, name, 700)
    session, _ = scene.run()
    assert len(bound(session)) == 4


def test_nobody_is_evicted_whose_leaving_makes_no_gpu_large_enough() -> None:
    scene = _scene("low")
    scene.group("other", phase="Running", priorityClassName="high")
    for index in (0, 1):
        _runs(scene, "other", 400, (index,))
        _runs(scene, "low", 300, (index,))
    scene.group("g", minMember=1, priorityClassName="high")
    _member(scene, "g", 700)
    scene.run(PREEMPTING)
    assert not scene.cluster.evictions


def test_those_are_evicted_who_leave_a_gpu_that_is_large_enough() -> None:
    scene = _scene("low", devices=1)
    for amount in (300, 400):
        _runs(scene, "low", amount, (0,))
    scene.group("g", minMember=1, priorityClassName="high")
    _member(scene, "g", 700)
    scene.run(PREEMPTING)
    assert [name for name, _ in scene.cluster.evictions] == ["low-1"]


def test_a_gpu_of_a_pod_that_leaves_is_waited_for() -> None:
    scene = _scene("old", devices=2)
    _runs(scene, "old", 700, (0,), deleting=True)
    _runs(scene, "old", 500, (1,))
    scene.group("g", minMember=1)
    _member(scene, "g", 700)
    session, result = scene.run()
    assert not bound(session)
    assert "once resource is released" in told(result)["g-0"][1]

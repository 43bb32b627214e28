"""Containers that act by the annotations of their pod, and what the kubelet reports."""

from __future__ import annotations

from typing import Any

from embedded.support import PODS, World, cases
from embedded_kubernetes.kubelet_play import EVICT_AFTER, EXIT_CODE, READY_AFTER, RUN_SECONDS

from . import run


def _pod(world: World, policy: str = "Always", **annotations: str) -> None:
    names = {"life": RUN_SECONDS, "code": EXIT_CODE, "ready": READY_AFTER, "evict": EVICT_AFTER}
    said = {names[key]: text for key, text in annotations.items()}
    run(world, "a", spec={"restartPolicy": policy}, annotations=said)
    world.settle()


def _report(world: World) -> dict[str, Any]:
    (report,) = world.status("a")["containerStatuses"]
    return report


def _is_ready(world: World) -> bool:
    conditions = {each["type"]: each["status"] for each in world.status("a")["conditions"]}
    assert conditions["Ready"] == conditions["ContainersReady"] == str(_report(world)["ready"])
    return conditions["Ready"] == "True"


@cases("""
    policy | code | phase
    Never | '0' | Succeeded
    Never | '3' | Failed
    OnFailure | '0' | Succeeded
    OnFailure | '3' | Running
    Always | '0' | Running
    """)
def test_a_pod_ends_by_its_restart_policy(world: World, policy: str, code: str, phase: str) -> None:
    _pod(world, policy, life="5", code=code)
    world.settle(4.9)
    assert world.phase("a") == "Running"
    world.settle(0.2)
    assert world.phase("a") == phase
    report = _report(world)
    if phase == "Running":
        assert (report["restartCount"], report["ready"]) == (1, True)
        assert report["lastState"]["terminated"]["exitCode"] == int(code)
    else:
        assert report["state"]["terminated"]["exitCode"] == int(code)
        assert report["state"]["terminated"]["reason"] == ("Completed" if code == "0" else "Error")


def test_the_last_code_counts_for_all_later_runs(world: World) -> None:
    _pod(world, "OnFailure", life="1", code="1, 2,0")
    world.settle(1.1)
    assert _report(world)["restartCount"] == 1
    world.settle(1.0)
    assert _report(world)["lastState"]["terminated"]["exitCode"] == 2
    assert _report(world)["state"]["waiting"]["reason"] == "CrashLoopBackOff"
    assert not _is_ready(world)
    world.settle(11.0)
    assert world.phase("a") == "Succeeded"
    assert _report(world)["restartCount"] == 2


def test_a_container_that_fails_again_and_again_waits_ever_longer(world: World) -> None:
    _pod(world, "Always", life="1", code="1")
    starts = []
    for _ in range(60):
        count = _report(world)["restartCount"]
        world.settle(1.0)
        if _report(world)["restartCount"] > count:
            starts.append(world.now)
    # At once, and then after 10 and 20 seconds, with a second of running each.
    assert [at - starts[0] for at in starts] == [0, 11, 32]


def test_containers_may_come_to_be_ready_late_or_never(world: World) -> None:
    _pod(world, ready="7")
    assert (world.phase("a"), _is_ready(world)) == ("Running", False)
    world.settle(7.1)
    assert _is_ready(world)
    world.patch(f"{PODS}/a", {"metadata": {"labels": {"x": "y"}}})
    world.settle()
    assert _is_ready(world)


def test_a_pod_may_be_evicted_by_its_kubelet(world: World) -> None:
    _pod(world, evict="3")
    world.settle(3.1)
    status = world.status("a")
    assert (status["phase"], status["reason"]) == ("Failed", "Evicted")
    assert status["message"].startswith("The node was low on resource: memory.")
    targets = [each["reason"] for each in status["conditions"] if each["type"] == "DisruptionTarget"]
    assert targets == ["TerminationByKubelet"]
    # The pod's resources are free again.
    run(world, "b", cpu="4")
    world.settle()
    assert world.phase("b") == "Running"


def test_who_is_started_again_is_evicted_by_how_long_it_runs_since_then(world: World) -> None:
    _pod(world, life="2", code="1,0,0", evict="3", ready="2.5")
    for _ in range(14):
        world.settle(0.5)
        assert world.phase("a") == "Running"
        assert not _is_ready(world)


@cases("""
    annotations | why
    {code: '1,x'} | expected exit codes of 0 to 255, separated by commas, found '1,x'
    {code: '256'} | expected exit codes of 0 to 255
    {ready: soon} | expected seconds of at least 0 or never, found 'soon'
    {evict: '-1'} | expected seconds of at least 0, found '-1'
    {life: nan} | expected seconds of at least 0, found 'nan'
    """)
def test_a_pod_whose_annotations_say_nothing_is_refused(world: World, annotations: dict[str, str], why: str) -> None:
    _pod(world, **annotations)
    assert world.phase("a") == "Failed"
    assert why in world.status("a")["message"]

"""How the answers of several plugins become one."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_scheduler.engine.session.conf import PluginOption
from agent_scheduler.engine.session.hooks import ABSTAIN, PERMIT, REJECT, Hooks, Invalid
from agent_scheduler.engine.session.model import Job, Task
from agent_scheduler.engine.session.tiers import Tiers, number_of
from agent_scheduler.engine.session.worklist import JobHeap, QueueHeap
from tests.support.engine import node, queue_of

from .scene import Scene, opened

OPTION = PluginOption("any")


def tiers(*hooks: Sequence[Hooks]) -> Tiers:
    return Tiers([[(OPTION, each) for each in tier] for tier in hooks])


def tasks(*names: str) -> list[Task]:
    scene = Scene(node("a"))
    scene.group("g")
    for name in names:
        scene.member("g", name)
    return list(opened(scene.session()).jobs["default/g"].tasks.values())


def job() -> Job:
    return tasks("p")[0].job


def voting(vote: int) -> Hooks:
    return Hooks(job_enqueueable=lambda _: vote, job_pipelined=lambda _: vote)


@pytest.mark.parametrize(
    ("votes", "permitted"),
    [
        ([], True),
        ([[ABSTAIN]], True),
        ([[PERMIT], [REJECT]], True),
        ([[ABSTAIN], [REJECT]], False),
        ([[PERMIT, REJECT]], False),
        ([[PERMIT, ABSTAIN], [REJECT]], True),
    ],
)
def test_a_tier_that_permits_keeps_later_ones_from_rejecting(votes: list[list[int]], permitted: bool) -> None:
    asked = tiers(*([voting(vote) for vote in tier] for tier in votes))
    assert asked.enqueueable(job()) is permitted
    assert asked.job_pipelined(job()) is permitted


def test_a_switch_that_is_off_keeps_a_hook_from_being_asked() -> None:
    hooks = Hooks(job_ready=lambda _: False, overused=lambda _: True, job_valid=lambda _: Invalid("a", "b"))
    switches = {"enableJobReady": False, "enabledOverused": False}
    asked = Tiers([[(PluginOption("any", switches=switches), hooks)]])
    assert asked.job_ready(job())
    assert not asked.overused(queue_of("q"))
    # There is no switch for this one.
    assert asked.invalid(job()) == Invalid("a", "b")


def test_all_have_to_agree_that_a_job_is_ready() -> None:
    assert not tiers([Hooks(job_ready=lambda _: True)], [Hooks(job_ready=lambda _: False)]).job_ready(job())
    assert tiers().job_ready(job())


@pytest.mark.parametrize(
    ("answers", "starving"), [([], False), ([[True], [False]], True), ([[True, False]], False)]
)
def test_the_first_tier_with_an_opinion_says_who_starves(answers: list[list[bool]], starving: bool) -> None:
    asked = tiers(*([starving_says(answer) for answer in tier] for tier in answers))
    assert asked.starving(job()) is starving


def starving_says(answer: bool) -> Hooks:
    return Hooks(job_starving=lambda _: answer)


def naming(*names: str) -> Hooks:
    return Hooks(preemptable=lambda _, tasks: [task for task in tasks if task.pod.name in names])


@pytest.mark.parametrize(
    ("named", "victims"),
    [
        ([["a b", "b c"]], ["b"]),
        ([["a"], ["b"]], ["a"]),
        # A plugin that names nobody ends its tier, and the next one decides alone.
        ([["a", ""], ["b"]], ["b"]),
        ([["", "a"], ["b"]], ["b"]),
        # So do plugins that agree on nobody, whatever the rest of the tier says.
        ([["a", "b", "a b c"], ["c"]], ["c"]),
        ([["a", "b", "a b c"]], []),
        ([[""], [""]], []),
        ([], []),
    ],
)
def test_victims_are_those_that_all_of_a_tier_name(named: list[list[str]], victims: list[str]) -> None:
    asked = tiers(*([naming(*names.split()) for names in tier] for tier in named))
    candidates = tasks("a", "b", "c")
    assert [task.pod.name for task in asked.preemptable(candidates[0], candidates)] == victims


def test_a_plugin_may_abstain_from_naming_victims() -> None:
    asked = tiers([Hooks(reclaimable=lambda *_: None), Hooks(reclaimable=lambda _, tasks: tasks[:1])])
    candidates = tasks("a", "b")
    assert [task.pod.name for task in asked.reclaimable(candidates[0], candidates)] == ["a"]


@pytest.mark.parametrize(
    ("name", "number"),
    [("job-worker-12", 12), ("worker-12", None), ("a-b-c", None), ("a-b-+3", 3), ("a-b-", None)],
)
def test_the_number_of_a_pod_is_what_its_controller_put_behind_its_name(
    name: str, number: int | None
) -> None:
    (task,) = tasks(name)
    assert number_of(task) == number


def test_tasks_come_in_the_order_of_their_numbers() -> None:
    ordered = tiers().in_task_order(tasks("j-w-10", "j-w-9", "j-m-1"))
    assert [task.pod.name for task in ordered] == ["j-m-1", "j-w-9", "j-w-10"]


def test_tasks_without_numbers_come_as_they_were_created() -> None:
    ordered = tiers().in_task_order(reversed(tasks("c", "a", "b")))
    assert [task.pod.name for task in ordered] == ["c", "a", "b"]


def test_some_numbers_are_compared_where_both_have_one() -> None:
    ordered = tiers().in_task_order(tasks("x", "j-w-1", "j-w-0"))
    names = [task.pod.name for task in ordered]
    assert names.index("j-w-0") < names.index("j-w-1")


def test_what_plugins_say_of_tasks_goes_first() -> None:
    by_name = Hooks(task_order=lambda task: task.pod.name != "j-w-10")
    ordered = tiers([by_name]).in_task_order(tasks("j-w-9", "j-w-10"))
    assert [task.pod.name for task in ordered] == ["j-w-10", "j-w-9"]


@given(st.lists(st.integers(0, 9), max_size=12))
def test_queues_come_out_in_their_order(priorities: list[int]) -> None:
    heap = QueueHeap(tiers([Hooks(queue_order=lambda left, right: left.priority - right.priority)]))
    queues = [queue_of(f"q{number:02}", priority=each) for number, each in enumerate(priorities)]
    for queue in queues:
        heap.push(queue)
    found = []
    while heap:
        found.append(heap.pop())
    assert found == sorted(queues, key=lambda queue: (queue.priority, queue.name))


def test_jobs_come_out_by_key_creation_and_name() -> None:
    scene = Scene(node("a"))
    for name, created in (
        ("c", "2026-01-01T00:00:01Z"),
        ("b", "2026-01-01T00:00:02Z"),
        ("a", "2026-01-01T00:00:02Z"),
    ):
        scene.group(name, created=created)
    jobs = opened(scene.session()).jobs
    heap = JobHeap(tiers([Hooks(job_order=lambda job: job.name == "c")]))
    for each in jobs.values():
        heap.push(each)
    assert [heap.pop().name for _ in jobs] == ["a", "b", "c"]
    assert not heap

"""How the answers of several plugins become one, Volcano's configuration as a profile, and what jobs count."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_scheduler.engine.plugins.binpack import PER_POINT, Binpack
from agent_scheduler.engine.quotas.turns import number_of
from agent_scheduler.engine.session.conf import PluginOption, SessionConf
from agent_scheduler.engine.session.hooks import ABSTAIN, PERMIT, REJECT, Hooks, Invalid
from agent_scheduler.engine.session.model import HOLDING, READY, JobInfo, TaskInfo, TaskStatus, status_of
from agent_scheduler.engine.session.profile import profile_of
from agent_scheduler.engine.session.tiers import Tiers
from agent_scheduler.engine.session.worklist import JobHeap, QueueHeap
from agent_scheduler.objects.batch import QUEUE_ALLOCATION_GATE, TASK_SPEC
from tests.support.engine import queue_of

from .scene import GATED, has, opened, sized

OPTION = PluginOption("any")


def tiers(*hooks: Sequence[Hooks]) -> Tiers:
    return Tiers([[(OPTION, each) for each in tier] for tier in hooks])


def made_of(*members: Any, **group: Any) -> JobInfo:
    """A job with these members, in a session that is open."""
    return opened(sized(4).holding(has("g", *members, **group)).session()).jobs["default/g"]


def tasks(*names: str) -> list[TaskInfo]:
    return list(made_of(*({"name": name} for name in names)).tasks.values())


def job() -> JobInfo:
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


@pytest.mark.parametrize(("answers", "starving"), [([], False), ([[True], [False]], True), ([[True, False]], False)])
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
    ("name", "number"), [("job-worker-12", 12), ("worker-12", None), ("a-b-c", None), ("a-b-+3", 3), ("a-b-", None)]
)
def test_the_number_of_a_pod_is_what_its_controller_put_behind_its_name(name: str, number: int | None) -> None:
    assert number_of(name) == number


@pytest.mark.parametrize(
    ("names", "ordered"),
    [
        ("j-w-10 j-w-9 j-m-1", "j-m-1 j-w-9 j-w-10"),
        ("c a b", "c a b"),  # without numbers, as they were created
        ("x j-w-1 j-w-0", "x j-w-0 j-w-1"),  # where both have one
    ],
)
def test_tasks_come_in_the_order_of_their_numbers(names: str, ordered: str) -> None:
    found = tiers().in_task_order(reversed(tasks(*names.split())))
    assert " ".join(task.pod.name for task in found) == ordered


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
    created = {"c": "2026-01-01T00:00:01Z", "b": "2026-01-01T00:00:02Z", "a": "2026-01-01T00:00:02Z"}
    scene = sized(4).holding(*(has(name, created=at) for name, at in created.items()))
    session = opened(scene.session())
    session.tiers = tiers([Hooks(job_order=lambda job: job.name == "c")])
    heap = JobHeap(session)
    for each in session.jobs.values():
        heap.push(each)
    assert [heap.pop().name for _ in created] == ["a", "b", "c"]
    assert not heap


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
    ((plugin, weight),) = [(each.plugin, each.weight) for each in profile(PluginOption("binpack", arguments)).scores]
    assert isinstance(plugin, Binpack)
    assert weight == 5
    assert plugin.weights == {"nvidia.com/gpu": 3, "cpu": 1, "memory": 1}


def test_a_switch_takes_a_plugin_out_of_the_ranking() -> None:
    off = {"enableNodeOrder": False}
    assert not profile(PluginOption("binpack", switches=off), PluginOption("nodeorder", switches=off)).scores
    assert not profile(PluginOption("binpack", {"binpack.weight": 0})).scores


def job_with(*kinds: tuple[str, str, str]) -> JobInfo:
    """(cpu, role, sub-group) of each pod."""
    policy = {"name": "p", "subGroupSize": 2, "minSubGroups": 1, "matchLabelKeys": ["part"]}
    members = (
        {"cpu": cpu, "annotations": {TASK_SPEC: role} if role else {}, "labels": {"part": part} if part else {}}
        for cpu, role, part in kinds
    )
    return made_of(*members, minMember=3, minTaskMember={"x": 1, "y": 1}, subGroupPolicy=[policy])


KINDS = st.tuples(st.sampled_from(["", "1", "2"]), st.sampled_from(["", "x", "y"]), st.sampled_from(["", "0", "1"]))


@given(st.data())
def test_counts_follow_statuses(data: st.DataObject) -> None:
    job = job_with(*data.draw(st.lists(KINDS, min_size=1, max_size=6)))
    tasks = list(job.tasks.values())
    for index, status in data.draw(
        st.lists(st.tuples(st.integers(0, len(tasks) - 1), st.sampled_from(TaskStatus)), max_size=12)
    ):
        job.set_status(tasks[index], status)
    statuses = Counter(task.status for task in tasks)
    assert {status: len(job.by_status[status]) for status in TaskStatus} == {
        status: statuses[status] for status in TaskStatus
    }
    assert job.ready == sum(statuses[status] for status in READY)
    assert job.waiting == statuses[TaskStatus.PIPELINED]
    free = [task for task in tasks if task.best_effort and task.status is TaskStatus.PENDING]
    assert job.best_effort == len(free)
    held = sum(task.request.get("cpu", 0) for task in tasks if task.status in HOLDING)
    assert job.allocated.get("cpu", 0) == held
    for role in ("x", "y"):
        of_role = [task for task in tasks if task.role == role]
        assert job.in_role(role, READY) == sum(task.status in READY for task in of_role)
        assert job.in_role(role, (), best_effort=True) == sum(task in free for task in of_role)
    for sub_job in job.sub_jobs.values():
        assert sub_job.ready == sum(task.status in READY for task in sub_job.tasks.values())


def test_members_in_no_sub_group_are_one_of_their_own() -> None:
    job = job_with(("1", "", "0"), ("1", "", ""), ("1", "", "0"))
    assert {sub_job.policy: len(sub_job.tasks) for sub_job in job.sub_jobs.values()} == {"p": 2, "": 1}


def test_a_sub_group_has_the_number_that_its_first_label_is() -> None:
    job = job_with(*(("1", "", part) for part in ("7", "x", "-3", "1x", "")))
    assert [sub_job.index for sub_job in job.sub_jobs.values()] == [7, 0, -3, 0, 0]


@pytest.mark.parametrize(
    ("phase", "place", "deleting", "status"),
    [
        ("Pending", "", False, TaskStatus.PENDING),
        ("Pending", "n0", False, TaskStatus.BOUND),
        ("Pending", "n0", True, TaskStatus.RELEASING),
        ("Pending", "", True, TaskStatus.RELEASING),
        ("Running", "n0", False, TaskStatus.RUNNING),
        ("Running", "n0", True, TaskStatus.RELEASING),
        ("Succeeded", "n0", False, TaskStatus.SUCCEEDED),
        ("Failed", "n0", True, TaskStatus.FAILED),
        ("Unknown", "n0", False, TaskStatus.UNKNOWN),
    ],
)
def test_a_phase_says_the_status(phase: str, place: str, deleting: bool, status: TaskStatus) -> None:
    scene = sized(4).holding(has("g"))
    assert status_of(scene.member("g", node=place, phase=phase, deleting=deleting)) is status


def test_a_task_may_have_a_priority_of_its_own_among_its_group() -> None:
    job = made_of({"priority": 7}, {"priority": 7, "annotations": {"volcano.sh/task-priority": "9"}})
    assert [task.priority for task in job.tasks.values()] == [7, 9]


def test_a_pod_that_says_nothing_of_a_batch_is_a_task_like_any_other() -> None:
    pod = sized().pod("plain", priority=7)
    assert pod.batch is None
    task = TaskInfo(pod, made_of(), {}, best_effort=False)
    assert (task.role, task.priority, task.preemptable, task.gate_managed) == ("", 7, True, False)
    assert task.status is TaskStatus.PENDING


def test_only_gates_of_others_keep_a_request_from_counting() -> None:
    job = made_of({"schedulingGates": [{"name": QUEUE_ALLOCATION_GATE}]}, {"cpu": "2", **GATED})
    assert job.gated_request()["cpu"] == 2000

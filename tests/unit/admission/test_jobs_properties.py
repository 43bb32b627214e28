"""Jobs of any shape: a second review changes nothing, minimums add up, and circles are found where they are."""

from __future__ import annotations

from copy import deepcopy
from itertools import pairwise
from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from agent_scheduler.admission.job_dependencies import problems
from agent_scheduler.admission.job_minimums import strict_problem
from agent_scheduler.admission.jobs import JobRules, mutate
from agent_scheduler.objects.job import DependsOn, Job, TaskSpec
from tests.support.reviews import patched, request

RULES = JobRules(scheduler="volcano")
_NAMES = st.sampled_from("abcdef")


def _without_none(fields: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in fields.items() if value is not None}


_SIZES = {**dict.fromkeys(("totalPartitions", "partitionSize"), st.integers(1, 3)), "minPartitions": st.integers(0, 3)}
_TASKS = st.fixed_dictionaries(
    {
        "name": st.none() | _NAMES,
        "replicas": st.integers(0, 5),
        "minAvailable": st.none() | st.integers(0, 5),
        "maxRetry": st.none() | st.integers(0, 3),
        "dependsOn": st.none() | st.fixed_dictionaries({"name": st.lists(_NAMES, max_size=3)}),
        "partitionPolicy": st.none() | st.fixed_dictionaries(_SIZES),
    }
).map(_without_none)
_PLUGINS = st.dictionaries(st.sampled_from(("mpi", "ray", "svc", "env")), st.just([]), max_size=3)


@given(st.lists(_TASKS, max_size=4), st.none() | st.integers(0, 9), st.none() | _PLUGINS)
def test_a_second_review_changes_nothing(tasks: list[Any], minimum: int | None, plugins: Any) -> None:
    job = {"metadata": {"name": "j"}, "spec": _without_none({"minAvailable": minimum, "plugins": plugins})}
    job["spec"]["tasks"] = tasks
    made = patched(job, mutate(request(job), RULES))
    again = patched(deepcopy(made), mutate(request(made), RULES))
    assert again == made


@given(st.lists(_TASKS, min_size=1, max_size=4), st.integers(0, 9))
def test_minimums_add_up_unless_others_were_given(tasks: list[Any], minimum: int) -> None:
    job = {"metadata": {"name": "j"}, "spec": {"minAvailable": minimum, "tasks": tasks}}
    before = msgspec.convert(job, Job)
    made = msgspec.convert(patched(job, mutate(request(job), RULES)), Job)
    assert bool(strict_problem(made.spec)) == bool(minimum and strict_problem(before.spec))


@given(st.dictionaries(_NAMES, st.lists(_NAMES, max_size=3), min_size=1))
def test_a_circle_is_told_of_where_there_is_one(waits: dict[str, list[str]]) -> None:
    tasks = [TaskSpec(name=name, depends_on=DependsOn(name=tuple(others))) for name, others in waits.items()]
    left = {name: {other for other in others if other in waits} for name, others in waits.items()}
    while free := [name for name, others in left.items() if not others]:
        left = {name: others - set(free) for name, others in left.items() if name not in free}
    told = [each for each in problems(tasks) if " -> " in each]
    assert len(told) == (1 if left else 0)
    for each in told:
        way = each.split("(DAG): ")[1].split(";")[0].split(" -> ")
        assert way[0] == way[-1]
        assert all(after in waits[before] for before, after in pairwise(way))

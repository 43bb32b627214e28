"""Intended differences of a Job's review from Volcano's (`deliberate` has those of other kinds)."""

from __future__ import annotations

from typing import Any

from tests.decisions.volcano_webhooks.recording import Case, Obj, State
from tests.decisions.volcano_webhooks.replay import compared, made

_NO_DAG = "jobhasdependenciesbetweentasks,butdoesn'tformadirectedacyclicgraph(DAG)"


def _refusals(case: Case, answer: Obj) -> list[tuple[str, list[str]]]:
    """Return, if both refuse, the parts of each of their messages that ours lacks, and those that only ours has."""
    if case.path != "/jobs/validate" or answer["allowed"]:
        return []
    return [compared(answer["message"], each["message"]) for each in case.responses if not each["allowed"]]


def _tasks(case: Case) -> list[Any]:
    return (case.object.get("spec") or {}).get("tasks") or []


def _all_at_once(case: Case, answer: Obj, state: State) -> bool:
    """Return whether ours contains Volcano's problem and further ones.

    Volcano stops at the first problem of a list of policies, of volumes and of any change, after a task whose name is
    used twice, and if MPI has no master.
    """
    return any(not missing and more for missing, more in _refusals(case, answer))


def _action_beside_an_exit_code(case: Case, answer: Obj, state: State) -> bool:
    """Return whether an exit code has an invalid action, which Volcano does not check, and then does something else."""
    if case.path != "/jobs/validate" or answer["allowed"]:
        return False
    problems = answer["message"].split("; ")
    policies = [each for of in (case.object["spec"], *_tasks(case)) for each in of.get("policies") or ()]
    is_about_actions = all("invalid policy action" in each for each in problems)
    return is_about_actions and any("exitCode" in each for each in policies)


def _named_twice(case: Case, answer: Obj, state: State) -> bool:
    """Return whether a task names another twice, which Volcano counts twice, and then reports a cycle."""
    named = [(task.get("dependsOn") or {}).get("name") or [] for task in _tasks(case)]
    if case.path != "/jobs/validate" or all(len(each) == len(set(each)) for each in named):
        return False
    if answer["allowed"]:
        return any(compared("", each["message"])[0] == _NO_DAG for each in case.responses)
    return any(missing == _NO_DAG for missing, _ in _refusals(case, answer))


def _unreadable(case: Case, answer: Obj, state: State) -> bool:
    """Return whether a value cannot be decoded, for which Volcano's message is Go's."""
    theirs, ours = case.response.get("message") or "", answer["message"]
    return theirs.startswith("json: cannot unmarshal") and ours.startswith("cannot read the object: ")


def _minimum_of_the_only_task(case: Case, answer: Obj, state: State) -> bool:
    """Return whether a Job's only task gets the Job's minimum, as in Volcano's design; its webhook sets replicas."""
    if case.path != "/jobs/mutate" or [each.get("minAvailable") for each in _tasks(case)] != [None]:
        return False
    ours, theirs = made(case, answer), made(case, case.response)
    if ours["spec"]["tasks"][0]["minAvailable"] != case.object["spec"].get("minAvailable"):
        return False
    ours["spec"]["tasks"][0]["minAvailable"] = theirs["spec"]["tasks"][0]["minAvailable"]
    return bool(ours == theirs)


def _marked_as_dependent(case: Case, answer: Obj, state: State) -> bool:
    """Return whether a Job with dependent tasks is marked, as in Volcano's design; its webhook does not mark it."""
    waits = any((task.get("dependsOn") or {}).get("name") for task in _tasks(case))
    if case.path != "/jobs/mutate" or not waits:
        return False
    rest = [each for each in answer["patch"] if "dependent-job" not in str(each)]
    return made(case, {"patch": rest}) == made(case, case.response)


RULES = (
    *(_all_at_once, _action_beside_an_exit_code, _named_twice),
    *(_unreadable, _minimum_of_the_only_task, _marked_as_dependent),
)

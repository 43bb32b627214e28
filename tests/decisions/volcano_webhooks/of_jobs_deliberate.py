"""Where a review of a job differs from Volcano's on purpose (`deliberate` has those of other kinds)."""

from __future__ import annotations

from typing import Any

from tests.decisions.volcano_webhooks.recording import Case, Obj, State
from tests.decisions.volcano_webhooks.replay import compared, made

_NO_DAG = "jobhasdependenciesbetweentasks,butdoesn'tformadirectedacyclicgraph(DAG)"


def _refusals(case: Case, answer: Obj) -> list[tuple[str, list[str]]]:
    """Where both refuse, what of each of their messages ours lacks, and what it has more."""
    if case.path != "/jobs/validate" or answer["allowed"]:
        return []
    return [compared(answer["message"], each["message"]) for each in case.responses if not each["allowed"]]


def _tasks(case: Case) -> list[Any]:
    return (case.object.get("spec") or {}).get("tasks") or []


def _all_at_once(case: Case, answer: Obj, state: State) -> bool:
    """Volcano stops at the first problem of a list of policies, of volumes and of any change, after a task whose name
    there is twice, and where MPI has no master. Here what it says is said, and the rest with it."""
    return any(not missing and more for missing, more in _refusals(case, answer))


def _action_beside_an_exit_code(case: Case, answer: Obj, state: State) -> bool:
    """Volcano does not look at the action of an exit code, and then does something else or nothing."""
    if case.path != "/jobs/validate" or answer["allowed"]:
        return False
    problems = answer["message"].split("; ")
    policies = [each for of in (case.object["spec"], *_tasks(case)) for each in of.get("policies") or ()]
    is_about_actions = all("invalid policy action" in each for each in problems)
    return is_about_actions and any("exitCode" in each for each in policies)


def _named_twice(case: Case, answer: Obj, state: State) -> bool:
    """A task that names another twice waits for it once; Volcano counts it twice, and finds a circle."""
    named = [(task.get("dependsOn") or {}).get("name") or [] for task in _tasks(case)]
    if case.path != "/jobs/validate" or all(len(each) == len(set(each)) for each in named):
        return False
    if answer["allowed"]:
        return any(compared("", each["message"])[0] == _NO_DAG for each in case.responses)
    return any(missing == _NO_DAG for missing, _ in _refusals(case, answer))


def _unreadable(case: Case, answer: Obj, state: State) -> bool:
    """What cannot be read is told in Go's words there."""
    theirs, ours = case.response.get("message") or "", answer["message"]
    return theirs.startswith("json: cannot unmarshal") and ours.startswith("cannot read the object: ")


def _minimum_of_the_only_task(case: Case, answer: Obj, state: State) -> bool:
    """Volcano's design gives the only task of a job the job's minimum; its webhook all replicas."""
    if case.path != "/jobs/mutate" or [each.get("minAvailable") for each in _tasks(case)] != [None]:
        return False
    ours, theirs = made(case, answer), made(case, case.response)
    if ours["spec"]["tasks"][0]["minAvailable"] != case.object["spec"].get("minAvailable"):
        return False
    ours["spec"]["tasks"][0]["minAvailable"] = theirs["spec"]["tasks"][0]["minAvailable"]
    return bool(ours == theirs)


def _marked_as_dependent(case: Case, answer: Obj, state: State) -> bool:
    """Volcano's design marks a job with tasks that wait for others; its webhook does not."""
    waits = any((task.get("dependsOn") or {}).get("name") for task in _tasks(case))
    if case.path != "/jobs/mutate" or not waits:
        return False
    rest = [each for each in answer["patch"] if "dependent-job" not in str(each)]
    return made(case, {"patch": rest}) == made(case, case.response)


RULES = (
    *(_all_at_once, _action_beside_an_exit_code, _named_twice),
    *(_unreadable, _minimum_of_the_only_task, _marked_as_dependent),
)

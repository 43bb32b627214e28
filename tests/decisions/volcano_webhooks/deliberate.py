"""Intended differences of a review from Volcano's, each as a rule with its reason.

A rule returns whether our answer to a case is intended, by the request of the case.

These unusual rules of Volcano are followed: PodGroups may be in `root` and in queues with children; a queue may be
created below a closed one, and the queue controller then closes it, too; a parent without `deserved` and `guarantee`
has none to give; a hierarchy counts as rooted if it merely begins with `root`; errors of the state name `spec.state`;
exit codes may be any but 0; PodPending may have no timeout, although nothing then follows; a task's minimum may be
changed, although the message about changes does not name it.
"""

from __future__ import annotations

from collections.abc import Callable

from tests.decisions.volcano_webhooks import of_jobs_deliberate
from tests.decisions.volcano_webhooks.recording import Case, Obj, State
from tests.decisions.volcano_webhooks.replay import is_equal, problems

GATE = "scheduling.volcano.sh/queue-allocation-gate"
Rule = Callable[[Case, Obj, State], bool]


def _state_that_the_change_did_not_make(case: Case, answer: Obj, state: State) -> bool:
    """Return whether the change did not set a queue's state that Volcano refuses.

    Volcano refuses every change of a queue that is Closing or Unknown, even of its labels, and its status cannot be
    changed with the rest. The queue controller itself must mark such queues. The other refusals are equal; without any,
    Volcano stopped there.
    """
    old, new = case.request.get("oldObject") or {}, case.object
    if case.path != "/queues/validate" or case.request["operation"] != "UPDATE":
        return False
    if (old.get("status") or {}).get("state") != (new.get("status") or {}).get("state"):
        return False
    for response in case.responses:
        told = problems(response.get("message") or "")
        rest = [each for each in told if "requestBody.spec.state" not in each]
        if len(rest) < len(told) and rest in ([], problems(answer["message"])):
            return True
    return False


def _circle(case: Case, answer: Obj, state: State) -> bool:
    """Return whether a queue would be below itself, or root below another.

    Volcano allows it, and then adds up the quotas endlessly.
    """
    name, parent = case.request.get("name"), (case.object.get("spec") or {}).get("parent")
    seen = set()
    while parent and parent != "root" and parent != name and parent not in seen:
        seen.add(parent)
        parent = state.queues[parent].spec.parent if parent in state.queues else ""
    goes_round = parent == name or (name == "root" and bool(seen))
    return goes_round and not answer["allowed"] and "which is below it" in answer["message"]


def _gate_that_nobody_takes_off(case: Case, answer: Obj, state: State) -> bool:
    """Return whether Volcano gates a pod of another scheduler, although only its own removes the gate.

    The rest of the patch is equal.
    """
    if case.path != "/pods/mutate":
        return False
    spec = case.object.get("spec") or {}
    given = [each["value"] for each in answer["patch"] if each["path"] == "/spec/schedulerName"]
    scheduler = given[0] if given else spec.get("schedulerName", "")
    if scheduler in state.servers[case.server]["scheduler_names"]:
        return False

    def without_gate(response: Obj) -> Obj:
        patch = [each for each in response.get("patch") or () if GATE not in str(each)]
        return {**response, "patch": patch}

    return any(is_equal(case, answer, without_gate(each)) for each in case.responses)


def _all_of_a_hierarchy(case: Case, answer: Obj, state: State) -> bool:
    """Return whether Volcano reports only the first of several weights, or of queues below the queue's place."""
    if case.path != "/queues/validate" or answer["allowed"]:
        return False
    for response in case.responses:
        told, theirs = problems(answer["message"]), problems(response.get("message") or "")
        if (
            theirs
            and set(theirs) < set(told)
            and all("metadata.annotations" in each for each in told if each not in theirs)
        ):
            return True
    return False


RULES: tuple[Rule, ...] = (
    _state_that_the_change_did_not_make,
    _all_of_a_hierarchy,
    _circle,
    _gate_that_nobody_takes_off,
    *of_jobs_deliberate.RULES,
)


def is_meant(case: Case, answer: Obj, state: State) -> bool:
    return any(rule(case, answer, state) for rule in RULES)

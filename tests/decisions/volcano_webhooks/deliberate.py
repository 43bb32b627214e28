"""Where a review differs from Volcano's on purpose, each by a rule with its reason.

A rule says of a case and our answer to it whether that is meant, by what the case asks.

Not here, as it is followed though it looks odd: PodGroups may be in `root` and in queues that have others below them;
a queue may be made below one that is closed, which the queue controller then closes, too; a parent without `deserved`
and `guarantee` has none to give; a hierarchy counts as rooted if it merely begins with `root`; errors of the state name
`spec.state`; exit codes may be any but 0; PodPending may be without a timeout, though nothing then follows; a task's
minimum may be changed, though what is said of changes does not name it.
"""

from __future__ import annotations

from collections.abc import Callable

from tests.decisions.volcano_webhooks import of_jobs_deliberate
from tests.decisions.volcano_webhooks.recording import Case, Obj, State
from tests.decisions.volcano_webhooks.replay import is_equal, problems

GATE = "scheduling.volcano.sh/queue-allocation-gate"
Rule = Callable[[Case, Obj, State], bool]


def _state_that_the_change_did_not_make(case: Case, answer: Obj, state: State) -> bool:
    """Volcano refuses every change of a queue that is Closing or Unknown, if only of its labels; and its status cannot
    be changed with the rest. The queue controller itself has to mark such queues. Equal is what else is refused; where
    nothing is, Volcano went no further."""
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
    """Volcano lets a queue be moved below itself, or root below another, whose quotas then add up for ever."""
    name, parent = case.request.get("name"), (case.object.get("spec") or {}).get("parent")
    seen = set()
    while parent and parent != "root" and parent != name and parent not in seen:
        seen.add(parent)
        parent = state.queues[parent].spec.parent if parent in state.queues else ""
    goes_round = parent == name or (name == "root" and bool(seen))
    return goes_round and not answer["allowed"] and "which is below it" in answer["message"]


def _gate_that_nobody_takes_off(case: Case, answer: Obj, state: State) -> bool:
    """Volcano gates pods of every scheduler, though only its own takes the gate off. Equal is the rest of the patch."""
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
    """Of weights, and of queues below the queue's place, Volcano tells the first alone."""
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

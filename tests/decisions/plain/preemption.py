"""DefaultPreemption: which pods of which node would have to go, and the sentence when none would do.

From `framework/preemption/preemption.go` and `plugins/defaultpreemption`.

- Only nodes that were refused resolvably are tried. All pods of less priority are taken off the node; if the pod
  then still does not fit, the node's new refusal is what the sentence counts.
- The pods taken off are put back as far as the pod still fits: first those whose removal would violate a budget,
  then the rest, each group from the most important (priority, then the longer running). What stays off are victims.
- A budget covers the labeled pods of its namespace that its selector, which must have requirements, matches.
  Counted down from the most important pod taken off, those beyond `disruptionsAllowed` violate it.
- The node chosen has the fewest violations, then the least priority of its most important victim, then the least
  sum of priorities (each raised by 2^31, so that a victim more always counts), then the fewest victims, then the
  latest start of the longest running among its victims of highest priority. What still ties is chosen by chance.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from tests.decisions.plain import filters
from tests.decisions.plain.selectors import requirements, selects
from tests.decisions.plain.world import Obj, Refusal, World, labels, name, namespace

#: The start of a pod that has not started: kube-scheduler takes the present.
NOT_YET = "9999-12-31T23:59:59Z"
NEVER = "not eligible due to preemptionPolicy=Never."
NO_VICTIMS = Refusal(("No preemption victims found for incoming pod",), unresolvable=True)
NOT_HELPFUL = Refusal(("Preemption is not helpful for scheduling",), unresolvable=True)


def fit_error(nodes: int, refusals: Iterable[Refusal]) -> str:
    """Return kube-scheduler's message with the number of refused nodes by reason (FitError of `framework/types.go`).

    Each part is a number and a reason; parts are in the order of their text, so 10 comes before 2. A node with two
    reasons counts in both.
    """
    counts = Counter(reason for refusal in refusals for reason in refusal.reasons)
    parts = sorted(f"{count} {reason}" for reason, count in counts.items())
    return f"0/{nodes} nodes are available" + (f": {', '.join(parts)}." if parts else "")


@dataclass(frozen=True)
class Candidate:
    """A node and its victims, the most important first."""

    node: str
    victims: tuple[Obj, ...]
    violations: int

    @property
    def rank(self) -> tuple[int, int, int, int, tuple[int, ...]]:
        """Rank of the candidate; those of the least rank are chosen from."""
        highest = priority(self.victims[0])
        longest = min(started(victim) for victim in self.victims if priority(victim) == highest)
        return (
            self.violations,
            highest,
            sum(priority(victim) + 2**31 for victim in self.victims),
            len(self.victims),
            tuple(-ord(letter) for letter in longest),
        )


def priority(pod: Obj) -> int:
    return int(pod["spec"].get("priority") or 0)


def started(pod: Obj) -> str:
    """Return the pod's start, in RFC 3339 with whole seconds, whose order as text is that of time."""
    return (pod.get("status") or {}).get("startTime") or NOT_YET


def importance(pod: Obj) -> tuple[int, str]:
    return -priority(pod), started(pod)


@dataclass(frozen=True)
class Preemption:
    """The result of preemption: the candidates of least rank, or the sentence with the reason why there are none."""

    best: tuple[Candidate, ...] = ()
    message: str = ""


def preempt(pod: Obj, world: World, refusals: Mapping[str, Refusal], budgets: Sequence[Obj] = ()) -> Preemption:
    if pod["spec"].get("preemptionPolicy") == "Never":
        return Preemption(message=f"preemption: {NEVER}")
    found = [
        NOT_HELPFUL if refusals[name(node)].unresolvable else _on_node(pod, node, world, budgets)
        for node in world.nodes
    ]
    candidates = [each for each in found if isinstance(each, Candidate)]
    if not candidates:
        statuses = (each for each in found if isinstance(each, Refusal))
        return Preemption(message=f"preemption: {fit_error(len(found), statuses)}")
    least = min(candidate.rank for candidate in candidates)
    return Preemption(tuple(candidate for candidate in candidates if candidate.rank == least))


def _on_node(pod: Obj, node: Obj, world: World, budgets: Sequence[Obj]) -> Candidate | Refusal:
    potential = [placed for placed in world.on(node) if priority(placed) < priority(pod)]
    if not potential:
        return NO_VICTIMS
    refusal = filters.refuse(pod, node, world.without(potential))
    if refusal is not None:
        return refusal
    potential.sort(key=importance)
    violating = _violating(potential, budgets)
    rest = [placed for placed in potential if placed not in violating]
    away = list(potential)
    for placed in (*violating, *rest):
        reprieved = [other for other in away if other is not placed]
        if filters.refuse(pod, node, world.without(reprieved)) is None:
            away = reprieved
    return Candidate(name(node), tuple(away), sum(placed in violating for placed in away))


def _violating(pods: Sequence[Obj], budgets: Sequence[Obj]) -> list[Obj]:
    """Return the pods whose removal a budget no longer allows, if all of `pods` are removed in their order."""
    allowed = [budget["status"]["disruptionsAllowed"] for budget in budgets]
    violating = []
    for pod in pods:
        covering = [index for index, budget in enumerate(budgets) if _covers(budget, pod)]
        for index in covering:
            allowed[index] -= 1
        if any(allowed[index] < 0 for index in covering):
            violating.append(pod)
    return violating


def _covers(budget: Obj, pod: Obj) -> bool:
    selector = budget["spec"].get("selector") or {}
    return (
        namespace(budget) == namespace(pod)
        and bool(requirements(selector))
        and bool(labels(pod))
        and selects(selector, labels(pod))
        and name(pod) not in (budget["status"].get("disruptedPods") or {})
    )

"""What the recorded clusters carried beside the pods that the recording lists.

On a few node names the recorded scores and refusals are those of a node with more on it than the case says: the same
load in every case from some point on, whatever the case put there. A pod of another namespace that nobody deleted
does that, since each case makes its nodes anew under the same names. The recording does not list such pods, so they
are inferred from it, and nothing is assumed that it does not contradict: a node name carries nothing until an
observation disagrees, then the load that agrees with the longest run of observations from there on (the smallest of
several), until one disagrees again. A clean recording infers none.

Such a load is at most three numbers (CPU, memory, pods that request nothing) and a count of pods, while each
observation gives up to two scores of a hundred steps and a verdict; a wrong rule could not hide in it, because it
would have to err by the same amounts in a hundred unlike cases. `test_background.py` shows that it foretells.

Left-over pods are in a namespace of their own, without labels, terms or host ports: only their room is seen.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations, product
from typing import NamedTuple

from tests.decisions.plain import Obj, World, decide
from tests.decisions.plain.balanced_allocation import evenness
from tests.decisions.plain.filters import refuse
from tests.decisions.plain.node_resources_fit import SCORED, allocatable, least_allocated
from tests.decisions.plain.requests import NON_ZERO, containers_request, pod_request
from tests.decisions.plain.world import name
from tests.decisions.recording import Case

NAMESPACE = "left-over"
#: The steps in which loads are tried: those in which people write requests.
MILLICORES = range(0, 4001, 50)
BYTES = range(0, 4 * 2**30 + 1, 32 * 2**20)
SILENT = range(4)


class Load(NamedTuple):
    """What left-over pods take of a node: what they request, and how many request nothing, of how many in all."""

    cpu: int = 0
    memory: int = 0
    silent: int = 0
    pods: int = 0

    def as_pods(self, node: str) -> list[Obj]:
        """Pods that take this load: one that requests all, silent ones, and others that request zero."""
        asking = {"cpu": f"{self.cpu}m", "memory": str(self.memory)}
        requests: list[dict[str, str]] = [{}] * self.silent
        if self.cpu or self.memory:
            requests.append(asking)
        requests += [{"cpu": "0", "memory": "0"}] * (self.pods - len(requests))
        return [
            {
                "metadata": {"name": f"left-over-{index}", "namespace": NAMESPACE},
                "spec": {
                    "nodeName": node,
                    "containers": [{"name": "c", "image": "left-over", "resources": {"requests": request}}],
                },
            }
            for index, request in enumerate(requests)
        ]


@dataclass(frozen=True)
class Observation:
    """What one case says of one node, as far as room has a part in it.

    Amounts are CPU and memory: what the node has, what the listed pods and the pending one request, with and
    without the defaults of the score. `room` is how many more pods the node would take before the pending one.
    """

    case: int
    whole: tuple[int, ...]
    placed: tuple[int, ...]
    wanted: tuple[int, ...]
    non_zero: tuple[int, ...]
    room: int
    feasible: bool
    fit: int | None
    balance: int | None

    def scored_so(self, load: Load) -> bool:
        """Whether both scores of the node are what they would be under `load`."""
        if self.fit is not None:
            defaults = NON_ZERO["cpu"] * load.silent, NON_ZERO["memory"] * load.silent
            counted = [
                have + more + extra
                for have, more, extra in zip(self.non_zero, load[:2], defaults, strict=True)
            ]
            if least_allocated(counted, self.whole) != self.fit:
                return False
        if self.balance is not None:
            without = [have + more for have, more in zip(self.placed, load[:2], strict=True)]
            with_pod = [have + more for have, more in zip(without, self.wanted, strict=True)]
            change = evenness(with_pod, self.whole) - evenness(without, self.whole)
            return 50 + (50 + change) // 2 == self.balance
        return True

    def short(self, load: Load) -> bool:
        """Whether CPU or memory would be short under `load`, whatever the number of pods."""
        return any(
            wanted > 0 and wanted > whole - have - more
            for wanted, whole, have, more in zip(self.wanted, self.whole, self.placed, load[:2], strict=True)
        )


def infer(cases: Sequence[Case]) -> dict[str, list[tuple[int, Load]]]:
    """By node name, the loads other than none, each with the case from which on it is there."""
    found: dict[str, list[tuple[int, Load]]] = {}
    seen = observed(cases)
    for node, observations in seen.items():
        at, load = 0, Load()
        while (run := _agreeing(load, observations[at:])) < len(observations) - at:
            at += run
            better = _longest(observations[at:])
            if better is None or better == load:
                break  # no load explains it: the replay will say so
            load = better
            found.setdefault(node, []).append((observations[at].case, load))
    for case in sorted(cases, key=lambda case: case.id):
        if case.message is not None:
            _begin_earlier(found, case, seen)
    return found


def _begin_earlier(
    inferred: dict[str, list[tuple[int, Load]]], case: Case, seen: dict[str, list[Observation]]
) -> None:
    """Has loads begin with `case` already, if its message says so and no observation since says otherwise.

    A node that is refused anyway is no observation, but the reason counted in the message may be for want of room.
    """
    later = []
    for node in map(name, case.nodes):
        following = [(since, load) for since, load in inferred.get(node, []) if since > case.id]
        for since, load in following[:1]:
            between = [one for one in seen.get(node, []) if case.id <= one.case < since]
            if _agreeing(load, between) == len(between):
                later.append(node)
    for count in range(len(later) + 1):
        for nodes in combinations(later, count):
            trial = dict(inferred)
            for node in nodes:
                index = sum(since <= case.id for since, _ in inferred[node])
                loads = list(inferred[node])
                loads[index] = case.id, loads[index][1]
                trial[node] = loads
            if _says_so(trial, case):
                inferred.update(trial)
                return
    _of_message(inferred, case, seen)


def _of_message(
    inferred: dict[str, list[tuple[int, Load]]], case: Case, seen: dict[str, list[Observation]]
) -> None:
    """Has a node or two be full from `case` on, if only its message can show that: no observation since contradicts."""
    fillings: dict[str, list[Load]] = {}
    for node in case.nodes:
        since = [one for one in seen.get(name(node), []) if one.case >= case.id]
        if all(begin < case.id for begin, _ in inferred.get(name(node), [])):
            fillings[name(node)] = [
                load for load in _filling(case, node) if _agreeing(load, since) == len(since)
            ]
    for count in (1, 2):
        for called in combinations(fillings, count):
            for loads in product(*(fillings[one] for one in called)):
                trial = dict(inferred)
                for one, load in zip(called, loads, strict=True):
                    trial[one] = [*inferred.get(one, []), (case.id, load)]
                if _says_so(trial, case):
                    inferred.update(trial)
                    return


def _filling(case: Case, node: Obj) -> Iterator[Load]:
    """The least loads that leave too little of one thing, then of several."""
    placed = case.world().on(node)
    room = allocatable(node, "pods") - len(placed)
    cpu, memory = (
        allocatable(node, resource) - sum(pod_request(one, resource) for one in (*placed, case.pending)) + 1
        for resource in SCORED
    )
    for some_cpu, some_memory, pods in sorted(product((0, cpu), (0, memory), (0, room)), key=_how_many):
        if min(some_cpu, some_memory, pods) >= 0:
            yield Load(some_cpu, some_memory, 0, max(pods, int(bool(some_cpu or some_memory))))


def _how_many(amounts: tuple[int, int, int]) -> int:
    return sum(map(bool, amounts))


def _says_so(inferred: dict[str, list[tuple[int, Load]]], case: Case) -> bool:
    return decide(case.pending, case.world(*carried(inferred, case))).message == case.message


def carried(inferred: dict[str, list[tuple[int, Load]]], case: Case) -> list[Obj]:
    """The left-over pods on the nodes of `case`."""
    pods: list[Obj] = []
    for node in map(name, case.nodes):
        loads = [load for since, load in inferred.get(node, []) if since <= case.id]
        pods += loads[-1].as_pods(node) if loads else []
    return pods


def agrees(load: Load, observation: Observation) -> bool:
    return _agreeing(load, [observation]) == 1


def _agreeing(load: Load, observations: Iterable[Observation]) -> int:
    """With how many observations, from the first on, `load` agrees."""
    agreeing = 0
    for observation in observations:
        fits = load.pods <= observation.room and not observation.short(load)
        if fits != observation.feasible or not observation.scored_so(load):
            break
        agreeing += 1
    return agreeing


def _longest(observations: Sequence[Observation]) -> Load | None:
    """The load that agrees longest, from the first observation on; the smallest of several, None if none does."""
    best, longest = None, 0
    for cpu, memory, silent in product(MILLICORES, BYTES, SILENT):
        load, run = _with_pods(Load(cpu, memory, silent), observations)
        if run > longest:
            best, longest = load, run
    return best


def _with_pods(load: Load, observations: Sequence[Observation]) -> tuple[Load, int]:
    """`load` with the fewest pods with which it agrees longest, and with how many observations that is."""
    least, most, run = load.silent + bool(load.cpu or load.memory), 10**9, 0
    for observation in observations:
        if not observation.scored_so(load):
            break
        low, high, short = least, most, observation.short(load)
        if observation.feasible:
            high = -1 if short else min(most, observation.room)
        elif not short:
            low = max(least, observation.room + 1)
        if low > high:
            break
        least, most, run = low, high, run + 1
    return load._replace(pods=least), run


def observed(cases: Iterable[Case]) -> dict[str, list[Observation]]:
    """What the cases say of each node name, in the order of their making."""
    found: dict[str, list[Observation]] = {}
    for case in sorted(cases, key=lambda case: case.id):
        if case.is_error:
            continue
        world = case.world()
        for node in case.nodes:
            observation = _observation(case, node, world)
            if observation is not None:
                found.setdefault(name(node), []).append(observation)
    return found


def _observation(case: Case, node: Obj, world: World) -> Observation | None:
    """None where the node is refused even without left-over pods."""
    pod, placed = case.pending, world.on(node)
    if refuse(pod, node, world) is not None:
        return None
    scores = case.scores.get(name(node), {})
    return Observation(
        case.id,
        whole=tuple(allocatable(node, resource) for resource in SCORED),
        placed=tuple(sum(pod_request(one, resource) for one in placed) for resource in SCORED),
        wanted=tuple(pod_request(pod, resource) for resource in SCORED),
        non_zero=tuple(
            sum(pod_request(one, resource, non_zero=True) for one in placed)
            + containers_request(pod, resource)
            for resource in SCORED
        ),
        room=allocatable(node, "pods") - len(placed) - 1,
        feasible=name(node) in (case.scores or [case.node]),
        fit=scores.get("NodeResourcesFit"),
        balance=scores.get("NodeResourcesBalancedAllocation"),
    )

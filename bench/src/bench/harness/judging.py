"""Decides which runs must not count: a figure that was reached by losing pods or overcommitting nodes is invalid.

`reasons` is pure and has the rules; `audit` reads the API's own objects at the end of a run. The usage of nodes is
computed twice and never by the scheduler: from event to event by `watching.FreeCapacity`, and from the final state
here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec
import orjson

from kube_client.transport import Transport

from .audit import Audit, fetch, judge, raw_items
from .model import Case, Fate, Gang, Spread
from .site import NODES, RESOURCE

#: Maximum number of sentences of one kind that a refusal quotes.
_QUOTED = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Tally:
    """The result of a batch, in numbers of pods.

    `wanted` and `created` by the load, observed as `bound`, still `there` at the end, and `deleted` by the benchmark.
    """

    name: str
    fate: Fate
    wanted: int
    created: int
    bound: int
    there: int
    deleted: int = 0


@dataclass(slots=True, kw_only=True)
class Evidence:
    """The facts that are known at the end of a run."""

    tallies: Sequence[Tally] = ()
    #: Sentences: nodes over their allocatable, pods whose node changed, devices assigned twice, and pods placed against
    #: their constraints.
    over: Sequence[str] = ()
    rebound: Sequence[str] = ()
    doubled: Sequence[str] = ()
    misplaced: Sequence[str] = ()
    #: Pods that are not bound although they fit a node.
    left_out: Sequence[str] = ()
    #: Pods that were scheduled because a timeout woke them; None if the scheduler does not report it.
    flushed: float | None = None


def reasons(evidence: Evidence) -> list[str]:
    """Return why the run is refused; empty if it counts."""
    found: list[str] = []
    for tally in evidence.tallies:
        found += _of_batch(tally)
    for what, sentences in (
        ("over", evidence.over),
        ("moved", evidence.rebound),
        ("assigned twice", evidence.doubled),
        ("misplaced", evidence.misplaced),
        ("left out", evidence.left_out),
    ):
        if sentences:
            more = len(sentences) - _QUOTED
            quoted = "; ".join(sentences[:_QUOTED])
            found.append(f"{what}: {quoted}" + (f"; and {more} more" if more > 0 else ""))
    if evidence.flushed:
        found.append(f"{evidence.flushed:g} pods were rescued by a flush: no event had woken them")
    return found


def _of_batch(tally: Tally) -> list[str]:
    if tally.fate is Fate.ANY:
        return []
    name, wanted = tally.name, tally.wanted
    if tally.created != wanted:
        return [f"{name}: {tally.created:,} of {wanted:,} pods were created"]
    if tally.fate in (Fate.WAITS, Fate.GATED):
        return [f"{name}: {tally.bound:,} pods were bound that fit nowhere"] if tally.bound else []
    if tally.bound != wanted:
        return [f"{name}: {wanted - tally.bound:,} of {wanted:,} pods were never bound"]
    lost = wanted - tally.there - tally.deleted
    if tally.fate is Fate.BOUND and lost > 0:
        return [f"{name}: {lost:,} of {wanted:,} pods were bound and are lost"]
    return []


@dataclass(frozen=True, slots=True)
class Verdict:
    """The verdict on the final state. `there` counts bound pods by batch."""

    state: Audit = field(default_factory=Audit)
    there: Counter[str] = field(default_factory=Counter)
    doubled: Sequence[str] = ()
    misplaced: Sequence[str] = ()


class _JudgedMetadata(msgspec.Struct, rename="camel"):
    name: str = ""
    namespace: str = ""


class _JudgedSpec(msgspec.Struct, rename="camel"):
    node_name: str = ""


class _JudgedPod(msgspec.Struct):
    metadata: _JudgedMetadata
    spec: _JudgedSpec = msgspec.field(default_factory=_JudgedSpec)


_decode_pod = msgspec.json.Decoder(_JudgedPod).decode


async def audit(
    transport: Transport, namespace: str, case: Case, *, selector: Mapping[str, str] | None = None
) -> Verdict:
    """Judge the current objects of the API server; `selector`: of the nodes for the benchmark's pods.

    Raises RequestFailed.
    """
    placed: dict[str, list[str]] = {}
    numbers: dict[str, list[int]] = {}
    kept: list[bytes] = []
    async for raw in raw_items(transport, "/api/v1/pods"):
        pod = _decode_pod(raw)
        if pod.metadata.namespace == namespace:
            batch, _, number = pod.metadata.name.rpartition("-")
            if pod.spec.node_name:
                placed.setdefault(batch, []).append(pod.spec.node_name)
                numbers.setdefault(batch, []).append(int(number))
        elif not pod.spec.node_name:
            # A pod of another client, perhaps for another scheduler.
            continue
        kept.append(raw)
    nodes = await fetch(transport, NODES)
    # Decoded one by one: all pods of a large cluster at once would take gigabytes.
    state = judge(nodes, (orjson.loads(raw) for raw in kept))
    doubled: list[str] = []
    if case.nodes.devices:
        path = f"{RESOURCE}/namespaces/{namespace}/resourceclaims"
        doubled = devices_given_twice(await fetch(transport, path))
    misplaced: list[str] = []
    if case.rule is not None:
        labels = {node["metadata"]["name"]: node["metadata"].get("labels") or {} for node in nodes}
        ruled = placed.get(case.load.name, []) + (placed.get("initial", []) if case.rule.both else [])
        # A domain whose nodes the pods' own selector excludes does not count for them (nodeAffinityPolicy: Honor).
        mine = [each for each in labels.values() if (selector or {}).items() <= each.items()]
        domains = {each[case.rule.key] for each in mine if case.rule.key in each}
        misplaced = breaches(case.rule, [labels.get(node, {}).get(case.rule.key) for node in ruled], domains)
    for each in case.batches:
        if each.gang is not None and each.fate is not Fate.PREEMPTED:
            misplaced += broken(each.name, each.gang, numbers.get(each.name, ()))
    return Verdict(
        state=state,
        there=Counter({batch: len(each) for batch, each in placed.items()}),
        doubled=doubled,
        misplaced=misplaced,
    )


def breaches(rule: Spread, placed: Iterable[str | None], domains: Iterable[str]) -> list[str]:
    """Return the violations of the rule by pods on nodes with these values of its label; `domains` are all values."""
    counts = Counter(dict.fromkeys(domains, 0))
    counts.update(value or "" for value in placed)
    used = {value: count for value, count in counts.items() if count}
    found: list[str] = []
    if rule.skew is not None and counts and max(counts.values()) - min(counts.values()) > rule.skew:
        found.append(f"a skew of more than {rule.skew} over {rule.key}: {dict(sorted(counts.items()))}")
    if rule.values is not None and len(used) > rule.values:
        found.append(f"pods are on {len(used)} values of {rule.key}, not {rule.values}")
    if rule.among and not used.keys() <= set(rule.among):
        found.append(f"pods are on {rule.key} {', '.join(sorted(used.keys() - set(rule.among)))}")
    if rule.most is not None and any(count > rule.most for count in used.values()):
        crowded = max(used, key=lambda value: used[value])
        found.append(f"{used[crowded]} pods are on {rule.key} {crowded}, not {rule.most}")
    return found


def broken(batch: str, gang: Gang, bound: Iterable[int]) -> list[str]:
    """Return the gangs of which some pods are bound, and fewer than their minimum."""
    minimum = gang.size if gang.minimum is None else gang.minimum
    counts = Counter(number // gang.size for number in bound)
    return [
        f"{count} pods of gang {number} of {batch} are bound, and {minimum} is its minimum"
        for number, count in sorted(counts.items())
        if count < minimum
    ]


def devices_given_twice(claims: Iterable[dict[str, Any]]) -> list[str]:
    """Return the devices that more than one claim has."""
    holders: dict[tuple[str, str, str], list[str]] = {}
    for claim in claims:
        allocation = (claim.get("status") or {}).get("allocation") or {}
        for result in (allocation.get("devices") or {}).get("results") or ():
            device = (result["driver"], result["pool"], result["device"])
            holders.setdefault(device, []).append(claim["metadata"]["name"])
    return [
        f"device {device[2]} of {device[1]} is held by {', '.join(sorted(names))}"
        for device, names in holders.items()
        if len(names) > 1
    ]

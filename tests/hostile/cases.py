"""The catalogue: for each kind, the objects along each axis, and those that every kind can have by its metadata."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, Final, NamedTuple

from agent_scheduler.objects import batch, job_pod
from agent_scheduler.objects.job import DEPENDENT_JOB, DEPENDS_ON_GANG

from .drawing import ANNOTATIONS, TEXTS, Draw, Object
from .kinds import HOSTILE_KINDS

#: The ways in which an object is extreme.
AXES: Final = (
    *("depth", "count", "size", "unicode", "quantity", "cycle", "owner", "duplicate", "maximum", "time", "missing"),
    *("null", "garbage", "elsewhere"),
)
#: Returns an object without its kind and version, or several that belong together. A name is added if it has none.
Make = Callable[[Draw], Object | list[Object]]


class Case(NamedTuple):
    """One way in which a kind is hostile: the axes along which it is extreme, and how such an object is made."""

    axes: tuple[str, ...]
    make: Make


#: Resource -> name of a case -> the case.
_CASES: Final[dict[str, dict[str, Case]]] = {}


def case(resource: str, *axes: str) -> Callable[[Make], Make]:
    """Register a case of a kind, with its axes."""

    def register(make: Make) -> Make:
        assert {*axes} <= {*AXES}, axes
        _CASES.setdefault(resource, {})[make.__name__.replace("_", "-")] = Case(axes, make)
        return make

    return register


def merged(body: Object, more: Object) -> Object:
    """Return `body` with the fields of `more`, mapping by mapping."""
    found = dict(body)
    for key, value in more.items():
        known = found.get(key)
        found[key] = merged(known, value) if isinstance(known, dict) and isinstance(value, dict) else value
    return found


# ---- by metadata, of all kinds

#: The annotations that our components read, of any kind.
OURS: Final = (
    *(batch.GROUP_NAME, batch.QUEUE_NAME, batch.QUEUE_ALLOCATION_GATE, batch.GROUP_MIN_MEMBER, batch.CLOSED_BY_PARENT),
    *(batch.PREEMPTABLE, batch.TASK_SPEC, batch.WAITING_ROLES, batch.QUOTA_PARTS, batch.ATTAINABLE),
    *(job_pod.TASK_INDEX, job_pod.JOB_NAME, job_pod.JOB_NAMESPACE, job_pod.POD_QUEUE_NAME, job_pod.VERSION),
    *(job_pod.RETRY_COUNT, job_pod.TEMPLATE_UID, job_pod.PARTITION_ID, job_pod.OUT_OF_SYNC),
    *(DEPENDENT_JOB, DEPENDS_ON_GANG, "scheduling.volcano.sh/group-name", "volcano.sh/task-priority"),
    *("agent-scheduler.io/gpu-index", "storageclass.kubernetes.io/is-default-class"),
    *("volume.kubernetes.io/selected-node", "pv.kubernetes.io/bind-completed", "pod.kubernetes.io/nominated-node"),
)
_DIGITS: Final = ("9" * 5_000, "-1", "1e9", "\u0663", "0x10", "2147483648", "9223372036854775808")
_JSON: Final = ("[" * 20_000, '[{"resources":{"cpu":"1e999999999"},"scopes":[null]}]', "null", '{"a":1}', "[1,[2]]")


def _long_annotations(draw: Draw) -> Object:
    share = ANNOTATIONS // len(OURS) - 100
    return {"metadata": {"annotations": {key: draw.long(share) for key in OURS}}}


def _odd_annotations(draw: Draw) -> Object:
    odd = (
        *TEXTS,
        *_DIGITS,
        *_JSON,
        ",".join(map(str, range(3_000))),
        "=" * 1_000,
        "a=1,a=2,=,/",
        "5,worker=99999999999/1",
    )
    return {"metadata": {"annotations": {key: draw.some(*odd) for key in OURS}}}


def _numbers_in_annotations(draw: Draw) -> Object:
    return {"metadata": {"annotations": {key: draw.some(*_DIGITS) for key in OURS}}}


def _many_annotations(draw: Draw) -> Object:
    return {"metadata": {"annotations": {f"example.com/{number}": "" for number in range(draw.count(12_000))}}}


def _many_labels(draw: Draw) -> Object:
    return {"metadata": {"labels": {f"example.com/{number}": "x" * 63 for number in range(draw.count(8_000))}}}


def _many_finalizers(draw: Draw) -> Object:
    return {"metadata": {"finalizers": draw.many(20_000, lambda number: f"example.com/f{number}")}}


def _many_owners(draw: Draw) -> Object:
    kinds = ("Job", "ReplicaSet", "StatefulSet", "PodGroup", "Node", "Widget")
    versions = ("batch.volcano.sh/v1alpha1", "apps/v1", "v1", "example.com/v1")

    def owner(number: int) -> Object:
        found = {"apiVersion": draw.some(*versions), "kind": draw.some(*kinds)}
        return {**found, "name": f"nobody-{number}", "uid": f"u-{number}", "controller": number == 0}

    return {"metadata": {"ownerReferences": draw.many(8_000, owner)}}


def _missing_owner(draw: Draw) -> Object:
    version, kind = draw.some(
        ("batch.volcano.sh/v1alpha1", "Job"),
        ("apps/v1", "ReplicaSet"),
        ("apps/v1", "StatefulSet"),
        ("apps/v1", "DaemonSet"),
        ("batch/v1", "Job"),
        ("scheduling.volcano.sh/v1beta1", "PodGroup"),
        ("v1", "Pod"),
        ("../..", "\u202e"),
    )
    name = draw.some("nobody", "../../nodes/n1", "a b?c#d%2e", draw.text(), draw.long(200_000))
    owner = {"apiVersion": version, "kind": kind, "name": name, "uid": draw.some("u", draw.text())}
    controls = {"controller": draw.some(True, False), "blockOwnerDeletion": True}
    return {"metadata": {"ownerReferences": [{**owner, **controls}, {**owner}]}}


def _longest_name(draw: Draw) -> Object:
    return {"metadata": {"name": f"{draw.name}-{'x' * 63}"[:63].rstrip("-")}}


#: The cases of any kind by its metadata.
_BY_METADATA: Final[tuple[tuple[str, str, Callable[[Draw], Object]], ...]] = (
    ("size", "long-annotations", _long_annotations),
    ("unicode", "odd-annotations", _odd_annotations),
    ("garbage", "numbers-in-annotations", _numbers_in_annotations),
    ("count", "many-annotations", _many_annotations),
    ("count", "many-labels", _many_labels),
    ("count", "many-finalizers", _many_finalizers),
    ("owner", "many-owners", _many_owners),
    ("owner", "missing-owner", _missing_owner),
    ("missing", "nothing-else", lambda _: {}),
    ("maximum", "longest-name", _longest_name),
)


@cache
def cases(resource: str) -> dict[str, Case]:
    """Return the cases of a kind by name."""
    minimal = HOSTILE_KINDS[resource].minimal

    def of_metadata(change: Callable[[Draw], Object]) -> Make:
        return lambda draw: merged(minimal(draw), change(draw))

    common = {name: Case((axis,), of_metadata(change)) for axis, name, change in _BY_METADATA}
    return {**_CASES.get(resource, {}), **common}


def spec(resource: str, draw: Draw, **more: Any) -> Object:
    """Return a minimal object with these fields in its spec."""
    return merged(HOSTILE_KINDS[resource].minimal(draw), {"spec": more})

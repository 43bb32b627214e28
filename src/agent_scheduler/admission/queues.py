"""Defaults and checks of queues that are created, changed or deleted.

This module checks a queue by itself, `queue_tree` its position in the tree.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

import msgspec

from agent_scheduler.engine.quotas.access import namespace_list
from agent_scheduler.objects.batch import DEFAULT_QUEUE, ROOT_QUEUE, Queue, QueueSpec
from agent_scheduler.objects.wire import Metadata
from apimachinery.quantity import UNIT, QuantityError, canonical, parse
from apimachinery.validation.names import is_extended_resource
from apimachinery.wire import Resources, Wire

from .queue_tree import QueueTreeRules, allocated_pods
from .review import (
    ALLOWED,
    CREATE,
    DELETE,
    UPDATE,
    AdmissionRequest,
    AdmissionResponse,
    JsonPatchOperation,
    allowed_with,
    object_of,
    refused,
)

#: A queue's path in the tree of hierarchical DRF, and the weights on the path.
HIERARCHY: Final = "volcano.sh/hierarchy"
HIERARCHY_WEIGHTS: Final = "volcano.sh/hierarchy-weights"

_STATES: Final = ("Open", "Closed")
#: Resources with integer amounts.
_OBJECT_COUNTS: Final = frozenset(
    {
        *("pods", "services", "replicationcontrollers", "resourcequotas", "secrets", "configmaps"),
        *("persistentvolumeclaims", "services.nodeports", "services.loadbalancers"),
    }
)
#: The numbers of Go's ParseFloat, except for hexadecimal ones.
_NUMBER: Final = re.compile(r"[+-]?((\d+(\.\d*)?|\.\d+)(e[+-]?\d+)?|inf|infinity|nan)", re.IGNORECASE | re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueRules:
    """`max_depth` is the maximum number of levels below root.

    With `keep_allocated`, a queue with pods cannot be deleted; with `protect_root`, the resources of root cannot
    change.
    """

    max_depth: int = 5
    keep_allocated: bool = False
    protect_root: bool = True


class _CreatedQueueSpec(QueueSpec, frozen=True):
    """A spec without the CRD's defaults. Weight 0 means none."""

    weight: int = 0


class _CreatedQueue(Wire, frozen=True):
    metadata: Metadata = Metadata()
    spec: _CreatedQueueSpec = _CreatedQueueSpec()


_read = msgspec.json.Decoder(Queue).decode
_read_made = msgspec.json.Decoder(_CreatedQueue).decode


# ---- defaults


def mutate(request: AdmissionRequest) -> AdmissionResponse:
    queue = object_of(request.object, _read_made)
    if request.operation != CREATE:
        return refused(f"invalid operation `{request.operation}`, expect operation to be `CREATE`")
    annotations = queue.metadata.annotations or {}
    hierarchy, weights = annotations.get(HIERARCHY, ""), annotations.get(HIERARCHY_WEIGHTS, "")
    patch: list[JsonPatchOperation] = []
    if hierarchy and weights and not hierarchy.startswith(ROOT_QUEUE):
        patch += [
            JsonPatchOperation("add", _annotation(HIERARCHY), f"{ROOT_QUEUE}/{hierarchy}"),
            JsonPatchOperation("add", _annotation(HIERARCHY_WEIGHTS), f"1/{weights}"),
        ]
    if queue.spec.reclaimable is None:
        patch.append(JsonPatchOperation("add", "/spec/reclaimable", True))
    if queue.spec.weight == 0:
        patch.append(JsonPatchOperation("add", "/spec/weight", 1))
    return allowed_with(patch)


def _annotation(key: str) -> str:
    """Return the JSON pointer of an annotation."""
    return f"/metadata/annotations/{key.replace('~', '~0').replace('/', '~1')}"


# ---- what is allowed


def validate(request: AdmissionRequest, queues: Mapping[str, Queue], rules: QueueRules) -> AdmissionResponse:
    """Check the request. `queues` are the existing queues by name, without the change of the request."""
    try:
        problem = _problem(request, queues, rules)
    except QuantityError as error:
        problem = str(error)
    return refused(problem) if problem else ALLOWED


def _problem(request: AdmissionRequest, queues: Mapping[str, Queue], rules: QueueRules) -> str:
    """Return the problem, or an empty text. Raises QuantityError."""
    if request.operation == DELETE:
        return _deleting(request.name, QueueTreeRules(queues), rules)
    if request.operation not in (CREATE, UPDATE):
        allowed = "`CREATE`, `UPDATE` or `DELETE`"
        return f"invalid operation `{request.operation}`, expect operation to be {allowed}"
    queue = object_of(request.object, _read)
    old = object_of(request.old_object, _read) if request.operation == UPDATE else None
    return _saying(queue, old, queues) or _placing(queue, old, QueueTreeRules(queues), rules)


def _deleting(name: str, tree: QueueTreeRules, rules: QueueRules) -> str:
    if name in (DEFAULT_QUEUE, ROOT_QUEUE):
        return f"`{name}` queue can not be deleted"
    queue = tree.queues.get(name)
    if queue is None:
        return f'queue.scheduling.volcano.sh "{name}" not found'
    if rules.keep_allocated and (pods := allocated_pods(queue)):
        return f"queue {name} cannot be deleted because it has allocated Pods: {pods}"
    if below := tree.below(name):
        return f"queue {name} can not be deleted because it has {len(below)} child queues: {', '.join(below)}"
    return ""


def _placing(queue: Queue, old: Queue | None, tree: QueueTreeRules, rules: QueueRules) -> str:
    moved = old is None or old.spec.parent != queue.spec.parent
    if moved and (problem := tree.place(queue, max_depth=rules.max_depth)):
        return problem
    if old is not None and not moved and _amounts(old) == _amounts(queue):
        return ""
    if queue.name == ROOT_QUEUE:
        if rules.protect_root and old is not None and _amounts(old) != _amounts(queue):
            return "root queue's resource attributes (capability, deserved, guarantee) cannot be modified"
        return ""
    return tree.fit(queue)


def _amounts(queue: Queue) -> tuple[Mapping[str, int], ...]:
    spec = queue.spec
    guarantee = spec.guarantee.resource if spec.guarantee is not None else None
    return tuple(
        {name: parse(str(amount)).nano for name, amount in (resources or {}).items()}
        for resources in (spec.capability, spec.deserved, guarantee)
    )


def _saying(queue: Queue, old: Queue | None, queues: Mapping[str, Queue]) -> str:
    """Check the queue by itself. Raises QuantityError."""
    found = [*_of_amounts(queue.spec), *_of_state(queue, old), *_of_hierarchy(queue, queues)]
    namespace_list(queue.metadata.annotations, found)
    problems = list(dict.fromkeys(found))
    return problems[0] if len(problems) == 1 else f"[{', '.join(problems)}]" if problems else ""


def _invalid(field: str, value: str, detail: str) -> str:
    return f"requestBody.{field}: Invalid value: {json.dumps(value, ensure_ascii=False)}: {detail}"


def _of_amounts(spec: QueueSpec) -> Iterator[str]:
    """Check that guarantee <= deserved <= capability, the latter if specified."""
    capability, deserved = spec.capability or {}, spec.deserved or {}
    guarantee = (spec.guarantee.resource if spec.guarantee is not None else None) or {}
    yield from _of_resources("spec.capability", capability)
    yield from _of_resources("spec.deserved", deserved)
    for name in guarantee:
        yield from _of_resources("spec.guarantee.resource", {name: guarantee[name]})
        field, least = f"spec.deserved.{name}", _text(guarantee[name])
        if name not in deserved:
            yield _invalid(field, "<nil>", f"deserved[{name}] must be >= guarantee[{name}]={least}")
        elif _nano(deserved[name]) < _nano(guarantee[name]):
            text = _text(deserved[name])
            yield _invalid(field, text, f"deserved[{name}]={text} must be >= guarantee[{name}]={least}")
    for name in deserved:
        if name in capability and _nano(deserved[name]) > _nano(capability[name]):
            text, most = _text(deserved[name]), _text(capability[name])
            yield _invalid(
                f"spec.deserved.{name}", text, f"deserved[{name}]={text} must be <= capability[{name}]={most}"
            )


def _of_resources(field: str, resources: Resources) -> Iterator[str]:
    for name, amount in resources.items():
        text, nano = _text(amount), _nano(amount)
        if nano < 0:
            yield _invalid(f"{field}.{name}", text, "must be greater than or equal to 0")
        if (name in _OBJECT_COUNTS or is_extended_resource(name)) and nano % UNIT:
            yield _invalid(f"{field}.{name}", text, "must be an integer")


def _nano(amount: str | int | float) -> int:
    return parse(str(amount)).nano


def _text(amount: str | int | float) -> str:
    return canonical(parse(str(amount)))


def _of_state(queue: Queue, old: Queue | None) -> Iterator[str]:
    """Check the state. A queue that is Closing or Unknown may be changed, unless the change sets such a state.

    Volcano rejects every change of such a queue, including its controller's.
    """
    state = queue.status.state
    if state and state not in _STATES and (old is None or old.status.state != state):
        yield _invalid("spec.state", state, f"queue state must be in [{' '.join(_STATES)}]")


def _of_weight(weight: str) -> str:
    """Return the problem of a weight, or an empty text."""
    if not _NUMBER.fullmatch(weight):
        return f"is invalid number: strconv.ParseFloat: parsing {json.dumps(weight)}: invalid syntax"
    return "" if float(weight) > 0 else "must be larger than 0"


def _of_hierarchy(queue: Queue, queues: Mapping[str, Queue]) -> Iterable[str]:
    """Check the annotations: their lengths, else each weight, else each queue below."""
    annotations, field = queue.metadata.annotations or {}, "metadata.annotations"
    hierarchy, weights = annotations.get(HIERARCHY, ""), annotations.get(HIERARCHY_WEIGHTS, "")
    if not hierarchy and not weights:
        return
    each_weight = weights.split("/")
    if len(hierarchy.split("/")) != len(each_weight):
        yield _invalid(field, hierarchy, f"{HIERARCHY} must have the same length with {HIERARCHY_WEIGHTS}")
        return
    problems = [
        _invalid(field, weights, f"{weight} in the {weights} {problem}")
        for weight in dict.fromkeys(each_weight)
        if (problem := _of_weight(weight))
    ]
    if problems:
        yield from problems
        return
    for other in sorted(queues.values(), key=lambda each: each.name):
        theirs = (other.metadata.annotations or {}).get(HIERARCHY, "")
        if other.name != queue.name and theirs.startswith(f"{hierarchy}/"):
            yield _invalid(
                field, hierarchy, f"{hierarchy} is not allowed to be in the sub path of {theirs} of queue {other.name}"
            )

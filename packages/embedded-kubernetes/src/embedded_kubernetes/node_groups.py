"""Node groups of the simulated autoscaler, and the syntax of their rules.

A rule is one line: `cpu=8,memory=32Gi,pods=110,nvidia.com/gpu=1,label:pool=gpu,taint:gpu=yes:NoSchedule,max=10`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from apimachinery.quantity import resource_value

from .builtin import names
from .builtin.placement import TAINT_EFFECTS
from .resource import Object
from .simulated_nodes import READY

#: Label with the group of a node that the autoscaler created.
NODE_GROUP: Final = "agent-scheduler.io/node-group"

_RESOURCES: Final = ("cpu", "memory", "pods", "ephemeral-storage")
_NEEDED: Final = ("cpu", "memory")
_PODS: Final = "110"
_ALLOWED: Final = (
    "cpu, memory, pods, ephemeral-storage or another resource with a / in its name (NAME=QUANTITY), label:KEY=VALUE, "
    "taint:KEY[=VALUE]:EFFECT, name=NAME, max=N, delay=SECONDS and idle=SECONDS"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeGroup:
    """Nodes of one shape, at most `most`.

    A node is created after `delay` seconds, and deleted after `idle` seconds without pods.
    """

    name: str
    #: The allocatable amounts of each node.
    amounts: Mapping[str, str]
    labels: Mapping[str, str] = field(default_factory=dict)
    taints: Sequence[Mapping[str, str]] = ()
    most: int = 10
    delay: float = 5.0
    idle: float = 30.0

    def labels_of(self, node: str) -> dict[str, str]:
        return {
            "kubernetes.io/hostname": node,
            "kubernetes.io/os": "linux",
            "kubernetes.io/arch": "amd64",
            "node.kubernetes.io/instance-type": self.name,
            **self.labels,
            NODE_GROUP: self.name,
        }

    def node(self, number: int, *, kubelets: bool = True) -> Object:
        """Return the node with this number, as registered by its kubelet; without `kubelets`, it is already Ready."""
        name = f"{self.name}-{number}"
        spec = {"taints": [dict(taint) for taint in self.taints]} if self.taints else {}
        return {
            "kind": "Node",
            "apiVersion": "v1",
            "metadata": {"name": name, "labels": self.labels_of(name)},
            "spec": spec,
            "status": {
                "capacity": dict(self.amounts),
                "allocatable": dict(self.amounts),
                **({} if kubelets else {"conditions": [READY]}),
            },
        }


def read_rules(rules: Sequence[str]) -> tuple[NodeGroup, ...]:
    """Return the groups of these rules, in order. Raises `RuleError`."""
    found: dict[str, NodeGroup] = {}
    for number, rule in enumerate(rules, 1):
        group = _read(rule, f"group-{number}")
        if group.name in found:
            raise RuleError(rule, f"another group is named {group.name}; give each its own name=NAME")
        found[group.name] = group
    return tuple(found.values())


class RuleError(ValueError):
    """A rule is malformed; the message has the position and the allowed values."""

    def __init__(self, rule: str, why: str) -> None:
        super().__init__(why)
        self.rule = rule


@dataclass(slots=True)
class _Draft:
    name: str
    amounts: dict[str, str] = field(default_factory=dict)
    labels: dict[str, str] = field(default_factory=dict)
    taints: list[dict[str, str]] = field(default_factory=list)
    numbers: dict[str, float] = field(default_factory=dict)


def _read(rule: str, name: str) -> NodeGroup:
    draft = _Draft(name)
    seen: set[str] = set()
    for number, entry in enumerate(rule.split(","), 1):
        key, equals, value = entry.strip().partition("=")
        try:
            # A taint may lack a value, and several taints may share a key.
            if (not equals and not key.startswith("taint:")) or not key:
                raise ValueError(f"allowed are {_ALLOWED}")
            if key in seen and not key.startswith("taint:"):
                raise ValueError("is given twice")
            seen.add(key)
            _read_entry(draft, key, value)
        except ValueError as error:
            raise RuleError(rule, f"entry {number} ({entry.strip()}): {error}") from None
    for needed in _NEEDED:
        if needed not in draft.amounts:
            raise RuleError(rule, f"{needed}=QUANTITY is missing")
    numbers = draft.numbers
    return NodeGroup(
        name=draft.name,
        amounts={"pods": _PODS, **draft.amounts},
        labels=draft.labels,
        taints=tuple(draft.taints),
        most=int(numbers.get("max", 10)),
        delay=numbers.get("delay", 5.0),
        idle=numbers.get("idle", 30.0),
    )


def _read_entry(draft: _Draft, key: str, value: str) -> None:
    """Parse an entry into the draft. Raises ValueError."""
    kind, colon, rest = key.partition(":")
    if kind == "label" and colon:
        _check(names.qualified, rest)
        _check(names.label_value, value)
        draft.labels[rest] = value
    elif kind == "taint" and colon:
        text = f"{rest}={value}" if value else rest
        named, _, effect = text.rpartition(":")
        taint_key, _, taint_value = named.partition("=")
        if effect not in TAINT_EFFECTS:
            raise ValueError(f"a taint is KEY[=VALUE]:EFFECT, with an effect of {', '.join(TAINT_EFFECTS)}")
        _check(names.qualified, taint_key)
        _check(names.label_value, taint_value)
        taint = {"key": taint_key, "effect": effect}
        draft.taints.append({**taint, "value": taint_value} if taint_value else taint)
    elif key == "name":
        _check(names.label, value)
        draft.name = value
    elif key == "max":
        if not (value.isascii() and value.isdigit()) or int(value) < 1:
            raise ValueError("must be a whole number from 1 on")
        draft.numbers[key] = int(value)
    elif key in ("delay", "idle"):
        draft.numbers[key] = _seconds(value)
    elif key in _RESOURCES or "/" in key:
        if "/" in key:
            _check(names.qualified, key)
        if resource_value(key, value) < 0:
            raise ValueError("must be at least 0")
        draft.amounts[key] = value
    else:
        raise ValueError(f"allowed are {_ALLOWED}")


def _check(problems_of: Callable[[str], names.Problems], text: str) -> None:
    if problems := problems_of(text):
        raise ValueError(f"{text!r}: {'; '.join(problems)}")


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds < float("inf"):
        raise ValueError("must be a number of seconds, at least 0")
    return seconds

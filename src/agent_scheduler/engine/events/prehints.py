"""Pre-hints: which of the waiting pods an event can concern at all, before any of them is asked (KEP-6132).

A plugin may register one beside an event's hint. It is called once an event, whoever waits, and names the pods that
the hint is then put to; its answer holds for this plugin alone. There are two forms:

- a function `(event, old, new) -> ALL_PODS | pods`, where a pod is named by UID or by (namespace, name);
- `ByKeys`: the queue keeps an index of the pods that the plugin refused, by keys that the plugin gives each of them,
  and the event is turned into keys. So an event costs what it may wake, and not what waits.

The contract of both: whoever the hint would wake is named. Too many cost a question each; one too few sleeps on.
What raises, or answers with something else, names all.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from enum import Enum
from typing import Any, Final, NamedTuple

from msgspec import Struct

from .events import ClusterEvent


class AllPods(Enum):
    ALL_PODS = "all_pods"


#: The answer of a pre-hint that cannot tell: every pod that the plugin refused.
ALL_PODS: Final = AllPods.ALL_PODS


class Amount(NamedTuple):
    """A key of a pod: it has that much of something. Found by `UpTo`."""

    dimension: Hashable
    amount: int


class UpTo(NamedTuple):
    """A key of an event: every pod with an `Amount` of that dimension, but for those with more."""

    dimension: Hashable
    amount: int


class Own(NamedTuple):
    """A key of an event: the pod with this UID."""

    uid: str


#: Anything else that can be hashed is found by its equal. Begin it with a word, so that two kinds never meet.
Key = Hashable

#: A key of pods that every event concerns, and so one that every event of such a plugin has to name.
ANYWAY: Final = "anyway"

#: What a function names pods by: UID, or (namespace, name).
PodName = str | tuple[str, str]

#: (event, object before, object after) -> the waiting pods that the event can concern.
PreHintFn = Callable[[ClusterEvent, Any, Any], AllPods | Iterable[PodName]]

KeysOfEvent = Callable[[ClusterEvent, Any, Any], AllPods | Iterable[Key]]


class PodIndex(Struct, frozen=True, eq=False):
    """How a plugin's refused pods are found. One object serves all events of a plugin that want the same keys.

    `keys_of` must be a function of what `shared` gives: pods for which that is equal have one place in the index. Both
    are asked when a pod is refused and when it has changed, not for an event. Without `shared` each pod is alone.

    `volatile`: what they give may change with other objects than the pod. Then they are asked again for every pod that
    a hint of the plugin was put to and that stays, so an event of such an object has to concern the pods that it means.
    """

    keys_of: Callable[[Any], Iterable[Key]]
    shared: Callable[[Any], Hashable] | None = None
    volatile: bool = False


class ByKeys(Struct, frozen=True):
    """A pre-hint by index. `keys` None: it narrows nothing, and the index only says who can be asked at once.

    `once`: the hint's answer depends, of the pod, on what `index.shared` gives alone, so that one pod is asked for all
    that share it.
    """

    index: PodIndex
    keys: KeysOfEvent | None = None
    once: bool = False


PreHint = PreHintFn | ByKeys


def own_pod(event: ClusterEvent, old: Any, new: Any) -> tuple[str, ...]:
    """For events of the waiting pod itself: that one."""
    return (new.uid,)


def nobody_or_all(hint: Callable[[Any, Any], bool]) -> PreHintFn:
    """For hints that ask nothing of the pod: `hint` says of (old, new) whether anybody is to be woken."""

    def narrow(event: ClusterEvent, old: Any, new: Any) -> AllPods | tuple[str, ...]:
        return ALL_PODS if hint(old, new) else ()

    return narrow

"""Pre-hints: the waiting pods that an event can concern, found before any hint is evaluated (KEP-6132).

A plugin may register one beside an event's hint. It is called once per event, independent of the waiting pods, and
names the pods that the hint is then evaluated for; its answer applies to this plugin alone. There are two forms:

- a function `(event, old, new) -> ALL_PODS | pods`, where a pod is named by UID or by (namespace, name);
- `ByKeys`: the queue keeps an index of the pods that the plugin refused, by keys that the plugin returns for each, and
  the event is turned into keys. So the cost of an event depends on the pods it may wake, not on all waiting pods.

The contract of both: every pod that the hint would queue is named. An extra name costs a hint; a missing one leaves the
pod waiting. A pre-hint that raises, or returns something else, names all.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from enum import Enum
from typing import Any, Final, NamedTuple

from msgspec import Struct

from .events import ClusterEvent


class AllPods(Enum):
    ALL_PODS = "all_pods"


#: The answer of a pre-hint that cannot narrow: every pod that the plugin refused.
ALL_PODS: Final = AllPods.ALL_PODS


class Amount(NamedTuple):
    """A key of a pod that requires `amount` of `dimension`. Found by `UpTo`."""

    dimension: Hashable
    amount: int


class UpTo(NamedTuple):
    """A key of an event: every pod with an `Amount` of that dimension up to `amount`."""

    dimension: Hashable
    amount: int


class Own(NamedTuple):
    """A key of an event: the pod with this UID."""

    uid: str


#: Any other hashable key is found by its equal. Begin it with a word, so that two kinds never collide.
Key = Hashable

#: A key of pods that every event concerns; every event of such a plugin has to name it.
ANYWAY: Final = "anyway"

#: The name of a pod in a function's answer: UID, or (namespace, name).
PodName = str | tuple[str, str]

#: (event, object before, object after) -> the waiting pods that the event can concern.
PreHintFn = Callable[[ClusterEvent, Any, Any], AllPods | Iterable[PodName]]

KeysOfEvent = Callable[[ClusterEvent, Any, Any], AllPods | Iterable[Key]]


class PodIndex(Struct, frozen=True, eq=False):
    """The index of a plugin's refused pods. One object serves all events of a plugin that use the same keys.

    `keys_of` must be a function of the value of `shared`: pods with equal values have one place in the index. Both are
    called when a pod is refused and when it has changed, not for an event. Without `shared` each pod has its own place.

    `volatile`: their values may change with objects other than the pod. Then they are called again for every pod that
    stays after a hint of the plugin, so an event of such an object has to name the pods that it concerns.
    """

    keys_of: Callable[[Any], Iterable[Key]]
    shared: Callable[[Any], Hashable] | None = None
    volatile: bool = False


class ByKeys(Struct, frozen=True):
    """A pre-hint by index.

    If `keys` is None it narrows nothing, and the index only groups pods that are asked together. `once`: the hint's
    answer depends only on the pod's `index.shared`, so that one pod is asked on behalf of all that share it.
    """

    index: PodIndex
    keys: KeysOfEvent | None = None
    once: bool = False


PreHint = PreHintFn | ByKeys


def own_pod(event: ClusterEvent, old: Any, new: Any) -> tuple[str, ...]:
    """Return the waiting pod itself, for its own events."""
    return (new.uid,)


def nobody_or_all(hint: Callable[[Any, Any], bool]) -> PreHintFn:
    """Return a pre-hint for hints that ignore the pod: `hint` of (old, new) decides whether any pod is woken."""

    def narrow(event: ClusterEvent, old: Any, new: Any) -> AllPods | tuple[str, ...]:
        return ALL_PODS if hint(old, new) else ()

    return narrow

"""GPUs that pods share: who was given which, judged from the annotations that the API has.

S38 no device of a node is given to more pods of ours than it has room for
S39 a pod of ours that asks for GPUs is bound with as many devices as it asks for, named in its annotation; when its
    room was reserved its node had each of them, and each had room

Which devices a process has chosen for a pod that is not bound yet is noted where they are chosen; all else is what the
API's objects say, read plainly (`tests.decisions.plain.gpu_share`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import orjson

from tests.decisions.plain.gpu_share import WHOLE, asked, devices, given, left

from .claims import Seen
from .gpu_reading import with_devices

if TYPE_CHECKING:
    from agent_scheduler.fastpath.scheduler import FastPath
    from embedded_kubernetes.store import Event, Record

    from .processes import Process
    from .world import World

Json = dict[str, Any]

PODS = ("", "pods")
_FINAL = ("Succeeded", "Failed")


class GpuSafety:
    """Owner of what was bound by us, and of whose annotation others have changed."""

    def __init__(self, world: World) -> None:
        self._world = world
        #: UIDs of pods that a process of ours has bound.
        self._ours: set[str] = set()
        #: Nodes on which somebody may give a device away who cannot know of others: by a bind of a process that is no
        #: more, or by what somebody has written into an annotation.
        self.contested: set[str] = set()
        #: UID of a pod whose annotation somebody has changed -> all devices that it has ever named.
        self.named: dict[str, set[int]] = {}
        #: (Process, UID) -> who reserved devices, the devices, and how many the node had then.
        self._chosen: dict[tuple[str, str], tuple[str, tuple[int, ...], int]] = {}
        table = world.store.tables[PODS]
        self._node_field = table.field_names.index("spec.nodeName")
        self._phase_field = table.field_names.index("status.phase")
        table.subscribers.append(self._pod)

    def went_back(self) -> None:
        """The store has: what was bound since is not, and may be again while somebody does not know."""
        self.contested.update(record.name for record in self._world.store.tables["", "nodes"].scan(""))

    def _pod(self, event: Event) -> None:
        if self._world.backups.restoring or event.record.uid not in self.named:
            return
        self.named[event.record.uid].update(given(orjson.loads(event.record.data)))

    def edited(self, pod: Json) -> None:
        """Somebody is about to change which devices the pod says that it has."""
        self.contested.add(pod["spec"]["nodeName"])
        self.named.setdefault(pod["metadata"]["uid"], set()).update(given(pod))

    def as_counted_at_most(self, pod: Json) -> Json:
        """The pod with all the devices on which anybody may count it."""
        named = self.named.get(pod["metadata"]["uid"])
        return pod if named is None else with_devices(pod, sorted(named.union(given(pod))))

    # -- reservations

    def watch(self, process: Process, fast_path: FastPath) -> None:
        """Hear of each reservation. Idempotent."""
        ledger: Any = fast_path.ledger
        if getattr(ledger, "gpus_judged", False):
            return
        assume = ledger.assume

        def assumed(pod: Any, row: int) -> None:
            name = ledger.columns.nodes[row].name
            unaware = self._world.backups.is_unaware(process)
            seen = None if unaware or not pod.cls.gpu else Seen(self._world.evictions, process, fast_path)
            assume(pod, row)
            if seen is not None:
                self._judge(process, seen, pod.uid, name, ledger.placements[pod.uid].gpus)

        ledger.assume, ledger.gpus_judged = assumed, True

    def _judge(self, process: Process, seen: Seen, uid: str, node_name: str, chosen: tuple[int, ...]) -> None:
        pod, node = seen.pod(uid), seen.node(node_name)
        if pod is None or node is None:
            # That is said by S25.
            return
        self._world.safety.checked["S39"] += 1
        self._chosen[process.name, uid] = process.identity, chosen, devices(node)
        free, amount = left(node, seen.placed[node_name]), asked(pod)
        self._note(seen, node_name, process, free, amount)
        enough = min(amount, WHOLE)
        if len(chosen) != max(1, amount // WHOLE):
            self._wrong(process, f"reserves the devices {chosen} of {node_name} for {amount}")
        elif any(index >= len(free) or free[index] < enough for index in chosen):
            self._wrong(
                process, f"reserves the devices {chosen} of {node_name}, which have {free} left, for {amount}"
            )

    def _note(self, seen: Seen, node_name: str, process: Process, free: Sequence[int], amount: int) -> None:
        reached = self._world.states.reached
        if amount < WHOLE and any(0 < each < WHOLE for each in free):
            reached("GPU shared")
        earlier = (
            chosen[0] != process.identity
            for pod in seen.placed[node_name]
            if (chosen := self._chosen.get((process.name, pod["metadata"]["uid"]))) is not None
        )
        if any(earlier):
            reached("GPUs found again after a restart")

    def _wrong(self, process: Process, what: str) -> None:
        self._world.safety.violated("S39", f"{process.identity} {what}")

    # -- commits

    def check_bind(self, record: Record, pod: Json, actor: Process, *, late: bool) -> None:
        """`actor` has bound this pod; `late`: it is one that lives no more, or has lost its right to."""
        self._ours.add(record.uid)
        node, amount = pod["spec"]["nodeName"], asked(pod)
        if late:
            self.contested.add(node)
        if amount:
            self._check_named(record, pod, actor, late=late)
        self._check_shares(node, actor)

    def _check_named(self, record: Record, pod: Json, actor: Process, *, late: bool) -> None:
        self._world.safety.checked["S39"] += 1
        named, amount = given(pod), asked(pod)
        if len(named) != max(1, amount // WHOLE):
            self._wrong(actor, f"bound {record.key}, which asks for {amount}, with the devices {named}")
        identity, chosen, offered = self._chosen.get((actor.name, record.uid), ("", (), 0))
        if late or identity != actor.identity:
            # Sent by who was there before, by what that one knew.
            return
        if named != chosen or any(index >= offered for index in named):
            self._wrong(actor, f"bound {record.key} with {named} of {offered} devices, and chose {chosen}")

    def _check_shares(self, node: str, actor: Process) -> None:
        if node in self.contested:
            return
        self._world.safety.checked["S38"] += 1
        total: Counter[int] = Counter()
        for record in self._world.store.tables[PODS].having(self._node_field, node) or ():
            if record.uid in self._ours and record.fields[self._phase_field] not in _FINAL:
                pod = orjson.loads(record.data)
                total.update(dict.fromkeys(given(pod), min(asked(pod), WHOLE)))
        if any(amount > WHOLE for amount in total.values()):
            text = f"{actor.identity} gave more of a device of {node} than there is: {dict(total)}"
            self._world.safety.violated("S38", text)

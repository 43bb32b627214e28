"""PreEnqueue: plugins that keep a pod out of activeQ and backoffQ before it is ever tried.

Whom a plugin holds back hears of the events that this plugin registered, since one of them may open the gate. A plugin
whose gate no event opens says so by `activates = True`: it calls `SchedulingQueue.activate` for whom it lets in.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from ..events.hints import HintMap
from .entry import QueuedPodInfo
from .record import QueueRecorder


class PreEnqueuePlugin(Protocol):
    @property
    def name(self) -> str: ...

    def pre_enqueue(self, pod: Any) -> str | None:
        """Why the pod has to wait, or None to let it in."""


class Gatekeeper:
    """Asks the PreEnqueue plugins of a pod's profile. Holds nothing that changes."""

    def __init__(
        self,
        *,
        hint_maps: Mapping[str, HintMap],
        pre_enqueue: Mapping[str, Sequence[PreEnqueuePlugin]],
        recorder: QueueRecorder,
    ) -> None:
        unknown = sorted(pre_enqueue.keys() - hint_maps.keys())
        if unknown:
            raise ValueError(f"pre_enqueue names profiles {unknown}: known profiles are {sorted(hint_maps)}")
        #: By profile: each plugin's name and question, and the events after which to ask it again.
        self._gates = {
            profile: tuple(
                (
                    plugin.name,
                    plugin.pre_enqueue,
                    () if getattr(plugin, "activates", False) else hint_maps[profile].events_of(plugin.name),
                )
                for plugin in plugins
            )
            for profile, plugins in pre_enqueue.items()
            if plugins
        }
        self._recorder = recorder

    def lets_in(self, entry: QueuedPodInfo[Any]) -> bool:
        """Ask every plugin until one refuses; `entry` then names it as its gate, or is gated no longer.

        The plugin that gated the pod before is asked first, since it most likely still does.
        """
        pod = entry.pod
        profile = pod.scheduler_name
        gates = self._gates.get(profile, ())
        previous = entry.gating_plugin
        if previous:
            gates = tuple(sorted(gates, key=lambda gate: gate[0] != previous))
        for name, pre_enqueue, events in gates:
            try:
                message = pre_enqueue(pod)
            except Exception as error:
                # A pod whose gate cannot be read waits behind it: events and the leftover flush ask again.
                message = f"{type(error).__name__}: {error}"
                self._recorder.plugin_raised(name, "PreEnqueue", error)
            if message is not None:
                entry.gate(name, events=events, message=message)
                return False
        if previous:
            entry.ungate()
        return True

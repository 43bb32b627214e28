"""PreEnqueue: plugins that keep a pod out of activeQ and backoffQ before it is ever tried."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from .entry import QueuedPodInfo
from .hints import HintMap
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
        self._hint_maps = hint_maps
        #: By profile: each plugin's name and question.
        self._gates = {
            profile: tuple((plugin.name, plugin.pre_enqueue) for plugin in plugins)
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
        for name, pre_enqueue in gates:
            try:
                message = pre_enqueue(pod)
            except Exception as error:
                # A pod whose gate cannot be read waits behind it: events and the leftover flush ask again.
                message = f"{type(error).__name__}: {error}"
                self._recorder.plugin_raised(name, "PreEnqueue", error)
            if message is not None:
                entry.gate(name, events=self._hint_maps[profile].events_of(name), message=message)
                return False
        if previous:
            entry.ungate()
        return True

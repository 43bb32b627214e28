"""Nodes a and b, and what one plugin for volumes says of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from agent_scheduler.engine.framework.plugin import PodRejected
from agent_scheduler.engine.state.podvolumes import PodVolumes
from tests.support.engine import World, node
from tests.support.storage import class_of

#: Pods by UID, with the nodes that they are on.
Users = Mapping[str, tuple[str, PodVolumes]]


class VolumeWorld(World):
    def __init__(self, plugin: Any, *objects: Any, used: Users | None = None) -> None:
        super().__init__(node("a"), node("b"))
        self.add(*objects)
        self.plugin = plugin
        self.use = self.ledger.volume_use
        for uid, (name, volumes) in (used or {}).items():
            self.use.set(uid, name, volumes)

    def verdict(
        self,
        volumes: PodVolumes,
        *,
        without: Iterable[str] = (),
        coming: Mapping[str, PodVolumes] | None = None,
    ) -> list[str] | dict[str, int] | str:
        """The nodes that will do; or the reasons of each, if there are none; or why the pod is rejected.

        `without`: pods that are thought away; `coming`: pods that are thought of on every node.
        """
        self.columns.absent = set(without)
        self.columns.hypothetical_pods = {row: dict(coming or {}) for row in self.rows.tolist()}
        try:
            state = self.plugin.prepare(class_of(volumes), self.handle)
        except PodRejected as why:
            return str(why)
        if state is None:
            return list(self.ledger.rows)
        fits = self.names(self.plugin.feasible(state, self.columns, self.rows))
        return fits or dict(self.plugin.reasons(state, self.columns, self.rows))

"""Reserve as one step: all resources beside capacity that plugins take on a node for a pod, or none."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..framework.plugin import Profile
from ..framework.prebind import Reserve, Writes
from ..state.nodeinfo import NodeInfo
from ..state.podinfo import PodInfo
from .compiled import CompiledFilter

#: The reservation of each plugin, in the order of the profile's filters.
Reservations = Sequence[tuple[Reserve, Any]]


def reserve(
    profile: Profile, filters: Sequence[CompiledFilter], pod: PodInfo, node: NodeInfo, *, at: str, writes: Writes
) -> Reservations | None:
    """Reserve on `node` what the plugins of the pod's `filters` need, or return None and reserve nothing.

    `at` is as for `Reserve.reserve`. Raises the error of a plugin, with nothing reserved.
    """
    reserves = {id(plugin): plugin for plugin in profile.reserves}
    taken: list[tuple[Reserve, Any]] = []
    try:
        for each in filters:
            plugin = reserves.get(id(each.plugin))
            if plugin is None:
                continue
            reservation = plugin.reserve(each.state, pod, node, at)
            if reservation is None:
                unreserve(taken, pod, writes)
                return None
            taken.append((plugin, reservation))
    except BaseException:
        unreserve(taken, pod, writes)
        raise
    return taken


def unreserve(reservations: Reservations, pod: PodInfo, writes: Writes) -> None:
    for plugin, _ in reservations:
        plugin.unreserve(pod, writes)

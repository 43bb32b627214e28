"""Plugins that other distributions bring, found by their entry points (group `agent_scheduler.plugins`).

Only those are loaded that a profile names: a broken one that nobody asked for breaks nothing, and a distribution that
is merely installed changes no decision. The plugins of the scheduler itself cannot be replaced.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING

from agent_scheduler.engine.framework.registration import Registration, Registry
from agent_scheduler.engine.profiles.profiles import REGISTRY

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

GROUP = "agent_scheduler.plugins"


class BrokenPlugin(ValueError):
    """A plugin of another distribution that cannot be had. The message begins with its name."""

    def __init__(self, name: str, message: str) -> None:
        super().__init__(message)
        self.name = name


def available() -> tuple[str, ...]:
    """Names of plugins that could be named in a profile, those of the scheduler itself included."""
    return tuple(dict.fromkeys((*REGISTRY.names(), *(entry.name for entry in _entries()))))


def registry(names: Iterable[str]) -> Registry:
    """The scheduler's plugins and, of other distributions, those among `names`. Raises BrokenPlugin."""
    wanted = {name for name in names if name not in REGISTRY}
    if not wanted:
        return REGISTRY
    # A process that runs for long may be given new distributions.
    importlib.invalidate_caches()
    found: dict[str, EntryPoint] = {}
    for entry in _entries():
        if entry.name in wanted:
            other = found.setdefault(entry.name, entry)
            if other.value != entry.value:
                raise BrokenPlugin(
                    entry.name,
                    f"plugin {entry.name} is brought by both {_origin(other)} and {_origin(entry)}",
                )
    return REGISTRY.with_plugins(*(_load(entry) for entry in found.values()))


def _entries() -> Iterable[EntryPoint]:
    # Here, because most configurations name no such plugin, and the library takes long to load.
    from importlib.metadata import entry_points

    return entry_points(group=GROUP)


def _load(entry: EntryPoint) -> Registration:
    whose = f"plugin {entry.name} (from {_origin(entry)})"
    try:
        made = entry.load()
    except Exception as error:
        raise BrokenPlugin(
            entry.name, f"{whose} cannot be loaded: {type(error).__name__}: {error}"
        ) from error
    if not isinstance(made, Registration):
        raise BrokenPlugin(
            entry.name,
            f"{whose}: {entry.value} is a {type(made).__name__}; allowed: an agent_scheduler.plugin.Registration",
        )
    if made.name != entry.name:
        raise BrokenPlugin(entry.name, f"{whose}: its registration is called {made.name!r}")
    try:
        Registry((made,))
    except ValueError as error:
        raise BrokenPlugin(entry.name, f"{whose}: {error}") from None
    return replace(made, origin=_origin(entry))


def _origin(entry: EntryPoint) -> str:
    where = f"{entry.dist.name} {entry.dist.version}, " if entry.dist is not None else ""
    return f"{where}{entry.value}"

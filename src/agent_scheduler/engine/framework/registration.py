"""The registration of a plugin: its name, its points, its arguments, and its factories."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from .args import PluginArgs
from .points import PART_OF, POINTS

#: Creates a plugin from its arguments, which are an instance of the `args` of its registration.
Factory = Callable[[Any], object]


@dataclass(frozen=True, slots=True)
class Registration:
    """One plugin. Points with the same factory get the same object, so a plugin may share state among them."""

    name: str
    #: Extension point -> factory; preFilter and preScore are parts of filter and score.
    points: Mapping[str, Factory]
    args: type[PluginArgs] = PluginArgs
    #: The distribution that has it, for errors; empty for a plugin of the scheduler itself.
    origin: str = ""

    def implements(self, point: str) -> bool:
        return PART_OF.get(point, point) in self.points


@dataclass(frozen=True, slots=True)
class Registry:
    """Plugins by name. Raises ValueError for a duplicate name and for unknown points."""

    plugins: tuple[Registration, ...]
    _by_name: dict[str, Registration] = field(init=False, repr=False, default_factory=dict)

    def __post_init__(self) -> None:
        for plugin in self.plugins:
            if plugin.name in self._by_name:
                raise ValueError(f"plugin {plugin.name!r} is registered twice")
            unknown = sorted(set(plugin.points) - (set(POINTS) - set(PART_OF)))
            if unknown or not plugin.points:
                allowed = ", ".join(point for point in POINTS if point not in PART_OF)
                raise ValueError(f"plugin {plugin.name!r}: points {unknown}; allowed: at least one of {allowed}")
            self._by_name[plugin.name] = plugin

    def __contains__(self, name: object) -> bool:
        return name in self._by_name

    def __iter__(self) -> Iterator[Registration]:
        return iter(self.plugins)

    def __getitem__(self, name: str) -> Registration:
        return self._by_name[name]

    def get(self, name: str) -> Registration | None:
        return self._by_name.get(name)

    def names(self, point: str | None = None) -> tuple[str, ...]:
        """Return the names of all plugins, or of those that implement `point`."""
        return tuple(plugin.name for plugin in self.plugins if point is None or plugin.implements(point))

    def with_plugins(self, *more: Registration) -> Registry:
        return Registry((*self.plugins, *more)) if more else self

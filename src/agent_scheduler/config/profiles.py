"""Builds the engine's profiles from those of a configuration; each error has its place in the file.

Plugins of other distributions are found by their entry points (group `agent_scheduler.plugins`). Only plugins that a
profile names are loaded: an unused broken one has no effect, and an installed distribution changes no decision. The
scheduler's own plugins cannot be replaced.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from msgspec.structs import fields

from agent_scheduler.config.kube_scheduler import KUBE_API_GROUP
from agent_scheduler.config.schema import Configuration, PluginConfig, Plugins, ProfileConfig
from agent_scheduler.config.schema import PluginSet as Chosen
from agent_scheduler.engine.framework.args import PluginArgs
from agent_scheduler.engine.framework.plugin import GANG_SCHEDULING, Profile
from agent_scheduler.engine.framework.points import ALL, MULTI_POINT, PART_OF, Enabled, PluginSet
from agent_scheduler.engine.framework.registration import Registration, Registry
from agent_scheduler.engine.profiles.bases import ABSENT, BASES
from agent_scheduler.engine.profiles.profiles import (
    REGISTRY,
    ProfileError,
    ProfileSpec,
    UnknownPlugin,
    build_profile,
    is_absent,
)
from apimachinery.codec import Warn, decode, silent, suggest
from apimachinery.errors import Invalid, Path, found

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint


GROUP = "agent_scheduler.plugins"


class BrokenPlugin(ValueError):
    """A plugin of another distribution cannot be loaded. The message begins with its name."""

    def __init__(self, name: str, message: str) -> None:
        super().__init__(message)
        self.name = name


def available_plugins() -> tuple[str, ...]:
    """Return the names of all plugins that a profile could use, including the scheduler's own."""
    return tuple(dict.fromkeys((*REGISTRY.names(), *(entry.name for entry in _entries()))))


def plugin_registry(names: Iterable[str]) -> Registry:
    """Return the scheduler's plugins and those of other distributions among `names`. Raises BrokenPlugin."""
    wanted = {name for name in names if name not in REGISTRY}
    if not wanted:
        return REGISTRY
    # Distributions may be installed while the process runs.
    importlib.invalidate_caches()
    found: dict[str, EntryPoint] = {}
    for entry in _entries():
        if entry.name in wanted:
            other = found.setdefault(entry.name, entry)
            if other.value != entry.value:
                raise BrokenPlugin(
                    entry.name, f"plugin {entry.name} is provided by both {_origin(other)} and {_origin(entry)}"
                )
    return REGISTRY.with_plugins(*(_load(entry) for entry in found.values()))


def _entries() -> Iterable[EntryPoint]:
    # Imported here because most configurations use no such plugin, and the library is slow to load.
    from importlib.metadata import entry_points

    return entry_points(group=GROUP)


def _load(entry: EntryPoint) -> Registration:
    whose = f"plugin {entry.name} (from {_origin(entry)})"
    try:
        made = entry.load()
    except Exception as error:
        raise BrokenPlugin(entry.name, f"{whose} cannot be loaded: {type(error).__name__}: {error}") from error
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


#: Extension point -> its field of `Plugins`.
_POINTS: Mapping[str, str] = {each.encode_name: each.name for each in fields(Plugins)}
#: Extension points whose weights are used.
_WEIGHED = (MULTI_POINT, "score")
_OWN_API_VERSION = "agent-scheduler/v1"


def build_profiles(configuration: Configuration, *, warn: Warn = silent) -> dict[str, Profile]:
    """Build the profiles by schedulerName. Each call creates new plugins. Raises Invalid."""
    built = {}
    gangs = configuration.feature_gates[GANG_SCHEDULING]
    for index, profile in enumerate(configuration.profiles):
        path: Path = ("profiles", index)
        registry = _registry(profile, path)
        spec = _spec(profile, path, registry, warn)
        try:
            made = build_profile(spec, registry)
            built[profile.scheduler_name] = made if gangs else made.without_gangs()
        except UnknownPlugin as error:
            allowed = {*error.allowed, *available_plugins()} - {ALL}
            if error.path[2:3] == ("disabled",):
                allowed.add(ALL)
            elif error.path[:1] == ("plugins",) and error.path[1] != MULTI_POINT:
                allowed = set(error.allowed)
            message = f"found {error.name!r}; {suggest(error.name, allowed)}"
            raise Invalid((*path, *_place(error.path, profile)), message) from None
        except ProfileError as error:
            raise Invalid((*path, *_place(error.path, profile)), error.message) from None
    return built


def _registry(profile: ProfileConfig, path: Path) -> Registry:
    """Return the plugins available for `profile`: the scheduler's, and the external ones that it names."""
    places: dict[str, Path] = {}
    for point, name in _POINTS.items():
        for index, plugin in enumerate(getattr(profile.plugins, name).enabled):
            places.setdefault(plugin.name, (*path, "plugins", point, "enabled", index, "name"))
    try:
        return plugin_registry(places)
    except BrokenPlugin as error:
        raise Invalid(places[error.name], str(error)) from None


def _spec(profile: ProfileConfig, path: Path, registry: Registry, warn: Warn) -> ProfileSpec:
    sets = {}
    for point, name in _POINTS.items():
        chosen: Chosen = getattr(profile.plugins, name)
        _check_set(chosen, (*path, "plugins", point), point)
        sets[point] = PluginSet(
            tuple(Enabled(plugin.name, plugin.weight) for plugin in chosen.enabled),
            tuple(plugin.name for plugin in chosen.disabled),
        )
        for index, plugin in enumerate(chosen.disabled):
            if is_absent(plugin.name, registry):
                why = ABSENT.get(plugin.name, "it does not exist here")
                warn(
                    (*path, "plugins", point, "disabled", index, "name"),
                    f"has no effect: there is no {plugin.name} ({why})",
                )
    for part, whole in PART_OF.items():
        for index, name in enumerate(sets[part].disabled):
            if name not in sets[whole].disabled and ALL not in sets[whole].disabled:
                warn(
                    (*path, "plugins", part, "disabled", index, "name"),
                    f"has no effect: {part} is a part of {whole}; disable it there",
                )
    return ProfileSpec(
        scheduler_name=profile.scheduler_name,
        base=profile.base,
        plugins=sets,
        args=dict(_args(profile, path, registry, warn)),
    )


def _check_set(chosen: Chosen, path: Path, point: str) -> None:
    for key, names in (
        ("enabled", [plugin.name for plugin in chosen.enabled]),
        ("disabled", [plugin.name for plugin in chosen.disabled]),
    ):
        for index, name in enumerate(names):
            if name in names[:index]:
                raise Invalid((*path, key, index, "name"), f"found {name!r} a second time")
    for index, plugin in enumerate(chosen.enabled):
        if plugin.weight and point not in _WEIGHED:
            raise Invalid((*path, "enabled", index, "weight"), f"is for scores only: set it at {' or '.join(_WEIGHED)}")


def _args(profile: ProfileConfig, path: Path, registry: Registry, warn: Warn) -> Iterator[tuple[str, PluginArgs]]:
    seen: set[str] = set()
    for index, config in enumerate(profile.plugin_config):
        at = (*path, "pluginConfig", index)
        if config.name in seen:
            raise Invalid((*at, "name"), f"found {config.name!r} a second time; specify a plugin's args once")
        seen.add(config.name)
        plugin = registry.get(config.name)
        if plugin is not None:
            base = BASES[profile.base].args.get(config.name)
            yield (config.name, decode(_plain(config, plugin, at), plugin.args, path=(*at, "args"), onto=base))
        elif is_absent(config.name, registry):
            why = ABSENT.get(config.name, "it does not exist here")
            warn((*at, "name"), f"has no effect: there is no {config.name} ({why})")
        elif config.name in available_plugins():
            warn((*at, "name"), f"has no effect: the profile does not enable {config.name}")
        else:
            raise Invalid((*at, "name"), f"found {config.name!r}; {suggest(config.name, available_plugins())}")


def _plain(config: PluginConfig, plugin: Registration, at: Path) -> dict[str, Any]:
    """Return the arguments without the header of kube-scheduler's files."""
    args = dict(config.args)
    if plugin.origin:
        return args
    version, kind = args.pop("apiVersion", None), args.pop("kind", None)
    if kind not in (None, f"{plugin.name}Args"):
        raise Invalid((*at, "args", "kind"), f"found {found(kind)}; allowed: {plugin.name}Args")
    ours = isinstance(version, str) and (version == _OWN_API_VERSION or version.startswith(KUBE_API_GROUP))
    if version is not None and not ours:
        raise Invalid(
            (*at, "args", "apiVersion"), f"found {found(version)}; allowed: {_OWN_API_VERSION}, {KUBE_API_GROUP}v1"
        )
    return args


def _place(path: Path, profile: ProfileConfig) -> Path:
    """Return the engine's path as in the file, where entries of pluginConfig have an index instead of a name."""
    if path[:1] != ("pluginConfig",):
        return path
    name, rest = path[1], path[2:]
    for index, config in enumerate(profile.plugin_config):
        if config.name == name:
            return ("pluginConfig", index, *rest)
    return ()

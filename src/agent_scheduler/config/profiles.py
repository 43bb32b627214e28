"""From the profiles of a configuration to those that the engine runs, each mistake told by its place in the file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from msgspec.structs import fields

from agent_scheduler.config import discovery
from agent_scheduler.config.codec import Warn, decode, silent, suggest
from agent_scheduler.config.errors import Invalid, Path, found
from agent_scheduler.config.kube_scheduler import KUBE_API_GROUP
from agent_scheduler.config.schema import Configuration, PluginConfig, Plugins, ProfileConfig
from agent_scheduler.config.schema import PluginSet as Chosen
from agent_scheduler.engine.framework.args import PluginArgs
from agent_scheduler.engine.framework.plugin import Profile
from agent_scheduler.engine.framework.points import (
    ALL,
    MULTI_POINT,
    PART_OF,
    Enabled,
    PluginSet,
)
from agent_scheduler.engine.framework.registration import Registration, Registry
from agent_scheduler.engine.profiles.bases import ABSENT, BASES
from agent_scheduler.engine.profiles.profiles import (
    ProfileError,
    ProfileSpec,
    UnknownPlugin,
    build_profile,
    is_absent,
)

#: Extension point -> the field of `Plugins` that is about it.
_POINTS: Mapping[str, str] = {each.encode_name: each.name for each in fields(Plugins)}
#: Those whose weights are read.
_WEIGHED = (MULTI_POINT, "score")
_OWN_API_VERSION = "agent-scheduler/v1"


def build_profiles(configuration: Configuration, *, warn: Warn = silent) -> dict[str, Profile]:
    """The profiles by schedulerName. Each call makes plugins of its own. Raises Invalid."""
    built = {}
    for index, profile in enumerate(configuration.profiles):
        path: Path = ("profiles", index)
        registry = _registry(profile, path)
        spec = _spec(profile, path, registry, warn)
        try:
            built[profile.scheduler_name] = build_profile(spec, registry)
        except UnknownPlugin as error:
            allowed = {*error.allowed, *discovery.available()} - {ALL}
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
    """The plugins that `profile` can have: the scheduler's, and those from elsewhere that it names."""
    places: dict[str, Path] = {}
    for point, name in _POINTS.items():
        for index, plugin in enumerate(getattr(profile.plugins, name).enabled):
            places.setdefault(plugin.name, (*path, "plugins", point, "enabled", index, "name"))
    try:
        return discovery.registry(places)
    except discovery.BrokenPlugin as error:
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
            raise Invalid(
                (*path, "enabled", index, "weight"), f"is for scores only: give it at {' or '.join(_WEIGHED)}"
            )


def _args(
    profile: ProfileConfig, path: Path, registry: Registry, warn: Warn
) -> Iterator[tuple[str, PluginArgs]]:
    seen: set[str] = set()
    for index, config in enumerate(profile.plugin_config):
        at = (*path, "pluginConfig", index)
        if config.name in seen:
            raise Invalid((*at, "name"), f"found {config.name!r} a second time; give a plugin's args once")
        seen.add(config.name)
        plugin = registry.get(config.name)
        if plugin is not None:
            base = BASES[profile.base].args.get(config.name)
            yield (
                config.name,
                decode(_plain(config, plugin, at), plugin.args, path=(*at, "args"), onto=base),
            )
        elif is_absent(config.name, registry):
            why = ABSENT.get(config.name, "it does not exist here")
            warn((*at, "name"), f"has no effect: there is no {config.name} ({why})")
        elif config.name in discovery.available():
            warn((*at, "name"), f"has no effect: the profile does not enable {config.name}")
        else:
            raise Invalid(
                (*at, "name"), f"found {config.name!r}; {suggest(config.name, discovery.available())}"
            )


def _plain(config: PluginConfig, plugin: Registration, at: Path) -> dict[str, Any]:
    """The arguments without the header that kube-scheduler's files give them."""
    args = dict(config.args)
    if plugin.origin:
        return args
    version, kind = args.pop("apiVersion", None), args.pop("kind", None)
    if kind not in (None, f"{plugin.name}Args"):
        raise Invalid((*at, "args", "kind"), f"found {found(kind)}; allowed: {plugin.name}Args")
    ours = isinstance(version, str) and (version == _OWN_API_VERSION or version.startswith(KUBE_API_GROUP))
    if version is not None and not ours:
        raise Invalid(
            (*at, "args", "apiVersion"),
            f"found {found(version)}; allowed: {_OWN_API_VERSION}, {KUBE_API_GROUP}v1",
        )
    return args


def _place(path: Path, profile: ProfileConfig) -> Path:
    """The engine's path as the file has it: it names an entry of pluginConfig by its plugin."""
    if path[:1] != ("pluginConfig",):
        return path
    name, rest = path[1], path[2:]
    for index, config in enumerate(profile.plugin_config):
        if config.name == name:
            return ("pluginConfig", index, *rest)
    return ()

"""What must hold between settings: each rule with the reason why the scheduler could not work without it."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable, Mapping

from agent_scheduler.config.codec import suggest
from agent_scheduler.config.errors import Invalid, Path
from agent_scheduler.config.schema import (
    Configuration,
    DisabledPlugin,
    LeaderElection,
    PluginRef,
    ProfileConfig,
    Serving,
)
from agent_scheduler.engine.profiles import (
    FILTERS,
    PRE_ENQUEUE,
    SCORES,
    ArgsError,
    ProfileSpec,
    build_profile,
)

#: Retries are spread by this factor, so a renewal may start that much later (client-go's JitterFactor).
_JITTER = 1.2
#: Names of leases and namespaces (RFC 1123 subdomain).
_OBJECT_NAME = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")


def check(configuration: Configuration) -> None:
    """Raises `Invalid` for the first rule that `configuration` breaks."""
    initial, maximum = configuration.pod_initial_backoff_seconds, configuration.pod_max_backoff_seconds
    if maximum != 0 and maximum < initial:
        raise Invalid(
            ("podMaxBackoffSeconds",),
            f"found {maximum:g}; allowed: 0 (no backoff), or podInitialBackoffSeconds ({initial:g}) and more",
        )
    _check_election(configuration.leader_election)
    _check_serving(configuration.serving)
    seen: dict[str, int] = {}
    for index, profile in enumerate(configuration.profiles):
        first = seen.setdefault(profile.scheduler_name, index)
        if first != index:
            raise Invalid(
                ("profiles", index, "schedulerName"),
                f"found {profile.scheduler_name!r}, which profiles[{first}] is called already; names are unique",
            )
        _check_profile(profile, ("profiles", index))


def profile_specs(configuration: Configuration) -> tuple[ProfileSpec, ...]:
    """The profiles as the engine builds them."""
    return tuple(_spec(profile) for profile in configuration.profiles)


def _check_election(election: LeaderElection) -> None:
    at = "leaderElection"
    if election.retry_period <= 0:
        raise Invalid((at, "retryPeriod"), "must be above 0s")
    if election.renew_deadline <= election.retry_period * _JITTER:
        raise Invalid(
            (at, "renewDeadline"),
            f"found {election.renew_deadline:g}s; allowed: more than {_JITTER} times retryPeriod "
            f"({election.retry_period:g}s), so that a renewal that failed can be tried again",
        )
    if election.lease_duration <= election.renew_deadline:
        raise Invalid(
            (at, "leaseDuration"),
            f"found {election.lease_duration:g}s; allowed: more than renewDeadline ({election.renew_deadline:g}s), "
            "so that a leader stops before another may start",
        )
    if election.lease_duration < 1 or election.lease_duration != int(election.lease_duration):
        raise Invalid((at, "leaseDuration"), "must be whole seconds: a Lease holds nothing finer")
    if election.leader_elect:
        for key, name in (
            ("resourceName", election.resource_name),
            ("resourceNamespace", election.resource_namespace),
        ):
            if not _OBJECT_NAME.fullmatch(name) or len(name) > 253:
                raise Invalid(
                    (at, key),
                    f"found {name!r}; allowed: an object's name: lower case letters, digits, - and .",
                )


def _check_serving(serving: Serving) -> None:
    try:
        ipaddress.ip_address(serving.bind_address)
    except ValueError:
        raise Invalid(
            ("serving", "bindAddress"),
            f"found {serving.bind_address!r}; allowed: an IP address; 0.0.0.0 or :: for all",
        ) from None
    if bool(serving.tls_cert_file) != bool(serving.tls_private_key_file):
        missing = "tlsPrivateKeyFile" if serving.tls_cert_file else "tlsCertFile"
        raise Invalid(
            ("serving", missing), "is missing: a certificate needs its key, and a key its certificate"
        )


def _check_profile(profile: ProfileConfig, path: Path) -> None:
    plugins = profile.plugins
    points: tuple[tuple[str, Mapping[str, object]], ...] = (
        ("preEnqueue", PRE_ENQUEUE),
        ("filter", FILTERS),
        ("score", SCORES),
    )
    for point, known in points:
        chosen = getattr(plugins, "pre_enqueue" if point == "preEnqueue" else point)
        at = (*path, "plugins", point)
        _check_names(chosen.enabled, (*at, "enabled"), known)
        _check_names(chosen.disabled, (*at, "disabled"), known, also="*")
        if point != "score":
            for index, ref in enumerate(chosen.enabled):
                if ref.weight is not None:
                    raise Invalid((*at, "enabled", index, "weight"), "is for scores only")
    if plugins.pre_enqueue.disabled:
        raise Invalid(
            (*path, "plugins", "preEnqueue", "disabled"),
            "is not supported: the API server refuses to bind a pod with scheduling gates, whoever asks",
        )
    for index, config in enumerate(profile.plugin_config):
        at = (*path, "pluginConfig", index, "name")
        if any(config.name == other.name for other in profile.plugin_config[:index]):
            raise Invalid(at, f"found {config.name!r} a second time; give a plugin's args once")
        if config.name not in FILTERS and config.name not in SCORES:
            raise Invalid(at, f"found {config.name!r}; {suggest(config.name, {*FILTERS, *SCORES})}")
    try:
        build_profile(_spec(profile))
    except ArgsError as error:
        raise Invalid((*path, *_steps(error.path, profile)), error.message) from None


def _check_names(
    refs: Iterable[PluginRef | DisabledPlugin], path: Path, known: Mapping[str, object], *, also: str = ""
) -> None:
    seen: set[str] = set()
    for index, ref in enumerate(refs):
        if ref.name not in known and ref.name != also:
            allowed = {*known, also} if also else known
            raise Invalid((*path, index, "name"), f"found {ref.name!r}; {suggest(ref.name, allowed)}")
        if ref.name in seen:
            raise Invalid((*path, index, "name"), f"found {ref.name!r} a second time")
        seen.add(ref.name)


def _spec(profile: ProfileConfig) -> ProfileSpec:
    plugins = profile.plugins
    return ProfileSpec(
        scheduler_name=profile.scheduler_name,
        base=profile.base,
        disabled_filters=tuple(plugin.name for plugin in plugins.filter.disabled),
        enabled_filters=tuple(plugin.name for plugin in plugins.filter.enabled),
        disabled_scores=tuple(plugin.name for plugin in plugins.score.disabled),
        enabled_scores={plugin.name: plugin.weight or 1 for plugin in plugins.score.enabled},
        args={config.name: config.args for config in profile.plugin_config},
    )


def _steps(path: str, profile: ProfileConfig) -> Path:
    """The engine's path, relative to the profile, as steps; it names an entry of pluginConfig by its plugin."""
    steps: list[str | int] = []
    for word, index in re.findall(r"([^.\[\]]+)|\[([^\]]*)\]", path):
        if word:
            steps.append(word)
        elif index.isdigit():
            steps.append(int(index))
        else:
            steps.append(next(i for i, config in enumerate(profile.plugin_config) if config.name == index))
    return tuple(steps)

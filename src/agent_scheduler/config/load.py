"""From file and flags to one `Configuration` with nothing left open.

A flag that was given overrides the file; what neither says has the default of the schema. What contradicts
itself, or would silently do nothing, is refused.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Mapping
from pathlib import Path as FilePath
from typing import Any

from msgspec.structs import replace

from agent_scheduler.config import flags as command_line
from agent_scheduler.config.checks import check, profile_specs
from agent_scheduler.config.codec import decode, encode, suggest
from agent_scheduler.config.document import Document
from agent_scheduler.config.errors import ConfigurationError, Invalid, Path, show
from agent_scheduler.config.flags import Flag
from agent_scheduler.config.schema import (
    API_VERSION,
    DEFAULT_SCHEDULER_NAME,
    EXPLAINED,
    FEATURE_GATES,
    KIND,
    ClientConnection,
    Configuration,
    Events,
    ProfileConfig,
    StatusWrites,
)
from agent_scheduler.engine.framework import Profile
from agent_scheduler.engine.profiles import build_profile

NAMESPACE_FILE = FilePath("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
_FALLBACK_NAMESPACE = "kube-system"


def load(
    args: argparse.Namespace | None = None,
    *,
    environ: Mapping[str, str] = os.environ,
    namespace_file: FilePath = NAMESPACE_FILE,
) -> Configuration:
    """The configuration that `args` (see `add_run_arguments`) asks for; None: all defaults.

    Raises ConfigurationError with one complete message.
    """
    args = argparse.Namespace() if args is None else args
    document = _read(getattr(args, "config", None))
    given = command_line.given(args)
    origin = _Origin(document, given)
    data = {"apiVersion": API_VERSION, "kind": KIND} if document is None else document.data
    try:
        decode(data, Configuration, explained=EXPLAINED)
        for flag, value in given.items():
            _put(data, flag.path, value)
        configuration = decode(data, Configuration, explained=EXPLAINED)
        configuration = _complete(
            configuration,
            scheduler_name=getattr(args, "scheduler_name", None),
            gates=command_line.feature_gates(args),
            own_namespace=lambda: _own_namespace(environ, namespace_file),
        )
        check(configuration)
    except Invalid as error:
        raise ConfigurationError(f"{origin.of(error.path)}: {error.message}") from None
    _refuse_idle_flags(given, configuration)
    return configuration


def load_text(text: str, *, source: str = "configuration") -> Configuration:
    """As `load`, of a file's text alone."""
    document = Document(text, source=source)
    try:
        configuration = _complete(decode(document.data, Configuration, explained=EXPLAINED))
        check(configuration)
    except Invalid as error:
        raise ConfigurationError(f"{_Origin(document, {}).of(error.path)}: {error.message}") from None
    return configuration


def build_profiles(configuration: Configuration) -> dict[str, Profile]:
    """The profiles by schedulerName. Each call makes plugins of its own."""
    return {spec.scheduler_name: build_profile(spec) for spec in profile_specs(configuration)}


def to_dict(configuration: Configuration) -> dict[str, Any]:
    """Plain data in the shape of a file, every default filled in. It has no secrets: kubeconfig is a path."""
    plain = encode(configuration)
    assert isinstance(plain, dict)
    return plain


class _Origin:
    """Where the value at a path was said: by a flag, on a line of the file, or nowhere."""

    def __init__(self, document: Document | None, given: Mapping[Flag, object]) -> None:
        self._document = document
        self._flags: dict[Path, str] = {flag.path: flag.names[0] for flag in given}

    def of(self, path: Path) -> str:
        flag = self._flags.get(path)
        if flag:
            return flag
        at = show(path)
        if self._document is None:
            return at or "configuration"
        where = self._document.where(path)
        return f"{where}: {at}" if at else where


def _read(name: str | None) -> Document | None:
    if name is None:
        return None
    try:
        text = FilePath(name).read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigurationError(f"--config {name}: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise ConfigurationError(f"--config {name}: is not UTF-8 text: {error.reason}") from None
    document = Document(text, source=name)
    if document.data is None:
        raise ConfigurationError(
            f"--config {name}: the file is empty; allowed: apiVersion: {API_VERSION}, kind: {KIND} and settings"
        )
    return document


def _put(data: dict[str, Any], path: tuple[str, ...], value: object) -> None:
    for step in path[:-1]:
        # A section may be there as null. Anything else that is no mapping was refused before.
        if data.get(step) is None:
            data[step] = {}
        data = data[step]
    data[path[-1]] = value


def _complete(
    configuration: Configuration,
    *,
    scheduler_name: str | None = None,
    gates: Mapping[str, bool] | None = None,
    own_namespace: Callable[[], str] = lambda: _FALLBACK_NAMESPACE,
) -> Configuration:
    """With every value that follows from others filled in."""
    for name in configuration.feature_gates:
        if name not in FEATURE_GATES:
            raise Invalid(("featureGates", name), f"unknown gate; {suggest(name, FEATURE_GATES)}")
    profiles = _profiles(configuration, scheduler_name)
    election = configuration.leader_election
    return replace(
        configuration,
        profiles=profiles,
        feature_gates={**FEATURE_GATES, **configuration.feature_gates, **(gates or {})},
        client_connection=_with_burst(configuration.client_connection, "clientConnection"),
        status_writes=_with_burst(configuration.status_writes, "statusWrites"),
        events=_with_burst(configuration.events, "events"),
        leader_election=replace(
            election,
            resource_name=election.resource_name or profiles[0].scheduler_name,
            resource_namespace=election.resource_namespace or own_namespace(),
        ),
    )


def _profiles(configuration: Configuration, scheduler_name: str | None) -> tuple[ProfileConfig, ...]:
    profiles = configuration.profiles or (ProfileConfig(scheduler_name=DEFAULT_SCHEDULER_NAME),)
    if scheduler_name is None:
        return profiles
    if not scheduler_name or scheduler_name.split() != [scheduler_name]:
        raise ConfigurationError(
            f"--scheduler-name: found {scheduler_name!r}; allowed: a name without spaces"
        )
    if len(profiles) > 1:
        names = ", ".join(profile.scheduler_name for profile in profiles)
        raise ConfigurationError(
            f"--scheduler-name: the file has {len(profiles)} profiles ({names}), so which one should be called "
            f"{scheduler_name!r} is open; leave the flag out, or the file with one profile"
        )
    return (replace(profiles[0], scheduler_name=scheduler_name),)


def _with_burst(section: Any, name: str) -> Any:
    """Twice the rate, if not given, as kube-scheduler's 50 and 100. A burst of no limit would do nothing."""
    assert isinstance(section, ClientConnection | StatusWrites | Events)
    if section.qps == 0:
        if section.burst is not None:
            raise Invalid(
                (name, "burst"), "is of no use while qps is 0, which means no limit; give a qps, too"
            )
        return section
    return section if section.burst is not None else replace(section, burst=max(1, round(2 * section.qps)))


def _own_namespace(environ: Mapping[str, str], namespace_file: FilePath) -> str:
    if environ.get("POD_NAMESPACE"):
        return environ["POD_NAMESPACE"]
    try:
        return namespace_file.read_text(encoding="utf-8").strip() or _FALLBACK_NAMESPACE
    except OSError:
        return _FALLBACK_NAMESPACE


def _refuse_idle_flags(given: Mapping[Flag, object], configuration: Configuration) -> None:
    if not configuration.leader_election.leader_elect:
        for flag in command_line.ELECTION_DETAILS:
            if flag in given:
                raise ConfigurationError(
                    f"{flag.names[0]}: does nothing without leader election; add --leader-elect or leave it out"
                )

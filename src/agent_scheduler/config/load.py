"""Loads a complete `Configuration` from file and flags.

Flags override the file; other values have the default of the schema. Contradictions, and settings that would silently
have no effect, are rejected.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path as FilePath
from typing import Any, NamedTuple

from msgspec.structs import replace

from agent_scheduler.config import flags as command_line
from agent_scheduler.config.batch import SessionsFile
from agent_scheduler.config.checks import check
from agent_scheduler.config.flags import Flag
from agent_scheduler.config.kube_scheduler import BRING_YOUR_FILE, FOREIGN, KUBE_API_GROUP, refuse
from agent_scheduler.config.kube_scheduler import translated as translated_flags
from agent_scheduler.config.namespace import NAMESPACE_FILE, own_namespace
from agent_scheduler.config.schema import (
    API_VERSION,
    DEFAULT_SCHEDULER_NAME,
    FEATURE_GATES,
    KIND,
    ClientConnection,
    Configuration,
    Events,
    ProfileConfig,
    Sharding,
    StatusWrites,
)
from agent_scheduler.config.volcano import translated
from apimachinery import yaml_text
from apimachinery.codec import Reading, Warn, decode, encode, fields, suggest, unknown_key
from apimachinery.document import Document, text_of
from apimachinery.errors import ConfigurationError, Invalid, Path, found, show

#: Settings that are a namespace.
NAMESPACES: tuple[tuple[str, str], ...] = (("leaderElection", "resourceNamespace"), ("sharding", "leaseNamespace"))


def _ignore(message: str) -> None:
    pass


class Texts(NamedTuple):
    """The texts of a configuration's files; None for missing ones."""

    config: str | None
    #: Volcano's file for the batch scheduler, `--scheduler-conf`.
    sessions: str | None = None


class ConfigurationSource:
    """The source of a configuration: flags and the files that they name. It can be loaded repeatedly."""

    def __init__(
        self,
        args: argparse.Namespace | None = None,
        *,
        environ: Mapping[str, str] = os.environ,
        namespace_file: FilePath = NAMESPACE_FILE,
    ) -> None:
        """`args` are those of `add_run_arguments`; None means all defaults."""
        self._args = argparse.Namespace() if args is None else args
        self._environ = environ
        self._namespace_file = namespace_file
        #: The file's name as given; None without a file.
        self.file: str | None = getattr(self._args, "config", None)
        self.sessions_file: str | None = getattr(self._args, "scheduler_conf", None)
        #: The files' texts when they were last loaded successfully.
        self.loaded: Texts | None = None
        #: The origin of each specified namespace, by its path.
        self._given: dict[Path, str] = {}

    def origin(self, path: Sequence[str]) -> str:
        """Return the origin of a namespace when the configuration was last loaded.

        That is a flag, a line of the file, or the source of the default.
        """
        said = self._given.get(tuple(path))
        return said or own_namespace(self._environ, self._namespace_file).source

    def texts(self) -> Texts:
        """Read the files. Raises ConfigurationError for an unreadable one."""
        return Texts(
            None if self.file is None else _read("--config", self.file),
            None if self.sessions_file is None else _read("--scheduler-conf", self.sessions_file),
        )

    def load(self, texts: Texts | None = None, *, warn: Callable[[str], None] = _ignore) -> Configuration:
        """Load the configuration. Raises ConfigurationError with one complete message.

        `texts` are the files' texts if already read. `warn` receives messages about ineffective settings with their
        place.
        """
        if texts is None:
            texts = self.texts()
        document = None if texts.config is None else _document(texts.config, str(self.file))
        sessions = None
        if texts.sessions is not None:
            sessions = Document(texts.sessions, source=str(self.sessions_file))
        refuse(self._args)
        given = command_line.given(self._args)
        origin = _Origin(document, given)
        data = {"apiVersion": API_VERSION, "kind": KIND} if document is None else document.data
        reading = Reading(FOREIGN, origin.warn(warn))
        try:
            data = translated(data, reading.warn)
            # First the file alone, so that a flag cannot hide an error in it.
            _decode(data, Reading(FOREIGN))
            for flag, value in given.items():
                _put(data, flag.path, value)
            for kube_flag, text_value in translated_flags(self._args):
                _put(data, kube_flag.path, text_value)
            if sessions is not None:
                _put_sessions(data, sessions, warn)
                origin.sessions = sessions
            configuration = _complete(
                _decode(data, reading),
                scheduler_name=getattr(self._args, "scheduler_name", None),
                gates=command_line.feature_gates(self._args),
                own_namespace=lambda: own_namespace(self._environ, self._namespace_file).name,
            )
            check(configuration, reading.warn)
        except Invalid as error:
            raise ConfigurationError(f"{origin.of(error.path)}: {error.message}") from None
        _refuse_idle_flags(given, configuration)
        self.loaded = texts
        self._given = {path: origin.of(path) for path in NAMESPACES if (data.get(path[0]) or {}).get(path[1])}
        return configuration


def load(
    args: argparse.Namespace | None = None,
    *,
    environ: Mapping[str, str] = os.environ,
    namespace_file: FilePath = NAMESPACE_FILE,
    warn: Callable[[str], None] = _ignore,
) -> Configuration:
    """Load the configuration of `args`, as `ConfigurationSource.load`. Without `args` all settings have defaults."""
    return ConfigurationSource(args, environ=environ, namespace_file=namespace_file).load(warn=warn)


def load_text(text: str, *, source: str = "configuration", warn: Callable[[str], None] = _ignore) -> Configuration:
    """Load from a file's text alone, as outside a cluster."""
    return ConfigurationSource(argparse.Namespace(config=source), environ={}).load(Texts(text), warn=warn)


def _decode(data: Any, reading: Reading) -> Configuration:
    if isinstance(data, dict):
        version = data.get("apiVersion")
        if isinstance(version, str) and version.startswith(KUBE_API_GROUP):
            raise Invalid(("apiVersion",), f"found {version!r}; allowed: {API_VERSION}: {BRING_YOUR_FILE}")
    return decode(data, Configuration, reading=reading)


def to_dict(configuration: Configuration) -> dict[str, Any]:
    """Return plain data in the form of a file, with all defaults. It has no secrets: kubeconfig is a path."""
    plain = encode(configuration)
    assert isinstance(plain, dict)
    return plain


def write(configuration: Configuration, name: str) -> None:
    """Write an equivalent file. Raises ConfigurationError with the file's name."""
    try:
        FilePath(name).write_text(text_of(to_dict(configuration)), encoding="utf-8")
    except OSError as error:
        raise ConfigurationError(f"--write-config-to {name}: {error.strerror}") from None


class _Origin:
    """The origin of the value at a path: a flag, a line of the file, or none."""

    def __init__(self, document: Document | None, given: Mapping[Flag, object]) -> None:
        self._document = document
        self._flags: dict[Path, str] = {flag.path: flag.names[0] for flag in given}
        #: Volcano's file if it is the origin of its part of the section `batch`.
        self.sessions: Document | None = None

    def of(self, path: Path) -> str:
        flag = self._flags.get(path)
        if flag:
            return flag
        at = show(path)
        if self.sessions is not None and path[:1] == ("batch",) and path[1:2] and path[1] in fields(SessionsFile):
            return f"{self.sessions.where(path[1:])}: {show(path[1:])}"
        if self._document is None:
            return at or "configuration"
        where = self._document.where(path)
        return f"{where}: {at}" if at else where

    def warn(self, tell: Callable[[str], None]) -> Warn:
        return lambda path, message: tell(f"{self.of(path)}: {message}")


def _read(flag: str, name: str) -> str:
    try:
        return yaml_text.read(FilePath(name))
    except yaml_text.InvalidYaml as error:
        raise ConfigurationError(f"{flag} {name}: {error}") from None
    except OSError as error:
        raise ConfigurationError(f"{flag} {name}: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise ConfigurationError(f"{flag} {name}: not UTF-8 text: {error.reason}") from None


def _put_sessions(data: dict[str, Any], document: Document, warn: Callable[[str], None]) -> None:
    """Add the content of Volcano's file as the section `batch`.

    Raises ConfigurationError, and Invalid for values that the configuration has, too.
    """
    said, keys = document.data, fields(SessionsFile)
    if not isinstance(said, dict):
        raise ConfigurationError(
            f"{document.where(())}: found {found(said)}; allowed: an object with {', '.join(keys)}"
        )
    for key, value in said.items():
        if key == "metrics":
            warn(f"{document.where((key,))}: metrics: has no effect: no plugin reads usage from elsewhere")
        elif key not in keys:
            raise ConfigurationError(f"{document.where((str(key),))}: {key}: {unknown_key(key, keys)}")
        elif (data.get("batch") or {}).get(key) is not None:
            message = "is set here and in the file of --scheduler-conf; allowed: one of them"
            raise Invalid(("batch", key), message)
        else:
            _put(data, ("batch", key), value)
    if data.get("batch") is None:
        data["batch"] = {}


def _document(text: str, name: str) -> Document:
    document = Document(text, source=name)
    if document.data is None:
        raise ConfigurationError(
            f"--config {name}: the file is empty; allowed: apiVersion: {API_VERSION}, kind: {KIND} and settings"
        )
    return document


def _put(data: dict[str, Any], path: tuple[str, ...], value: object) -> None:
    for step in path[:-1]:
        # A section may be null. Anything else that is not a mapping was rejected before.
        if data.get(step) is None:
            data[step] = {}
        data = data[step]
    data[path[-1]] = value


def _complete(
    configuration: Configuration,
    *,
    scheduler_name: str | None,
    gates: Mapping[str, bool],
    own_namespace: Callable[[], str],
) -> Configuration:
    """Fill in all derived values."""
    for name in configuration.feature_gates:
        if name not in FEATURE_GATES:
            raise Invalid(("featureGates", name), f"unknown gate; {suggest(name, FEATURE_GATES)}")
    profiles = _profiles(configuration, scheduler_name)
    election = configuration.leader_election
    return replace(
        configuration,
        profiles=profiles,
        feature_gates={**FEATURE_GATES, **configuration.feature_gates, **gates},
        client_connection=_with_burst(configuration.client_connection, "clientConnection"),
        status_writes=_with_burst(configuration.status_writes, "statusWrites"),
        events=_with_burst(configuration.events, "events"),
        leader_election=replace(
            election,
            leader_elect=configuration.sharding.mode == "none"
            if election.leader_elect is None
            else election.leader_elect,
            resource_name=election.resource_name or profiles[0].scheduler_name,
            resource_namespace=election.resource_namespace or own_namespace(),
        ),
        sharding=_with_names(configuration.sharding, profiles[0].scheduler_name, own_namespace),
    )


def _with_names(sharding: Sharding, scheduler_name: str, own_namespace: Callable[[], str]) -> Sharding:
    if sharding.mode == "none":
        return sharding
    return replace(
        sharding, name=sharding.name or scheduler_name, lease_namespace=sharding.lease_namespace or own_namespace()
    )


def _profiles(configuration: Configuration, scheduler_name: str | None) -> tuple[ProfileConfig, ...]:
    profiles = configuration.profiles or (ProfileConfig(scheduler_name=DEFAULT_SCHEDULER_NAME),)
    if scheduler_name is None:
        return profiles
    if not scheduler_name or scheduler_name.split() != [scheduler_name]:
        raise ConfigurationError(f"--scheduler-name: found {scheduler_name!r}; allowed: a name without spaces")
    if len(profiles) > 1:
        names = ", ".join(profile.scheduler_name for profile in profiles)
        raise ConfigurationError(
            f"--scheduler-name: the file has {len(profiles)} profiles ({names}), so it is ambiguous which one "
            f"to rename to {scheduler_name!r}; remove the flag, or use a file with one profile"
        )
    return (replace(profiles[0], scheduler_name=scheduler_name),)


def _with_burst(section: Any, name: str) -> Any:
    """Set the default burst: twice the rate, as kube-scheduler's 50 and 100. Without a limit it must not be set."""
    assert isinstance(section, ClientConnection | StatusWrites | Events)
    if section.qps == 0:
        if section.burst is not None:
            raise Invalid((name, "burst"), "has no effect while qps is 0, which means no limit; set qps, too")
        return section
    return section if section.burst is not None else replace(section, burst=max(1, round(2 * section.qps)))


def _refuse_idle_flags(given: Mapping[Flag, object], configuration: Configuration) -> None:
    if not configuration.leader_election.leader_elect:
        times = command_line.ELECTION_TIMES if configuration.sharding.mode != "none" else ()
        for flag in command_line.ELECTION_DETAILS:
            if flag in times:
                # They apply to the lease of the shard.
                continue
            if flag in given:
                raise ConfigurationError(
                    f"{flag.names[0]}: has no effect without leader election; add --leader-elect or remove it"
                )
    if command_line.SECURE_PORT in given and configuration.serving.port and not configuration.serving.has_tls:
        raise ConfigurationError(
            "--secure-port: the server speaks HTTP without a certificate; give --tls-cert-file and "
            "--tls-private-key-file, or --self-signed-certificate, or --port instead"
        )

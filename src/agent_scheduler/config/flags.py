"""The command line's settings. Each names the place in the configuration that it overrides.

A flag keeps its text until the configuration is loaded, so that a wrong flag and a wrong file read alike.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from agent_scheduler.config.codec import decode_value, fields, parse_scalar, suggest
from agent_scheduler.config.errors import ConfigurationError, Invalid
from agent_scheduler.config.kube_flags import add_kube_arguments
from agent_scheduler.config.schema import (
    FEATURE_GATES,
    ClientConnection,
    Configuration,
    LeaderElection,
    Logging,
    Serving,
    Sharding,
)
from agent_scheduler.config.values import Section


@dataclass(frozen=True, slots=True)
class Flag:
    """`names` begins with the one that errors use; `key` is its place in `section`, itself at `at` in the whole."""

    names: tuple[str, ...]
    section: type[Section]
    at: tuple[str, ...]
    key: str
    help: str
    metavar: str = "N"

    @property
    def path(self) -> tuple[str, ...]:
        return (*self.at, self.key)

    @property
    def dest(self) -> str:
        return self.names[0].lstrip("-").replace("-", "_")

    @property
    def kind(self) -> msgspec.inspect.Type:
        return fields(self.section)[self.key]


def _election(name: str, key: str, help_text: str, metavar: str = "DURATION") -> Flag:
    return Flag((name,), LeaderElection, ("leaderElection",), key, help_text, metavar)


def _sharding(names: tuple[str, ...], key: str, help_text: str, metavar: str) -> Flag:
    return Flag(names, Sharding, ("sharding",), key, help_text, metavar)


LEADER_ELECT = Flag(
    ("--leader-elect",),
    LeaderElection,
    ("leaderElection",),
    "leaderElect",
    "schedule only while holding a lease, so that replicas take over from one another (default: yes; no with "
    "--scheduler-sharding-mode, where the lease of the shard does it)",
    "true|false",
)

#: Of every lease that is held.
ELECTION_TIMES = (
    _election(
        "--leader-elect-lease-duration", "leaseDuration", "how long a lease is good for (default: 15s)"
    ),
    _election(
        "--leader-elect-renew-deadline",
        "renewDeadline",
        "how long the leader tries to renew before it gives up (default: 10s)",
    ),
    _election("--leader-elect-retry-period", "retryPeriod", "time between two tries (default: 2s)"),
)

#: Without leader election these would do nothing, so they are refused; the times only where nothing else has a lease.
ELECTION_DETAILS = (
    *ELECTION_TIMES,
    _election(
        "--leader-elect-resource-name", "resourceName", "name of the lease (default: the scheduler's)", "NAME"
    ),
)

#: May be given without leader election: deployments name the namespace whether or not they elect.
LOCK_NAMESPACE = _election(
    "--leader-elect-resource-namespace",
    "resourceNamespace",
    "namespace of the lease (default: the namespace that the process runs in, or kube-system)",
    "NAMESPACE",
)

SECURE_PORT = Flag(
    ("--secure-port",),
    Serving,
    ("serving",),
    "port",
    "the port, where the server speaks HTTPS; 0: none",
)

FLAGS: tuple[Flag, ...] = (
    Flag(
        ("--kubeconfig",),
        ClientConnection,
        ("clientConnection",),
        "kubeconfig",
        "file that says how to reach the API server (default: $KUBECONFIG, the pod's service account, ~/.kube/config)",
        "FILE",
    ),
    Flag(
        ("--kube-api-qps",),
        ClientConnection,
        ("clientConnection",),
        "qps",
        "binds a second; 0: no limit (default: 0)",
    ),
    Flag(
        ("--kube-api-burst",),
        ClientConnection,
        ("clientConnection",),
        "burst",
        "binds that may be saved up (default: twice the qps)",
    ),
    Flag(
        ("--scheduler-worker-count", "--agent_scheduler_worker_count"),
        Configuration,
        (),
        "workerCount",
        "workers that decide concurrently (default: 1)",
    ),
    _sharding(
        ("--scheduler-sharding-mode",),
        "mode",
        "none: use all nodes; soft: those of the shard first; hard: no others (default: none)",
        "MODE",
    ),
    _sharding(
        ("--scheduler-sharding-name", "--agent_scheduler_sharding_name"),
        "name",
        "name of the NodeShard (default: the scheduler's)",
        "NAME",
    ),
    _sharding(
        ("--sharding-lease-namespace",),
        "leaseNamespace",
        "namespace of the leases of all shards (default: the namespace that the process runs in, or kube-system)",
        "NAMESPACE",
    ),
    _sharding(
        ("--sharding-fence-period",),
        "fencePeriod",
        "how long after the end of another shard's lease its nodes are left alone (default: 1m)",
        "DURATION",
    ),
    Flag(
        ("--bind-address",),
        Serving,
        ("serving",),
        "bindAddress",
        "address of the HTTP server (default: 127.0.0.1)",
        "IP",
    ),
    Flag(("--port",), Serving, ("serving",), "port", "port of the HTTP server; 0: none (default: 10251)"),
    SECURE_PORT,
    Flag(
        ("--tls-cert-file",),
        Serving,
        ("serving",),
        "tlsCertFile",
        "PEM file with which the server speaks HTTPS (default: it speaks HTTP)",
        "FILE",
    ),
    Flag(
        ("--tls-private-key-file",),
        Serving,
        ("serving",),
        "tlsPrivateKeyFile",
        "PEM file of the certificate's key",
        "FILE",
    ),
    Flag(
        ("--pod-max-in-unschedulable-pods-duration",),
        Configuration,
        (),
        "podMaxInUnschedulablePodsDuration",
        "how long a refused pod waits to be tried again though no event woke it (default: 5m)",
        "DURATION",
    ),
    Flag(
        ("--log-level",),
        Logging,
        ("logging",),
        "level",
        "debug, info, warning or error (default: info)",
        "LEVEL",
    ),
    Flag(("--log-format",), Logging, ("logging",), "format", "json or console (default: json)", "FORMAT"),
    LEADER_ELECT,
    LOCK_NAMESPACE,
    *ELECTION_DETAILS,
)


def add_run_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds every flag of a running scheduler to `parser`; `load` reads what it parsed."""
    parser.add_argument("--config", metavar="FILE", help="configuration file; flags override what it says")
    parser.add_argument(
        "--scheduler-name",
        metavar="NAME",
        help="schedule the pods with this spec.schedulerName (default: agent-scheduler)",
    )
    parser.add_argument(
        "--feature-gates",
        metavar="GATE=BOOL,...",
        action="append",
        help=f"known gates and their defaults: {', '.join(f'{k}={str(v).lower()}' for k, v in FEATURE_GATES.items())}",
    )
    parser.add_argument(
        "--lock-object-namespace", metavar="NAMESPACE", help=f"older name of {LOCK_NAMESPACE.names[0]}"
    )
    parser.add_argument(
        "--no-leader-elect",
        dest=LEADER_ELECT.dest,
        action="store_const",
        const="false",
        help="schedule without a lease",
    )
    parser.add_argument(
        "--write-config-to",
        metavar="FILE",
        help="write the effective configuration to FILE, and exit",
    )
    add_kube_arguments(parser)
    for flag in FLAGS:
        options: dict[str, Any] = {"nargs": "?", "const": "true"} if flag is LEADER_ELECT else {}
        parser.add_argument(*flag.names, dest=flag.dest, metavar=flag.metavar, help=flag.help, **options)


def given(args: argparse.Namespace) -> Mapping[Flag, object]:
    """The flags that were given, each with its value checked. Raises ConfigurationError naming the flag."""
    values: dict[Flag, object] = {}
    for flag in FLAGS:
        text = getattr(args, flag.dest, None)
        if text is not None:
            plain = parse_scalar(text, flag.kind)
            values[flag] = plain
            try:
                decode_value(plain, flag.kind, ())
            except Invalid as error:
                raise ConfigurationError(f"{flag.names[0]}: {error.message}") from None
    if SECURE_PORT in values and any(
        flag.path == SECURE_PORT.path for flag in values if flag is not SECURE_PORT
    ):
        raise ConfigurationError("--secure-port: --port says the same; give one of them")
    alias: str | None = getattr(args, "lock_object_namespace", None)
    if alias is not None and values.setdefault(LOCK_NAMESPACE, alias) != alias:
        raise ConfigurationError(
            f"--lock-object-namespace: found {alias!r}, but {LOCK_NAMESPACE.names[0]} says "
            f"{values[LOCK_NAMESPACE]!r}; give one of them"
        )
    return values


def feature_gates(args: argparse.Namespace) -> dict[str, bool]:
    """The gates of all --feature-gates; a later one wins. Raises ConfigurationError."""
    gates: dict[str, bool] = {}
    for text in getattr(args, "feature_gates", None) or ():
        for part in filter(None, (piece.strip() for piece in text.split(","))):
            name, equals, value = part.partition("=")
            if not equals or value.lower() not in ("true", "false"):
                raise ConfigurationError(
                    f"--feature-gates: found {part!r}; allowed: GATE=true or GATE=false, separated by commas"
                )
            if name not in FEATURE_GATES:
                raise ConfigurationError(
                    f"--feature-gates: unknown gate {name!r}; {suggest(name, FEATURE_GATES)}"
                )
            gates[name] = value.lower() == "true"
    return gates

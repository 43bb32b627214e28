"""The command line's settings: the flags in the schema, and those of the command itself.

A flag's text is kept until the configuration is loaded, so that errors in flags and in files look alike.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from agent_scheduler.config.kube_scheduler import add_kube_arguments
from agent_scheduler.config.schema import FEATURE_GATES, Configuration
from apimachinery.codec import Setting, decode_value, encode, extra, parse_scalar, settings, suggest
from apimachinery.errors import ConfigurationError, Invalid


@dataclass(frozen=True, slots=True, eq=False)
class Flag:
    """A flag of a setting. `names` begins with the name in errors."""

    names: tuple[str, ...]
    setting: Setting
    help: str
    metavar: str

    @property
    def path(self) -> tuple[str, ...]:
        return self.setting.path

    @property
    def dest(self) -> str:
        return self.names[0].lstrip("-").replace("-", "_")

    @property
    def options(self) -> dict[str, Any]:
        """Options of the parser's argument: a switch needs no value."""
        is_switch = isinstance(self.setting.default, bool) or self.path == ("leaderElection", "leaderElect")
        return {"nargs": "?", "const": "true"} if is_switch else {}


def _flag(setting: Setting) -> Flag:
    names, text, metavar = extra(setting.kind)["flag"]
    usual = encode(setting.default, setting.kind)
    if "(default" not in text and usual not in (None, ""):
        text += f" (default: {usual:g})" if isinstance(usual, float) else f" (default: {usual})"
    return Flag(names, setting, text, metavar)


_OF_SCHEMA = {setting.path: _flag(setting) for setting in settings(Configuration) if "flag" in extra(setting.kind)}
SECURE_PORT = Flag(
    ("--secure-port",), _OF_SCHEMA["serving", "port"].setting, "the port, where the server speaks HTTPS; 0: none", "N"
)
#: All flags of settings; the schema defines them (`values.flag`).
FLAGS: tuple[Flag, ...] = (*_OF_SCHEMA.values(), SECURE_PORT)

LEADER_ELECT = _OF_SCHEMA["leaderElection", "leaderElect"]
#: Allowed without leader election, because deployments set the namespace in both cases.
LOCK_NAMESPACE = _OF_SCHEMA["leaderElection", "resourceNamespace"]
#: The times of every held lease.
ELECTION_TIMES = tuple(_OF_SCHEMA["leaderElection", key] for key in ("leaseDuration", "renewDeadline", "retryPeriod"))
#: Rejected without leader election, because they would have no effect; the times are allowed if a shard has a lease.
ELECTION_DETAILS = (*ELECTION_TIMES, _OF_SCHEMA["leaderElection", "resourceName"])


def add_run_arguments(parser: argparse.ArgumentParser) -> None:
    """Add every flag of a scheduler to `parser`; `load` reads the parsed arguments."""
    parser.add_argument("--config", metavar="FILE", help="configuration file; flags override its values")
    parser.add_argument(
        "--scheduler-conf",
        metavar="FILE",
        help="Volcano's file for the batch scheduler: actions, tiers, configurations (default: none; see batch)",
    )
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
    parser.add_argument("--lock-object-namespace", metavar="NAMESPACE", help=f"older name of {LOCK_NAMESPACE.names[0]}")
    parser.add_argument(
        "--no-leader-elect",
        dest=LEADER_ELECT.dest,
        action="store_const",
        const="false",
        help="schedule without a lease",
    )
    parser.add_argument("--write-config-to", metavar="FILE", help="write the effective configuration to FILE, and exit")
    add_kube_arguments(parser)
    for flag in FLAGS:
        parser.add_argument(*flag.names, dest=flag.dest, metavar=flag.metavar, help=flag.help, **flag.options)


def given(args: argparse.Namespace) -> Mapping[Flag, object]:
    """Return the given flags with checked values. Raises ConfigurationError with the flag."""
    values: dict[Flag, object] = {}
    for flag in FLAGS:
        text = getattr(args, flag.dest, None)
        if text is not None:
            plain = parse_scalar(text, flag.setting.kind)
            values[flag] = plain
            try:
                decode_value(plain, flag.setting.kind, ())
            except Invalid as error:
                raise ConfigurationError(f"{flag.names[0]}: {error.message}") from None
    if SECURE_PORT in values and any(flag.path == SECURE_PORT.path for flag in values if flag is not SECURE_PORT):
        raise ConfigurationError("--secure-port: --port is the same setting; use one of them")
    alias: str | None = getattr(args, "lock_object_namespace", None)
    if alias is not None and values.setdefault(LOCK_NAMESPACE, alias) != alias:
        raise ConfigurationError(
            f"--lock-object-namespace: found {alias!r}, but {LOCK_NAMESPACE.names[0]} says "
            f"{values[LOCK_NAMESPACE]!r}; give one of them"
        )
    return values


def feature_gates(args: argparse.Namespace, known: Mapping[str, bool] = FEATURE_GATES) -> dict[str, bool]:
    """Return the gates of all --feature-gates; the last one wins. Raises ConfigurationError."""
    gates: dict[str, bool] = {}
    for text in getattr(args, "feature_gates", None) or ():
        for part in filter(None, (piece.strip() for piece in text.split(","))):
            name, equals, value = part.partition("=")
            if not equals or value.lower() not in ("true", "false"):
                raise ConfigurationError(
                    f"--feature-gates: found {part!r}; allowed: GATE=true or GATE=false, separated by commas"
                )
            if name not in known:
                raise ConfigurationError(f"--feature-gates: unknown gate {name!r}; {suggest(name, known)}")
            gates[name] = value.lower() == "true"
    return gates

"""The flags of `agent-scheduler controllers`, and the settings made from them.

Settings that `agent-scheduler run` has, too, use the same flags; those of the sharding controller are Volcano's.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec

import msgspec

from agent_scheduler.config.checks import check_election, check_serving
from agent_scheduler.config.flag_values import checked, scheduler_names, section
from agent_scheduler.config.flags import ELECTION_DETAILS, FLAGS, LEADER_ELECT, LOCK_NAMESPACE, Flag, given
from agent_scheduler.config.namespace import OwnNamespace, own_namespace
from agent_scheduler.config.schema import ClientConnection, LeaderElection, Logging, Serving
from agent_scheduler.controllers.jobs.controller import JobSettings
from agent_scheduler.controllers.podgroups.controller import PodGroupSettings
from agent_scheduler.controllers.queues.controller import QueueCommandSettings
from agent_scheduler.controllers.sharding.controller import ControllerSettings
from agent_scheduler.controllers.sharding.flags import add_sharding_arguments, sharding_settings
from apimachinery.codec import suggest
from apimachinery.errors import ConfigurationError

#: The values of `--enable`.
SHARDING, QUEUE, PODGROUP, JOB = "sharding", "queue", "podgroup", "job"
CONTROLLERS = (JOB, PODGROUP, QUEUE, SHARDING)

LEASE = "agent-scheduler-controllers"
PORT = 10252

_BY_NAME = {flag.names[0]: flag for flag in FLAGS}
#: Flags shared with a scheduler, with their own help texts where the default differs.
_SHARED: Mapping[Flag, str] = {
    **{
        _BY_NAME[name]: _BY_NAME[name].help
        for name in (
            *("--kubeconfig", "--bind-address", "--log-level", "--log-format", "--state-directory"),
            *("--tls-cert-file", "--tls-private-key-file", "--self-signed-certificate"),
        )
    },
    _BY_NAME["--port"]: f"port of the HTTP server; 0: none (default: {PORT})",
    LEADER_ELECT: "work only while holding a lease, so that one replica works at a time (default: yes)",
    LOCK_NAMESPACE: LOCK_NAMESPACE.help,
    **{flag: flag.help for flag in ELECTION_DETAILS},
    _BY_NAME["--leader-elect-resource-name"]: f"name of the lease (default: {LEASE})",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllersSettings:
    """All settings, with the defaults filled in."""

    enabled: tuple[str, ...]
    kubeconfig: str
    election: LeaderElection
    #: The source of the lease's namespace.
    namespace_from: str = ""
    serving: Serving
    logging: Logging
    sharding: ControllerSettings
    queue: QueueCommandSettings = field(default_factory=QueueCommandSettings)
    podgroup: PodGroupSettings = field(default_factory=PodGroupSettings)
    job: JobSettings = field(default_factory=JobSettings)
    #: As in the configuration of a scheduler.
    state_directory: str = ""
    #: Deprecated or ineffective settings, for the log.
    warnings: tuple[str, ...] = ()


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--enable",
        metavar="NAME,...",
        action="append",
        help=f"controllers to run: {', '.join(CONTROLLERS)}; at least one",
    )
    add_sharding_arguments(parser)
    parser.add_argument(
        "--scheduler-name",
        metavar="NAME",
        action="append",
        help="scheduler whose pods get groups; repeatable (default: volcano)",
    )
    parser.add_argument(
        "--queue-command-namespace",
        metavar="NAMESPACE",
        help="the only namespace whose Commands open and close queues; * for every one (default: that of the pod)",
    )
    parser.add_argument(
        "--enable-ssh-plugin",
        action="store_true",
        help="allow the plugin ssh in Jobs, for which the job controller needs to write Secrets",
    )
    parser.add_argument(
        "--authorize-metrics",
        action="store_true",
        help="give metrics and configuration only to tokens that the API server accepts and authorizes",
    )
    parser.add_argument(
        "--no-leader-elect", dest=LEADER_ELECT.dest, action="store_const", const="false", help="work without a lease"
    )
    for flag, text in _SHARED.items():
        parser.add_argument(*flag.names, dest=flag.dest, metavar=flag.metavar, help=text, **flag.options)


def settings_of(
    args: argparse.Namespace, *, namespace: Callable[[], OwnNamespace] = own_namespace
) -> ControllersSettings:
    """Return the settings of the flags. `namespace` is the default namespace of leases. Raises ConfigurationError."""
    enabled = _enabled(args.enable or [])
    values = given(args)
    election = section(values, LeaderElection, {"leaderElect": True, "resourceName": LEASE})
    if not election.leader_elect:
        for flag in ELECTION_DETAILS:
            if flag in values:
                raise ConfigurationError(f"{flag.names[0]}: has no effect without leader election; remove it")
    if args.enable_ssh_plugin and find_spec("cryptography") is None:
        raise ConfigurationError("--enable-ssh-plugin: needs the package cryptography")
    own = namespace()
    namespace_from = LOCK_NAMESPACE.names[0]
    if not election.resource_namespace:
        election = msgspec.structs.replace(election, resource_namespace=own.name)
        namespace_from = own.source
    serving = section(values, Serving, {"port": PORT, "authorizeMetrics": args.authorize_metrics})
    checked(lambda: check_election(election))
    checked(lambda: check_serving(serving))
    sharding, warnings = sharding_settings(args, namespace=own.name)
    return ControllersSettings(
        enabled=enabled,
        kubeconfig=section(values, ClientConnection, {}).kubeconfig,
        election=election,
        namespace_from=namespace_from,
        serving=serving,
        logging=section(values, Logging, {}),
        sharding=sharding,
        queue=QueueCommandSettings(command_namespace=_command_namespace(args.queue_command_namespace, own)),
        podgroup=PodGroupSettings(schedulers=scheduler_names(args.scheduler_name, ("volcano",))),
        job=JobSettings(ssh=args.enable_ssh_plugin),
        state_directory=str(values.get(_BY_NAME["--state-directory"], "")),
        warnings=warnings,
    )


def _command_namespace(given: str | None, own: OwnNamespace) -> str:
    if given is not None and not given.strip():
        raise ConfigurationError("--queue-command-namespace: needs the name of a namespace")
    return own.name if given is None else given.strip()


def _enabled(lists: list[str]) -> tuple[str, ...]:
    names = [name for each in lists for name in (piece.strip() for piece in each.split(",")) if name]
    for name in names:
        if name not in CONTROLLERS:
            raise ConfigurationError(f"--enable: unknown controller {name!r}; {suggest(name, CONTROLLERS)}")
    if not names:
        raise ConfigurationError(f"--enable: no controller is specified; allowed: {', '.join(CONTROLLERS)}")
    return tuple(dict.fromkeys(names))

"""The flags of `agent-scheduler webhook`, and the settings made from them.

Settings that `agent-scheduler run` has, too, use the same flags; those of reviews are Volcano's.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path

from agent_scheduler.admission.jobs import JobRules
from agent_scheduler.admission.pods import ResourceGroup
from agent_scheduler.admission.queues import QueueRules
from agent_scheduler.config.checks import check_serving
from agent_scheduler.config.flag_values import checked, duration, object_name, scheduler_names, section, truth
from agent_scheduler.config.flags import FLAGS, Flag, feature_gates, given
from agent_scheduler.config.namespace import OwnNamespace, own_namespace
from agent_scheduler.config.resource_groups import read_resource_groups
from agent_scheduler.config.schema import ClientConnection, Logging, Serving
from apimachinery.errors import ConfigurationError

#: Volcano's name of the feature gate for gating pods. Volcano's default is off.
GATES = "SchedulingGatesQueueAdmission"
FEATURES: Mapping[str, bool] = {GATES: True}

PORT = 8443
SCHEDULERS = ("volcano", "agent-scheduler")
#: The name of the Service and the configurations, and the prefix of the Secret's name.
NAME = "agent-scheduler-webhook"
SECRET = f"{NAME}-certificate"
_DEPTH = QueueRules().max_depth

_BY_NAME = {flag.names[0]: flag for flag in FLAGS}
_SHARED: Mapping[Flag, str] = {
    **{
        _BY_NAME[name]: _BY_NAME[name].help
        for name in ("--kubeconfig", "--bind-address", "--log-level", "--log-format", "--state-directory")
    },
    _BY_NAME["--port"]: f"port of the HTTPS server (default: {PORT})",
    _BY_NAME["--tls-cert-file"]: "PEM file with the certificate to present (default: the webhook creates its own)",
    _BY_NAME["--tls-private-key-file"]: _BY_NAME["--tls-private-key-file"].help,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnCertificateSettings:
    """`hosts` are the names and addresses in the certificate. A configuration with an empty name is not written."""

    namespace: str
    secret: str
    hosts: tuple[str, ...]
    mutating: str
    validating: str


@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookSettings:
    """All settings, with the defaults filled in."""

    kubeconfig: str
    serving: Serving
    logging: Logging
    schedulers: tuple[str, ...]
    gates: bool = True
    #: The file of resource groups, or empty, and its content at the start.
    admission_conf: str = ""
    groups: tuple[ResourceGroup, ...] = ()
    queues: QueueRules = field(default_factory=QueueRules)
    jobs: JobRules = field(default_factory=lambda: JobRules(scheduler=SCHEDULERS[0]))
    #: None if `serving` names files.
    certificate: OwnCertificateSettings | None
    #: Seconds for which the process still answers after a stop request.
    shutdown_delay: float = 5.0
    #: As in the configuration of a scheduler.
    state_directory: str = ""
    #: Deprecated or ineffective settings, for the log.
    warnings: tuple[str, ...] = ()


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--scheduler-name",
        metavar="NAME",
        action="append",
        help="scheduler whose pods are gated, and which removes the gates; repeatable. Jobs without "
        "a scheduler get the first one "
        f"(default: {', '.join(SCHEDULERS)})",
    )
    parser.add_argument(
        "--feature-gates",
        metavar="GATE=BOOL,...",
        action="append",
        help=f"known gates and their defaults: {', '.join(f'{k}={str(v).lower()}' for k, v in FEATURES.items())}",
    )
    parser.add_argument(
        "--admission-conf",
        metavar="FILE",
        default="",
        help="Volcano's file of resource groups; changes take effect while running (default: none)",
    )
    _add_rule_arguments(parser)
    _add_certificate_arguments(parser)
    parser.add_argument(
        "--shutdown-delay",
        metavar="DURATION",
        default="5s",
        help="how long to answer after a stop request, until clients use other replicas (default: %(default)s)",
    )
    parser.add_argument(
        "--authorize-metrics",
        action="store_true",
        help="give metrics and configuration only to tokens that the API server accepts and authorizes",
    )
    for flag, text in _SHARED.items():
        parser.add_argument(*flag.names, dest=flag.dest, metavar=flag.metavar, help=text)


def _add_rule_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--max-queue-depth",
        metavar="N",
        default=str(_DEPTH),
        help="the maximum number of queue levels below root (default: %(default)s)",
    )
    for name, usual, text in (
        ("--enable-queue-allocated-pods-check", "false", "refuse to delete a queue that has allocated pods"),
        ("--enable-root-queue-protection", "true", "refuse to change the capability, deserved and guarantee of root"),
        (
            "--strict-min-available",
            "true",
            "refuse a job whose minAvailable is not the sum of its tasks', instead of a warning",
        ),
    ):
        parser.add_argument(
            name, metavar="true|false", nargs="?", const="true", default=usual, help=f"{text} (default: %(default)s)"
        )


def _add_certificate_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--certificate-secret",
        metavar="NAME",
        default=SECRET,
        help="Secret for the webhook's own certificates, in its own namespace (default: %(default)s)",
    )
    parser.add_argument(
        "--service-name",
        metavar="NAME",
        default=NAME,
        help="Service of the webhook in its own namespace (default: %(default)s)",
    )
    parser.add_argument(
        "--certificate-host",
        metavar="HOST",
        action="append",
        help="additional name or address of the webhook; repeatable (default: none)",
    )
    for kind in ("mutating", "validating"):
        parser.add_argument(
            f"--{kind}-webhook-configuration",
            metavar="NAME",
            default=NAME,
            help=f"{kind.capitalize()}WebhookConfiguration that gets the webhook's certificate authority; empty: none "
            "(default: %(default)s)",
        )


def settings_of(args: argparse.Namespace, *, namespace: Callable[[], OwnNamespace] = own_namespace) -> WebhookSettings:
    """Return the settings of the flags. Raises ConfigurationError."""
    values = given(args)
    serving = section(values, Serving, {"port": PORT, "authorizeMetrics": args.authorize_metrics})
    checked(lambda: check_serving(serving))
    if not serving.port:
        raise ConfigurationError("--port: found 0; allowed: a port from 1 to 65535")
    depth = args.max_queue_depth
    if not (depth.isascii() and depth.isdigit() and len(depth) < 6 and int(depth)):
        raise ConfigurationError(f"--max-queue-depth: found {depth!r}; allowed: a whole number, 1 or more")
    own = None if serving.tls_cert_file else _own_certificate(args, namespace())
    schedulers = scheduler_names(args.scheduler_name, SCHEDULERS)
    return WebhookSettings(
        kubeconfig=section(values, ClientConnection, {}).kubeconfig,
        serving=serving,
        logging=section(values, Logging, {}),
        schedulers=schedulers,
        gates={**FEATURES, **feature_gates(args, FEATURES)}[GATES],
        admission_conf=args.admission_conf,
        groups=read_groups(args.admission_conf) if args.admission_conf else (),
        queues=QueueRules(
            max_depth=int(depth),
            keep_allocated=truth("--enable-queue-allocated-pods-check", args.enable_queue_allocated_pods_check),
            protect_root=truth("--enable-root-queue-protection", args.enable_root_queue_protection),
        ),
        jobs=JobRules(
            scheduler=schedulers[0], strict_min_available=truth("--strict-min-available", args.strict_min_available)
        ),
        certificate=own,
        shutdown_delay=duration("--shutdown-delay", args.shutdown_delay),
        state_directory=str(values.get(_BY_NAME["--state-directory"], "")),
        warnings=() if own is not None else _idle(args),
    )


def _idle(args: argparse.Namespace) -> tuple[str, ...]:
    """Return warnings for flags of an own certificate that are ineffective beside --tls-cert-file."""
    own = {"certificate_secret": SECRET, "service_name": NAME, "certificate_host": None}
    return tuple(
        f"--{dest.replace('_', '-')} beside --tls-cert-file: the webhook creates no certificate"
        for dest, usual in own.items()
        if getattr(args, dest) != usual
    )


def read_groups(file: str) -> tuple[ResourceGroup, ...]:
    """Read the resource groups. Raises ConfigurationError."""
    try:
        text = Path(file).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or error
        raise ConfigurationError(f"--admission-conf: cannot read {file}: {why}") from None
    return read_resource_groups(text, source=file)


def _own_certificate(args: argparse.Namespace, namespace: OwnNamespace) -> OwnCertificateSettings:
    if find_spec("cryptography") is None:
        raise ConfigurationError(
            "--tls-cert-file: not given, and creating a certificate needs the library cryptography; "
            "install agent-scheduler[webhook], or provide a certificate"
        )
    if not namespace.name:
        raise ConfigurationError(
            f"--certificate-secret: its namespace is unknown: {namespace.source}; set $POD_NAMESPACE"
        )
    service = object_name("--service-name", args.service_name)
    inside = f"{service}.{namespace.name}.svc"
    return OwnCertificateSettings(
        namespace=namespace.name,
        secret=object_name("--certificate-secret", args.certificate_secret),
        hosts=(
            *(inside, f"{inside}.cluster.local"),
            *(object_name("--certificate-host", host) for host in args.certificate_host or ()),
        ),
        mutating=_configuration("--mutating-webhook-configuration", args.mutating_webhook_configuration),
        validating=_configuration("--validating-webhook-configuration", args.validating_webhook_configuration),
    )


def _configuration(flag: str, name: str) -> str:
    return object_name(flag, name) if name else ""

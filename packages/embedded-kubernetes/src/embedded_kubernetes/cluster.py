"""Flags and main function of the command `embedded-kubernetes`: an API server with simulated nodes in one process.

It is for trying out a scheduler, kubectl or a controller without a cluster. It serves HTTP or HTTPS, with simulated
kubelets and ready nodes of one shape. All state is in memory, unless a directory for it is given.
"""

from __future__ import annotations

import argparse
import signal
import sys
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING

from apimachinery.plural import counted

if TYPE_CHECKING:
    from .assembly import Running
    from .fault_plan import Plan
    from .settings import Settings


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's flags. Errors are reported under the name of `parser`."""
    parser.set_defaults(program=parser.prog)
    parser.add_argument(
        "--host", default="127.0.0.1",
        help="address to listen on; one that other hosts reach needs a token, which is generated, and HTTPS "
        "(default: %(default)s)",
    )  # fmt: skip
    parser.add_argument("--port", type=int, default=8001, help="0 selects a free port (default: %(default)s)")
    parser.add_argument("--nodes", type=int, default=10, metavar="N", help="number of nodes (default: %(default)s)")
    parser.add_argument("--node-cpu", default="32", metavar="QUANTITY", help="(default: %(default)s)")
    parser.add_argument("--node-memory", default="128Gi", metavar="QUANTITY", help="(default: %(default)s)")
    parser.add_argument("--node-pods", default="110", metavar="N", help="(default: %(default)s)")
    parser.add_argument(
        "--node-gpus", default="0", metavar="N", help="nvidia.com/gpu of each node (default: %(default)s)"
    )
    parser.add_argument(
        "--node-resource", action="append", default=[], metavar="NAME=QUANTITY",
        help="an extended resource of every simulated node; may be repeated",
    )  # fmt: skip
    parser.add_argument(
        "--devices-per-node", type=int, default=0, metavar="N",
        help="devices that a simulated driver publishes for each node, for dynamic resource "
        "allocation (default: %(default)s)",
    )  # fmt: skip
    parser.add_argument(
        "--device-nodes", type=int, metavar="N",
        help="only the first N simulated nodes have devices (default: every node)",
    )  # fmt: skip
    parser.add_argument(
        "--device-attach-seconds", type=float, metavar="SECONDS",
        help="allocated devices have to be attached to their node first (binding conditions), which takes "
        "this time (default: they need not be attached)",
    )  # fmt: skip
    parser.add_argument(
        "--kubeconfig-out", type=Path, metavar="FILE", help="write a kubeconfig when the cluster is ready"
    )
    parser.add_argument(
        "--kubelets",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="simulate the nodes' kubelets; without them, bound pods stay Pending (default: on)",
    )
    parser.add_argument(
        "--controllers", default="*", metavar="LIST",
        help="controllers to run, as for kube-controller-manager: '*' for all, names, and names with a leading - to "
        "exclude, such as '*,-resourceclaim-controller' (default: %(default)s)",
    )  # fmt: skip
    parser.add_argument(
        "--autoscaler", action="append", default=[], metavar="RULE",
        help="add nodes of this shape for unschedulable pods and remove empty ones, such as "
        "cpu=8,memory=32Gi,pods=110,nvidia.com/gpu=1,label:pool=gpu,taint:gpu=yes:NoSchedule,name=gpu,max=10,delay=5,"
        "idle=30; may be repeated, and the first shape that fits a pod is used",
    )  # fmt: skip
    parser.add_argument(
        "--runtime-config", default="", metavar="LIST",
        help="alpha versions to serve, as for kube-apiserver: scheduling.k8s.io/v1alpha2=true",
    )  # fmt: skip
    parser.add_argument(
        "--load", type=Path, nargs="+", action="extend", default=[], metavar="FILE",
        help="create the objects in these YAML or JSON files at the start",
    )  # fmt: skip
    parser.add_argument(
        "--with-scheduler", action="store_true",
        help="run agent-scheduler beside the cluster, for its own pods and those of default-scheduler",
    )  # fmt: skip
    parser.add_argument(
        "--scheduler-arg", action="append", default=[], metavar="ARG",
        help="a flag of `agent-scheduler run` for --with-scheduler, such as --scheduler-arg=--port=0; may be repeated",
    )  # fmt: skip
    parser.add_argument(
        "--data-dir", type=Path, metavar="DIR",
        help="keep the objects in this directory, and restore them at the next start (default: only in memory)",
    )  # fmt: skip
    parser.add_argument(
        "--tls", action=argparse.BooleanOptionalAction,
        help="serve HTTPS with a generated certificate (default: on with RBAC or a --host that other hosts reach; "
        "kubectl sends no tokens over HTTP)",
    )  # fmt: skip
    _add_access(parser)
    parser.add_argument(
        "--faults", type=Path, metavar="FILE",
        help="inject the faults of this YAML or JSON file into responses, see docs/faults.md; for tests of clients",
    )  # fmt: skip


def _add_access(parser: argparse.ArgumentParser) -> None:
    """Add the flags of authentication and authorization, which are kube-apiserver's."""
    parser.add_argument(
        "--token", default="",
        help="an administrator's bearer token (with RBAC, and with a --host that other hosts reach, one is generated "
        "by default). Without RBAC and a token file, every request needs it",
    )  # fmt: skip
    parser.add_argument(
        "--insecure", action="store_true",
        help="require neither a token nor HTTPS with a --host that other hosts reach; without a token they have every "
        "right",
    )  # fmt: skip
    parser.add_argument(
        "--authorization-mode", default="AlwaysAllow", metavar="MODE", help="AlwaysAllow or RBAC (default: %(default)s)"
    )
    parser.add_argument(
        "--token-auth-file", type=Path, metavar="FILE",
        help='static tokens, in lines of token,user,uid[,"group1,group2"]',
    )  # fmt: skip
    parser.add_argument(
        "--anonymous-auth", action=argparse.BooleanOptionalAction, default=True,
        help="allow requests without a token as user system:anonymous (default: on)",
    )  # fmt: skip
    parser.add_argument(
        "--service-account-issuer", default="", metavar="URL",
        help="issuer of service account tokens (default: https://kubernetes.default.svc.cluster.local)",
    )  # fmt: skip
    parser.add_argument(
        "--api-audiences", default="", metavar="LIST", help="the server's own audiences (default: the issuer)"
    )
    parser.add_argument(
        "--service-account-signing-key-file", type=Path, metavar="FILE",
        help="RSA private key of service account tokens, in PEM (default: a generated one)",
    )  # fmt: skip
    parser.add_argument(
        "--audit-log-path", type=Path, metavar="FILE",
        help="append every request to this file, as lines of JSON in the form of audit.k8s.io/v1",
    )  # fmt: skip


def main(args: argparse.Namespace) -> int:
    """Serve until SIGINT or SIGTERM. Returns 0 after a signal, 1 if the start failed, 2 for an invalid fault plan."""
    import asyncio

    import uvloop

    from apimachinery.errors import ConfigurationError
    from apimachinery.visible import visible_lines

    from .errors import ClusterError
    from .fault_plan import read_plan
    from .journal import UnwritableError
    from .settings import SettingError

    try:
        plan = None if args.faults is None else read_plan(args.faults)
    except ConfigurationError as error:
        print(visible_lines(f"{args.program}: {error}"), file=sys.stderr)
        return 2
    try:
        settings = settings_of(args)
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(_serve(settings, plan, shows_token=not args.token))
    except ClusterError as error:
        text = error.as_flag() if isinstance(error, SettingError) else str(error)
        print(visible_lines(f"{args.program}: {text}"), file=sys.stderr)
        return 1
    except BaseExceptionGroup as group:
        # The scheduler has ended, or a controller could not write to the data directory.
        known, others = group.split((ClusterError, UnwritableError))
        if known is None or others is not None:
            raise
        print(visible_lines(f"{args.program}: {_first(known)}"), file=sys.stderr)
        return 1
    return 0


def _first(error: BaseException) -> BaseException:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def settings_of(args: argparse.Namespace) -> Settings:
    """Return the settings of the same names as the flags. Raises `SettingError`."""
    from .settings import Settings

    names = {field.name for field in fields(Settings)}
    return Settings(**{name: value for name, value in vars(args).items() if name in names})


async def _serve(settings: Settings, plan: Plan | None, *, shows_token: bool) -> None:
    """Serve until SIGINT or SIGTERM, then print the number of faults that fired. Raises `ClusterError`."""
    import asyncio
    import logging

    from apimachinery.output import LogHandler, standard_error, standard_output

    from .assembly import running
    from .faults import Injector
    from .server import calm_gc

    loop = asyncio.get_running_loop()
    stopping = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stopping.set)
    injector = None if plan is None else Injector(plan)
    # A full disk or a stalled reader must not stop the server.
    output = standard_output()
    logging.getLogger().addHandler(LogHandler(standard_error()))
    async with running(settings, disturb=injector) as cluster:
        calm_gc()
        output.write(f"{_greeting(settings, cluster, shows_token=shows_token)}\n".encode())
        await stopping.wait()
    if injector is not None:
        output.write("".join(f"{line}\n" for line in injector.report()).encode())


def _greeting(settings: Settings, cluster: Running, *, shows_token: bool) -> str:
    # A directory of objects may have other nodes than the settings.
    count = len(cluster.api.store.tables["", "nodes"].records)
    also = f" and loaded objects ({cluster.loaded})" if cluster.loaded else ""
    if settings.kubeconfig_out is not None:
        example = f"kubectl --kubeconfig {settings.kubeconfig_out} get nodes"
    else:
        tls = " --insecure-skip-tls-verify" if settings.serves_tls else ""
        # The user knows a token that was given, so do not print it.
        shown = f" --token {cluster.token if shows_token else 'TOKEN'}" if cluster.token else ""
        example = f"kubectl --server {cluster.url}{tls}{shown} get nodes"
    return f"cluster ready at {cluster.url} with {counted(count, 'node')}{also}; try: {example}"

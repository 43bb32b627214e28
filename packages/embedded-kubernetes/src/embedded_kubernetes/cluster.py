"""Flags and main function of the command `embedded-kubernetes`: an API server with simulated nodes, in one process.

For trying a scheduler, kubectl or a controller without a cluster: real HTTP (or TLS), simulated kubelets, and
nodes of one shape that are ready from the start. Everything is in memory and gone with the process.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .assembly import Running
    from .fault_plan import Plan
    from .settings import Settings


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the command's flags. Errors are reported under the name of `parser`."""
    parser.set_defaults(program=parser.prog)
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on (default: %(default)s)")
    parser.add_argument("--port", type=int, default=8001, help="0 takes a free one (default: %(default)s)")
    parser.add_argument("--nodes", type=int, default=10, metavar="N", help="(default: %(default)s)")
    parser.add_argument("--node-cpu", default="32", metavar="QUANTITY", help="(default: %(default)s)")
    parser.add_argument("--node-memory", default="128Gi", metavar="QUANTITY", help="(default: %(default)s)")
    parser.add_argument("--node-pods", default="110", metavar="N", help="(default: %(default)s)")
    parser.add_argument(
        "--node-gpus", default="0", metavar="N", help="of nvidia.com/gpu (default: %(default)s)"
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
        help="devices have to be attached to their node once they are allocated (binding conditions), "
        "which takes so long (default: they need not be)",
    )  # fmt: skip
    parser.add_argument("--kubeconfig-out", type=Path, metavar="FILE", help="write a kubeconfig, once ready")
    parser.add_argument(
        "--kubelets",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="play the nodes' kubelets: without, bound pods stay Pending (default: on)",
    )
    parser.add_argument(
        "--controllers", default="*", metavar="LIST",
        help="what runs beside the API server, as for kube-controller-manager: '*' for all, or names, a - before those "
        "that are not to run, such as '*,-resourceclaim-controller' (default: %(default)s)",
    )  # fmt: skip
    parser.add_argument(
        "--autoscaler", action="append", default=[], metavar="RULE",
        help="add nodes of this shape for pods that say Unschedulable, and take empty ones away, such as "
        "cpu=8,memory=32Gi,pods=110,nvidia.com/gpu=1,label:pool=gpu,taint:gpu=yes:NoSchedule,name=gpu,max=10,delay=5,"
        "idle=30; may be repeated, and the first that a pod fits counts",
    )  # fmt: skip
    parser.add_argument(
        "--runtime-config", default="", metavar="LIST",
        help="alpha versions that are served besides, as for kube-apiserver: scheduling.k8s.io/v1alpha2=true",
    )  # fmt: skip
    parser.add_argument(
        "--load", type=Path, nargs="+", action="extend", default=[], metavar="FILE",
        help="create the objects in these YAML or JSON files at the start",
    )  # fmt: skip
    parser.add_argument(
        "--tls", action=argparse.BooleanOptionalAction,
        help="serve HTTPS with a certificate made for this run (default: on with RBAC: kubectl sends no token without)",
    )  # fmt: skip
    _add_access(parser)
    parser.add_argument(
        "--faults", type=Path, metavar="FILE",
        help="answer with the faults of this YAML or JSON file, see docs/faults.md; for tests of clients",
    )  # fmt: skip


def _add_access(parser: argparse.ArgumentParser) -> None:
    """Who may do what, by kube-apiserver's flags."""
    parser.add_argument(
        "--token", default="",
        help="an administrator's bearer token (with RBAC, one is made unless given). Without RBAC and a token file it "
        "is required of everybody",
    )  # fmt: skip
    parser.add_argument(
        "--authorization-mode",
        default="AlwaysAllow",
        metavar="MODE",
        help="AlwaysAllow or RBAC (default: %(default)s)",
    )
    parser.add_argument(
        "--token-auth-file", type=Path, metavar="FILE",
        help='users by their tokens: lines of token,user,uid[,"group1,group2"]',
    )  # fmt: skip
    parser.add_argument(
        "--anonymous-auth", action=argparse.BooleanOptionalAction, default=True,
        help="requests without a token are those of system:anonymous (default: on)",
    )  # fmt: skip
    parser.add_argument(
        "--service-account-issuer", default="", metavar="URL",
        help="of service accounts' tokens (default: https://kubernetes.default.svc.cluster.local)",
    )  # fmt: skip
    parser.add_argument(
        "--api-audiences", default="", metavar="LIST", help="the server's own audiences (default: the issuer)"
    )
    parser.add_argument(
        "--service-account-signing-key-file", type=Path, metavar="FILE",
        help="RSA private key, in PEM, of service accounts' tokens (default: one that is made for this run)",
    )  # fmt: skip
    parser.add_argument(
        "--audit-log-path", type=Path, metavar="FILE",
        help="append every request to this file, as lines of JSON in the form of audit.k8s.io/v1",
    )  # fmt: skip


def main(args: argparse.Namespace) -> int:
    """Serves until SIGINT or SIGTERM: 0 then, 1 if the cluster could not start, 2 for a plan of faults that is none."""
    import asyncio

    import uvloop

    from apimachinery.errors import ConfigurationError

    from .errors import ClusterError
    from .fault_plan import read_plan
    from .settings import SettingError

    try:
        plan = None if args.faults is None else read_plan(args.faults)
    except ConfigurationError as error:
        print(f"{args.program}: {error}", file=sys.stderr)
        return 2
    try:
        settings = settings_of(args)
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(_serve(settings, plan, shows_token=not args.token))
    except ClusterError as error:
        text = error.as_flag() if isinstance(error, SettingError) else str(error)
        print(f"{args.program}: {text}", file=sys.stderr)
        return 1
    return 0


def settings_of(args: argparse.Namespace) -> Settings:
    """Every flag is the setting of its name. Raises `SettingError`."""
    from .settings import Settings

    names = {field.name for field in fields(Settings)}
    return Settings(**{name: value for name, value in vars(args).items() if name in names})


async def _serve(settings: Settings, plan: Plan | None, *, shows_token: bool) -> None:
    """Serves until SIGINT or SIGTERM, and tells in the end how many faults fired. Raises `ClusterError`."""
    import asyncio
    import signal

    from .assembly import running
    from .faults import Injector
    from .server import calm_gc

    loop = asyncio.get_running_loop()
    stopping = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stopping.set)
    injector = None if plan is None else Injector(plan)
    async with running(settings, disturb=injector) as cluster:
        calm_gc()
        print(_greeting(settings, cluster, shows_token=shows_token), flush=True)
        await stopping.wait()
    if injector is not None:
        print("\n".join(injector.report()), flush=True)


def _greeting(settings: Settings, cluster: Running, *, shows_token: bool) -> str:
    also = f" and what was loaded ({cluster.loaded})" if cluster.loaded else ""
    if settings.kubeconfig_out is not None:
        example = f"kubectl --kubeconfig {settings.kubeconfig_out} get nodes"
    else:
        tls = " --insecure-skip-tls-verify" if settings.serves_tls else ""
        # One that was given is known to who gave it.
        shown = f" --token {cluster.token if shows_token else 'TOKEN'}" if cluster.token else ""
        example = f"kubectl --server {cluster.url}{tls}{shown} get nodes"
    return f"cluster ready at {cluster.url} with {settings.nodes} nodes{also}; try: {example}"

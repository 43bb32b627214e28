"""The command line of `agent-scheduler explain`.

Exit codes: 0 if the scheduler knows the pod or group, 1 if not, 2 for wrong usage or if no scheduler can be asked. In
the last two cases standard error has one line.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from agent_scheduler.serving.explanation import BOLD, PLAIN, render
from apimachinery.errors import ConfigurationError
from kube_client.credentials import KubeConfigError

from .clusters import add_cluster, endpoint_of
from .outputs import complain, dumped, show
from .reach import GROUP_PREFIX, Unreachable, Ways, ask

FOUND, NOT_FOUND, FAILED = 0, 1, 2


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "pod", metavar="NAMESPACE/POD", help="the pod, or podgroup/NAMESPACE/NAME for a group of the batch scheduler"
    )
    add_ways(parser)
    afresh = parser.add_argument_group("deciding without a running scheduler")
    afresh.add_argument(
        "--from-cluster",
        action="store_true",
        help="list the cluster with your kubeconfig and decide here; nothing is written",
    )
    afresh.add_argument(
        "--config", metavar="FILE", type=Path, help="the scheduler's configuration file (only with --from-cluster)"
    )


def add_ways(parser: argparse.ArgumentParser) -> None:
    """Add the arguments for finding the scheduler and for the output."""
    usual = Ways()
    parser.add_argument("-o", "--output", choices=("text", "json"), default="text", help="text or JSON")
    straight = parser.add_argument_group("asking a scheduler directly")
    straight.add_argument("--server", metavar="URL", default="", help="the URL of its HTTP server")
    straight.add_argument(
        "--certificate-authority",
        metavar="FILE",
        type=Path,
        help="the authority of its certificate (default: the system's authorities)",
    )
    straight.add_argument(
        "--insecure-skip-tls-verify",
        action="store_true",
        help="accept any certificate, for a self-signed one behind kubectl port-forward",
    )
    through = parser.add_argument_group("asking the leader through the API server (default)")
    add_cluster(through)
    through.add_argument(
        "--namespace",
        metavar="NAME",
        default=usual.namespace,
        help=f"the namespace of the lease and the pods (default: {usual.namespace})",
    )
    through.add_argument(
        "--lease", metavar="NAME", default=usual.lease, help=f"the leader's lease (default: {usual.lease})"
    )
    parser.add_argument("--token", metavar="TOKEN", default="", help="a bearer token, if the scheduler requires one")


def ways_of(args: argparse.Namespace) -> Ways:
    """Return the ways that the flags describe. Raises Unreachable for flags without effect."""
    usual = Ways()
    flags = {"--namespace": args.namespace != usual.namespace, "--lease": args.lease != usual.lease}
    if args.server and any(flags.values()):
        given = ", ".join(flag for flag, is_given in flags.items() if is_given)
        raise Unreachable(f"{given}: not allowed with --server, which names the scheduler")
    if args.certificate_authority is not None and not args.server:
        raise Unreachable("--certificate-authority: needs --server")
    if args.insecure_skip_tls_verify and not args.server:
        raise Unreachable("--insecure-skip-tls-verify: needs --server")
    if args.insecure_skip_tls_verify and args.certificate_authority is not None:
        raise Unreachable("--insecure-skip-tls-verify: not allowed with --certificate-authority")
    return Ways(
        server=args.server,
        token=args.token.strip(),
        certificate_authority=args.certificate_authority,
        is_unverified=args.insecure_skip_tls_verify,
        kubeconfig=args.kubeconfig,
        context=args.context,
        namespace=args.namespace,
        lease=args.lease,
    )


def main(args: argparse.Namespace) -> int:
    namespace, _, name = args.pod.removeprefix(GROUP_PREFIX).partition("/")
    if not namespace or not name or "/" in name:
        return _fail(f"found {args.pod!r}; allowed: NAMESPACE/POD or {GROUP_PREFIX}NAMESPACE/NAME")
    try:
        if args.from_cluster:
            page = _afresh(args, namespace, name)
        elif args.config is not None:
            return _fail("--config: needs --from-cluster; a running scheduler has its own configuration")
        else:
            page = asyncio.run(ask(args.pod, ways_of(args)))
    except (Unreachable, ConfigurationError) as error:
        return _fail(str(error))
    known = page["place"] != "unknown"
    if args.output == "json":
        show(dumped(page, "json"))
    elif known:
        bold = sys.stdout.isatty() and "NO_COLOR" not in os.environ
        show(render(page, bold=bold), styles=(BOLD, PLAIN))
    if not known:
        asked = args.pod if args.pod.startswith(GROUP_PREFIX) else f"pod {args.pod}"
        complain("explain", f"{asked} is unknown: {page.get('why')}")
    return FOUND if known else NOT_FOUND


def _afresh(args: argparse.Namespace, namespace: str, name: str) -> Mapping[str, Any]:
    """Explain a pod without a scheduler. Raises Unreachable and ConfigurationError."""
    # This loads the whole scheduler, which asking a running one does not need.
    from .afresh import configuration_of, explain

    usual, names = Ways(), ("server", "certificate_authority", "namespace", "lease", "token")
    given = [f"--{name.replace('_', '-')}" for name in names if getattr(args, name) != getattr(usual, name)]
    if args.insecure_skip_tls_verify:
        given.append("--insecure-skip-tls-verify")
    if given:
        raise Unreachable(f"{', '.join(given)}: not allowed with --from-cluster, which asks no scheduler")
    if args.pod.startswith(GROUP_PREFIX):
        raise Unreachable("--from-cluster: explains only pods; ask a running batch scheduler about groups")
    try:
        configuration = configuration_of(args.config)
        endpoint = endpoint_of(args)
    except OSError as error:
        raise ConfigurationError(f"--config {args.config}: {error.strerror}") from None
    except KubeConfigError as error:
        raise Unreachable(str(error)) from error
    return asyncio.run(explain(namespace, name, configuration, endpoint))


def _fail(problem: str) -> int:
    complain("explain", problem)
    return FAILED

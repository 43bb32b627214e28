"""The command line of `agent-scheduler explain`.

Exit codes: 0 for a pod or group that the scheduler knows, 1 for one that it does not, 2 where the command is used
wrongly or no scheduler can be asked. Each of the latter is one line on standard error.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from agent_scheduler.serving.explanation import render
from apimachinery.errors import ConfigurationError

from .reach import GROUP_PREFIX, Unreachable, Ways, ask

FOUND, NOT_FOUND, FAILED = 0, 1, 2


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "pod",
        metavar="NAMESPACE/POD",
        help="the pod that is asked about, or podgroup/NAMESPACE/NAME for a group of the batch scheduler's",
    )
    add_ways(parser)
    afresh = parser.add_argument_group("deciding afresh, without a scheduler")
    afresh.add_argument(
        "--from-cluster",
        action="store_true",
        help="list the cluster with your kubeconfig and decide here; nothing is written",
    )
    afresh.add_argument("--config", metavar="FILE", type=Path, help="by the scheduler's configuration file")


def add_ways(parser: argparse.ArgumentParser) -> None:
    """What says where the scheduler is, and how its answer is shown."""
    usual = Ways()
    parser.add_argument(
        "-o", "--output", choices=("text", "json"), default="text", help="text for people, or JSON"
    )
    straight = parser.add_argument_group("asking a scheduler straight")
    straight.add_argument("--server", metavar="URL", default="", help="where its HTTP server is")
    straight.add_argument(
        "--certificate-authority",
        metavar="FILE",
        type=Path,
        help="who signed its certificate, if not a public one",
    )
    through = parser.add_argument_group("asking the leader through the API server, without --server")
    through.add_argument("--kubeconfig", metavar="FILE", type=Path, help="as for kubectl")
    through.add_argument(
        "--namespace",
        metavar="NAME",
        default=usual.namespace,
        help=f"of the lease and the pods ({usual.namespace})",
    )
    through.add_argument(
        "--lease", metavar="NAME", default=usual.lease, help=f"that the leader holds ({usual.lease})"
    )
    parser.add_argument("--token", metavar="TOKEN", default="", help="for a page that asks for one")


def ways_of(args: argparse.Namespace) -> Ways:
    return Ways(
        server=args.server,
        token=args.token.strip(),
        certificate_authority=args.certificate_authority,
        kubeconfig=args.kubeconfig,
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
            return _fail("--config: is of use with --from-cluster alone; a running scheduler has its own")
        else:
            page = asyncio.run(ask(args.pod, ways_of(args)))
    except (Unreachable, ConfigurationError) as error:
        return _fail(" ".join(str(error).split()))
    known = page["place"] != "unknown"
    if args.output == "json":
        print(json.dumps(page, indent=1, ensure_ascii=False))
    elif known:
        print(render(page, bold=sys.stdout.isatty() and "NO_COLOR" not in os.environ), end="")
    if not known:
        asked = args.pod if args.pod.startswith(GROUP_PREFIX) else f"pod {args.pod}"
        print(f"agent-scheduler explain: {asked} is not known: {page.get('why')}", file=sys.stderr)
    return FOUND if known else NOT_FOUND


def _afresh(args: argparse.Namespace, namespace: str, name: str) -> Mapping[str, Any]:
    """Raises Unreachable and ConfigurationError."""
    # It loads all of a scheduler, which the way to a running one does without.
    from .afresh import configuration_of, explain

    if args.pod.startswith(GROUP_PREFIX):
        raise Unreachable(
            "--from-cluster: explains pods; a group is explained by the scheduler that has sessions"
        )
    try:
        configuration = configuration_of(args.config)
    except OSError as error:
        raise ConfigurationError(f"--config {args.config}: {error.strerror}") from None
    return asyncio.run(explain(namespace, name, configuration, args.kubeconfig))


def _fail(problem: str) -> int:
    print(f"agent-scheduler explain: {problem}", file=sys.stderr)
    return FAILED

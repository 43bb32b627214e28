"""The flags that name a cluster, which are kubectl's, and the endpoint that they name."""

from __future__ import annotations

import argparse
from pathlib import Path

from kube_client.auth import load_endpoint
from kube_client.transport import Endpoint


def add_cluster(parser: argparse._ActionsContainer) -> None:
    parser.add_argument("--kubeconfig", metavar="FILE", type=Path, help="the kubeconfig file (default: as for kubectl)")
    parser.add_argument("--context", metavar="NAME", help="the kubeconfig's context (default: its current one)")


def endpoint_of(args: argparse.Namespace) -> Endpoint:
    """Return the API server of the flags. Raises KubeConfigError."""
    return load_endpoint(kubeconfig=args.kubeconfig, context=args.context)

"""An existing cluster with any scheduler: `--kubeconfig`.

Nodes are the existing ones, or bare Node objects created for the run (`--make-nodes`), on which nothing runs: they are
tainted for all other pods, and the benchmark's pods are restricted to them by their node selector.
"""

from __future__ import annotations

import asyncio
import re
import ssl
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace

from bench.harness import manifests
from bench.harness.arrivals import Backlog
from bench.harness.measure import Meter
from bench.harness.model import Case, Tuning
from bench.harness.requests import create_all
from bench.harness.site import NODES, nodes_of, remove_all, shielded
from kube_client.auth import load_endpoint
from kube_client.http1 import Http1Transport
from kube_client.transport import Endpoint, Transport

from .options import AS_THE_CASE_WANTS, Options

#: The part of a case's name that describes its nodes.
_SIZE = re.compile(r"([\d,]+ pods on )?[\d,]+ nodes")


class NotHereError(Exception):
    """The case cannot be run on this cluster; the text has the reason."""


class ExistingSite:
    """A `Site`, created by `existing`."""

    ours = False
    kubelets = False
    #: Whether that scheduler writes events is not configured here.
    all_events = False

    def __init__(self, *, transport: Http1Transport, meter: Meter, options: Options) -> None:
        self.transport: Transport = transport
        self.scheduler_name = options.scheduler_name
        self.meter = meter
        self._labels = manifests.MARKED if options.make_nodes is not None else dict(options.node_selector)

    @property
    def selector(self) -> dict[str, str]:
        return dict(self._labels)

    async def start_scheduler(self) -> None:
        """Do nothing: the scheduler runs, or nothing will be bound."""

    async def stop_scheduler(self) -> None:
        """Do nothing: the scheduler belongs to others."""

    async def died(self) -> None:
        await asyncio.Event().wait()


def fitted(case: Case, options: Options) -> Case:
    """Return the case for the available nodes. Raises NotHereError if it cannot be run on them."""
    if isinstance(case.load.arrival, Backlog):
        raise NotHereError("pods cannot be there before a scheduler that runs already")
    if case.tuning != Tuning(events=case.tuning.events):
        raise NotHereError("it compares settings of a scheduler that is started here")
    made, pods = options.make_nodes, f"{case.load.count:,} pods"
    if made is None:
        if case.nodes.given or case.nodes.devices or case.zones:
            raise NotHereError("it needs nodes with zones, devices or shapes of its own: give --make-nodes")
        return replace(case, name=_SIZE.sub(pods, case.name, count=1))
    if made == AS_THE_CASE_WANTS or case.nodes.given:
        return case
    name = _SIZE.sub(f"{pods} on {made:,} nodes", case.name, count=1)
    return replace(case, name=name, nodes=replace(case.nodes, count=made))


@asynccontextmanager
async def existing(case: Case, *, options: Options) -> AsyncIterator[ExistingSite]:
    """Connect to the cluster of `options.kubeconfig`, with the requested nodes. Raises NotHereError."""
    async with AsyncExitStack() as stack:
        transport = Http1Transport(load_endpoint(kubeconfig=options.kubeconfig), pool_size=160)
        stack.push_async_callback(transport.close)
        metrics: Http1Transport | None = None
        address = options.metrics_url.removesuffix("/metrics")
        if address:
            metrics = Http1Transport(_metrics_endpoint(address, options), pool_size=2)
            stack.push_async_callback(metrics.close)
        meter = Meter(scheduler=options.scheduler_pids, server=options.server_pids, metrics=metrics)
        site = ExistingSite(transport=transport, meter=meter, options=options)
        try:
            if options.make_nodes is not None:
                made = case.nodes
                bodies = (
                    map(manifests.given_node, made.given)
                    if made.given
                    else (manifests.node(made, number) for number in range(made.count))
                )
                await create_all(transport, NODES, map(manifests.encode, bodies), ignore=409)
            elif not await nodes_of(site):
                raise NotHereError("no node has the labels of --node-selector")
            yield site
        finally:
            if options.make_nodes is not None:
                await shielded(remove_all(transport, f"{NODES}?labelSelector={manifests.MARK}%3Dtrue"))


def _metrics_endpoint(address: str, options: Options) -> Endpoint:
    async def headers() -> dict[str, str]:
        return {"Authorization": f"Bearer {options.metrics_token}"} if options.metrics_token else {}

    trust: ssl.SSLContext | None = None
    if options.metrics_insecure:
        # A scheduler creates its certificate itself unless one is configured.
        trust = ssl.create_default_context()
        trust.check_hostname, trust.verify_mode = False, ssl.CERT_NONE
    return Endpoint(address, ssl_context=trust, headers=headers)

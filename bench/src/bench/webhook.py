"""Measures what an admission review costs `agent-scheduler webhook`, in CPU time of its own process.

The webhook runs in its own process, and is called over TLS on keep-alive connections, as by an API server; the client's
cost does not count. Its cluster is an embedded one with `--queues` queues.

   python -m bench.webhook [--reviews 10000] [--queues 1000]
"""

from __future__ import annotations

import argparse
import json
import ssl
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import msgspec
import uvloop
import yaml

from agent_scheduler.objects.batch import QUEUE_ALLOCATION_GATE, QUEUES
from agent_scheduler.webhook.authority import renewed
from bench.apiserver_cost import OperationCost, Server
from bench.harness.embedded import cluster
from bench.harness.manifest_files import manifest_file
from bench.harness.manifests import encode, pod_maker
from bench.harness.model import Batch, Case, Nodes, Template
from bench.harness.processes import child, free_port
from bench.harness.requests import answers, create_all
from bench.harness.site import BATCH_KINDS, CRDS
from bench.tables import table
from kube_client.http1 import Http1Transport
from kube_client.transport import Endpoint

#: As many as `Server.cost` uses at a time.
_CONNECTIONS = 16
_START_SECONDS = 60.0


class Review(NamedTuple):
    """The repeated review."""

    path: str
    request: Mapping[str, Any]

    @property
    def body(self) -> bytes:
        request = {"uid": "1c6b7b0c-0d3e-4bb0-b3a6-9a1e9f6a0c77", "namespace": "default", **self.request}
        review = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}
        return json.dumps(review).encode()


def reviews(queues: int) -> Mapping[str, Review]:
    pod = msgspec.json.decode(pod_maker(Template(), scheduler_name="agent-scheduler")("agent-00001"))
    asking = {**pod, "metadata": {**pod["metadata"], "annotations": {QUEUE_ALLOCATION_GATE: "true"}}}
    large = {
        **asking,
        "spec": {
            **asking["spec"],
            "containers": [
                {
                    **asking["spec"]["containers"][0],
                    "name": f"c{number}",
                    "env": [{"name": f"VARIABLE_{each}", "value": "v" * 40} for each in range(30)],
                }
                for number in range(5)
            ],
        },
    }
    queue = _queue(f"queue-{queues - 1:05d}", cpu="2")
    return {
        "pod, gated": Review("/pods/mutate", {"operation": "CREATE", "object": asking}),
        "pod that does not ask": Review("/pods/mutate", {"operation": "CREATE", "object": pod}),
        "pod of 13 kB, gated": Review("/pods/mutate", {"operation": "CREATE", "object": large}),
        f"queue, one of {queues:,}": Review(
            "/queues/validate",
            {
                "operation": "UPDATE",
                "name": queue["metadata"]["name"],
                "object": queue,
                "oldObject": _queue(queue["metadata"]["name"], cpu="1"),
            },
        ),
    }


def _queue(name: str, *, cpu: str) -> dict[str, Any]:
    return {
        "apiVersion": "scheduling.volcano.sh/v1beta1",
        "kind": "Queue",
        "metadata": {"name": name},
        "spec": {"parent": "root", "weight": 1, "reclaimable": True, "capability": {"cpu": cpu}},
    }


@asynccontextmanager
async def webhook(folder: Path) -> AsyncIterator[Server]:
    """Run `agent-scheduler webhook` on the cluster of the kubeconfig in `folder`, once ready. Raises ProcessError."""
    held = renewed(None, ("localhost",), datetime.now(UTC))
    assert held is not None
    files = folder / "tls.crt", folder / "tls.key"
    for file, content in zip(files, (held.certificate, held.key), strict=True):
        file.write_bytes(content)
    port = free_port()
    command = [
        *("webhook", "--kubeconfig", str(folder / "kubeconfig"), "--port", str(port)),
        *("--tls-cert-file", str(files[0]), "--tls-private-key-file", str(files[1])),
        *("--log-level", "warning", "--shutdown-delay", "1ms"),
    ]
    trusting = ssl.create_default_context(cadata=held.bundle.decode())
    async with child("webhook", command, log=folder / "webhook.log") as process:
        transport = Http1Transport(Endpoint(f"https://localhost:{port}", ssl_context=trusting), pool_size=_CONNECTIONS)
        try:
            await process.ready(lambda: answers(transport), seconds=_START_SECONDS)
            yield Server(transport, process.pid)
        finally:
            await transport.close()


async def run(count: int, queues: int) -> dict[str, OperationCost]:
    case = Case(name="", nodes=Nodes(count=0), load=Batch(name="pod", count=count))
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory(prefix="bench-")))
        bare = ("--no-kubelets", "--controllers", "")
        _, transport = await stack.enter_async_context(cluster(case.nodes, folder=folder, arguments=bare))
        definitions = [yaml.safe_load(manifest_file(name).read_text()) for name in BATCH_KINDS]
        await create_all(transport, CRDS, map(encode, definitions))
        made = (_queue(f"queue-{number:05d}", cpu="1") for number in range(queues))
        await create_all(transport, QUEUES, map(encode, made))
        server = await stack.enter_async_context(webhook(folder))
        return {
            title: await server.cost([("POST", review.path, review.body)] * count)
            for title, review in reviews(queues).items()
        }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--reviews", type=int, default=10_000, help="reviews of each kind")
    parser.add_argument("--queues", type=int, default=1_000, help="queues that there are")
    args = parser.parse_args()
    result = uvloop.run(run(args.reviews, args.queues))
    print("CPU microseconds of the webhook's process per review: median of the batches (least)\n")
    rows = (
        (title, f"{cost.median:.1f} ({cost.least:.1f})", f"{1e6 / cost.median:,.0f}") for title, cost in result.items()
    )
    print(table(("review", "CPU", "reviews per second and core"), rows))
    return 0


if __name__ == "__main__":
    sys.exit(main())

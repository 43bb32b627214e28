"""Measures what a hostile tenant costs the others: binds of ordinary pods beside each of its inputs.

   python -m bench.hostile [--rate 100 --seconds 10 --nodes 200] [--only TEXT ...] [--list]

For each input (`bench.hostile_inputs`) an embedded cluster with RBAC is started, and scheduler, controllers and webhook
with the manifests of `config`: their arguments, configurations, roles and admission policies. Ordinary pods arrive
evenly in one namespace while the input's requests are sent from another with a tenant's rights. Latency is from a
create's response to the bind as a watch delivers it; it includes the API server, which parses the same objects. CPU is
from the kernel; steps are the longest of the event loop by kind, as /metrics has them. The exit code is 1 if an
ordinary pod stays unbound, a process ends or exceeds its memory limit, or a lease changes its holder.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import ssl
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import uvloop
import yaml

from apimachinery.quantity import resource_value
from bench.demo.job_story import KINDS
from bench.harness.arrivals import Even
from bench.harness.embedded import cluster
from bench.harness.install import CONTROLLERS, NAMESPACE, SCHEDULER, Component, kubeconfig_of, write_kubeconfig
from bench.harness.load import Load
from bench.harness.manifest_files import manifest_file
from bench.harness.manifests import encode
from bench.harness.measure import Exposition, peak, usage
from bench.harness.model import Batch, Nodes, Template
from bench.harness.processes import Child, ProcessError, child, free_port
from bench.harness.requests import ask, create_all, retry
from bench.harness.run import until
from bench.harness.site import CRDS, until_served
from bench.harness.watching import FreeCapacity, Observer, Track
from bench.hostile_inputs import INPUTS, MUTATING, RIGHTS, VALIDATING, Input, Request
from bench.hostile_inputs import NAMESPACE as TENANT
from bench.tables import table
from kube_client.auth import load_endpoint
from kube_client.errors import RequestFailed
from kube_client.http1 import Http1Transport
from kube_client.transport import Endpoint, Transport, TransportError

#: The components with all their manifests but those of pods; the files of the webhook follow its start.
COMPONENTS = {
    "scheduler": SCHEDULER._replace(files=(*SCHEDULER.files, "rbac-metrics.yaml", "policy.yaml")),
    "controllers": CONTROLLERS._replace(files=(*CONTROLLERS.files, "policy.yaml")),
    "webhook": Component(
        "webhook",
        "agent-scheduler-webhook",
        ("namespace.yaml", "service-account.yaml", "rbac.yaml", "secret.yaml", "mutating.yaml", "validating.yaml"),
    ),
}
_LEASES = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases"
#: Kinds of ordinary pods, so that decisions of several classes are measured.
_ORDINARY = tuple(
    Template(requests={"cpu": f"{10 + number}m", "memory": "16Mi"}, labels={"app": f"a{number}"})
    for number in range(20)
)
_START = _PATIENCE = 120.0
#: The longest that an input's requests last, in seconds.
_INPUT_SECONDS = 60.0


class RunningPart(NamedTuple):
    """A component that runs, on the port of its HTTP server."""

    name: str
    process: Child
    port: int
    #: Maximum bytes of memory, by the Deployment.
    limit: int
    tls: ssl.SSLContext | None


class Cost(NamedTuple):
    """The result of one input. `latencies` are milliseconds; the mappings are by component."""

    name: str
    latencies: Sequence[float]
    sent: int
    refused: int
    cpu: Mapping[str, float]
    memory: Mapping[str, int]
    steps: Mapping[str, Mapping[str, float]]
    problems: Sequence[str]


class Installed:
    """The cluster, the components on it, and the clients of administrator and tenant."""

    def __init__(self, admin: Http1Transport, folder: Path) -> None:
        self.admin = admin
        self.folder = folder
        self.parts: list[RunningPart] = []
        self.tenant: Transport = admin
        self.leases: Mapping[str, Any] = {}

    # ---- installation

    async def start(self, stack: AsyncExitStack, given: Input) -> None:
        await create_all(
            self.admin,
            CRDS,
            (
                encode(yaml.safe_load(manifest_file(name).read_text()))
                for name in (*KINDS, "crd/shard.volcano.sh_nodeshards.yaml")
            ),
        )
        await until_served(self.admin, "/apis/batch.volcano.sh/v1alpha1/jobs")
        data = {"sharding.yaml": manifest_file("controllers/sharding.yaml").read_text()}
        configuration = self.folder / "configuration.yaml"
        document = yaml.safe_load(manifest_file("default/configuration.yaml").read_text())
        configuration.write_text(yaml.safe_dump({**document, **({"batch": {}} if given.batch else {})}))
        for name, component in COMPONENTS.items():
            own = await kubeconfig_of(self.admin, self.folder / "kubeconfig", component)
            if name == "controllers":
                sharding = {"metadata": {"name": "agent-scheduler-sharding"}, "data": data}
                await retry(
                    self.admin, "POST", f"/api/v1/namespaces/{NAMESPACE}/configmaps", encode(sharding), ignore=409
                )
            await self._run(stack, name, component, own, stalled=given.play == "stalled log" and name == "scheduler")
        await self._become_tenant(stack)
        await self._call_webhook()
        await until_served(self.admin, "/apis/scheduling.volcano.sh/v1beta1/queues/default")
        # The controllers have created the queue.
        async with asyncio.timeout(_START):
            while len(self.leases) < 2:
                await asyncio.sleep(0.1)
                self.leases = await self._holders()

    async def _run(self, stack: AsyncExitStack, name: str, component: Component, own: Path, *, stalled: bool) -> None:
        deployment = yaml.safe_load(manifest_file(f"{component.folder}/deployment.yaml").read_text())
        (container,) = deployment["spec"]["template"]["spec"]["containers"]
        arguments = [each.replace("/etc/agent-scheduler", str(self.folder)) for each in container["args"]]
        port = free_port()
        arguments += ["--kubeconfig", str(own), "--bind-address", "127.0.0.1", "--port", str(port)]
        if name == "webhook":
            arguments += ["--certificate-host", "127.0.0.1"]
        log = self.folder / f"{name}.log"
        if stalled:
            stack.callback(os.close, _stalled(log))
        process = await stack.enter_async_context(
            child(name, arguments, log=log, grace=20.0, environment={"POD_NAMESPACE": NAMESPACE})
        )
        limit = resource_value("memory", container["resources"]["limits"]["memory"])
        self.parts.append(RunningPart(name, process, port, limit, _unverified() if name == "webhook" else None))
        await process.ready(lambda: self._answers(self.parts[-1]), seconds=_START)

    async def _answers(self, part: RunningPart) -> bool:
        return (await self.page(part, "/readyz")).startswith(b"ok")

    async def page(self, part: RunningPart, path: str) -> bytes:
        """Return a page of a component; empty without an answer."""
        url = f"{'http' if part.tls is None else 'https'}://127.0.0.1:{part.port}"
        admins = load_endpoint(kubeconfig=self.folder / "kubeconfig")
        transport = Http1Transport(Endpoint(url, ssl_context=part.tls, headers=admins.headers), pool_size=1)
        try:
            return await ask(transport, "GET", path)
        except RequestFailed:
            return b""
        finally:
            await transport.close()

    async def _become_tenant(self, stack: AsyncExitStack) -> None:
        metadata = {"name": TENANT, "namespace": TENANT}
        rbac = "rbac.authorization.k8s.io"
        subject = {"kind": "ServiceAccount", "name": TENANT, "namespace": TENANT}
        role = {"apiGroup": rbac, "kind": "Role", "name": TENANT}
        path = f"/apis/{rbac}/v1/namespaces/{TENANT}"
        for to, body in (
            ("/api/v1/namespaces", {"metadata": {"name": TENANT}}),
            (f"/api/v1/namespaces/{TENANT}/serviceaccounts", {"metadata": metadata}),
            (f"{path}/roles", {"metadata": metadata, "rules": RIGHTS}),
            (f"{path}/rolebindings", {"metadata": metadata, "roleRef": role, "subjects": [subject]}),
        ):
            await retry(self.admin, "POST", to, encode(body), ignore=409)
        asked = await ask(self.admin, "POST", f"/api/v1/namespaces/{TENANT}/serviceaccounts/{TENANT}/token", body=b"{}")
        own = self.folder / "tenant.kubeconfig"
        write_kubeconfig(self.folder / "kubeconfig", json.loads(asked)["status"]["token"], own)
        transport = Http1Transport(load_endpoint(kubeconfig=own), pool_size=32)
        stack.push_async_callback(transport.close)
        self.tenant = transport

    async def _call_webhook(self) -> None:
        """Make the API server call the webhook's process, since nothing serves the address of its Service."""
        port = next(each.port for each in self.parts if each.name == "webhook")
        service = {
            "metadata": {"name": "agent-scheduler-webhook"},
            "spec": {"type": "ExternalName", "externalName": "localhost"},
        }
        await retry(self.admin, "POST", f"/api/v1/namespaces/{NAMESPACE}/services", encode(service))
        for path in (MUTATING, VALIDATING):
            async with asyncio.timeout(_START):
                while True:
                    webhooks = json.loads(await ask(self.admin, "GET", path))["webhooks"]
                    if all(each["clientConfig"].get("caBundle") for each in webhooks):
                        break
                    await asyncio.sleep(0.1)
            for each in webhooks:
                each["clientConfig"]["service"]["port"] = port
            await retry(
                self.admin, "PATCH", path, encode({"webhooks": webhooks}), content_type="application/merge-patch+json"
            )

    # ---- what is measured

    async def _holders(self) -> Mapping[str, Any]:
        """Return holder and transitions of each lease by its name."""
        items = json.loads(await ask(self.admin, "GET", _LEASES))["items"]
        specs = {each["metadata"]["name"]: each["spec"] for each in items}
        return {name: (spec.get("holderIdentity"), spec.get("leaseTransitions")) for name, spec in specs.items()}

    def cpu(self) -> Mapping[str, float]:
        found = {part.name: usage(part.process.pid) for part in self.parts}
        return {name: each.cpu_seconds for name, each in found.items() if each is not None}

    async def steps(self, part: RunningPart) -> Mapping[str, float]:
        text = (await self.page(part, "/metrics")).decode()
        by_kind = Exposition(text).by("agent_scheduler_longest_step_seconds", "kind")
        return {kind: seconds for kind, seconds in by_kind.items() if seconds}

    async def bind(self, name: str, count: int, rate: float) -> Track:
        """Create ordinary pods, and return once all are bound, or after a time."""
        track = Track(Batch(name=name, count=count, templates=_ORDINARY, arrival=Even(rate)))
        observer = Observer(self.admin, "default", [track], FreeCapacity({}))
        watching = asyncio.create_task(observer.run())
        try:
            await observer.ready.wait()
            await Load(self.admin, namespace="default", track=track, scheduler_name="agent-scheduler").run()
            with suppress(TimeoutError):
                async with asyncio.timeout(_PATIENCE):
                    await until(lambda: track.bound_count == count, tick=0.05)
        finally:
            watching.cancel()
        return track

    async def problems(self, before: Mapping[str, Any], track: Track) -> Sequence[str]:
        found = [f"{track.batch.count - track.bound_count} unbound"] if track.bound_count < track.batch.count else []
        for part in self.parts:
            try:
                part.process.check()
            except ProcessError as error:
                found.append(str(error))
            memory = peak(part.process.pid) or 0
            if memory > part.limit:
                found.append(f"{part.name} used {memory >> 20} of {part.limit >> 20} MiB")
        now = await self._holders()
        return [*found, *(f"{name}: {was} -> {now.get(name)}" for name, was in before.items() if now.get(name) != was)]


def _unverified() -> ssl.SSLContext:
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


def _stalled(log: Path) -> int:
    """Make the log a full pipe whose reader never reads; return the reader."""
    os.mkfifo(log)
    reader = os.open(log, os.O_RDONLY | os.O_NONBLOCK)
    writer = os.open(log, os.O_WRONLY | os.O_NONBLOCK)
    with suppress(BlockingIOError):
        while True:
            os.write(writer, b"\n" * 4096)
    os.close(writer)
    return reader


class Sender:
    """Sends an input's requests. `refused` counts the responses that are no success."""

    def __init__(self, world: Installed, given: Input, requests: Iterable[Request]) -> None:
        self._world = world
        self._given = given
        self._requests = iter(requests)
        self._transport = world.admin if given.admin else world.tenant
        self.sent = self.refused = 0

    async def run(self) -> None:
        if self._given.play:
            await getattr(self, "_" + self._given.play.replace(" ", "_"))()
            return
        began = time.monotonic()
        async with asyncio.TaskGroup() as tasks:
            for _ in range(self._given.parallel):
                tasks.create_task(self._send(began))

    async def _send(self, began: float) -> None:
        for request in self._requests:
            self.sent += 1
            await asyncio.sleep(max(0.0, began + self.sent / self._given.rate - time.monotonic()))
            body = request.body or None
            kind = request.content_type
            try:
                answer = await self._transport.request(
                    request.method, request.path, body=body, content_type=kind, timeout=60
                )
            except TransportError:
                self.refused += 1
            else:
                self.refused += answer.status >= 300

    async def _stalled_log(self) -> None:
        """Send nothing: the scheduler was started with it."""

    async def _slow_headers(self) -> None:
        await self._connect(1000, b"GET /livez HTTP/1.1\r\n", b"x: %d\r\n")

    async def _malformed(self) -> None:
        await self._connect(2000, b"\x16\x03\x01\r\n\r\n", b"")

    async def _bodies(self) -> None:
        head = b"POST /jobs/validate HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        await self._connect(100, head + b"Content-Length: 8388608\r\n\r\n" + b" " * (7 << 20), b"", only="webhook")

    async def _connect(self, count: int, first: bytes, further: bytes, only: str = "") -> None:
        """Open connections to each port, and send `further` to each every second, for twelve seconds."""
        writers: list[asyncio.StreamWriter] = []
        for part in self._world.parts:
            if only and part.name != only:
                continue
            for _ in range(count):
                self.sent += 1
                try:
                    async with asyncio.timeout(2):
                        _, writer = await asyncio.open_connection(
                            "127.0.0.1", part.port, ssl=part.tls, local_addr=("127.0.0.2", 0)
                        )
                    writer.write(first)
                    writers.append(writer)
                except (OSError, TimeoutError):
                    self.refused += 1
                    break
        for number in range(12):
            await asyncio.sleep(1)
            for writer in writers if further else ():
                if not writer.is_closing():
                    writer.write(further % number)
        for writer in writers:
            writer.transport.abort()


@asynccontextmanager
async def world(given: Input, nodes: int) -> AsyncIterator[Installed]:
    """Yield the installed components. Raises ProcessError and RequestFailed."""
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-")))
        secured = ("--authorization-mode", "RBAC", "--no-tls", "--no-kubelets")
        _, admin = await stack.enter_async_context(cluster(Nodes(count=nodes), folder=folder, arguments=secured))
        made = Installed(admin, folder)
        await made.start(stack, given)
        yield made


async def run(given: Input, options: argparse.Namespace) -> Cost:
    """Play one input. Raises ProcessError and RequestFailed."""
    # Their bodies are made before, unless they are too many.
    requests = [*given.requests()] if given.rate == Input("").rate else given.requests()
    async with world(given, options.nodes) as made:
        first = await made.bind("first", 20, options.rate)
        leases, before = made.leases, made.cpu()
        sender = Sender(made, given, requests)
        sending = asyncio.create_task(sender.run())
        track = await made.bind("pod", round(options.rate * options.seconds), options.rate)
        await asyncio.wait([sending], timeout=_INPUT_SECONDS)
        sending.cancel()
        last = await made.bind("last", 20, options.rate)
        cpu = {name: seconds - before[name] for name, seconds in made.cpu().items()}
        problems = [
            *await made.problems(leases, track),
            *(f"{each.batch.name}: unbound" for each in (first, last) if each.bound_count < 20),
        ]
        latencies = [
            1000 * (bound - answered) for bound, answered in zip(track.bound, track.answered, strict=True) if bound
        ]
        return Cost(
            given.name,
            sorted(latencies),
            sender.sent,
            sender.refused,
            cpu,
            {part.name: peak(part.process.pid) or 0 for part in made.parts},
            {part.name: await made.steps(part) for part in made.parts},
            problems,
        )


HEAD = ("input", "p50 ms", "p99 ms", "max ms", "sent (refused)", "CPU s", "peak MiB", "longest steps, ms", "outcome")


def row(cost: Cost) -> tuple[str, ...]:
    """Return a line of the table; columns of several components have scheduler / controllers / webhook."""
    found = cost.latencies or (float("nan"),)
    centiles = statistics.quantiles(found, n=100) if len(found) > 1 else [found[0]] * 99
    steps = (
        ", ".join(f"{kind} {1000 * seconds:.0f}" for kind, seconds in by_kind.items()) or "-"
        for by_kind in cost.steps.values()
    )
    return (
        cost.name,
        *(f"{each:.3g}" for each in (centiles[49], centiles[98], found[-1])),
        f"{cost.sent:,} ({cost.refused:,})",
        " / ".join(f"{each:.1f}" for each in cost.cpu.values()),
        " / ".join(str(each >> 20) for each in cost.memory.values()),
        " / ".join(steps),
        "; ".join(cost.problems) or "all bound, leases kept",
    )


async def play(chosen: Sequence[Input], options: argparse.Namespace) -> bool:
    """Print the table, a line after each input; return whether all went on."""
    print(table(HEAD, ()), flush=True)
    well = True
    for given in chosen:
        try:
            cost = await run(given, options)
        except (ProcessError, RequestFailed) as error:
            cost = Cost(given.name, (), 0, 0, {}, {}, {}, [str(error)])
        well = well and not cost.problems
        print("| " + " | ".join(row(cost)) + " |", flush=True)
    return well


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rate", type=float, default=100.0, help="ordinary pods per second")
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--nodes", type=int, default=200)
    parser.add_argument("--only", nargs="+", default=[""], metavar="TEXT", help="inputs whose name contains it")
    parser.add_argument("--list", action="store_true", help="print the names of the inputs")
    options = parser.parse_args()
    chosen = [each for each in INPUTS if any(text in each.name for text in options.only)]
    if options.list:
        print("\n".join(each.name for each in chosen))
        return 0
    return 0 if uvloop.run(play(chosen, options)) else 1


if __name__ == "__main__":
    sys.exit(main())

"""Measures what a watch event costs the scheduler: CPU microseconds from bytes to a delivered `Change`.

Run with `python -m bench.watch_decode`. The figures: only decoding and storing the objects, the reflector with lines
that are in memory already, and everything over loopback HTTP, where the sending side is another process and does not
count.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import multiprocessing
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from multiprocessing.connection import Connection

import msgspec
import uvloop

from agent_scheduler.objects.wire import Pod
from bench.tables import table
from kube_client.http1 import Http1Transport
from kube_client.reflector import Collection, Reflector, WatchTimes
from kube_client.retry import REAL
from kube_client.transport import Endpoint, Response, Transport
from kube_client.watch_events import Change, open_event

_ACCESS = "/var/run/secrets/kubernetes.io/serviceaccount"


def pod(number: int, version: int, *, node: str | None = None) -> bytes:
    """Return a pod as an API server writes it, including managed fields: about 3 kB."""
    spec = {
        "containers": [
            {
                "name": "agent",
                "image": "registry.example/agents/runner:2026.11",
                "resources": {"requests": {"cpu": "250m", "memory": "256Mi"}, "limits": {"memory": "512Mi"}},
                "env": [{"name": f"SETTING_{i}", "value": "x" * 20} for i in range(12)],
                "volumeMounts": [{"name": "kube-api-access", "mountPath": _ACCESS}],
                "terminationMessagePath": "/dev/termination-log",
                "terminationMessagePolicy": "File",
                "imagePullPolicy": "IfNotPresent",
            }
        ],
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": 30,
        "dnsPolicy": "ClusterFirst",
        "schedulerName": "agent-scheduler",
        "serviceAccountName": "default",
        "tolerations": [
            {"key": f"node.kubernetes.io/{key}", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}
            for key in ("not-ready", "unreachable")
        ],
        "priority": 0,
        "enableServiceLinks": True,
        "preemptionPolicy": "PreemptLowerPriority",
    }
    if node:
        spec["nodeName"] = node
    return msgspec.json.encode(
        {
            "kind": "Pod",
            "apiVersion": "v1",
            "metadata": {
                "name": f"agent-{number}",
                "namespace": "agents",
                "uid": f"00000000-0000-4000-8000-{number:012d}",
                "resourceVersion": str(version),
                "creationTimestamp": "2026-11-21T00:00:00Z",
                "labels": {"app": "agent", "tenant": f"t{number % 50}", "wave": "7"},
                "managedFields": [
                    {
                        "manager": "agent-controller",
                        "operation": "Update",
                        "apiVersion": "v1",
                        "fieldsV1": {f"f:field{i}": {"f:inner": {}, ".": {}} for i in range(25)},
                    }
                ],
            },
            "spec": spec,
            "status": {"phase": "Pending", "qosClass": "Burstable"},
        }
    )


def lines(pods: int) -> list[bytes]:
    """Return events in waves: each pod ADDED, then MODIFIED (bound), then DELETED."""
    out, version = [], 10
    for kind in ("ADDED", "MODIFIED", "DELETED"):
        for number in range(pods):
            version += 1
            body = pod(number, version, node=None if kind == "ADDED" else f"node-{number % 5000}")
            out.append(b'{"type":"%s","object":%s}' % (kind.encode(), body))
    return out


_EMPTY_LIST = b'{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"10"},"items":[]}'


class _Memory:
    """A transport whose only watch delivers prepared lines in pieces of `batch`."""

    def __init__(self, events: list[bytes], batch: int) -> None:
        self._events, self._batch = events, batch
        self.done = asyncio.Event()
        self.seconds = 0.0

    async def request(self, *_: object, **__: object) -> Response:
        return Response(200, _EMPTY_LIST, {})

    @asynccontextmanager
    async def stream(self, path: str, *, read_timeout: float) -> AsyncIterator[AsyncIterator[list[bytes]]]:
        async def pieces() -> AsyncIterator[list[bytes]]:
            start = time.process_time()
            for at in range(0, len(self._events), self._batch):
                yield self._events[at : at + self._batch]
            self.seconds = time.process_time() - start
            self.done.set()
            await asyncio.Event().wait()

        yield pieces()

    async def close(self) -> None:
        return


def decode_alone(events: list[bytes]) -> float:
    """Measure only decoding and storing, the part that the scheduler cannot avoid."""
    decode = msgspec.json.Decoder(Pod).decode
    objects = [bytes(open_event(line)[1]) for line in events]
    kept: dict[str, Pod] = {}
    start = time.process_time()
    for item in objects:
        decoded = decode(item)
        kept[decoded.metadata.uid] = decoded
    return (time.process_time() - start) / len(events) * 1e6


def _reflector(transport: Transport, handle: Callable[[list[Change[Pod]]], None]) -> Reflector[Pod]:
    pods = Collection(path="/api/v1/pods", decode=msgspec.json.Decoder(Pod).decode)
    return Reflector(pods, handle, transport=transport, times=WatchTimes(), timing=REAL)


async def in_memory(events: list[bytes], batch: int) -> float:
    transport = _Memory(events, batch)
    seen: list[int] = []
    reflector = _reflector(transport, lambda batch: seen.append(len(batch)))
    task = asyncio.create_task(reflector.run())
    await transport.done.wait()
    task.cancel()
    assert sum(seen) == len(events), (sum(seen), len(events))
    return transport.seconds / len(events) * 1e6


def serve(pods: int, pipe: Connection) -> None:
    """Run the server process: one list, one watch with all events, then silence."""
    body = b"\n".join(lines(pods)) + b"\n"

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            try:
                head = await reader.readuntil(b"\r\n\r\n")
            except (asyncio.IncompleteReadError, ConnectionError):
                return
            if b"watch=1" not in head:
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(_EMPTY_LIST))
                writer.write(_EMPTY_LIST)
                continue
            writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
            step = 32768
            for at in range(0, len(body), step):
                piece = body[at : at + step]
                writer.write(b"%x\r\n%s\r\n" % (len(piece), piece))
                await writer.drain()

    async def main() -> None:
        server = await asyncio.start_server(answer, "127.0.0.1", 0)
        pipe.send(server.sockets[0].getsockname()[1])
        await server.serve_forever()

    uvloop.run(main())


async def over_http(port: int, count: int) -> float:
    transport = Http1Transport(Endpoint(f"http://127.0.0.1:{port}"))
    done = asyncio.Event()
    seen = 0

    def handle(batch: list[Change[Pod]]) -> None:
        nonlocal seen
        seen += len(batch)
        if seen == count:
            done.set()

    reflector = _reflector(transport, handle)
    start = time.process_time()
    task = asyncio.create_task(reflector.run())
    await done.wait()
    seconds = time.process_time() - start
    task.cancel()
    await transport.close()
    return seconds / count * 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pods", type=int, default=5000, help="three events each")
    parser.add_argument("--batch", type=int, default=20, help="lines per piece, for the figure from memory")
    parser.add_argument("--repeat", type=int, default=5, help="runs of each; the best counts")
    options = parser.parse_args()
    events = lines(options.pods)
    # As the scheduler configures it after its first sync; the default collector would distort the measurement.
    gc.freeze()
    gc.set_threshold(50_000, 50, 100)
    size = sum(map(len, events)) // len(events)
    print(f"{len(events)} events of {size} bytes; the best of {options.repeat} runs\n")
    decoding, whole = [], []
    for _ in range(options.repeat):  # alternately, so that other work affects both
        decoding.append(decode_alone(events))
        whole.append(uvloop.run(in_memory(events, options.batch)))
    ours, theirs = multiprocessing.Pipe()
    process = multiprocessing.get_context("spawn").Process(target=serve, args=(options.pods, theirs), daemon=True)
    process.start()
    try:
        port = ours.recv()
        best = min(uvloop.run(over_http(port, len(events))) for _ in range(options.repeat))
    finally:
        process.terminate()
        process.join()
    rows = (
        ("decode and keep, nothing else", f"{min(decoding):.2f}"),
        ("decode, compare, deliver", f"{min(whole):.2f}"),
        ("the same over loopback HTTP", f"{best:.2f}"),
    )
    print(table(("from a watch's bytes to a change", "CPU us per event"), rows))


if __name__ == "__main__":
    main()

"""The distance that a reader follows for one plain pod, or one event: files entered, and changes between files.

Measured on Python 3.11, as calls, files and changes of file (wanted: 30 and 80; 18 and 45):

    date          a plain pod        a node event to a woken pod
    2026-11-22    315, 58, 195       187, 34, 100
    2026-11-23    147, 42, 101       121, 24, 57
    2026-11-24    140, 30, 77        103, 18, 40
    2026-11-29    144, 31, 80        95, 18, 38     with the marks of `telemetry.handling`

A plain pod needs the decision (class, snapshot, ledger, kept answers, one plugin with its score), its request
(bind, fence, HTTP, connections, the meaning of the answer), the queue with its places and sub-queues, and reflector,
cluster, workers and binder. Half of a node event is the decoding of the node and its entry in the ledger's columns.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from itertools import groupby, pairwise
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

import agent_scheduler
import kube_client
from agent_scheduler.binding.binder import Binder
from agent_scheduler.fastpath.scheduler import FastPath
from kube_client.http1 import Http1Transport
from kube_client.reflector import Reflector
from kube_client.testing.virtual import virtual_time
from kube_client.testing.wires import Network, Wire
from kube_client.transport import Endpoint, FencedTransport
from kube_client.watch_events import CollectionView
from tests.support import objects
from tests.support.running import SETTINGS, scheduling

PODS, NODES = "/api/v1/pods", "/api/v1/nodes"
#: The folders of the packages that a scheduler runs, and the one of tools for tests in them.
_SOURCES = tuple(f"{Path(str(each.__file__)).parent}/" for each in (agent_scheduler, kube_client))
_TOOLS = f"{_SOURCES[1]}testing/"
_BOUND = b'{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Success","code":201}\n'


class Call(NamedTuple):
    file: str
    name: str


class Walk:
    """The calls of the scheduler's own functions from the first of `begin` until `end` returns.

    Each resumption of a generator or a coroutine is one.
    """

    def __init__(self, begin: Callable[..., Any], end: Callable[..., Any]) -> None:
        self.calls: list[Call] = []
        self._begin, self._end = begin.__code__, end.__code__
        self.is_over = False

    def __enter__(self) -> Walk:
        sys.setprofile(self._seen)
        return self

    def __exit__(self, *raised: object) -> None:
        sys.setprofile(None)

    def _seen(self, frame: FrameType, event: str, _arg: object) -> None:
        code = frame.f_code
        path = code.co_filename
        if self.is_over or not path.startswith(_SOURCES) or path.startswith(_TOOLS):
            return
        if event == "call" and (self.calls or code is self._begin):
            self.calls.append(Call(path, code.co_name))
        self.is_over = event == "return" and code is self._end and bool(self.calls)

    @property
    def files(self) -> list[str]:
        """Return the files in the order in which they are first entered."""
        return list(dict.fromkeys(call.file for call in self.calls))

    @property
    def changes(self) -> int:
        """Return how often a call is in another file than the one before."""
        return sum(one.file != other.file for one, other in pairwise(self.calls))

    def __str__(self) -> str:
        return f"{len(self.calls)} calls, {len(self.files)} files, {self.changes} changes of file"

    def chain(self) -> str:
        """Return a line for each stay in a file."""
        stays = groupby(self.calls, lambda call: call.file)
        return "\n".join(f"{Path(file).name}: {', '.join(call.name for call in calls)}" for file, calls in stays)


class Server(Network):
    """Answers the requests of a scheduler."""

    def __init__(self) -> None:
        super().__init__(self._answer)
        self._told = {"node-1"}
        self._watches: dict[str, Wire] = {}
        self._version = 100

    def tell(self, path: str, manifest: dict[str, Any]) -> None:
        """Send an event on the watch of a collection."""
        self._version += 1
        metadata = manifest["metadata"]
        metadata["resourceVersion"] = str(self._version)
        kind = "MODIFIED" if metadata["uid"] in self._told else "ADDED"
        self._told.add(metadata["uid"])
        line = json.dumps({"type": kind, "object": manifest}, separators=(",", ":")).encode() + b"\n"
        self._watches[path].deliver(b"%x\r\n%s\r\n" % (len(line), line))

    async def apply(self, path: str, manifest: dict[str, Any]) -> None:
        """Change the object of a collection to `manifest`; return a second later."""
        self.tell(path, manifest)
        await asyncio.sleep(1)

    def _answer(self, wire: Wire, request: bytes) -> None:
        method, url, _ = request.decode().split(" ", 2)
        path, _, query = url.partition("?")
        json_follows = b"Content-Type: application/json\r\n"
        if method == "GET" and "watch=1" in query:
            self._watches[path] = wire
            wire.deliver(b"HTTP/1.1 200 OK\r\n" + json_follows + b"Transfer-Encoding: chunked\r\n\r\n")
            return
        status, body = b"201 Created", _BOUND
        if method == "GET":
            items = [node("node-1")] if path == "/api/v1/nodes" else []
            found = {"kind": "List", "apiVersion": "v1", "metadata": {"resourceVersion": "100"}, "items": items}
            status, body = b"200 OK", json.dumps(found).encode()
        head = b"HTTP/1.1 %s\r\n%sContent-Length: %d\r\n\r\n" % (status, json_follows, len(body))
        wire.deliver(head + body)


def node(name: str, cpu: str = "8") -> dict[str, Any]:
    return objects.node(name, cpu=cpu, memory="32Gi", uid=name, version=50)


def pod(name: str, cpu: str = "100m") -> dict[str, Any]:
    about = {"namespace": "agents", "uid": name, "version": 1, "labels": {"app": "agent"}}
    return objects.pod(name, cpu=cpu, memory="64Mi", phase="Pending", **about)


@asynccontextmanager
async def deciding() -> AsyncIterator[tuple[Server, FastPath]]:
    """Yield a scheduler that has seen the server's nodes and decides. It writes no events."""
    server = Server()
    transport = Http1Transport(Endpoint("http://api.example"), dial=server.dial)
    fenced = FencedTransport(transport, lambda: True)
    async with scheduling(fenced, replace(SETTINGS, events=None)) as running:
        await asyncio.sleep(0.1)
        yield server, running.fast_path
    await transport.close()


@virtual_time
async def test_a_plain_pod_of_a_known_class_from_its_watch_event_to_the_answer_to_its_bind() -> None:
    async with deciding() as (server, fast_path):
        for name in ("first", "second", "third"):
            await server.apply(PODS, pod(name))
        with Walk(CollectionView.receive, Binder._finish_answered) as walk:
            await server.apply(PODS, pod("last"))
        placement = fast_path.ledger.placements["last"]
    print(walk.chain(), walk, sep="\n")
    assert walk.is_over and not placement.assumed
    assert len(walk.files) <= 31
    assert walk.changes <= 80


@virtual_time
async def test_a_node_event_to_a_pod_that_it_wakes() -> None:
    async with deciding() as (server, fast_path):
        await server.apply(PODS, pod("first", cpu="20"))
        await server.apply(NODES, node("node-2", cpu="10"))
        await server.apply(NODES, node("node-2", cpu="20"))
        await server.apply(PODS, pod("last", cpu="20"))
        await asyncio.sleep(60)
        queue = fast_path.queue
        before = queue.where("last")
        with Walk(CollectionView.receive, Reflector._receive) as walk:
            server.tell(NODES, node("node-2", cpu="40"))
            await asyncio.sleep(0.0015)
        after = queue.where("last")
    assert walk.is_over and (before, after) == ("unschedulable", "in_flight")
    print(walk.chain(), walk, sep="\n")
    assert len(walk.files) <= 18
    assert walk.changes <= 40

"""A TCP relay between a scheduler and the API server, whose failures a test chooses.

It sees bytes, not requests, so it works the same over TLS and to any control plane.
"""

from __future__ import annotations

import asyncio
import copy
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import yaml

_FILES = {
    "cluster": ("certificate-authority",),
    "user": ("client-certificate", "client-key", "tokenFile"),
}


class Proxy:
    """Relays while it is entered. Owner of all connections through it."""

    def __init__(self, kubeconfig: Path) -> None:
        self._document: dict[str, Any] = _self_contained(kubeconfig)
        self._target = urlsplit(_cluster_of(self._document)["server"])
        #: Clear: what the server says is held back; what it is told still arrives.
        self._answering = asyncio.Event()
        self._answering.set()
        self._refusing = False
        self._server: asyncio.Server | None = None
        self._relays: set[asyncio.Task[None]] = set()
        self._writers: set[asyncio.StreamWriter] = set()
        #: Connections that were made through it so far.
        self.connections = 0

    async def __aenter__(self) -> Proxy:
        self._server = await asyncio.start_server(self._accepted, "127.0.0.1", 0)
        return self

    async def __aexit__(self, *error: object) -> None:
        assert self._server is not None
        self._server.close()
        self._answering.set()
        while self._relays:
            self.cut()
            await asyncio.wait(self._relays)
        await self._server.wait_closed()

    def write_kubeconfig(self, file: Path) -> Path:
        """The control plane's kubeconfig, but with the way through this proxy."""
        assert self._server is not None
        document = copy.deepcopy(self._document)
        cluster = _cluster_of(document)
        port = self._server.sockets[0].getsockname()[1]
        cluster["server"] = self._target._replace(netloc=f"127.0.0.1:{port}").geturl()
        if self._target.scheme == "https":
            cluster.setdefault("tls-server-name", self._target.hostname)
        file.write_text(yaml.safe_dump(document))
        file.chmod(0o600)
        return file

    # ---- what a test may do

    def hold_answers(self) -> None:
        """From now on the server's words wait; what it is told still arrives."""
        self._answering.clear()

    def let_answers_pass(self) -> None:
        self._answering.set()

    def cut(self) -> None:
        """Reset all connections. What was held back is lost."""
        for writer in list(self._writers):
            writer.transport.abort()

    def refuse(self) -> None:
        """Reset all connections, and each new one at once."""
        self._refusing = True
        self.cut()

    def accept(self) -> None:
        self._refusing = False

    # ---- relaying

    async def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._refusing:
            writer.transport.abort()
            return
        self.connections += 1
        task = asyncio.current_task()
        assert task is not None
        self._relays.add(task)
        self._writers.add(writer)
        upstream: asyncio.StreamWriter | None = None
        try:
            default = 443 if self._target.scheme == "https" else 80
            answers, upstream = await asyncio.open_connection(
                self._target.hostname, self._target.port or default
            )
            self._writers.add(upstream)
            async with asyncio.TaskGroup() as ways:
                ways.create_task(self._pump(reader, upstream))
                ways.create_task(self._pump(answers, writer, gate=self._answering))
        except* OSError:
            # Either side went away, which ends the connection of the other.
            pass
        finally:
            for each in (writer, upstream):
                if each is not None:
                    self._writers.discard(each)
                    each.transport.abort()
            self._relays.discard(task)

    @staticmethod
    async def _pump(
        reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, gate: asyncio.Event | None = None
    ) -> None:
        while data := await reader.read(1 << 16):
            if gate is not None:
                await gate.wait()
            writer.write(data)
            await writer.drain()
        with suppress(OSError):
            writer.write_eof()


def _cluster_of(document: dict[str, Any]) -> dict[str, Any]:
    """The current context's cluster."""
    contexts = {entry["name"]: entry["context"] for entry in document["contexts"]}
    wanted = contexts[document["current-context"]]["cluster"]
    cluster: dict[str, Any] = next(e["cluster"] for e in document["clusters"] if e["name"] == wanted)
    return cluster


def _self_contained(kubeconfig: Path) -> dict[str, Any]:
    """The document with its relative paths, which are relative to its folder, made absolute."""
    document: dict[str, Any] = yaml.safe_load(kubeconfig.read_text())
    for kind, keys in _FILES.items():
        for entry in document.get(f"{kind}s") or ():
            for key in keys:
                if (entry.get(kind) or {}).get(key):
                    entry[kind][key] = str(kubeconfig.parent / entry[kind][key])
    return document

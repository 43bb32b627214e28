"""The embedded cluster put together: store, API, simulated kubelets and server, from the flags of `cluster`."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import signal
import ssl
import time
from base64 import b64encode
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from agent_scheduler.objects.quantity import QuantityError, resource_value

from . import controller_list, controllers, kubelet
from .auth.audit import AuditLog
from .auth.flags import FlagError, options_of
from .auth.options import Options
from .builtin import BUILTIN
from .certificates import make_certificates, server_context
from .controllers import Controller
from .device_attaching import Attaching, DeviceAttacher
from .device_driver import DRIVER, DeviceDriver, DevicesShape
from .fault_plan import Plan
from .faults import Injector
from .handlers import Api
from .loading import load_files
from .resource import Object
from .server import Server, calm_gc
from .store import Store, random_uids

GPU = "nvidia.com/gpu"
_ZONES = ("a", "b", "c")


class ClusterError(Exception):
    """The cluster cannot start; the text says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeShape:
    """What every simulated node has, as quantities."""

    cpu: str = "32"
    memory: str = "128Gi"
    pods: str = "110"
    gpus: str = "0"

    def amounts(self) -> dict[str, str]:
        """By resource name, GPUs only if there are any. Raises `ClusterError` for a bad quantity."""
        amounts = {"cpu": self.cpu, "memory": self.memory, "pods": self.pods, GPU: self.gpus}
        for name, flag in (("cpu", "cpu"), ("memory", "memory"), ("pods", "pods"), (GPU, "gpus")):
            try:
                amount = resource_value(name, amounts[name])
            except QuantityError as error:
                raise ClusterError(f"--node-{flag}: {error}") from None
            if amount < 0:
                raise ClusterError(f"--node-{flag}: must be at least 0, not {amounts[name]}")
            if name == GPU and not amount:
                del amounts[name]
        return amounts


def node_name(number: int) -> str:
    """Of the simulated node with this number, from 0."""
    return f"node-{number:05d}"


def nodes(count: int, shape: NodeShape) -> Iterator[Object]:
    """`count` ready nodes, spread over three zones of one region."""
    amounts = shape.amounts()
    status = {
        "capacity": amounts,
        "allocatable": amounts,
    }
    for number in range(count):
        name = node_name(number)
        yield {
            "metadata": {
                "name": name,
                "labels": {
                    "kubernetes.io/hostname": name,
                    "kubernetes.io/os": "linux",
                    "kubernetes.io/arch": "amd64",
                    "node.kubernetes.io/instance-type": "simulated",
                    "topology.kubernetes.io/region": "local",
                    "topology.kubernetes.io/zone": f"local-{_ZONES[number % len(_ZONES)]}",
                },
            },
            "status": status,
        }


def kubeconfig(url: str, *, authority: bytes = b"", token: str = "") -> str:
    """A kubeconfig with this cluster as its only context. JSON, which is YAML too."""
    cluster: dict[str, str] = {"server": url}
    if authority:
        cluster["certificate-authority-data"] = b64encode(authority).decode()
    name = "agent-scheduler"
    return json.dumps(
        {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": name, "cluster": cluster}],
            "users": [{"name": name, "user": {"token": token} if token else {}}],
            "contexts": [{"name": name, "context": {"cluster": name, "user": name}}],
            "current-context": name,
        },
        indent=2,
    )


def write_kubeconfig(file: Path, text: str) -> None:
    """Writes the file whole, readable by its owner alone: it may hold a token. Raises `ClusterError`."""
    partial = file.with_name(f".{file.name}.{os.getpid()}")
    try:
        descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "w") as handle:
            handle.write(text + "\n")
        partial.replace(file)
    except OSError as error:
        partial.unlink(missing_ok=True)
        raise ClusterError(f"--kubeconfig-out {file}: cannot be written: {error.strerror or error}") from None


async def serve(args: argparse.Namespace, plan: Plan | None = None) -> None:
    """Serves until SIGINT or SIGTERM, with the faults of `plan`, of which it tells in the end how many fired.

    Raises `ClusterError` or `LoadError` if it cannot start.
    """
    loop = asyncio.get_running_loop()
    stopping = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stopping.set)
    store = Store(clock=time.time, uid=random_uids())
    options, token = _access(args)
    log = contextlib.ExitStack()
    observer = (
        None if args.audit_log_path is None else AuditLog(log.enter_context(_opened(args)), random_uids())
    )
    api = Api(store, BUILTIN, auth=options, observer=observer)
    names = _controller_names(args.controllers)
    devices = _devices_shape(args)
    shape = NodeShape(cpu=args.node_cpu, memory=args.node_memory, pods=args.node_pods, gpus=args.node_gpus)
    for node in nodes(args.nodes, shape):
        if not args.kubelets:
            _be_ready(node)
        api.create(kubelet.NODES, node)
    loaded = load_files(api, args.load)
    authority = b""
    tls: ssl.SSLContext | None = None
    if _serves_tls(args, options):
        certificates = make_certificates((args.host, "127.0.0.1", "::1", "localhost"), now=time.time())
        authority, tls = certificates.authority, server_context(certificates)
    injector = None if plan is None else Injector(plan)
    server = Server(api, host=args.host, port=args.port, tls=tls, disturb=injector)
    try:
        await server.start()
    except OSError as error:
        why = error.strerror or error
        raise ClusterError(f"cannot listen on {args.host}, port {args.port}: {why}") from None
    try:
        if args.kubeconfig_out is not None:
            text = kubeconfig(server.url, authority=authority, token=token)
            write_kubeconfig(args.kubeconfig_out, text)
        calm_gc()
        print(_greeting(args, server.url, token, loaded), flush=True)
        async with asyncio.TaskGroup() as group:
            # A fault of a controller ends the cluster instead of going unseen.
            playing = [
                group.create_task(controllers.run(controller, clock=store.clock))
                for controller in _controllers(api, names, devices, kubelets=args.kubelets)
            ]
            await stopping.wait()
            for task in playing:
                task.cancel()
    finally:
        await server.stop()
        log.close()
        if injector is not None:
            print("\n".join(injector.report()), flush=True)


def _controllers(
    api: Api, names: frozenset[str], devices: DevicesShape | None, *, kubelets: bool
) -> list[Controller]:
    """What a real cluster has beside its API server and scheduler."""
    started = controller_list.start(api, names, kubelets=kubelets)
    if kubelets:
        started.append(kubelet.Kubelets(api.store))
    if devices is not None:
        started.append(DeviceDriver(api, devices))
        if devices.attaching is not None:
            started.append(DeviceAttacher(api, DRIVER, devices.attaching))
    return started


def _controller_names(text: str) -> frozenset[str]:
    try:
        return controller_list.chosen(text)
    except ValueError as error:
        raise ClusterError(f"--controllers: {error}") from None


def _devices_shape(args: argparse.Namespace) -> DevicesShape | None:
    """The devices of the simulated nodes; None without any. Raises `ClusterError` for a number below 0."""
    per_node, on_nodes, seconds = args.devices_per_node, args.device_nodes, args.device_attach_seconds
    given = (
        ("--devices-per-node", per_node),
        ("--device-nodes", on_nodes or 0),
        ("--device-attach-seconds", seconds or 0),
    )
    for flag, number in given:
        if number < 0:
            raise ClusterError(f"{flag}: must be at least 0, not {number}")
    if not per_node:
        return None
    named = None if on_nodes is None else frozenset(map(node_name, range(on_nodes)))
    return DevicesShape(per_node, named, None if seconds is None else Attaching(seconds))


def _be_ready(node: Object) -> None:
    """Nobody plays this node's kubelet, so it says of itself that it is ready."""
    ready = {
        "type": "Ready",
        "status": "True",
        "reason": "KubeletReady",
        "message": "no kubelet is simulated",
    }
    node["status"] = {**node["status"], "conditions": [ready]}


def _access(args: argparse.Namespace) -> tuple[Options, str]:
    try:
        return options_of(args)
    except FlagError as error:
        raise ClusterError(str(error)) from None


def _serves_tls(args: argparse.Namespace, options: Options) -> bool:
    # kubectl sends no token over plain HTTP.
    return options.rbac if args.tls is None else bool(args.tls)


def _opened(args: argparse.Namespace) -> IO[bytes]:
    """The file of the audit log, readable by its owner alone."""
    try:
        descriptor = os.open(args.audit_log_path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    except OSError as error:
        why = error.strerror or error
        raise ClusterError(f"--audit-log-path {args.audit_log_path}: cannot be written: {why}") from None
    return os.fdopen(descriptor, "ab")


def _greeting(args: argparse.Namespace, url: str, token: str, loaded: int) -> str:
    also = f" and what was loaded ({loaded})" if loaded else ""
    if args.kubeconfig_out is not None:
        example = f"kubectl --kubeconfig {args.kubeconfig_out} get nodes"
    else:
        tls = " --insecure-skip-tls-verify" if url.startswith("https:") else ""
        # One that was given is known to who gave it.
        shown = f" --token {'TOKEN' if args.token else token}" if token else ""
        example = f"kubectl --server {url}{tls}{shown} get nodes"
    return f"cluster ready at {url} with {args.nodes} nodes{also}; try: {example}"

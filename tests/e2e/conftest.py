"""Fixtures: one control plane for the whole run, and one scheduler for all tests that can share it.

AGENT_SCHEDULER_E2E_KUBECONFIG names the control plane, which may be a bare kube-apiserver without kubelets and
controllers. Without it an embedded one is started, with TLS and a token and without kubelets.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import uuid
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kube_client.auth import load_endpoint
from kube_client.http1 import Http1Transport

from .installed import Installation
from .plane import ControlPlane, Run
from .processes import Cluster, Scheduler

VARIABLE = "AGENT_SCHEDULER_E2E_KUBECONFIG"
_numbers = itertools.count(1)

#: Budgets so large that no test waits for one that it does not test.
BUDGETS: dict[str, Any] = {"events": {"qps": 5000}, "statusWrites": {"qps": 5000}}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests of this folder, with a long time limit that only ends tests that hang."""
    for item in items:
        if item.path.parent == Path(__file__).parent:
            item.add_marker(pytest.mark.e2e)
            if item.get_closest_marker("timeout") is None:
                item.add_marker(pytest.mark.timeout(600))


@pytest.fixture(scope="package")
def e2e_kubeconfig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Return the control plane's kubeconfig."""
    given = os.environ.get(VARIABLE)
    if given:
        file = Path(given).expanduser().resolve()
        assert file.exists(), f"{VARIABLE}: there is no file {file}"
        yield file
        return
    # Two nodes of no test, which tests must neither use nor depend on.
    flags = ["--nodes", "2", "--no-kubelets", "--tls", "--authorization-mode", "RBAC"]
    cluster = Cluster(tmp_path_factory.mktemp("cluster"), *flags)
    try:
        asyncio.run(cluster.up())
        yield cluster.kubeconfig
        cluster.check()
    finally:
        cluster.kill()


@pytest.fixture(scope="package")
def e2e_run(e2e_kubeconfig: Path) -> Iterator[Run]:
    """Create the run's namespace, ready for pods, and delete it afterwards."""
    run = make_run(e2e_kubeconfig, embedded=VARIABLE not in os.environ)
    asyncio.run(_with_plane(run, prepare))
    try:
        yield run
    finally:
        asyncio.run(_with_plane(run, _remove_namespace))


async def _with_plane(run: Run, action: Callable[[ControlPlane], Any]) -> None:
    transport = Http1Transport(load_endpoint(kubeconfig=run.kubeconfig))
    try:
        await action(ControlPlane(transport, run, run.id))
    finally:
        await transport.close()


def make_run(kubeconfig: Path, *, embedded: bool) -> Run:
    schedulers = kubeconfig.with_name("agent-scheduler.kubeconfig") if embedded else kubeconfig
    return Run(kubeconfig=kubeconfig, embedded=embedded, id=uuid.uuid4().hex[:8], schedulers=schedulers)


async def prepare(plane: ControlPlane) -> None:
    """Create the run's namespace, and in an embedded cluster the rights of the components under test."""
    body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": plane.namespace}}
    await plane.add("/api/v1/namespaces", body)
    # A controller creates it, if there is one. Admission refuses pods without it.
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}}
    await plane.ask("POST", f"/api/v1/namespaces/{plane.namespace}/serviceaccounts", account, also=(409,))
    if not plane.run.embedded:
        return
    installation = Installation(plane.transport, plane.run.kubeconfig, plane.run.kubeconfig.parent)
    await installation.apply("default")
    # The components under test have other names than those of the manifests, and so other leases.
    await installation.allow_leases("agent-scheduler", plane.namespace)
    await installation.kubeconfig_of("agent-scheduler", "agent-scheduler")


async def _remove_namespace(plane: ControlPlane) -> None:
    path = f"/api/v1/namespaces/{plane.namespace}"
    for collection in (
        f"{path}/events",
        f"{path}/serviceaccounts",
        f"{path.replace('/api/v1', '/apis/coordination.k8s.io/v1')}/leases",
    ):
        await plane.ask("DELETE", collection)
    await plane.ask("DELETE", path)
    answer = await plane.call("GET", path)
    if answer.status == 200:
        # Without a namespace controller no other component removes the finalizer. With one, this removes it early,
        # when nothing of the run is left in the namespace.
        namespace = await plane.ask("GET", path, also=(404,))
        if namespace["kind"] == "Namespace":
            namespace["spec"] = {"finalizers": []}
            await plane.ask("PUT", f"{path}/finalize", namespace, also=(404, 409))


@pytest.fixture(scope="package")
def scheduler(e2e_run: Run, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scheduler]:
    """Start the scheduler that tests share. Its second profile, `<name>-spread`, is kube-scheduler's own."""
    config = {
        "profiles": [
            {"schedulerName": e2e_run.scheduler_name},
            {"schedulerName": f"{e2e_run.scheduler_name}-spread", "base": "default-scheduler"},
        ],
        "workerCount": 4,
        **BUDGETS,
    }
    folder = tmp_path_factory.mktemp("scheduler")
    running = Scheduler("scheduler", folder=folder, kubeconfig=e2e_run.schedulers, config=config)
    try:
        asyncio.run(running.ready())
        yield running
        running.check()
        assert "Traceback" not in running.said()
        assert running.rescued() == 0
    finally:
        running.kill()


@pytest.fixture
async def plane(e2e_run: Run) -> AsyncIterator[ControlPlane]:
    """Return the control plane, which follows this test's pods and the run's events; remove the objects at the end."""
    transport = Http1Transport(load_endpoint(kubeconfig=e2e_run.kubeconfig))
    plane = ControlPlane(transport, e2e_run, f"{e2e_run.id}-{next(_numbers)}")
    try:
        async with plane.pods, plane.events:
            try:
                yield plane
            finally:
                await plane.clean_up()
    finally:
        await transport.close()


Start = Callable[..., Scheduler]


@pytest.fixture
def start(e2e_run: Run, plane: ControlPlane, tmp_path: Path) -> Iterator[Start]:
    """Start a scheduler for this test alone: `start(name, config={...}, flags=[...], kubeconfig=...)`.

    It schedules the pods of this test, which the shared scheduler ignores.
    """
    plane.scheduler_name = f"e2e-{plane.test}"
    started: list[Scheduler] = []

    def begin(name: str = "scheduler", *, config: dict[str, Any] | None = None, **more: Any) -> Scheduler:
        settings = {"profiles": [{"schedulerName": plane.scheduler_name}], **BUDGETS, **(config or {})}
        more.setdefault("kubeconfig", e2e_run.schedulers)
        running = Scheduler(name, folder=tmp_path, config=settings, **more)
        started.append(running)
        return running

    try:
        yield begin
        assert [running.name for running in started if running.rescued()] == []
    finally:
        for running in started:
            running.kill()

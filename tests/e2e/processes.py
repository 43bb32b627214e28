"""The program's own processes: started like a user's, checked while a test waits for them, and always ended.

Output goes to a file, so that a process never blocks on a pipe. The last output of a process becomes part of the
failure of a test that waited for it in vain.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import ssl
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import yaml
from prometheus_client.parser import text_string_to_metric_families

from bench.harness.processes import free_port
from kube_client.auth import load_endpoint
from kube_client.http1 import Http1Transport
from tests.support.client import PATIENCE

T = TypeVar("T")

PROGRAM = (sys.executable, "-m", "agent_scheduler")
_TAIL = 4000


class Process:
    """A process `python -m agent_scheduler ARGUMENTS`, from construction until `kill`."""

    def __init__(
        self, name: str, arguments: Sequence[str], *, folder: Path, environment: Mapping[str, str] | None = None
    ) -> None:
        """`environment` has variables besides those of this process."""
        self.name = name
        self.log = folder / f"{name}.log"
        inherited = {key: value for key, value in os.environ.items() if key != "KUBECONFIG"}
        with self.log.open("ab") as output:
            self.process = subprocess.Popen(
                [*PROGRAM, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env={**inherited, **(environment or {})},
                start_new_session=True,
            )

    def said(self) -> str:
        """Return its output so far."""
        return self.log.read_text(errors="replace")

    def records(self, event: str) -> list[dict[str, Any]]:
        """Return its log records of one kind, oldest first, without a line that is still being written."""
        found = []
        for line in self.said().splitlines():
            with contextlib.suppress(ValueError):
                record = json.loads(line)
                if isinstance(record, dict) and record.get("event") == event:
                    found.append(record)
        return found

    def check(self) -> None:
        """Fail the test if the process has ended."""
        code = self.process.poll()
        assert code is None, f"{self.name} ended with {code}; its last words:\n{self.said()[-_TAIL:]}"

    async def until(self, probe: Callable[[], T | None], what: str) -> T:
        """Return the first true result of `probe`, called in a thread while the process runs."""
        end = time.monotonic() + PATIENCE
        while True:
            answer = await asyncio.to_thread(probe)
            if answer:
                return answer
            self.check()
            assert time.monotonic() < end, (
                f"{self.name}: no {what} after {PATIENCE:g} s, but {answer!r}; its last words:\n{self.said()[-_TAIL:]}"
            )
            await asyncio.sleep(0.02)

    def send(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    async def ended(self) -> int:
        """Return its exit code, once it ends."""
        return await asyncio.to_thread(self.ended_now)

    def ended_now(self) -> int:
        try:
            return self.process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            raise AssertionError(
                f"{self.name} still runs after {PATIENCE:g} s; its last words:\n{self.said()[-_TAIL:]}"
            ) from None

    async def terminate(self, number: signal.Signals = signal.SIGTERM) -> int:
        """Return its exit code after a signal that it may handle."""
        self.send(number)
        return await self.ended()

    def kill(self) -> None:
        """End the process in whatever state it is. Idempotent."""
        self.process.kill()
        self.process.wait()


class Cluster(Process):
    """A process `agent-scheduler cluster` on a free port. `kubeconfig` is an administrator's once it is up."""

    def __init__(
        self, folder: Path, *flags: str, faults: Sequence[Mapping[str, Any]] | None = None, seed: int = 1
    ) -> None:
        """`faults` has the rules of its plan of faults, if it has one."""
        self.kubeconfig = folder / "kubeconfig"
        arguments = ["cluster", "--port", "0", *flags, "--kubeconfig-out", str(self.kubeconfig)]
        if faults is not None:
            plan = folder / "faults.json"
            plan.write_text(json.dumps({"seed": seed, "rules": faults}))
            arguments += ["--faults", str(plan)]
        super().__init__("cluster", arguments, folder=folder)

    async def up(self) -> None:
        await self.until(lambda: "cluster ready" in self.said(), "greeting")


@contextlib.asynccontextmanager
async def cluster(
    folder: Path, *flags: str, faults: Sequence[Mapping[str, Any]] | None = None, seed: int = 1
) -> AsyncIterator[tuple[Cluster, Http1Transport]]:
    """Yield a cluster that is up, and an administrator's transport to it. A test may end the cluster earlier."""
    process = Cluster(folder, *flags, faults=faults, seed=seed)
    try:
        await process.up()
        transport = Http1Transport(load_endpoint(kubeconfig=process.kubeconfig))
        try:
            yield process, transport
        finally:
            await transport.close()
    finally:
        process.kill()


class Served(Process):
    """A command with an HTTP server, on a free port unless one is given."""

    def __init__(
        self,
        name: str,
        arguments: Sequence[str],
        *,
        folder: Path,
        port: int | None = None,
        tls: bool = False,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """Set `tls` for HTTPS with a certificate that is not verified."""
        self.port = port or free_port()
        self._tls = ssl._create_unverified_context() if tls else None
        super().__init__(name, [*arguments, "--port", str(self.port)], folder=folder, environment=environment)

    def get(self, path: str, *, token: str = "") -> tuple[int, str]:
        """Return status and text of one page, requested with a bearer token if given; (0, reason) without an answer."""
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        scheme = "http" if self._tls is None else "https"
        request = urllib.request.Request(f"{scheme}://127.0.0.1:{self.port}{path}", headers=headers)
        try:
            with urllib.request.urlopen(request, timeout=300, context=self._tls) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()
        except OSError as error:
            return 0, str(error)

    def json(self, path: str) -> Any:
        status, text = self.get(path)
        assert status == 200, (path, status, text)
        return json.loads(text)

    def metric(self, name: str, *, token: str = "", **labels: str) -> float:
        """Return the sum of the samples called `name` that have `labels`."""
        status, text = self.get("/metrics", token=token)
        assert status == 200, text
        return sum(
            sample.value
            for family in text_string_to_metric_families(text)
            for sample in family.samples
            if sample.name == name and labels.items() <= sample.labels.items()
        )

    def is_ready(self) -> bool:
        return self.get("/readyz")[0] == 200

    async def ready(self) -> None:
        await self.until(self.is_ready, "readyness")


class Scheduler(Served):
    """A process `agent-scheduler run`, with its HTTP server on a free port."""

    def __init__(
        self,
        name: str,
        *,
        folder: Path,
        kubeconfig: Path,
        config: Mapping[str, Any] | None = None,
        flags: Sequence[str] = (),
        port: int | None = None,
    ) -> None:
        """`config` has settings of a configuration file; apiVersion and kind are added."""
        arguments = ["run", "--kubeconfig", str(kubeconfig), *flags]
        if not any("leader-elect" in flag for flag in flags) and "leaderElection" not in (config or {}):
            # The next test would wait for the lease of a process that was killed.
            arguments.append("--leader-elect=false")
        if config is not None:
            file = folder / f"{name}.yaml"
            document = {"apiVersion": "agent-scheduler/v1", "kind": "SchedulerConfiguration", **config}
            file.write_text(yaml.safe_dump(document))
            arguments += ["--config", str(file)]
        super().__init__(name, arguments, folder=folder, port=port)

    def waiting(self, namespace: str) -> dict[str, dict[str, Any]]:
        """Return the pods in the queue by full name, as /debug/queue shows them."""
        page = self.json(f"/debug/queue?namespace={namespace}&limit=1000")
        return {item["key"].partition("/")[2]: item for item in page["items"]}

    def rescued(self) -> float:
        """Return the number of pods that were bound although no event had woken them; 0 without an answer."""
        up = self.get("/metrics")[0] == 200
        return self.metric("scheduler_pod_scheduled_after_flush_total") if up else 0

"""The programs of docs/tools/python.md, against a scheduler and controllers, each with the client that it imports."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from argparse import ArgumentParser
from pathlib import Path

import pytest

from agent_scheduler.config.load import load_text
from agent_scheduler.process import controller_flags
from agent_scheduler.process.controllers import ControllersProcess
from agent_scheduler.process.scheduler import SchedulerProcess
from embedded_kubernetes import EmbeddedCluster
from kube_client.auth import load_endpoint
from kube_client.http1 import Http1Transport
from tests.support.batched import CRDS
from tests.support.client import Client, until
from tests.support.documents import Block, blocks
from tests.support.embedded import PODS
from tests.support.places import CONFIG, DOCS

PROGRAMS = [block for block, _ in blocks(DOCS / "tools" / "python.md") if block.language == "python"]
CONFIGURATION = """
apiVersion: agent-scheduler/v1
kind: SchedulerConfiguration
serving: {port: 0}
leaderElection: {leaderElect: false}
batch: {}
"""


def client_of(program: str) -> str:
    """Return the library that a program imports."""
    return next(name for name in ("kubernetes_asyncio", "kubernetes", "kr8s") if f"from {name}" in program)


def test_each_client_has_a_program() -> None:
    assert sorted(client_of(each.text) for each in PROGRAMS) == ["kr8s", "kubernetes", "kubernetes_asyncio"]


@pytest.mark.parametrize("block", PROGRAMS, ids=[client_of(each.text) for each in PROGRAMS])
async def test_its_pods_are_placed(block: Block, tmp_path: Path) -> None:
    async with EmbeddedCluster(nodes=2, node_cpu="4") as cluster:
        cluster.apply("---\n".join(each.read_text() for each in (*CRDS, CONFIG / "samples" / "queue.yaml")))
        endpoint = load_endpoint(kubeconfig=cluster.kubeconfig)
        parser = ArgumentParser()
        controller_flags.add_arguments(parser)
        flags = parser.parse_args(["--enable", "podgroup,queue", "--port", "0", "--no-leader-elect"])
        running = [
            SchedulerProcess(load_text(CONFIGURATION), source=None, endpoint=endpoint),
            ControllersProcess(controller_flags.settings_of(flags), endpoint=endpoint),
        ]
        tasks = [asyncio.create_task(each.run(signals=False)) for each in running]
        transport = Http1Transport(endpoint)
        try:
            done = await asyncio.to_thread(
                subprocess.run,
                [sys.executable, "-c", block.text],
                cwd=tmp_path,
                env={**os.environ, "KUBECONFIG": str(cluster.kubeconfig)},
                capture_output=True,
                text=True,
                timeout=120,
                check=False,
            )
            assert done.returncode == 0, done.stdout + done.stderr
            assert done.stdout.splitlines()[-1] == "placed", done.stdout + done.stderr
            pods = await Client(transport).items(PODS)
            assert pods and all(each["spec"].get("nodeName") for each in pods)
            queues = "/apis/scheduling.volcano.sh/v1beta1/queues/research"
            await until(lambda: Client(transport).seen(queues, _has_pods))
        finally:
            await transport.close()
            for each in running:
                each.stop()
            assert await asyncio.wait_for(asyncio.gather(*tasks), 60) == [0, 0]


def _has_pods(queue: dict[str, dict[str, dict[str, str]]]) -> bool:
    return queue["status"].get("allocated", {}).get("pods", "0") != "0"

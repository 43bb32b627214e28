"""Every command of the quick start, as a reader types it: on the reader's machine, and on a cluster."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import subprocess
import sys
from argparse import ArgumentParser
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import yaml

from agent_scheduler.config.load import load_text
from agent_scheduler.process import controller_flags
from agent_scheduler.process.controllers import ControllersProcess
from agent_scheduler.process.scheduler import SchedulerProcess
from bench.harness.processes import free_port
from embedded_kubernetes import EmbeddedCluster
from kube_client.auth import load_endpoint
from tests.support.documents import PAGES, Block, blocks, differs, split
from tests.support.needed import kubectl
from tests.support.places import ROOT

PAGE = ROOT / "docs" / "quickstart.md"
#: The title of the part with an installation.
TITLE = "## On a cluster of yours"
#: Commands that are not run: one builds an image, another needs another program.
NOT_HERE = ("docker build", "helm install")
#: Objects that other pages require: Volcano's shard, and the namespaces of the cluster's operators.
THERE = """
{apiVersion: shard.volcano.sh/v1alpha1, kind: NodeShard, metadata: {name: volcano}, spec: {nodesDesired: []}}
---
{apiVersion: v1, kind: Namespace, metadata: {name: monitoring}}
---
{apiVersion: v1, kind: ServiceAccount, metadata: {name: support, namespace: monitoring}}
"""


def typed(*, installed: bool) -> list[tuple[Block, str]]:
    """Return the shell blocks before or after that title, each with the output that the page shows."""
    title = PAGE.read_text().splitlines().index(TITLE)
    found = [(block, shown) for block, shown in blocks(PAGE) if block.language == "sh"]
    return [(block, shown) for block, shown in found if (block.line > title) == installed]


def surroundings(home: Path, **more: str) -> dict[str, str]:
    folders = [str(Path(sys.executable).parent), str(Path(kubectl()).parent), os.environ["PATH"]]
    return {**os.environ, "PATH": ":".join(folders), "HOME": str(home), **more}


def typed_in(script: str, folder: Path, environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    command = ["bash", "-euo", "pipefail", "-c", script]
    return subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=300, check=False
    )


def test_its_commands_do_what_they_say(tmp_path: Path) -> None:
    """All blocks but the installation are run, on ports that are free here."""
    installation, *commands = (block.text for block, _ in typed(installed=False))
    assert "pip install" in installation
    server, pages = free_port(), free_port()
    script = "\n".join(commands).replace("8001", str(server)).replace("10251", str(pages))
    script = script.replace("agent-scheduler run ", f"agent-scheduler run --port {pages} ")
    script = script.replace("agent-scheduler controllers ", f"agent-scheduler controllers --port {free_port()} ")
    for name in ("config", "docs"):
        (tmp_path / name).symlink_to(ROOT / name)
    script = f"trap 'kill $(jobs -p) 2>/dev/null || true' EXIT\n{script}"
    told = typed_in(script, tmp_path, surroundings(tmp_path))
    logs = {file.name: file.read_text()[-2000:] for file in tmp_path.glob("*.log")}
    assert told.returncode == 0, (told.stdout[-3000:], told.stderr[-3000:], logs)
    assert "0/10 nodes are available: 10 Insufficient cpu." in told.stdout
    assert "scheduling.volcano.sh/queue-allocation-gate" in told.stdout
    assert re.search(r"^research +Open", told.stdout.replace("├─ ", "").replace("└─ ", ""), re.MULTILINE)
    assert re.search(r"^train +", told.stdout, re.MULTILINE)
    assert "Scheduled " in told.stdout


async def shown_by(block: Block, folder: Path, environment: dict[str, str]) -> str:
    """Return the output of a block. An exit code other than 0 fails the test."""
    told = await asyncio.to_thread(typed_in, block.text, folder, environment)
    assert told.returncode == 0, f"{block}\n{told.stdout}{told.stderr}"
    return told.stdout


@asynccontextmanager
async def components(configuration: str, kubeconfig: Path) -> AsyncIterator[None]:
    """Run the components of the manifests in this process, as no container runs here, and a scheduler of their pods."""
    settings = yaml.safe_load(configuration)
    settings["profiles"].append({"schedulerName": "default-scheduler", "base": "default-scheduler"})
    settings["serving"] = {"port": 0}
    parser = ArgumentParser()
    controller_flags.add_arguments(parser)
    flags = parser.parse_args(["--enable", "job,podgroup,queue", "--port", "0"])
    endpoint = load_endpoint(kubeconfig=kubeconfig)
    running = [
        SchedulerProcess(load_text(yaml.safe_dump(settings)), source=None, endpoint=endpoint),
        ControllersProcess(controller_flags.settings_of(flags), endpoint=endpoint),
    ]
    tasks = [asyncio.create_task(each.run(signals=False)) for each in running]
    try:
        yield
    finally:
        for each in running:
            each.stop()
        assert await asyncio.wait_for(asyncio.gather(*tasks), 200) == [0, 0]


def elsewhere() -> list[Block]:
    """Return the blocks of other pages that only create and label objects."""
    found = [block for page in PAGES for block, _ in blocks(page) if block.language == "sh"]
    return [
        block
        for block in found
        if all(each.words[0] == "kubectl" and {"create", "label"} & {*each.words} for each in split(block.text))
    ]


@pytest.mark.wide
async def test_an_installation_does_the_same_and_can_be_removed(tmp_path: Path) -> None:
    """Run the first pod, a waiting one and the gang of the earlier part, and then the blocks of other pages."""
    shutil.copytree(ROOT / "config", tmp_path / "config")
    steps = [each for each in typed(installed=True) if not any(word in each[0].text for word in NOT_HERE)]
    ready = next(at for at, (block, _) in enumerate(steps) if "rollout status" in block.text)
    words = ("pod.yaml", "gang.yaml", "kubectl run")
    before = [each for each in typed(installed=False) if any(word in each[0].text for word in words)]
    assert len(before) == len(words)
    # No process can be called here: the page names another command for it.
    same = [
        (Block(block.page, block.line, "sh", re.sub(r"agent-scheduler explain.*", "", block.text)), shown)
        for block, shown in before
    ]
    others = elsewhere()
    assert len(others) > 3
    async with EmbeddedCluster(nodes=3, node_cpu="8") as cluster:
        environment = surroundings(tmp_path, KUBECONFIG=str(cluster.kubeconfig), REGISTRY="registry.example.com/me")
        for block, _ in steps[:ready]:
            await shown_by(block, tmp_path, environment)
        configured = (tmp_path / "config" / "default" / "configuration.yaml").read_text()
        async with components(configured, cluster.kubeconfig):
            cluster.apply(THERE)
            done = (*same, *((block, "") for block in others))
            for block, shown in (steps[ready], *done, *steps[ready + 1 :]):
                said = await shown_by(block, tmp_path, environment)
                assert not shown or not (why := differs(said, shown)), f"{block}\n{why}"
        deleted = {each.uri.partition("?")[0] for each in cluster.requests if each.attributes.verb == "delete"}
        assert "/api/v1/namespaces/agent-scheduler" in deleted
        assert any(path.endswith("/queues.scheduling.volcano.sh") for path in deleted)

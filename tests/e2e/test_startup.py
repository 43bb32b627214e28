"""Each command imports only the modules that it needs, because imports are most of the cost of its start."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterable

import pytest

from .conftest import Start
from .plane import ControlPlane

#: Modules that take long to import, of this project and of others.
HEAVY = """
    numpy kubernetes_asyncio aiohttp uvloop msgspec structlog yaml prometheus_client rich asyncio importlib.metadata
    cel_expr_python agent_scheduler.engine kube_client
"""
#: Those of them that a scheduler does not need unless they are configured.
OF_OTHERS = """
    kubernetes_asyncio kube_client.exec_plugin agent_scheduler.shards.coordinator embedded_kubernetes
    bench.harness bench.demo agent_scheduler.cli.explain agent_scheduler.cli.check
    agent_scheduler.controllers agent_scheduler.process.controllers agent_scheduler.cli.shards cryptography matplotlib
    rich.text pygments cel_expr_python opentelemetry requests agent_scheduler.telemetry.traces
"""


def imported(said: str) -> set[str]:
    """Return the modules in the output of a Python with PYTHONPROFILEIMPORTTIME."""
    lines = (line for line in said.splitlines() if line.startswith("import time:"))
    return {line.rpartition("|")[2].strip() for line in lines}


def among(modules: Iterable[str], packages: Iterable[str]) -> list[str]:
    """Return those of `modules` that are one of the packages, or in one."""
    prefixes = tuple(f"{package}." for package in packages)
    return sorted(module for module in modules if f"{module}.".startswith(prefixes))


def said_by(*arguments: str) -> str:
    command = [sys.executable, "-X", "importtime", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=300).stderr


def test_the_list_of_commands_is_shown_without_any_of_them() -> None:
    modules = imported(said_by("-m", "agent_scheduler", "--help"))
    assert "agent_scheduler.cli.main" in modules, "the imports were not reported"
    assert among(modules, HEAVY.split()) == []


@pytest.mark.parametrize(
    ("command", "own"),
    [
        ("run", "agent_scheduler.config"),
        ("explain", "agent_scheduler.cli.reach"),
        ("check", "agent_scheduler.cli.reach"),
        ("controllers", "agent_scheduler.process.controllers"),
        ("shards", "agent_scheduler.cli.shard_plan"),
    ],
)
def test_a_command_is_explained_without_the_others(command: str, own: str) -> None:
    commands = {f"agent_scheduler.{name}" for name in ("cli.reach", "process.controllers", "cli.shard_plan")}
    packages = {"agent_scheduler.process.scheduler", "agent_scheduler.fastpath", "bench", "embedded_kubernetes"}
    others = (commands | packages) - {own}
    modules = imported(said_by("-m", "agent_scheduler", command, "--help"))
    assert among(modules, [own])
    assert among(modules, [*others, "kubernetes_asyncio", "rich.text", "pygments"]) == []


def test_a_scheduler_is_made_without_what_its_first_bind_does_not_need() -> None:
    modules = imported(said_by("-c", "import agent_scheduler.process.scheduler"))
    assert "agent_scheduler.binding.binder" in modules
    later = {"aiohttp", "prometheus_client", "importlib.metadata"}
    assert among(modules, [*OF_OTHERS.split(), *later]) == []


async def test_a_scheduler_binds_without_what_other_commands_need(
    plane: ControlPlane, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    await plane.add_node("node")
    await plane.add_pod("pod")
    monkeypatch.setenv("PYTHONPROFILEIMPORTTIME", "1")
    scheduler = start()
    await plane.bound("pod")
    assert await scheduler.terminate() == 0
    modules = imported(scheduler.said())
    assert "agent_scheduler.binding.binder" in modules, "the imports were not reported"
    assert among(modules, OF_OTHERS.split()) == []

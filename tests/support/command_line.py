"""Inputs of commands: flags, a configuration, and a kubeconfig."""

from __future__ import annotations

import argparse
import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agent_scheduler.cli.main import main
from agent_scheduler.config.flags import add_run_arguments
from agent_scheduler.config.load import load_text
from agent_scheduler.config.namespace import OwnNamespace
from apimachinery.errors import ConfigurationError

#: The beginning of every scheduler configuration: two lines.
HEADER = "apiVersion: agent-scheduler/v1\nkind: SchedulerConfiguration\n"


def run_arguments(*words: str) -> argparse.Namespace:
    """Parse the flags of `agent-scheduler run`."""
    parser = argparse.ArgumentParser(allow_abbrev=False)
    add_run_arguments(parser)
    return parser.parse_args(words)


def kubeconfig(folder: Path, server: str = "https://127.0.0.1:1", **user: str) -> Path:
    """Write a kubeconfig whose context `c` is the cluster at `server`; `user` are the user's credentials."""
    file = folder / "kubeconfig"
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u", "namespace": "default"}}],
        "clusters": [{"name": "c", "cluster": {"server": server}}],
        "users": [{"name": "u", "user": user}],
    }
    file.write_text(json.dumps(content))
    return file


def problem(read: Callable[..., object], *arguments: Any, **named: Any) -> str:
    """Return the message with which `read` refuses the arguments."""
    with pytest.raises(ConfigurationError) as caught:
        read(*arguments, **named)
    return str(caught.value)


def refusal(text: str, *, header: str = HEADER) -> str:
    """Return the message with which a configuration `f.yaml` is refused."""
    return problem(load_text, header + text, source="f.yaml")


def saying(path: str, value: str) -> str:
    """Return a configuration with `value` at a path such as `profiles[0].base`; more text may be appended."""
    first, *steps = path.split(".")
    for step in reversed(steps):
        value = f"{{{_entry(step, value)}}}"
    return _entry(first, value)


def _entry(step: str, value: str) -> str:
    name, bracket, _ = step.partition("[")
    return f"{name}: [{value}]" if bracket else f"{name}: {value}"


def warnings(text: str, *, header: str = HEADER) -> list[str]:
    """Return the warnings about a configuration `f.yaml` that is accepted."""
    told: list[str] = []
    load_text(header + text, source="f.yaml", warn=told.append)
    return told


class Meant:
    """Parses the flags of a command into settings, in the namespace `here`; `flags` is its module."""

    def __init__(self, flags: Any) -> None:
        self._flags = flags

    def __call__(self, line: str = "", *, namespace: str = "here") -> Any:
        parser = argparse.ArgumentParser(allow_abbrev=False)
        self._flags.add_arguments(parser)
        own = OwnNamespace(namespace, "the test")
        return self._flags.settings_of(parser.parse_args(line.split()), namespace=lambda: own)

    def problem(self, line: str = "", **more: str) -> str:
        return problem(self, line, **more)


class Command:
    """Runs `agent-scheduler` with these words; returns exit code, standard output and standard error, as in a shell."""

    def __init__(self, words: str, kubeconfig: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self._words = words.split()
        self.kubeconfig = kubeconfig
        self._capsys = capsys

    def __call__(self, line: str = "") -> tuple[int, str, str]:
        code = main([*self._words, *line.split(), "--kubeconfig", str(self.kubeconfig)])
        shown = self._capsys.readouterr()
        return code, shown.out, shown.err

    async def beside(self, line: str = "") -> tuple[int, str, str]:
        """Run the command in a thread while the loop continues."""
        return await asyncio.to_thread(self, line)

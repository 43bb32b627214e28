"""The real kubectl, started as a process for each command, on an embedded cluster of its own."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.support import needed

from .processes import Cluster


class Kubectl:
    """A kubectl with its own kubeconfig, cache and namespace."""

    def __init__(self, kubeconfig: Path, home: Path) -> None:
        self.program = needed.kubectl()
        self.kubeconfig = kubeconfig
        self.namespace = "default"
        self._env = {**os.environ, "KUBECONFIG": str(kubeconfig), "HOME": str(home), "KUBECTL_KUBERC": "false"}

    def command(self, *arguments: str) -> list[str]:
        return [self.program, "-n", self.namespace, *arguments]

    def run(self, *arguments: str, stdin: object = None, fails: bool = False) -> subprocess.CompletedProcess[str]:
        """Run a command to its end. `stdin` is sent as JSON. An outcome other than the expected one fails the test."""
        done = subprocess.run(
            self.command(*arguments),
            input=None if stdin is None else json.dumps(stdin),
            env=self._env,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        told = f"kubectl {' '.join(arguments)}\n{done.stdout}{done.stderr}"
        assert (done.returncode != 0) == bool(fails), told
        return done

    def __call__(self, *arguments: str, stdin: object = None) -> str:
        return self.run(*arguments, stdin=stdin).stdout

    def refused(self, *arguments: str, stdin: object = None) -> str:
        return self.run(*arguments, stdin=stdin, fails=True).stderr

    def json(self, *arguments: str) -> Any:
        return json.loads(self(*arguments, "-o", "json"))

    def apply(self, obj: object, *more: str) -> str:
        return self("apply", *more, "-f", "-", stdin=obj)

    @contextlib.contextmanager
    def started(self, *arguments: str) -> Iterator[subprocess.Popen[str]]:
        """Start a kubectl that goes on, such as a watch."""
        process = subprocess.Popen(self.command(*arguments), env=self._env, stdout=subprocess.PIPE, text=True)
        try:
            yield process
        finally:
            process.terminate()
            process.wait(60)
            assert process.stdout is not None
            process.stdout.close()


@contextlib.contextmanager
def cluster(home: Path, *flags: str) -> Iterator[Kubectl]:
    """Yield kubectl on a new `agent-scheduler cluster` with these flags; `home` is for both."""
    needed.kubectl()
    process = Cluster(home, *flags)
    try:
        asyncio.run(process.up())
        yield Kubectl(process.kubeconfig, home)
    finally:
        process.kill()

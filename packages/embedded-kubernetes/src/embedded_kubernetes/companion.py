"""Runs a scheduler beside the cluster: agent-scheduler, as a process of its own, for the pods of every namespace.

It schedules the pods of its own name, and those of `default-scheduler` by kube-scheduler's rules, so that every pod
without `schedulerName` gets a node. It is another distribution, of which only the command is used.
"""

from __future__ import annotations

import asyncio
import ctypes
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory

from .errors import ClusterError
from .resource import Object

_PACKAGE = "agent_scheduler"
_CONFIGURATION: Object = {
    "apiVersion": "agent-scheduler/v1",
    "kind": "SchedulerConfiguration",
    "profiles": [
        {"schedulerName": "agent-scheduler"},
        {"schedulerName": "default-scheduler", "base": "default-scheduler"},
    ],
    "leaderElection": {"leaderElect": False},
}
#: The option of prctl(2).
_PDEATHSIG = 1
#: Seconds in which the scheduler may end its binds.
_GRACE = 15.0


def is_installed() -> bool:
    found = find_spec(_PACKAGE)
    return found is not None and found.origin is not None


async def watch(process: asyncio.Task[int]) -> None:
    """Wait for the end of the scheduler, which is an error."""
    raise ClusterError(f"the scheduler ended with exit code {await asyncio.shield(process)}")


def _die_with_parent() -> None:
    """Let this process get SIGTERM when its parent is killed, where the system has that (Linux)."""
    if (control := getattr(ctypes.CDLL(None), "prctl", None)) is not None:
        control(_PDEATHSIG, signal.SIGTERM)


def _files(folder: Path, kubeconfig: Object) -> list[str]:
    """Write the scheduler's files; return the flags that name them."""
    contents = {"config": _CONFIGURATION, "kubeconfig": kubeconfig}
    for name, content in contents.items():
        (folder / f"{name}.json").write_text(json.dumps(content))
    return [f"--{name}={folder / name}.json" for name in contents]


@asynccontextmanager
async def scheduler(kubeconfig: Object, flags: Sequence[str]) -> AsyncIterator[asyncio.Task[int]]:
    """Run the scheduler until the block exits. Yields a task that ends with its exit code if it ends before.

    `flags` are further ones of its command `run`. Its output goes to standard error.
    """
    with TemporaryDirectory() as folder:
        command = (sys.executable, "-m", _PACKAGE, "run", *_files(Path(folder), kubeconfig), *flags)
        process = await asyncio.create_subprocess_exec(
            *command, stdout=sys.stderr.fileno(), env=dict(os.environ), preexec_fn=_die_with_parent
        )
        waiting = asyncio.ensure_future(process.wait())
        try:
            yield waiting
        finally:
            if not waiting.done():
                process.terminate()
                try:
                    await asyncio.wait_for(asyncio.shield(waiting), _GRACE)
                except TimeoutError:
                    process.kill()
                    await waiting

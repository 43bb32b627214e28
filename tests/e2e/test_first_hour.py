"""A scheduler on the reader's machine without further flags, and the commands that ask it."""

from __future__ import annotations

import subprocess
from pathlib import Path

from bench.harness.processes import free_port

from .processes import PATIENCE, PROGRAM, Scheduler, cluster


def command(line: str, kubeconfig: Path) -> tuple[int, str, str]:
    """Return exit code, standard output and standard error of a command."""
    words = [*PROGRAM, *line.split(), "--kubeconfig", str(kubeconfig)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=PATIENCE, check=False)
    return done.returncode, done.stdout, done.stderr


async def test_a_scheduler_without_flags_leads_where_commands_look_and_no_other_one_answers(tmp_path: Path) -> None:
    """Another process may have the usual port of this host, or none."""
    port = ("--port", str(free_port()))
    async with cluster(tmp_path, "--nodes", "50", *port) as (it, _):
        scheduler = Scheduler("scheduler", folder=tmp_path, kubeconfig=it.kubeconfig, flags=["--leader-elect"])
        try:
            await scheduler.until(lambda: scheduler.records("lease acquired"), "lease")
            await scheduler.ready()
            (created,) = scheduler.records("namespace created")
            assert created["namespace"] == "agent-scheduler"
            for line in ("check", "top --once", "explain default/p"):
                code, out, err = command(line, it.kubeconfig)
                assert (code, out) == (2, "")
                assert "lease agent-scheduler/agent-scheduler of" in err or "no scheduler answers at" in err
            code, out, _ = command(f"check --server http://127.0.0.1:{scheduler.port}", it.kubeconfig)
            assert code == 0 and "this scheduler leads" in out
            it.kill()
            # The objects of a cluster do not outlive it, and fewer ones leave it at an older version.
            async with cluster(tmp_path, "--nodes", "1", *port):
                assert await scheduler.ended() == 1
            (problem,) = scheduler.records("store went back")
            assert problem["problem"].endswith("start this process again")
        finally:
            scheduler.kill()

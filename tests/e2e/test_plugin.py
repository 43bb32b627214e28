"""The program as a plugin of the real kubectl: `kubectl agent-scheduler`, by a symbolic link on the PATH."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest
import yaml

from tests.support import needed
from tests.support.places import CONFIG

from .processes import PATIENCE, Scheduler, cluster

#: A script as pip makes it of an entry point.
ENTRY = "#!{python}\nimport sys\nfrom {module} import {function}\nsys.exit({function}())\n"


class Ran(NamedTuple):
    code: int
    out: str
    err: str


class Plugin:
    """A folder with the scripts and the link, before the others on the PATH of kubectl."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        #: The oldest, a middle and the newest one, if there are several.
        self.kubectls = needed.kubectls()
        for name, module, function in (
            ("agent-scheduler", "agent_scheduler.__main__", "run"),
            ("kubectl_complete-agent_scheduler", "agent_scheduler.cli.plugin_completion", "main"),
        ):
            script = folder / name
            script.write_text(ENTRY.format(python=sys.executable, module=module, function=function))
            script.chmod(0o755)
        (folder / "kubectl-agent_scheduler").symlink_to("agent-scheduler")

    def run(self, *words: str, kubeconfig: Path | None = None, kubectl: str = "") -> Ran:
        environment = {**os.environ, "PATH": f"{self.folder}:{os.environ['PATH']}", "HOME": str(self.folder)}
        environment |= {"COLUMNS": "200", "KUBECONFIG": str(kubeconfig or self.folder / "none")}
        command = [kubectl or self.kubectls[-1], *words]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=PATIENCE, check=False)
        return Ran(done.returncode, done.stdout, done.stderr)


@pytest.fixture
def plugin(tmp_path: Path) -> Plugin:
    (tmp_path / "bin").mkdir()
    return Plugin(tmp_path / "bin")


def test_help_usage_and_errors_name_what_the_user_typed(plugin: Plugin) -> None:
    told = plugin.run("agent-scheduler", "top", "--help")
    assert told.code == 0 and told.out.startswith("usage: kubectl agent-scheduler top [-h] ")
    told = plugin.run("agent-scheduler", "job", "frobnicate")
    assert (told.code, told.out) == (2, "") and told.err.startswith("usage: kubectl agent-scheduler job ")
    told = plugin.run("agent-scheduler", "check", "--server", "http://127.0.0.1:1")
    assert (told.code, told.out) == (2, "")
    assert told.err.startswith("kubectl agent-scheduler check: no scheduler answers at ")
    assert f"{plugin.folder}/kubectl-agent_scheduler" in plugin.run("plugin", "list").out


@pytest.mark.parametrize(
    ("words", "lines"),
    [
        ("to", ["top\tshow live statistics of a scheduler", ":4"]),
        ("job sus", ["suspend\tstop a job and delete its pods until it is resumed", ":4"]),
        ("nodes --sort-by ", ["name", "cpu", "memory", "pods", ":4"]),
        ("queues root --conte", ["--context\tthe kubeconfig's context (default: its current one)", ":4"]),
        ("queues --kubeconfig ", [":0"]),
        ("shards plan ", [":4"]),
    ],
)
def test_kubectl_completes_its_words(plugin: Plugin, words: str, lines: list[str]) -> None:
    assert plugin.run("__complete", "agent-scheduler", *words.split(" ")).out.splitlines() == lines


async def test_it_asks_the_cluster_that_kubectl_would(plugin: Plugin, tmp_path: Path) -> None:
    """The current context of KUBECONFIG is of a cluster that does not answer; `--context` names another one."""
    async with cluster(tmp_path, "--nodes", "2") as (it, _):
        document = yaml.safe_load(it.kubeconfig.read_text())
        document["contexts"][0]["name"] = "live"
        document["clusters"].append({"name": "dead", "cluster": {"server": "http://127.0.0.1:1"}})
        document["contexts"].append({"name": "dead", "context": {"cluster": "dead"}})
        both = tmp_path / "both"
        both.write_text(yaml.safe_dump({**document, "current-context": "dead"}))

        async def run(*words: str, kubectl: str = "") -> Ran:
            return await asyncio.to_thread(plugin.run, *words, kubeconfig=both, kubectl=kubectl)

        assert (await run("--context=live", "apply", "-k", str(CONFIG / "crd"))).code == 0
        scheduler = Scheduler("scheduler", folder=tmp_path, kubeconfig=it.kubeconfig)
        try:
            await scheduler.ready()
            server = ("--server", f"http://127.0.0.1:{scheduler.port}")
            for kubectl in plugin.kubectls:
                for words in (
                    *(("nodes", "--context", "live"), ("queues", "--context=live"), ("shards", "--context=live")),
                    *(("job", "list", "-n", "default", "--context", "live"), ("top", "--once", *server)),
                    ("check", *server),
                ):
                    ran = await run("agent-scheduler", *words, kubectl=kubectl)
                    assert ran.code == 0, (kubectl, words, ran)
                ran = await run("agent-scheduler", "explain", "default/none", "--from-cluster", "--context=live")
                assert ran.code == 1 and ran.err.startswith("kubectl agent-scheduler explain: pod default/none is unkn")
            for words in (("nodes",), ("job", "list"), ("explain", "default/none", "--from-cluster")):
                ran = await run("agent-scheduler", *words)
                assert ran.code == 2 and "127.0.0.1:1" in ran.err, (words, ran)
            ran = await run("agent-scheduler", "queues", "--context", "none")
            assert ran.code == 2 and "'none', but contexts has: dead, live" in ran.err
        finally:
            scheduler.kill()

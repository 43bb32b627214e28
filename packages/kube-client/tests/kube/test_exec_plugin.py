"""Credential plugins: real programs that are run, hang, fail and print what they like."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import stat
import sys
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from kube_client.credentials import CredentialsUnavailable, KubeConfigError
from kube_client.exec_plugin import ExecPlugin
from kube_client.http1 import Http1Transport
from kube_client.retry import Timing
from kube_client.testing.scripted import FakeTime, eventually
from kube_client.transport import Endpoint, NotSent

pytestmark = pytest.mark.real_time

V1 = "client.authentication.k8s.io/v1"
START = datetime(2026, 11, 21, tzinfo=UTC)


class Plugin:
    """A real program in `folder` that prints `answer`, and notes each run and what it was given."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.program = folder / "plugin"
        self.answer = folder / "answer"
        self.runs = folder / "runs"
        self.runs.touch()
        self.does(
            "import os, pathlib, sys\n"
            f"folder = pathlib.Path({str(folder)!r})\n"
            "with (folder / 'runs').open('a') as runs: runs.write('x')\n"
            "(folder / 'info').write_text(os.environ['KUBERNETES_EXEC_INFO'])\n"
            "(folder / 'argv').write_text(' '.join(sys.argv[1:]))\n"
            "(folder / 'env').write_text(os.environ.get('EXTRA', ''))\n"
            "sys.stderr.write('x' * 300_000)\n"  # more than a pipe holds: whoever reads stdout first hangs
            "sys.stdout.write((folder / 'answer').read_text())\n"
        )
        self.token("one")

    def does(self, source: str) -> None:
        # -S -E: a start-up of the interpreter without site-packages, which is most of what the test would take.
        self.program.write_text(f"#!{sys.executable} -SE\n{source}")
        self.program.chmod(self.program.stat().st_mode | stat.S_IXUSR)

    def prints(self, status: object, *, kind: str = "ExecCredential", version: str = V1) -> None:
        self.answer.write_text(json.dumps({"apiVersion": version, "kind": kind, "status": status}))

    def token(self, token: str, expires: datetime | None = None) -> None:
        status = {"token": token}
        if expires:
            status["expirationTimestamp"] = expires.isoformat().replace("+00:00", "Z")
        self.prints(status)

    @property
    def times(self) -> int:
        return len(self.runs.read_text())

    def source(self, time: FakeTime | None = None, spec: dict[str, Any] | None = None, **options: Any) -> ExecPlugin:
        time = time or FakeTime()
        return ExecPlugin(
            {"apiVersion": V1, "command": "./plugin", **(spec or {})},
            where="config: users[u].user.exec",
            folder=self.folder,
            tls=None,
            timing=Timing(clock=lambda: time.now, now=lambda: START + timedelta(seconds=time.now - 1000)),
            **options,
        )


def alive(pid: Path) -> bool:
    """A process that has ended and that nobody has asked for yet is dead, too."""
    try:
        stat = Path(f"/proc/{pid.read_text()}/stat").read_text()
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"


@pytest.fixture
def plugin(tmp_path: Path) -> Plugin:
    return Plugin(tmp_path)


async def test_a_plugin_gives_a_token_and_is_run_once_while_it_is_good(plugin: Plugin) -> None:
    time = FakeTime()
    source = plugin.source(time)
    for _ in range(3):
        asked = await asyncio.gather(*(source.headers() for _ in range(20)))
        assert asked == [{"Authorization": "Bearer one"}] * 20
        time.now += 100_000
    assert plugin.times == 1


async def test_a_plugin_gets_its_arguments_its_environment_and_the_cluster(plugin: Plugin) -> None:
    spec = {"args": ["a", "b"], "env": [{"name": "EXTRA", "value": "e"}], "provideClusterInfo": True}
    await plugin.source(spec=spec, cluster={"server": "https://s"}).headers()
    assert (plugin.folder / "argv").read_text() == "a b"
    assert (plugin.folder / "env").read_text() == "e"
    info = json.loads((plugin.folder / "info").read_text())
    assert info == {
        "apiVersion": V1,
        "kind": "ExecCredential",
        "spec": {"interactive": False, "cluster": {"server": "https://s"}},
    }


async def test_a_token_is_renewed_before_it_expires(plugin: Plugin) -> None:
    time = FakeTime()
    plugin.token("one", START + timedelta(seconds=600))
    source = plugin.source(time)
    await source.headers()
    plugin.token("two", START + timedelta(seconds=1200))
    time.now += 470
    assert await source.headers() == {"Authorization": "Bearer one"}
    assert plugin.times == 1
    time.now += 20
    assert await source.headers() == {"Authorization": "Bearer one"}
    await source._renewal.ended()
    assert await source.headers() == {"Authorization": "Bearer two"}
    assert plugin.times == 2


async def test_who_needs_a_token_waits_for_it_no_longer_than_it_wants_and_does_not_end_the_plugin(
    plugin: Plugin,
) -> None:
    gate = plugin.folder / "gate"
    plugin.does(
        "import pathlib, time\n"
        f"while not pathlib.Path({str(gate)!r}).exists(): time.sleep(0.01)\n"
        f"print(pathlib.Path({str(plugin.answer)!r}).read_text())"
    )
    source = plugin.source()
    transport = Http1Transport(Endpoint("http://127.0.0.1:1", headers=source.headers))
    with pytest.raises(NotSent, match="no credentials were available in time"):
        await transport.request("POST", "/", body=b"{}", timeout=0.05)
    gate.touch()
    assert await source.headers() == {"Authorization": "Bearer one"}
    await transport.close()


async def test_a_refused_token_is_renewed_but_not_for_every_refusal(plugin: Plugin) -> None:
    time = FakeTime()
    source = plugin.source(time)
    await source.headers()
    plugin.token("two")
    source.refused()
    assert await source.headers() == {"Authorization": "Bearer one"}
    time.now += 6
    source.refused()
    await source.headers()
    await source._renewal.ended()
    assert await source.headers() == {"Authorization": "Bearer two"}
    assert plugin.times == 2


async def test_a_plugin_that_fails_leaves_a_good_token_in_use_until_it_expires(plugin: Plugin) -> None:
    time = FakeTime()
    plugin.token("one", START + timedelta(seconds=600))
    source = plugin.source(time)
    await source.headers()
    plugin.does("raise SystemExit('no network')")
    time.now += 590
    assert await source.headers() == {"Authorization": "Bearer one"}
    await source._renewal.ended()
    time.now += 20
    with pytest.raises(CredentialsUnavailable, match="no network"):
        await source.headers()


@pytest.mark.parametrize("is_daemon", [False, True])
async def test_a_plugin_that_hangs_is_killed_with_all_that_it_started_but_for_daemons(
    plugin: Plugin, is_daemon: bool
) -> None:
    """It is given up even if a daemon of it holds its pipes."""
    plugin.does(
        "import os, pathlib, subprocess, sys, time\n"
        f"folder = pathlib.Path({str(plugin.folder)!r})\n"
        "sleeping = [sys.executable, '-SE', '-c', 'import time; time.sleep(600)']\n"
        f"child = subprocess.Popen(sleeping, start_new_session={is_daemon})\n"
        "(folder / 'child').write_text(str(child.pid))\n"
        "(folder / 'pid').write_text(str(os.getpid()))\n"
        "time.sleep(600)"
    )
    with pytest.raises(CredentialsUnavailable, match="did not end within 1 s"):
        await plugin.source(timeout=1).headers()
    assert not alive(plugin.folder / "pid")
    if is_daemon:
        with suppress(FileNotFoundError):  # on a machine on which it has not begun by then
            os.kill(int((plugin.folder / "child").read_text()), signal.SIGKILL)
    await eventually(lambda: not alive(plugin.folder / "child"))


@pytest.mark.parametrize(
    ("prepare", "words"),
    [
        (lambda p: p.does("raise SystemExit('log in first')"), "ended with 1: log in first"),
        (lambda p: p.program.unlink(), "cannot run .*plugin: .*install it from there"),
        (lambda p: p.answer.write_text("hello"), "no ExecCredential"),
        (lambda p: p.answer.write_text("[]"), "no ExecCredential"),
        (lambda p: p.prints(None), "no ExecCredential"),
        (lambda p: p.prints({"token": "t"}, kind="Other"), "Other .*, not ExecCredential"),
        (lambda p: p.prints({"token": "t"}, version="v9"), "ExecCredential v9, not"),
        (lambda p: p.prints({}), "neither a token nor a client certificate"),
        (lambda p: p.prints({"clientKeyData": "k"}), "only one of"),
        (lambda p: p.prints({"token": "t", "expirationTimestamp": "soon"}), "no RFC 3339 time: 'soon'"),
        (lambda p: p.prints({"clientCertificateData": "c", "clientKeyData": "k"}), "without TLS"),
        (lambda p: p.prints({"token": "se\ncret"}), "a token that cannot be used: it has a line break"),
        (lambda p: p.prints({"token": 7}), "a token that cannot be used"),
    ],
)
async def test_what_is_wrong_with_a_plugin_is_said(
    plugin: Plugin, prepare: Callable[[Plugin], object], words: str
) -> None:
    prepare(plugin)
    with pytest.raises(CredentialsUnavailable, match=words) as raised:
        await plugin.source(spec={"installHint": "install it from there"}).headers()
    assert "cret" not in str(raised.value)
    assert "config: users[u].user.exec" in str(raised.value)


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ({"command": None}, "command is required"),
        ({"apiVersion": "v1"}, "apiVersion must be"),
        ({"args": "a"}, "args must be a list of strings"),
        ({"env": ["A=b"]}, "env must be a list of name and value"),
        ({"interactiveMode": "Always"}, "has no terminal"),
        ({"interactiveMode": "Sometimes"}, "must be Never, IfAvailable or Always"),
        ({"env": [{"name": "A", "value": 1}]}, "env must be a list of name and value"),
    ],
)
def test_an_exec_section_that_cannot_work_is_refused(plugin: Plugin, spec: dict[str, Any], words: str) -> None:
    with pytest.raises(KubeConfigError, match=words):
        plugin.source(spec=spec)


async def test_the_end_of_all_tasks_ends_the_plugin(plugin: Plugin) -> None:
    plugin.does(
        "import os, pathlib, time\n"
        f"pathlib.Path({str(plugin.folder / 'pid')!r}).write_text(str(os.getpid()))\n"
        "time.sleep(600)"
    )
    source = plugin.source()
    task = asyncio.create_task(source.headers())
    pid = plugin.folder / "pid"
    await eventually(lambda: pid.exists() and bool(pid.read_text()))
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert alive(pid), "others may wait for it"
    assert source._renewal._task is not None
    source._renewal._task.cancel()
    await asyncio.gather(source._renewal._task, return_exceptions=True)
    assert not alive(pid)

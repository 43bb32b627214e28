"""The examples of README.md work as they are written."""

from __future__ import annotations

import asyncio
import json
import os
import re
import sys
from pathlib import Path

import pytest

from kube_client.testing.scripted import Action, Answer, Request, Stream, serving

README = Path(__file__).resolve().parents[2] / "README.md"
CONTROLLER, TEST = re.findall(r"^```python\n(.*?)^```$", README.read_text(), re.DOTALL | re.MULTILINE)
PATH = "/api/v1/namespaces/default/configmaps"


async def run(script: str, **environment: str) -> str:
    """Run a script in a process of its own and return its output."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", script, env={**os.environ, **environment}, stdout=asyncio.subprocess.PIPE
    )
    output, _ = await process.communicate()
    assert process.returncode == 0
    return output.decode()


@pytest.mark.real_time
async def test_the_controller_creates_an_object_and_its_view_shows_it(tmp_path: Path) -> None:
    made = asyncio.get_running_loop().create_future()

    async def events() -> Action:
        event = {"type": "ADDED", "object": await made}
        return Stream([json.dumps(event).encode() + b"\n"])

    def answer(request: Request) -> Action | asyncio.Task[Action]:
        assert request.path == PATH
        if request.method == "POST":
            metadata = {"name": "settings", "namespace": "default", "uid": "u", "resourceVersion": "8"}
            made.set_result({**request.json, "metadata": metadata})
            return Answer(201, made.result())
        if "watch" in request.query:
            return asyncio.ensure_future(events())
        return Answer(
            200, {"kind": "ConfigMapList", "apiVersion": "v1", "metadata": {"resourceVersion": "7"}, "items": []}
        )

    async with serving(answer) as server:
        config = tmp_path / "config"
        config.write_text(
            json.dumps(
                {
                    "current-context": "c",
                    "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
                    "clusters": [{"name": "c", "cluster": {"server": server.url}}],
                    "users": [{"name": "u", "user": {}}],
                }
            )
        )
        output = await asyncio.wait_for(run(CONTROLLER, KUBECONFIG=str(config)), 60)
    assert output.splitlines()[-1].endswith("settings {'color': 'blue'}")
    assert {request.headers["user-agent"] for request in server.requests} == {"example/1.0"}


@pytest.mark.real_time
async def test_the_test_passes() -> None:
    await run(TEST)

"""`agent-scheduler explain` as a user runs it, against a scheduler that runs."""

from __future__ import annotations

import asyncio
import json
import subprocess
from typing import Any

from .plane import ControlPlane
from .processes import PATIENCE, PROGRAM, Scheduler


async def explain(scheduler: Scheduler, pod: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    line = [*PROGRAM, "explain", pod, "--server", f"http://127.0.0.1:{scheduler.port}", *arguments]
    return await asyncio.to_thread(
        subprocess.run, line, capture_output=True, text=True, timeout=PATIENCE, check=False
    )


async def page(scheduler: Scheduler, pod: str) -> Any:
    done = await explain(scheduler, pod, "-o", "json")
    assert (done.returncode, done.stderr) == (0, ""), done
    return json.loads(done.stdout)


async def test_a_pod_that_waits_is_explained_and_then_where_it_went(
    plane: ControlPlane, scheduler: Scheduler
) -> None:
    await plane.add_node("n", cpu="4")
    await plane.add_pod("large", cpu="6")
    await plane.refused("large")
    pod = f"{plane.namespace}/{plane.full('large')}"
    done = await explain(scheduler, pod)
    assert (done.returncode, done.stderr) == (0, ""), done
    assert f"  NodeResourcesFit  {plane.full('n')}  cpu: 2 more (wants 6, 4 of 4 is free)\n" in done.stdout
    assert "\x1b" not in done.stdout
    told = await page(scheduler, pod)
    assert told["leading"] is True
    assert told["place"] == "unschedulable"
    assert "NodeAdd" in told["wakes"]["NodeResourcesFit"]
    assert told["attempts"][0]["result"] == "unschedulable"
    await plane.add_node("room", cpu="8")
    await plane.bound("large")
    told = await page(scheduler, pod)
    assert (told["place"], told["node"]) == ("bound", plane.full("room"))
    results = [attempt["result"] for attempt in told["attempts"]]
    assert (results[0], results[-1]) == ("scheduled", "unschedulable")
